//! A front end from outside on what it may meet: names and texts in rows of a table, and no object that
//! stays open; datasets that are destroyed under it, pools that are exported, ranges and kinds that cannot
//! be, crashes under each value of `sync`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastness_blkdev::{FaultPlan, Faulty, MemDevice, MemImage};
use fastness_store::record::{Head, Record, SetXattr, Write, WriteData};
use fastness_store::{
    Attached, ChangeError, Compression, Dataset, DatasetKind, Demand, Device, ErrorKind, FrontEnd, Given,
    Handler, HasKind, Itx, Kinds, ObjectId, OpenDataset, Outcome, Pool, PoolError, PoolOptions, Property,
    ROW_KEY_BYTES_MAX, ROW_SHORT_VALUE_BYTES_MAX, ROW_VALUE_BYTES_MAX, ReplayError, Replaying, RowChange,
    Store, StoreError, StoreOptions, SyncMode, TableId, Tx, VdevSpec,
};

const KIND: DatasetKind = DatasetKind::Other(200);
const TEXTS: TableId = TableId(1);
const BYTES: ObjectId = ObjectId(1);

struct Replay;

impl Handler for Replay {
    fn apply(&self, on: &Replaying<'_>, tx: &Tx, _: &Head, record: &Record<'_>) -> Result<(), ReplayError> {
        match record {
            Record::SetXattr(SetXattr { name, value }) => Ok(on.dataset.table(TEXTS).put(tx, name, value)?),
            Record::Write(Write { offset, data: WriteData::Inline(data) }) => {
                Ok(on.dataset.object(BYTES)?.write(tx, *offset, data)?)
            }
            _ => Err("notes have no such records".into()),
        }
    }
}

/// Why an operation on notes failed.
#[derive(Debug)]
enum NotesError {
    Store(StoreError),
    Change(ChangeError),
}

impl std::fmt::Display for NotesError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for NotesError {}

impl HasKind for NotesError {
    fn kind(&self) -> ErrorKind {
        match self {
            NotesError::Store(error) => error.kind(),
            NotesError::Change(error) => error.kind(),
        }
    }
}

impl From<ChangeError> for NotesError {
    fn from(error: ChangeError) -> NotesError {
        NotesError::Change(error)
    }
}

impl From<StoreError> for NotesError {
    fn from(error: StoreError) -> NotesError {
        NotesError::Store(error)
    }
}

/// Rows alone.
#[derive(Debug)]
struct Notes(OpenDataset);

impl FrontEnd for Notes {
    type Error = NotesError;
    type Kept = ();

    fn open(dataset: OpenDataset) -> Result<Notes, NotesError> {
        Ok(Notes(dataset))
    }
}

impl Notes {
    /// Notes a text, and nothing makes it durable.
    fn put(&self, name: &[u8], text: &[u8]) -> Result<(), ChangeError> {
        let row = RowChange { table: TEXTS, key: name, value: Some(text) };
        let itx = Itx::sync(BYTES, &Record::SetXattr(SetXattr { name, value: text }), &[]);
        let change = |tx: &Tx| self.0.dataset().change_rows(tx, &[row], false);
        self.0.transact(change, |records, ()| records.assign(itx))
    }

    fn get(&self, name: &[u8]) -> Result<Option<Vec<u8>>, PoolError> {
        let mut text = Vec::new();
        let is_there = self.0.dataset().table(TEXTS).get(name, &mut text)?;
        Ok(is_there.then_some(text))
    }
}

/// No txg ends by itself: what survives is in the log.
fn options(kinds: Kinds) -> StoreOptions {
    let pool = PoolOptions { txg_timeout: Duration::from_secs(3600), ..PoolOptions::default() };
    StoreOptions { pool, kinds, ..StoreOptions::default() }
}

fn kinds() -> Kinds {
    Kinds::default().with(KIND, Replay)
}

fn store_with(kinds: Kinds) -> (Arc<Store>, Device) {
    let memory = MemDevice::from_image("disk", MemImage::zeroed(64 << 20), 512);
    let device = Device::new("disk", Arc::new(memory));
    (store_on(&device, kinds), device)
}

fn store_on(device: &Device, kinds: Kinds) -> Arc<Store> {
    let vdevs = [VdevSpec::single(device.clone())];
    let pool = Pool::create("tank", &vdevs, options(Kinds::default()).pool).unwrap();
    Store::create(pool, options(kinds)).unwrap()
}

fn store() -> (Arc<Store>, Device) {
    store_with(kinds())
}

fn add(store: &Store, name: &str, properties: &[(Property, u64)]) -> Notes {
    let fill = |tx: &Tx, dataset: &Dataset| dataset.create_object(tx).map(drop);
    Notes(store.create_dataset(name, KIND, properties, fill).unwrap().0)
}

fn import(device: &Device) -> Arc<Store> {
    let mut source = Given { devices: vec![device.clone()], ..Given::default() };
    Store::import(&mut source, options(kinds())).unwrap().0
}

fn busy<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Err(StoreError::Pool(PoolError::Busy { name, .. })) => name,
        other => panic!("{other:?}"),
    }
}

fn destroy(store: &Store, names: &[&str]) -> Result<(), StoreError> {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    store.destroy_datasets(names).map(|left| assert!(left.is_empty(), "{left:?}"))
}

#[test]
fn a_dataset_is_not_destroyed_while_a_front_end_has_it_open() {
    let (store, _device) = store();
    drop(add(&store, "tank/notes", &[]));
    let attached: Arc<Attached<Notes>> = store.attach("tank/notes").unwrap();
    assert_eq!(busy(destroy(&store, &["tank/notes"])), "tank/notes");
    let tx = store.pool().begin_tx().unwrap();
    let refused = store.pool().destroy_dataset(&tx, "tank/notes").unwrap_err();
    assert!(refused.to_string().ends_with("is busy: it is open"), "{refused}");
    // What is open may get another name.
    store.pool().rename_dataset(&tx, "tank/notes", "tank/texts").unwrap();
    drop(tx);
    let put = attached.run(|notes| Ok(notes.put(b"a", b"text")?));
    assert!(matches!(put, Outcome::Done(Ok(()))), "{put:?}");
    let opened = store.dataset("tank/texts").unwrap();
    drop(attached);
    assert_eq!(busy(destroy(&store, &["tank/texts"])), "tank/texts");
    drop(opened);
    // Handles of what has not opened it do not matter.
    let looked_at = store.pool().dataset("tank/texts").unwrap();
    destroy(&store, &["tank/texts"]).unwrap();
    assert!(looked_at.object(BYTES).is_err());
    store.pool().sync().unwrap();
    assert!(store.pool().check().unwrap().is_clean());
}

#[test]
fn of_datasets_to_be_destroyed_none_is_if_one_is_open() {
    let (store, _device) = store();
    for name in ["tank/a", "tank/a/b", "tank/a/c"] {
        drop(add(&store, name, &[]));
    }
    let open = store.dataset("tank/a/b").unwrap();
    assert_eq!(busy(destroy(&store, &["tank/a", "tank/a/b", "tank/a/c"])), "tank/a/b");
    assert_eq!(store.pool().datasets().len(), 4);
    drop(open);
    destroy(&store, &["tank/a", "tank/a/b", "tank/a/c"]).unwrap();
    assert_eq!(store.pool().datasets().len(), 1);
}

#[test]
fn nothing_is_opened_or_read_once_the_pool_is_exported() {
    let (store, _device) = store();
    let notes = add(&store, "tank/notes", &[]);
    notes.put(b"a", b"text").unwrap();
    let attached: Arc<Attached<Notes>> = store.attach("tank/notes").unwrap();
    assert_eq!(notes.get(b"a").unwrap().unwrap(), b"text");
    store.pool().export().unwrap();
    let closed = |error: &PoolError| assert!(matches!(error, PoolError::Closed), "{error:?}");
    match store.attach::<Notes>("tank/notes").unwrap_err() {
        NotesError::Store(StoreError::Pool(error)) => closed(&error),
        error => panic!("{error:?}"),
    }
    match store.dataset("tank/notes").unwrap_err() {
        StoreError::Pool(error) => closed(&error),
        error => panic!("{error:?}"),
    }
    closed(&notes.get(b"a").unwrap_err());
    assert!(matches!(notes.put(b"b", b"text").unwrap_err(), ChangeError::Pool(PoolError::Closed)));
    // It was opened before, and does not wait: the pool is not suspended.
    let Outcome::Done(read) = attached.run(|notes| {
        closed(&notes.get(b"a").unwrap_err());
        Ok(())
    }) else {
        panic!("it waits")
    };
    read.unwrap();
}

#[test]
fn a_clear_waits_for_the_requests_that_use_a_front_end() {
    let disk = Arc::new(Faulty::new(MemDevice::new("disk", 64 << 20), FaultPlan::new(0)));
    let device = Device::new("disk", disk.clone());
    let store = store_on(&device, kinds());
    drop(add(&store, "tank/notes", &[]));
    let attached: Arc<Attached<Notes>> = store.attach("tank/notes").unwrap();
    let request = attached.get().unwrap();
    request.put(b"name", b"text").unwrap();
    disk.vanish();
    store.pool().sync().unwrap_err();
    disk.come_back();
    let is_cleared = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let request = request;
        scope.spawn(|| {
            let mut source = Given { devices: vec![device.clone()], ..Given::default() };
            store.clear(&mut source, false, &mut Vec::new()).unwrap();
            is_cleared.store(true, Ordering::SeqCst);
        });
        while attached.get().is_some() {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(200));
        assert!(!is_cleared.load(Ordering::SeqCst), "the request still uses the front end");
        assert_eq!(request.get(b"name").unwrap().unwrap(), b"text");
    });
    assert!(is_cleared.load(Ordering::SeqCst));
    assert_eq!(attached.get().unwrap().get(b"name").unwrap().unwrap(), b"text");
}

#[test]
fn a_range_that_ends_before_it_begins_is_refused() {
    let (store, device) = store();
    let Notes(open) = add(&store, "tank/notes", &[]);
    let is_changed = AtomicBool::new(false);
    let change = |tx: &Tx| {
        is_changed.store(true, Ordering::SeqCst);
        open.dataset().object(BYTES)?.write(tx, 0, &[7; 8])
    };
    #[expect(clippy::reversed_empty_ranges, reason = "what must not be")]
    for range in [8..0, u64::MAX..u64::MAX - 1, u64::MAX..0] {
        let refused = open.change(Demand::Now, range, change, |log| log.write(BYTES, 0, &[7; 8], true));
        let error = refused.unwrap_err();
        assert!(matches!(error, ChangeError::Pool(PoolError::Invalid { what: "range", .. })), "{error:?}");
    }
    assert!(!is_changed.load(Ordering::SeqCst));
    // An empty one is a range: a change that nothing else overlaps.
    for range in [0..0, u64::MAX..u64::MAX] {
        open.change(Demand::Now, range, change, |log| log.write(BYTES, 0, &[7; 8], true))
            .and_then(|receipt| receipt.wait())
            .unwrap();
    }
    drop((open, store));
    let mut bytes = [0; 8];
    import(&device)
        .dataset("tank/notes")
        .unwrap()
        .dataset()
        .object(BYTES)
        .unwrap()
        .read(0, &mut bytes)
        .unwrap();
    assert_eq!(bytes, [7; 8]);
}

#[test]
fn a_number_of_a_known_kind_is_no_kind_of_another_owner() {
    for number in 0..3 {
        let (store, _device) = store_with(Kinds::default().with(DatasetKind::Other(number), Replay));
        let kind = DatasetKind::Other(number);
        let refused = store.create_dataset("tank/notes", kind, &[], |_, _| Ok(())).unwrap_err();
        assert!(matches!(refused, StoreError::Pool(PoolError::Invalid { .. })), "{refused:?}");
        assert_eq!(store.pool().datasets().len(), 1);
    }
    let (store, device) = store_with(Kinds::default().with(DatasetKind::Other(3), Replay));
    store.create_dataset("tank/notes", DatasetKind::Other(3), &[], |_, _| Ok(())).unwrap();
    drop(store);
    assert_eq!(import(&device).pool().dataset("tank/notes").unwrap().kind(), DatasetKind::Other(3));
}

/// All of it from the store's crate, which is the only one that a front end has to name.
#[test]
fn a_front_end_knows_the_limits_of_rows_and_the_kinds_of_errors() {
    let (store, _device) = store();
    let notes = add(&store, "tank/notes", &[(Property::Compression, Compression::Zstd as u64)]);
    assert_eq!(notes.0.dataset().compression(), Compression::Zstd);
    let put = |table, key_bytes: usize, value_bytes: usize| {
        let (key, value) = (vec![7; key_bytes], vec![8; value_bytes]);
        let row = RowChange { table, key: &key, value: Some(&value) };
        let change = |tx: &Tx| notes.0.dataset().change_rows(tx, &[row], false);
        notes.0.transact(change, |_, ()| ()).map_err(|error| HasKind::kind(&error))
    };
    let long = TableId::FIRST_LONG;
    for (table, key_bytes, value_bytes) in [
        (TEXTS, ROW_KEY_BYTES_MAX, 0),
        (TEXTS, 1, ROW_SHORT_VALUE_BYTES_MAX),
        (long, ROW_KEY_BYTES_MAX, ROW_VALUE_BYTES_MAX),
    ] {
        put(table, key_bytes, value_bytes).unwrap();
    }
    for (table, key_bytes, value_bytes) in [
        (TEXTS, ROW_KEY_BYTES_MAX + 1, 0),
        (TEXTS, 1, ROW_SHORT_VALUE_BYTES_MAX + 1),
        (long, 1, ROW_VALUE_BYTES_MAX + 1),
    ] {
        assert_eq!(put(table, key_bytes, value_bytes), Err(ErrorKind::Invalid), "{key_bytes} {value_bytes}");
    }
    store.pool().export().unwrap();
    assert_eq!(put(TEXTS, 1, 1), Err(ErrorKind::Closed));
    let refused = notes.0.dataset().object(BYTES).map_err(ChangeError::from).unwrap_err();
    assert_eq!(NotesError::from(refused).kind(), ErrorKind::Closed);
}

/// How a change was made, and what its caller did then.
#[derive(Debug, Clone, Copy)]
enum Call {
    Change { is_sync: bool, flushes: bool },
    Transact { commits: bool },
}

/// Makes a change, and crashes. Returns whether it is there.
fn survives(mode: SyncMode, call: Call) -> bool {
    let (store, device) = store();
    let notes = add(&store, "tank/notes", &[(Property::Sync, mode as u64)]);
    // The logs of new datasets take records.
    store.pool().sync().unwrap();
    store.pool().sync().unwrap();
    match call {
        Call::Change { is_sync, flushes } => {
            let open = &notes.0;
            let demand = Demand::of(open.dataset().sync_mode(), is_sync);
            let change = |tx: &Tx| open.dataset().object(BYTES)?.write(tx, 0, b"text");
            let record = |records: fastness_store::Records<'_>| records.write(BYTES, 0, b"text", true);
            open.change(demand, 0..4, change, record).unwrap().wait().unwrap();
            if flushes {
                open.flush(|| None).unwrap();
            }
        }
        Call::Transact { commits } => {
            notes.put(b"a", b"text").unwrap();
            if commits {
                notes.0.commit(None).unwrap();
            }
        }
    }
    drop((notes, store));
    let store = import(&device);
    let notes = Notes(store.dataset("tank/notes").unwrap());
    match call {
        Call::Change { .. } => {
            let mut bytes = [0; 4];
            let len = notes.0.dataset().object(BYTES).unwrap().read(0, &mut bytes).unwrap();
            len == 4 && bytes == *b"text"
        }
        Call::Transact { .. } => notes.get(b"a").unwrap().is_some(),
    }
}

/// The table in the documentation of the crate.
#[test]
fn a_crash_leaves_what_the_table_of_sync_says() {
    let change = |is_sync, flushes| Call::Change { is_sync, flushes };
    let transact = |commits| Call::Transact { commits };
    let table = [
        (change(false, false), [false, true, false]),
        (change(true, false), [true, true, false]),
        (change(false, true), [true, true, false]),
        (transact(false), [false, false, false]),
        (transact(true), [true, true, false]),
    ];
    for (call, expected) in table {
        let modes = [SyncMode::Standard, SyncMode::Always, SyncMode::Disabled];
        assert_eq!(modes.map(|mode| survives(mode, call)), expected, "{call:?}");
    }
}
