//! The oracle: random operations, what they do to a pool, and what they should do.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use fastness_pool::{
    DatasetId, DatasetKind, ObjectId, Pool, PoolError, Property, Result, StoreRequest, TableId, Tx, Txg,
};

use super::Rng;

const SIZE_MAX: u64 = 300_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelDataset {
    /// Names change; this does not.
    pub id: DatasetId,
    pub properties: BTreeMap<Property, u64>,
    pub objects: BTreeMap<u64, Vec<u8>>,
    /// Table and key → value.
    pub rows: BTreeMap<(u8, Vec<u8>), Vec<u8>>,
    /// No object of a lower number comes into being.
    pub next: u64,
}

impl ModelDataset {
    pub fn new(id: DatasetId) -> ModelDataset {
        let (objects, rows) = (BTreeMap::new(), BTreeMap::new());
        ModelDataset { id, properties: BTreeMap::new(), objects, rows, next: 1 }
    }
}

/// What a pool should contain, by full name.
pub type Model = BTreeMap<String, ModelDataset>;

/// Models of the txgs that may be the last synced one.
pub type History = BTreeMap<Txg, Model>;

pub fn new_model() -> Model {
    [("tank".to_owned(), ModelDataset::new(DatasetId(1)))].into()
}

/// One operation. Datasets are named by number, because a name means something else in another txg.
#[derive(Debug, Clone)]
pub enum Op {
    Create {
        name: String,
        kind: DatasetKind,
        property: Property,
        size: u64,
    },
    Destroy {
        id: DatasetId,
    },
    Rename {
        id: DatasetId,
        to: String,
    },
    Set {
        id: DatasetId,
        property: Property,
        value: Option<u64>,
    },
    CreateObject {
        id: DatasetId,
    },
    DestroyObject {
        id: DatasetId,
        object: u64,
    },
    Write {
        id: DatasetId,
        object: u64,
        offset: u64,
        data: Vec<u8>,
    },
    /// Of `data`, which is in another object, or at another place.
    Copy {
        from: (DatasetId, u64, u64),
        id: DatasetId,
        object: u64,
        offset: u64,
        data: Vec<u8>,
    },
    Truncate {
        id: DatasetId,
        object: u64,
        size: u64,
    },
    Punch {
        id: DatasetId,
        object: u64,
        offset: u64,
        len: u64,
    },
    Compare {
        id: DatasetId,
        object: u64,
    },
    Put {
        id: DatasetId,
        table: u8,
        key: Vec<u8>,
        value: Vec<u8>,
    },
    Remove {
        id: DatasetId,
        table: u8,
        key: Vec<u8>,
    },
    CompareRows {
        id: DatasetId,
    },
    Nothing,
}

/// What came into being.
#[derive(Debug, Clone, Copy)]
pub enum Made {
    Dataset(DatasetId),
    Object(u64),
    None,
}

/// Draws an operation that can succeed on `model`.
pub fn draw(model: &Model, rng: &mut Rng) -> Op {
    let names: Vec<&String> = model.keys().collect();
    let name = names[rng.below(names.len() as u64) as usize];
    let entry = &model[name];
    let (id, ids) = (entry.id, entry.objects.keys().copied().collect::<Vec<u64>>());
    let has_children = names.iter().any(|other| other.starts_with(&format!("{name}/")));
    let is_leaf = name.contains('/') && !has_children;
    match rng.below(135) {
        0..7 if names.len() < 12 => {
            let name = format!("{name}/d{}", rng.below(1000));
            let size = [512, 4096, 16384, 131_072][rng.below(4) as usize];
            if model.contains_key(&name) {
                return Op::Nothing;
            }
            match rng.below(3) {
                0 => Op::Create { name, kind: DatasetKind::Volume, property: Property::VolBlockSize, size },
                _ => Op::Create { name, kind: DatasetKind::Filesystem, property: Property::RecordSize, size },
            }
        }
        7..11 if is_leaf => Op::Destroy { id },
        11..14 if is_leaf => {
            // The names of others, now and then: one that was just destroyed, too.
            let parent = name.rsplit_once('/').expect("not the root").0;
            let to = format!("{parent}/d{}", rng.below(1000));
            if model.contains_key(&to) { Op::Nothing } else { Op::Rename { id, to } }
        }
        14..18 => {
            let property = [Property::Compression, Property::Sync, Property::LogBias][rng.below(3) as usize];
            let values = if property == Property::LogBias { 2 } else { 3 };
            let value = (rng.below(4) > 0).then(|| rng.below(values));
            Op::Set { id, property, value }
        }
        18..27 if ids.len() < 8 => Op::CreateObject { id },
        125.. => draw_copy(model, entry, rng),
        roll @ 100.. => draw_row(roll, entry, rng),
        roll if !ids.is_empty() => draw_change(roll, id, ids[rng.below(ids.len() as u64) as usize], rng),
        _ => Op::Nothing,
    }
}

/// Of some blocks, to an object of the same dataset or of any; half of them within blocks alike.
fn draw_copy(model: &Model, to: &ModelDataset, rng: &mut Rng) -> Op {
    let any = model.values().nth(rng.below(model.len() as u64) as usize).expect("below their number");
    let from = if rng.below(4) == 0 { any } else { to };
    let pick = |entry: &ModelDataset, rng: &mut Rng| {
        let count = entry.objects.len() as u64;
        let at = if count == 0 { return None } else { rng.below(count) };
        entry.objects.keys().nth(at as usize).copied()
    };
    let (Some(source), Some(object)) = (pick(from, rng), pick(to, rng)) else { return Op::Nothing };
    let unit = [1, 512, 4096, 4096, 16384, 131_072][rng.below(6) as usize];
    let bytes = &from.objects[&source];
    let start = rng.below(bytes.len() as u64 / unit + 1) * unit;
    let rest = &bytes[(start as usize).min(bytes.len())..];
    let data = rest[..rest.len().min((rng.below(200_000) + 1) as usize)].to_vec();
    let offset = rng.below(SIZE_MAX / unit + 1) * unit;
    Op::Copy { from: (from.id, source, start), id: to.id, object, offset, data }
}

/// Few keys, so that rows are replaced and removed; some of them long, and now and then a value in fragments.
fn draw_row(roll: u64, entry: &ModelDataset, rng: &mut Rng) -> Op {
    let (id, table, number) = (entry.id, rng.below(2) as u8 * 255, rng.below(60) as u8);
    let key = if number < 55 { vec![number] } else { vec![number; usize::from(number - 54) * 200] };
    match roll {
        100..116 => {
            let len = [rng.below(200), rng.below(200), 1024, rng.below(6000), rng.below(65_537)];
            let kind = rng.below(20).saturating_sub(15) as usize;
            let value = rng.bytes(len[kind] as usize);
            let mut value = value;
            if !TableId(table).is_long() {
                value.truncate((1279 - key.len()).min(1023));
            }
            Op::Put { id, table, key, value }
        }
        116..122 => Op::Remove { id, table, key },
        _ => Op::CompareRows { id },
    }
}

fn draw_change(roll: u64, id: DatasetId, object: u64, rng: &mut Rng) -> Op {
    let offset = rng.below(SIZE_MAX);
    match roll {
        0..30 => Op::DestroyObject { id, object },
        30..75 => {
            let len = if rng.below(2) == 0 { rng.below(2000) + 1 } else { rng.below(60_000) + 1 };
            let offset = if rng.below(2) == 0 { offset / 4096 * 4096 } else { offset };
            Op::Write { id, object, offset, data: rng.bytes(len as usize) }
        }
        75..85 => Op::Truncate { id, object, size: offset },
        85..95 => Op::Punch { id, object, offset, len: rng.below(200_000) },
        _ => Op::Compare { id, object },
    }
}

impl Op {
    /// Does it to the pool, of which `model` is what can be seen now.
    pub fn run(&self, pool: &Pool, tx: &Tx, model: &Model) -> Result<Made> {
        let name = |id: &DatasetId| model.iter().find(|(_, entry)| entry.id == *id).expect("drawn from it").0;
        let dataset = |id| pool.dataset(name(id));
        let open = |id, object: &u64| dataset(id)?.object(ObjectId(*object));
        match self {
            Op::Create { name, kind, property, size } => {
                let made = pool.create_dataset(tx, name, *kind, &[(*property, *size)])?;
                return Ok(Made::Dataset(made.id()));
            }
            Op::Destroy { id } => pool.destroy_dataset(tx, name(id))?,
            Op::Rename { id, to } => pool.rename_dataset(tx, name(id), to)?,
            Op::Set { id, property, value } => dataset(id)?.set(tx, *property, *value)?,
            Op::CreateObject { id } => return Ok(Made::Object(dataset(id)?.create_object(tx)?.id().0)),
            Op::DestroyObject { id, object } => dataset(id)?.destroy_object(tx, ObjectId(*object))?,
            Op::Write { id, object, offset, data } => open(id, object)?.write(tx, *offset, data)?,
            Op::Copy { from, id, object, offset, data } => {
                let mut buf = vec![0xa5; data.len()];
                let (len, origin) = open(&from.0, &from.1)?.read_to_copy(from.2, &mut buf)?;
                assert_eq!((len, &buf), (data.len(), data), "what is copied");
                open(id, object)?.write_copy(tx, *offset, &buf, &origin)?;
            }
            Op::Truncate { id, object, size } => open(id, object)?.truncate(tx, *size)?,
            Op::Punch { id, object, offset, len } => open(id, object)?.punch(tx, *offset, *len)?,
            Op::Compare { id, object } => {
                let name = name(id);
                compare_object(pool, name, *object, &model[name].objects[object])?;
            }
            Op::Put { id, table, key, value } => {
                dataset(id)?.table(TableId(*table)).put(tx, key, value)?;
            }
            Op::Remove { id, table, key } => dataset(id)?.table(TableId(*table)).remove(tx, key)?,
            Op::CompareRows { id } => compare_rows(pool, name(id), &model[name(id)])?,
            Op::Nothing => {}
        }
        Ok(Made::None)
    }

    /// Does it to a model; `made` is what it made in the pool. What the model does not have is left alone: a
    /// newer txg has it.
    pub fn apply(&self, model: &mut Model, made: Made) {
        let find = |model: &Model, id: &DatasetId| {
            model.iter().find(|(_, entry)| entry.id == *id).map(|(name, _)| name.clone())
        };
        match self {
            Op::Create { name, property, size, .. } => {
                let Made::Dataset(id) = made else { panic!("a dataset was made") };
                let mut entry = ModelDataset::new(id);
                entry.properties.insert(*property, *size);
                assert!(model.insert(name.clone(), entry).is_none());
            }
            Op::Destroy { id } => {
                model.remove(&find(model, id).expect("changes of datasets come in order"));
            }
            Op::Rename { id, to } => {
                let from = find(model, id).expect("changes of datasets come in order");
                let entry = model.remove(&from).expect("found");
                assert!(model.insert(to.clone(), entry).is_none());
            }
            Op::Compare { .. } | Op::CompareRows { .. } | Op::Nothing => {}
            Op::Set { id, .. }
            | Op::CreateObject { id }
            | Op::DestroyObject { id, .. }
            | Op::Write { id, .. }
            | Op::Copy { id, .. }
            | Op::Truncate { id, .. }
            | Op::Punch { id, .. }
            | Op::Put { id, .. }
            | Op::Remove { id, .. } => {
                if let Some(name) = find(model, id) {
                    self.apply_to(model.get_mut(&name).expect("found"), made);
                }
            }
        }
    }

    fn apply_to(&self, entry: &mut ModelDataset, made: Made) {
        match self {
            Op::Set { property, value: Some(value), .. } => drop(entry.properties.insert(*property, *value)),
            Op::Set { property, value: None, .. } => drop(entry.properties.remove(property)),
            Op::CreateObject { .. } => {
                let Made::Object(id) = made else { panic!("an object was made") };
                assert!(id >= entry.next, "no number is used twice");
                entry.next = id + 1;
                entry.objects.insert(id, Vec::new());
            }
            Op::DestroyObject { object, .. } => drop(entry.objects.remove(object)),
            Op::Write { object, offset, data, .. } | Op::Copy { object, offset, data, .. } => {
                if data.is_empty() {
                    return;
                }
                let bytes = entry.objects.get_mut(object).expect("it was born by then");
                let end = *offset as usize + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset as usize..end].copy_from_slice(data);
            }
            Op::Truncate { object, size, .. } => {
                entry.objects.get_mut(object).expect("it was born by then").resize(*size as usize, 0);
            }
            Op::Punch { object, offset, len, .. } => {
                let bytes = entry.objects.get_mut(object).expect("it was born by then");
                let end = (offset + len).min(bytes.len() as u64);
                if *offset < end {
                    bytes[*offset as usize..end as usize].fill(0);
                }
            }
            Op::Put { table, key, value, .. } => {
                entry.rows.insert((*table, key.clone()), value.clone());
            }
            Op::Remove { table, key, .. } => drop(entry.rows.remove(&(*table, key.clone()))),
            _ => unreachable!("changes of one dataset"),
        }
    }
}

/// Does one random operation on pool and model.
pub fn step(pool: &Pool, tx: &Tx, model: &mut Model, rng: &mut Rng) {
    step_in(pool, tx, model, None, rng).unwrap();
}

/// Does one random operation in a transaction that may be of an older txg than the newest: to what can be
/// seen, and to the model of that txg. False: there was no room, and nothing was changed.
pub fn step_in(
    pool: &Pool,
    tx: &Tx,
    seen: &mut Model,
    older: Option<&mut Model>,
    rng: &mut Rng,
) -> Result<bool> {
    let op = draw(seen, rng);
    let made = match op.run(pool, tx, seen) {
        Err(PoolError::NoSpace { .. }) => return Ok(false),
        other => other?,
    };
    op.apply(seen, made);
    if let Some(older) = older {
        op.apply(older, made);
    }
    Ok(true)
}

/// Clears so many small parts of blocks, as far as there is room.
pub fn punch_odd(pool: &Pool, tx: &Tx, model: &mut Model, count: u64, rng: &mut Rng) -> Result<()> {
    let objects =
        model.values().flat_map(|entry| entry.objects.iter().map(|(id, bytes)| (entry.id, *id, bytes.len())));
    let Some((id, object, size)) = objects.max_by_key(|(_, _, len)| *len) else { return Ok(()) };
    for _ in 0..count {
        let offset = rng.below(size as u64 + 1) | 1;
        let op = Op::Punch { id, object, offset, len: rng.below(300) + 1 };
        match op.run(pool, tx, model) {
            Err(PoolError::NoSpace { .. }) => {}
            other => op.apply(model, other?),
        }
    }
    Ok(())
}

/// Frees the whole blocks of an object, or all of it, which a full pool must be able to do.
pub fn free_some(pool: &Pool, tx: &Tx, model: &mut Model, rng: &mut Rng) -> Result<()> {
    let objects =
        model.values().flat_map(|entry| entry.objects.iter().map(|(id, bytes)| (entry.id, *id, bytes.len())));
    let Some((id, object, len)) = objects.max_by_key(|(_, _, len)| *len) else { return Ok(()) };
    let op = match rng.below(3) {
        0 => Op::DestroyObject { id, object },
        1 => Op::Truncate { id, object, size: 0 },
        _ => Op::Punch { id, object, offset: 0, len: len as u64 },
    };
    let made = op.run(pool, tx, model)?;
    op.apply(model, made);
    Ok(())
}

/// Stores blocks of an object ahead of their txg, which changes nothing that can be seen; returns how many
/// runs.
pub fn store_some(pool: &Pool, model: &Model, rng: &mut Rng) -> u64 {
    let all: Vec<(&String, u64)> =
        model.iter().flat_map(|(name, entry)| entry.objects.keys().map(move |id| (name, *id))).collect();
    if all.is_empty() {
        return 0;
    }
    let (name, id) = all[rng.below(all.len() as u64) as usize];
    let found = pool.dataset(name).and_then(|dataset| dataset.object(ObjectId(id)));
    let Ok(object) = found else { return 0 };
    let (offset, len_bytes) = (rng.below(SIZE_MAX / 2), rng.below(SIZE_MAX));
    // A device that fails is the next sync's affair.
    let stored = pool.store(&[StoreRequest { object: &object, offset, len_bytes }], 0);
    stored.map_or(0, |found| found[0].len() as u64)
}

/// # Errors
/// Those of reading; it panics at wrong data.
pub fn compare_object(pool: &Pool, name: &str, id: u64, bytes: &[u8]) -> Result<()> {
    let object = pool.dataset(name)?.object(ObjectId(id))?;
    assert_eq!(object.size_bytes(), bytes.len() as u64, "size of {name} object {id}");
    let mut found = vec![0xaa; bytes.len() + 10];
    let len = object.read(0, &mut found)?;
    assert_eq!(len, bytes.len());
    if let Some(at) = found[..len].iter().zip(bytes).position(|(a, b)| a != b) {
        panic!("{name} object {id} differs at byte {at}: {} instead of {}", found[at], bytes[at]);
    }
    Ok(())
}

/// # Errors
/// Those of reading; it panics at wrong rows.
pub fn compare_rows(pool: &Pool, name: &str, entry: &ModelDataset) -> Result<()> {
    let dataset = pool.dataset(name)?;
    for id in [0, 255] {
        let mut expected = entry.rows.range((id, vec![])..).take_while(|((table, _), _)| *table == id);
        let table = dataset.table(TableId(id));
        table.scan((Bound::Unbounded, Bound::Unbounded), |key, value| {
            let next = expected.next().map(|((_, key), value)| (&key[..], &value[..]));
            assert!(next == Some((key, value)), "{name} table {id}: not what is under {key:?}");
            ControlFlow::Continue(())
        })?;
        assert_eq!(expected.next(), None, "{name} table {id}: a row is missing");
        let mut value = Vec::new();
        for key in (0..60).map(|key| vec![key]) {
            let found = table.get(&key, &mut value)?.then_some(&value);
            assert_eq!(found, entry.rows.get(&(id, key)), "{name} table {id}");
        }
    }
    Ok(())
}

/// The pool holds exactly what the model says.
pub fn compare(pool: &Pool, model: &Model) {
    let found: Vec<_> = pool.datasets().into_iter().map(|info| (info.name, info.id)).collect();
    let mut expected: Vec<_> = model.iter().map(|(name, entry)| (name.clone(), entry.id)).collect();
    expected.sort_by(|a, b| a.0.split('/').cmp(b.0.split('/')));
    assert_eq!(found, expected);
    for (name, entry) in model {
        let dataset = pool.dataset(name).unwrap();
        for property in Property::ALL {
            let expected = entry.properties.get(&property);
            let (value, is_own) = dataset.get(property);
            assert_eq!(is_own.then_some(&value), expected, "{name} {property:?}");
        }
        for (id, bytes) in &entry.objects {
            compare_object(pool, name, *id, bytes).unwrap();
        }
        compare_rows(pool, name, entry).unwrap();
    }
}

/// As [`compare`], for a pool without unsynced changes; with a full check.
pub fn compare_synced(pool: &Pool, model: &Model) {
    compare(pool, model);
    for (name, entry) in model {
        let found = pool.dataset(name).unwrap().synced_objects().unwrap();
        let expected: Vec<ObjectId> = entry.objects.keys().map(|id| ObjectId(*id)).collect();
        assert_eq!(found, expected, "objects of {name}");
    }
    let report = pool.check().unwrap();
    assert!(report.is_clean(), "{report:?}");
}
