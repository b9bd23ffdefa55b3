//! Devices that lose their power together, and the oracle: what each txg should have left.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastness_blkdev::{
    BlockDevice, BlockError, DeviceInfo, FaultPlan, Faulty, MemDevice, MemImage, StatsSnapshot,
};
use fastness_pool::{
    DatasetKind, Device, Host, ImportOptions, ObjectId, Pool, PoolOptions, Property, Tx, Txg, VdevSpec,
};

/// A small generator; one seed, one sequence.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        match self.below(3) {
            0 => (0..len).map(|_| self.next() as u8).collect(),
            1 => vec![self.next() as u8; len],
            _ => {
                let word = self.next().to_le_bytes();
                (0..len).map(|at| word[at % 8] & 0x3f).collect()
            }
        }
    }
}

/// Several devices on one power supply, which fails at a chosen operation, counted over all of them.
pub struct Rig {
    pub devices: Vec<Arc<Faulty<MemDevice>>>,
    pub ops: AtomicU64,
    pub cut_at: AtomicU64,
}

impl Rig {
    pub fn new(images: Vec<MemImage>, seed: u64) -> Arc<Rig> {
        let device = |(index, image): (usize, MemImage)| {
            let device = MemDevice::from_image(&format!("disk{index}"), image, 512);
            Arc::new(Faulty::new(device, FaultPlan::new(seed + index as u64)))
        };
        Arc::new(Rig {
            devices: images.into_iter().enumerate().map(device).collect(),
            ops: AtomicU64::new(0),
            cut_at: AtomicU64::new(u64::MAX),
        })
    }

    pub fn fresh(count: usize, len_bytes: u64, seed: u64) -> Arc<Rig> {
        Rig::new(vec![MemImage::zeroed(len_bytes); count], seed)
    }

    pub fn device(self: &Arc<Rig>, index: usize) -> Device {
        Device::new(format!("disk{index}"), Arc::new(Wire { rig: self.clone(), index }))
    }

    pub fn all(self: &Arc<Rig>) -> Vec<Device> {
        (0..self.devices.len()).map(|index| self.device(index)).collect()
    }

    /// What the devices may hold after the power failed now.
    pub fn crash(&self, seed: u64) -> Vec<MemImage> {
        let image = |(index, device): (usize, &Arc<Faulty<MemDevice>>)| {
            device.crash(seed.wrapping_mul(31).wrapping_add(index as u64)).unwrap()
        };
        self.devices.iter().enumerate().map(image).collect()
    }

    /// Counts an operation; `true`: the power fails during it.
    fn tick(&self) -> bool {
        self.ops.fetch_add(1, Ordering::SeqCst) + 1 == self.cut_at.load(Ordering::SeqCst)
    }

    fn cut(&self) {
        self.devices.iter().for_each(|device| device.cut_power());
    }
}

/// One device of a rig, as the pool sees it.
struct Wire {
    rig: Arc<Rig>,
    index: usize,
}

impl Wire {
    fn change(
        &self,
        act: impl FnOnce(&Faulty<MemDevice>) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let device = &self.rig.devices[self.index];
        if !self.rig.tick() {
            return act(device);
        }
        // The operation is under way when the power fails: the crash image decides how much of it was done.
        act(device)?;
        self.rig.cut();
        device.flush()
    }
}

impl BlockDevice for Wire {
    fn info(&self) -> &DeviceInfo {
        self.rig.devices[self.index].info()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        self.rig.devices[self.index].read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.change(|device| device.write_at(offset, data))
    }
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.change(|device| device.write_fua(offset, data))
    }
    fn flush(&self) -> Result<(), BlockError> {
        // A flush that the power cut short has flushed nothing for certain.
        if self.rig.tick() {
            self.rig.cut();
        }
        self.rig.devices[self.index].flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.change(|device| device.discard(offset, len_bytes))
    }
    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.change(|device| device.write_zeroes(offset, len_bytes))
    }
    fn stats(&self) -> StatsSnapshot {
        self.rig.devices[self.index].stats()
    }
    fn is_poisoned(&self) -> bool {
        self.rig.devices[self.index].is_poisoned()
    }
    fn crash_point(&self, name: &'static str) {
        self.rig.devices[self.index].crash_point(name);
    }
}

pub fn manual() -> PoolOptions {
    PoolOptions {
        has_txg_thread: false,
        cache_bytes: 1 << 20,
        meta_cache_bytes: 1 << 20,
        ..PoolOptions::default()
    }
}

pub fn host() -> ImportOptions {
    ImportOptions { host: Host::current(), ..ImportOptions::default() }
}

/// How the devices of a rig become a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Single,
    Stripe,
    Mirror,
}

impl Shape {
    pub fn count(self) -> usize {
        if self == Shape::Single { 1 } else { 2 }
    }

    pub fn specs(self, devices: Vec<Device>) -> Vec<VdevSpec> {
        match self {
            Shape::Mirror => vec![VdevSpec::mirror(devices)],
            _ => devices.into_iter().map(VdevSpec::single).collect(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelDataset {
    pub properties: BTreeMap<Property, u64>,
    pub objects: BTreeMap<u64, Vec<u8>>,
    pub next: u64,
}

/// What a pool should contain.
pub type Model = BTreeMap<String, ModelDataset>;

/// Does one random operation on pool and model.
pub fn step(pool: &Pool, tx: &Tx, model: &mut Model, rng: &mut Rng) {
    const SIZE_MAX: u64 = 300_000;
    let names: Vec<String> = model.keys().cloned().collect();
    let name = &names[rng.below(names.len() as u64) as usize];
    let has_children = names.iter().any(|other| other.starts_with(&format!("{name}/")));
    let dataset = pool.dataset(name).unwrap();
    let entry = model.get_mut(name).unwrap();
    let ids: Vec<u64> = entry.objects.keys().copied().collect();
    let roll = rng.below(100);
    if roll < 6 && names.len() < 12 {
        let child = format!("{name}/d{}", rng.below(1000));
        let sizes = [512, 4096, 16384, 131_072];
        let size = sizes[rng.below(4) as usize];
        let kind = if rng.below(3) == 0 { DatasetKind::Volume } else { DatasetKind::Filesystem };
        let property =
            if kind == DatasetKind::Volume { Property::VolBlockSize } else { Property::RecordSize };
        let made = pool.create_dataset(tx, &child, kind, &[(property, size)]);
        if let std::collections::btree_map::Entry::Vacant(entry) = model.entry(child) {
            made.unwrap();
            let properties = [(property, size)].into();
            entry.insert(ModelDataset { properties, next: 1, ..ModelDataset::default() });
        } else {
            assert!(made.is_err());
        }
    } else if roll < 8 && name.contains('/') && !has_children {
        drop(dataset);
        pool.destroy_dataset(tx, name).unwrap();
        model.remove(name);
    } else if roll < 10 && name.contains('/') && !has_children {
        let to = format!("{}-r{}", name, rng.below(100));
        if to.len() < 60 && !model.contains_key(&to) {
            pool.rename_dataset(tx, name, &to).unwrap();
            let entry = model.remove(name).unwrap();
            model.insert(to, entry);
        }
    } else if roll < 14 {
        let (property, value) = match rng.below(3) {
            0 => (Property::Compression, rng.below(3)),
            1 => (Property::Sync, rng.below(3)),
            _ => (Property::LogBias, rng.below(2)),
        };
        dataset.set(tx, property, Some(value)).unwrap();
        entry.properties.insert(property, value);
    } else if roll < 24 || ids.is_empty() {
        if ids.len() < 8 {
            let object = dataset.create_object(tx).unwrap();
            assert_eq!(object.id(), ObjectId(entry.next));
            entry.objects.insert(entry.next, Vec::new());
            entry.next += 1;
        }
    } else {
        let id = ids[rng.below(ids.len() as u64) as usize];
        if roll < 28 {
            dataset.destroy_object(tx, ObjectId(id)).unwrap();
            entry.objects.remove(&id);
            return;
        }
        let object = dataset.object(ObjectId(id)).unwrap();
        let bytes = entry.objects.get_mut(&id).unwrap();
        let offset = rng.below(SIZE_MAX);
        if roll < 75 {
            let len = if rng.below(2) == 0 { rng.below(2000) + 1 } else { rng.below(60_000) + 1 };
            let offset = if rng.below(2) == 0 { offset / 4096 * 4096 } else { offset };
            let data = rng.bytes(len as usize);
            object.write(tx, offset, &data).unwrap();
            let end = offset as usize + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[offset as usize..end].copy_from_slice(&data);
        } else if roll < 85 {
            object.truncate(tx, offset).unwrap();
            bytes.resize(offset as usize, 0);
        } else if roll < 95 {
            let len = rng.below(200_000);
            object.punch(tx, offset, len).unwrap();
            let end = (offset + len).min(bytes.len() as u64);
            if offset < end {
                bytes[offset as usize..end as usize].fill(0);
            }
        } else {
            compare_object(pool, name, id, bytes);
        }
    }
}

pub fn compare_object(pool: &Pool, name: &str, id: u64, bytes: &[u8]) {
    let object = pool.dataset(name).unwrap().object(ObjectId(id)).unwrap();
    assert_eq!(object.size_bytes(), bytes.len() as u64, "size of {name} object {id}");
    let mut found = vec![0xaa; bytes.len() + 10];
    let len = object.read(0, &mut found).unwrap();
    assert_eq!(len, bytes.len());
    if let Some(at) = found[..len].iter().zip(bytes).position(|(a, b)| a != b) {
        panic!("{name} object {id} differs at byte {at}: {} instead of {}", found[at], bytes[at]);
    }
}

/// The pool holds exactly what the model says.
pub fn compare(pool: &Pool, model: &Model) {
    let names: Vec<String> = pool.datasets().into_iter().map(|info| info.name).collect();
    let mut expected: Vec<String> = model.keys().cloned().collect();
    expected.sort_by(|a, b| a.split('/').cmp(b.split('/')));
    assert_eq!(names, expected);
    for (name, entry) in model {
        let dataset = pool.dataset(name).unwrap();
        for (property, value) in &entry.properties {
            assert_eq!(dataset.get(*property), (*value, true), "{name} {property:?}");
        }
        for (id, bytes) in &entry.objects {
            compare_object(pool, name, *id, bytes);
        }
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

pub fn new_model() -> Model {
    [("tank".to_owned(), ModelDataset { next: 1, ..ModelDataset::default() })].into()
}

/// Models of the txgs that may be the last synced one.
pub type History = BTreeMap<Txg, Model>;
