//! A small pool with objects and names, logs on PM of any sort, and how operations become records and back.
//!
//! The pool keeps its state as of the last synced txg and the operations since; a crash keeps the former
//! only.

#![allow(dead_code, unreachable_pub, unused_imports)] // Each test binary uses its part.

pub mod oracle;
pub mod rig;
pub mod tagged;
pub mod world;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use fastness_prb::{Alignment, Config};
use fastness_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use fastness_sync::{Condvar, Mutex, thread};
use fastness_testkit::SeededEntropy;
use fastness_zil::record::{
    Attributes, Create, CreateKind, Head, Record, Remove, Rename, RenameKind, Truncate, Write, WriteData,
    Zeroes,
};
use fastness_zil::*;
pub use oracle::*;
pub use rig::*;
pub use world::*;

pub const DATASET: DatasetId = DatasetId(7);
pub const ROOT: ObjectId = ObjectId(1000);

pub fn config(seed: u64, ncommitters: u32) -> Config {
    Config {
        ncommitters,
        alignment: Alignment::Line,
        entropy: SeededEntropy::new(seed),
        clock: || 0,
        ..Config::default()
    }
}

/// A change, as the user of the pool makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    Create(&'static str, u64),
    Remove(&'static str, u64),
    Rename(&'static str, &'static str, u64),
    Write(u64, usize, Vec<u8>),
    Truncate(u64, usize),
    Zeroes(u64, usize, usize),
}

/// Names and contents of one dataset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    pub names: BTreeMap<String, u64>,
    pub objects: BTreeMap<u64, Vec<u8>>,
    pub is_volume: bool,
}

impl Contents {
    /// An object that is there from the start, as that of a volume.
    pub fn volume(object: u64, len: usize) -> Self {
        Self { objects: BTreeMap::from([(object, vec![0; len])]), is_volume: true, ..Self::default() }
    }

    fn object(&mut self, object: u64) -> Result<&mut Vec<u8>, String> {
        self.objects.get_mut(&object).ok_or_else(|| format!("there is no object {object}"))
    }

    /// Strict: what cannot happen in this state is an error, so that a wrong order of replay shows.
    pub fn apply(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Create(name, object) => {
                if self.names.contains_key(*name) || self.objects.contains_key(object) {
                    return Err(format!("{name} or object {object} exists"));
                }
                self.names.insert((*name).to_owned(), *object);
                self.objects.insert(*object, Vec::new());
            }
            Op::Remove(name, object) => {
                if self.names.remove(*name) != Some(*object) {
                    return Err(format!("{name} was not object {object}"));
                }
                self.objects.remove(object);
            }
            Op::Rename(from, to, object) => {
                if self.names.remove(*from) != Some(*object) {
                    return Err(format!("{from} was not object {object}"));
                }
                if let Some(old) = self.names.insert((*to).to_owned(), *object) {
                    self.objects.remove(&old);
                }
            }
            Op::Write(object, offset, data) => {
                let bytes = self.object(*object)?;
                let len = bytes.len().max(offset + data.len());
                bytes.resize(len, 0);
                bytes[*offset..offset + data.len()].copy_from_slice(data);
            }
            Op::Truncate(object, len) => self.object(*object)?.resize(*len, 0),
            Op::Zeroes(object, offset, len) => {
                let bytes = self.object(*object)?;
                let end = bytes.len().min(offset + len);
                bytes[(*offset).min(end)..end].fill(0);
            }
        }
        Ok(())
    }
}

fn leak(name: &[u8]) -> &'static str {
    let known = ["a", "b", "c", "d", "e", "f", "t"];
    let name = std::str::from_utf8(name).unwrap();
    known.into_iter().find(|known| *known == name).expect("a name of the tests")
}

/// The itx that describes an operation.
pub fn itx(op: &Op) -> Itx {
    match op {
        Op::Create(name, object) => {
            let (kind, attributes) = (CreateKind::File, Attributes::default());
            let object = ObjectId(*object);
            let create = Create { kind, object, attributes, name: name.as_bytes(), target: b"", acl: b"" };
            Itx::sync(ROOT, &Record::Create(create), &[object])
        }
        Op::Remove(name, object) => {
            let record = Record::Remove(Remove { is_directory: false, name: name.as_bytes() });
            Itx::sync(ROOT, &record, &[ObjectId(*object)])
        }
        Op::Rename(from, to, object) => {
            let record = Record::Rename(Rename {
                kind: RenameKind::Plain,
                target_directory: ROOT,
                source_name: from.as_bytes(),
                target_name: to.as_bytes(),
            });
            Itx::sync(ROOT, &record, &[ObjectId(*object)]).behind(ObjectId(*object))
        }
        Op::Write(object, offset, data) => {
            let record = Record::Write(Write { offset: *offset as u64, data: WriteData::Inline(data) });
            Itx::unordered(ObjectId(*object), &record)
        }
        Op::Truncate(object, len) => {
            let record = Record::Truncate(Truncate { offset: *len as u64, len_bytes: u64::MAX });
            Itx::unordered(ObjectId(*object), &record)
        }
        Op::Zeroes(object, offset, len) => {
            let (offset, len_bytes) = (*offset as u64, *len as u64);
            Itx::unordered(
                ObjectId(*object),
                &Record::Zeroes(Zeroes { offset, len_bytes, is_discard: false }),
            )
        }
    }
}

/// The operation that a record describes.
pub fn op_of(head: &Head, record: &Record<'_>, contents: &Contents) -> Op {
    let object = head.object.0;
    match record {
        Record::Create(create) => Op::Create(leak(create.name), create.object.0),
        Record::Remove(remove) => {
            let name = leak(remove.name);
            Op::Remove(name, contents.names.get(name).copied().unwrap_or(0))
        }
        Record::Rename(rename) => {
            let from = leak(rename.source_name);
            Op::Rename(from, leak(rename.target_name), contents.names.get(from).copied().unwrap_or(0))
        }
        Record::Write(Write { offset, data: WriteData::Inline(data) }) => {
            Op::Write(object, *offset as usize, data.to_vec())
        }
        Record::TimedWrite(write) => Op::Write(object, write.offset as usize, write.data.to_vec()),
        Record::Truncate(truncate) => Op::Truncate(object, truncate.offset as usize),
        Record::Zeroes(zeroes) => Op::Zeroes(object, zeroes.offset as usize, zeroes.len_bytes as usize),
        other => panic!("no test writes {other:?}"),
    }
}

type Hook = Box<dyn Fn(Txg) + Send + Sync>;
type SyncHook = Box<dyn Fn(Txg, Put<'_>) + Send + Sync>;
/// Stores a header with the txg that is being written.
pub type Put<'a> = &'a mut dyn FnMut(DatasetId, Option<&[u8]>);

#[derive(Debug, Default, Clone)]
pub struct Headers(pub BTreeMap<DatasetId, Vec<u8>>);

#[derive(Debug, Default)]
struct State {
    open: u64,
    synced: u64,
    holds: BTreeMap<u64, usize>,
    now: BTreeMap<DatasetId, Contents>,
    stable: BTreeMap<DatasetId, Contents>,
    since: Vec<(u64, DatasetId, Op)>,
    headers: Headers,
    queued: Vec<(u64, DatasetId, Option<Vec<u8>>)>,
}

/// See the module.
pub struct ModelPool {
    state: Mutex<State>,
    ended: Condvar,
    syncing: Mutex<()>,
    hook: Mutex<Option<Hook>>,
    sync_hook: Mutex<Option<SyncHook>>,
    /// Whether the power is gone: nothing becomes durable any more.
    is_dead: Mutex<Option<Box<dyn Fn() -> bool + Send + Sync>>>,
    pub is_suspended: AtomicBool,
    pub waits: AtomicU64,
    pub hurries: AtomicU64,
    pub syncs: AtomicU64,
    pub read_back_fails: AtomicBool,
    read_back_fails_from: AtomicU64,
    /// Reads back of this object wait.
    gate: Mutex<Option<u64>>,
    gate_moved: Condvar,
    at_gate: AtomicU64,
}

impl ModelPool {
    pub fn close_gate(&self, object: u64) {
        *self.gate.lock().unwrap() = Some(object);
    }

    pub fn open_gate(&self) {
        *self.gate.lock().unwrap() = None;
        self.gate_moved.notify_all();
    }

    /// Waits until somebody waits at the gate.
    pub fn wait_for_visitor(&self) {
        while self.at_gate.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
    }
}

/// A transaction of [`ModelPool`].
pub struct Tx {
    pool: Arc<ModelPool>,
    pub txg: Txg,
}

impl Drop for Tx {
    fn drop(&mut self) {
        *self.pool.state.lock().unwrap().holds.get_mut(&self.txg.0).unwrap() -= 1;
        self.pool.ended.notify_all();
    }
}

/// What is on the pool's disks.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    pub synced: u64,
    pub contents: BTreeMap<DatasetId, Contents>,
    pub headers: Headers,
}

/// The pool as the log sees it.
#[derive(Clone)]
pub struct PoolRef(pub Arc<ModelPool>);

impl PoolRef {
    pub fn new(disk: Disk) -> Self {
        let Disk { synced, contents, headers } = disk;
        let open = synced + 1;
        let (now, stable) = (contents.clone(), contents);
        let state = State { open, synced, now, stable, headers, ..State::default() };
        Self(Arc::new(ModelPool {
            state: Mutex::new(state),
            ended: Condvar::new(),
            syncing: Mutex::new(()),
            hook: Mutex::new(None),
            sync_hook: Mutex::new(None),
            is_dead: Mutex::new(None),
            is_suspended: AtomicBool::new(false),
            waits: AtomicU64::new(0),
            hurries: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            read_back_fails: AtomicBool::new(false),
            read_back_fails_from: AtomicU64::new(u64::MAX),
            gate: Mutex::new(None),
            gate_moved: Condvar::new(),
            at_gate: AtomicU64::new(0),
        }))
    }

    pub fn hook(&self, hook: impl Fn(Txg) + Send + Sync + 'static) {
        *self.0.hook.lock().unwrap() = Some(Box::new(hook));
    }

    /// The pool loses its power with something else.
    pub fn dies_with(&self, is_dead: impl Fn() -> bool + Send + Sync + 'static) {
        *self.0.is_dead.lock().unwrap() = Some(Box::new(is_dead));
    }

    /// Bytes of objects from this one on cannot be read back.
    pub fn fail_read_backs_from(&self, offset: Option<u64>) {
        self.0.read_back_fails_from.store(offset.unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    pub fn is_dead(&self) -> bool {
        self.0.is_dead.lock().unwrap().as_ref().is_some_and(|is_dead| is_dead())
    }

    /// Looks at something while no txg becomes durable.
    pub fn between_txgs<T>(&self, look: impl FnOnce() -> T) -> T {
        let _syncing = self.0.syncing.lock().unwrap();
        look()
    }

    /// Called while a txg is written, when its transactions have ended.
    pub fn sync_hook(&self, hook: impl Fn(Txg, Put<'_>) + Send + Sync + 'static) {
        *self.0.sync_hook.lock().unwrap() = Some(Box::new(hook));
    }

    pub fn tx(&self) -> Tx {
        let mut state = self.0.state.lock().unwrap();
        let open = state.open;
        *state.holds.entry(open).or_default() += 1;
        Tx { pool: Arc::clone(&self.0), txg: Txg(open) }
    }

    /// Opens the next txg, as far as there may be one.
    pub fn open_next(&self) {
        let mut state = self.0.state.lock().unwrap();
        state.open = (state.open + 1).min(state.synced + 3);
    }

    /// Makes the next txg durable.
    pub fn sync(&self) {
        let _syncing = self.0.syncing.lock().unwrap();
        if self.is_dead() {
            return;
        }
        let mut state = self.0.state.lock().unwrap();
        let txg = state.synced + 1;
        state.open = state.open.max(txg + 1);
        while state.holds.get(&txg).is_some_and(|holds| *holds > 0) {
            state = self.0.ended.wait(state).unwrap();
        }
        drop(state);
        let mut hooked = Vec::new();
        if let Some(hook) = &*self.0.sync_hook.lock().unwrap() {
            hook(Txg(txg), &mut |dataset, header| hooked.push((txg, dataset, header.map(<[u8]>::to_vec))));
        }
        let mut state = self.0.state.lock().unwrap();
        state.queued.sort_by_key(|(of, ..)| *of);
        state.queued.extend(hooked);
        let State { since, stable, queued, headers, .. } = &mut *state;
        for (_, dataset, op) in since.extract_if(.., |(of, ..)| *of <= txg) {
            stable.entry(dataset).or_default().apply(&op).expect("what happened can happen");
        }
        for (_, dataset, header) in queued.extract_if(.., |(of, ..)| *of <= txg) {
            match header {
                Some(header) => drop(headers.0.insert(dataset, header)),
                None => drop(headers.0.remove(&dataset)),
            }
        }
        state.synced = txg;
        drop(state);
        self.0.syncs.fetch_add(1, Ordering::SeqCst);
        if let Some(hook) = &*self.0.hook.lock().unwrap() {
            hook(Txg(txg));
        }
    }

    /// Changes the contents in a transaction.
    pub fn apply(&self, tx: &Tx, dataset: DatasetId, op: &Op) -> Result<(), String> {
        let mut state = self.0.state.lock().unwrap();
        state.now.entry(dataset).or_default().apply(op)?;
        state.since.push((tx.txg.0, dataset, op.clone()));
        Ok(())
    }

    pub fn contents(&self, dataset: DatasetId) -> Contents {
        self.0.state.lock().unwrap().now.get(&dataset).cloned().unwrap_or_default()
    }

    /// What a crash now leaves.
    pub fn disk(&self) -> Disk {
        let state = self.0.state.lock().unwrap();
        Disk { synced: state.synced, contents: state.stable.clone(), headers: state.headers.clone() }
    }
}

impl Pool for PoolRef {
    type Tx = Tx;

    fn begin_tx(&self) -> Result<Tx, PoolFailure> {
        if self.is_suspended() {
            return Err(PoolFailure::new(ErrorKind::Closed, "suspended"));
        }
        Ok(self.tx())
    }

    fn txg_of(tx: &Tx) -> Txg {
        tx.txg
    }

    fn synced_txg(&self) -> Txg {
        Txg(self.0.state.lock().unwrap().synced)
    }

    fn wait_synced(&self, txg: Txg) -> Result<(), PoolFailure> {
        self.0.waits.fetch_add(1, Ordering::SeqCst);
        while self.synced_txg() < txg {
            if self.is_suspended() {
                return Err(PoolFailure::new(ErrorKind::Closed, "suspended"));
            }
            self.sync();
        }
        Ok(())
    }

    fn end_txg_soon(&self) {
        self.0.hurries.fetch_add(1, Ordering::SeqCst);
    }

    fn is_suspended(&self) -> bool {
        self.0.is_suspended.load(Ordering::SeqCst) || self.is_dead()
    }

    fn may_go_on(&self, _tx: &Tx) -> bool {
        true
    }

    fn put_log_header(&self, tx: &Tx, dataset: DatasetId, header: Option<&[u8]>) {
        let mut state = self.0.state.lock().unwrap();
        state.queued.push((tx.txg.0, dataset, header.map(<[u8]>::to_vec)));
    }

    fn read_back(
        &self,
        dataset: DatasetId,
        object: ObjectId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, PoolFailure> {
        let mut gate = self.0.gate.lock().unwrap();
        while *gate == Some(object.0) {
            self.0.at_gate.fetch_add(1, Ordering::SeqCst);
            gate = self.0.gate_moved.wait(gate).unwrap();
        }
        drop(gate);
        let fails = self.0.read_back_fails.load(Ordering::SeqCst);
        if fails || offset + buffer.len() as u64 > self.0.read_back_fails_from.load(Ordering::SeqCst) {
            return Err(PoolFailure::new(ErrorKind::MediaFailed, "unreadable"));
        }
        let contents = self.contents(dataset);
        let Some(bytes) = contents.objects.get(&object.0) else { return Ok(0) };
        let bytes = bytes.get(offset as usize..).unwrap_or_default();
        let len = bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn file_end(&self, dataset: DatasetId, object: ObjectId) -> Result<FileEnd, PoolFailure> {
        let contents = self.contents(dataset);
        Ok(match contents.objects.get(&object.0) {
            _ if contents.is_volume => FileEnd::OfVolume,
            Some(bytes) => FileEnd::At(bytes.len() as u64),
            None => FileEnd::Gone,
        })
    }
}

/// Replays into the pool.
pub struct Apply {
    pub pool: PoolRef,
    pub dataset: DatasetId,
    /// Number of the record to refuse, from 1.
    pub refuses: Option<u64>,
    pub seen: Vec<Op>,
}

impl Apply {
    pub fn new(pool: &PoolRef, dataset: DatasetId) -> Self {
        Self { pool: pool.clone(), dataset, refuses: None, seen: Vec::new() }
    }
}

impl ReplayHandler<PoolRef> for Apply {
    fn apply(
        &mut self,
        tx: &Tx,
        head: &Head,
        record: &Record<'_>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        if self.refuses == Some(self.seen.len() as u64 + 1) {
            return Err("refused".into());
        }
        let op = op_of(head, record, &self.pool.contents(self.dataset));
        self.pool.apply(tx, self.dataset, &op)?;
        self.seen.push(op);
        Ok(())
    }
}
