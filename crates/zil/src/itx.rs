//! Intent transactions (itx): records in memory, before they are needed on a medium.

use crate::kind::{Entry, KEYS_MAX, Keys, Payload};
use crate::record::{HEAD_BYTES, Head, Record, Write, WriteData};
use fastness_base::{ObjectId, Txg};

/// Stands for all names among the objects that a record touches: changes of names have one order.
const NAMES: ObjectId = ObjectId(u64::MAX);
/// Most files whose names one record changes.
const PROMOTED_MAX: usize = 2;
/// Longest data that is copied into an itx; longer writes are read back from the object.
pub const COPIED_BYTES_MAX: u64 = 64 << 10;

/// How a write's data reaches the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteClass {
    /// Copied into the record at once: a commit will follow soon.
    Copied,
    /// Read back from the object if the write is ever committed.
    NeedCopy,
    /// Written to the pool, by the writer or by the commit that would have read it back; the record has the
    /// address.
    Indirect,
}

impl WriteClass {
    /// The class for a write to a file: copied if a commit follows at once and the data is short. Indirect is
    /// chosen by owners that can write to the pool outside a txg. Source: reference of intent log behaviour,
    /// section 1 (write class).
    pub fn choose(len_bytes: u64, commits_at_once: bool) -> Self {
        if commits_at_once && len_bytes <= COPIED_BYTES_MAX { Self::Copied } else { Self::NeedCopy }
    }
}

/// Describes one change; to be assigned to the txg of the transaction that made it.
#[derive(Debug)]
pub struct Itx {
    object: ObjectId,
    keys: Keys,
    is_sync: bool,
    /// Objects whose records so far must come before this one; unused places are [`ObjectId::NONE`].
    pub(crate) promotes: [ObjectId; PROMOTED_MAX],
    class: WriteClass,
    payload: Payload,
}

impl Itx {
    /// A record that keeps its place: every commit covers it, and it precedes what is assigned later. One
    /// that changes names is in the log only after those before it, whatever objects they have.
    /// `object` goes into the head (for namespace records: the directory); `touches` names the other objects
    /// involved, up to four.
    ///
    /// # Panics
    /// Caller bug only: more than four.
    pub fn sync(object: ObjectId, record: &Record<'_>, touches: &[ObjectId]) -> Self {
        let mut keys = [ObjectId::NONE; KEYS_MAX];
        keys[0] = object;
        keys[1..KEYS_MAX - 1][..touches.len()].copy_from_slice(touches);
        if !record.record_type().may_be_reordered() {
            keys[KEYS_MAX - 1] = NAMES;
        }
        let payload = Payload::Record(record.to_bytes(Head::new(Txg(0), object)));
        let class = class_of(record);
        Self { object, keys, is_sync: true, promotes: [ObjectId::NONE; PROMOTED_MAX], class, payload }
    }

    /// A record of one object, which only commits of that object need.
    ///
    /// # Panics
    /// Caller bug only: a type that may not be reordered.
    pub fn unordered(object: ObjectId, record: &Record<'_>) -> Self {
        assert!(record.record_type().may_be_reordered(), "{:?} keeps its place", record.record_type());
        Self { is_sync: false, ..Self::sync(object, record, &[]) }
    }

    /// A write whose data is read back from the object if it is committed.
    pub fn need_copy(object: ObjectId, offset: u64, len_bytes: u64, is_sync: bool) -> Self {
        let mut keys = [ObjectId::NONE; KEYS_MAX];
        keys[0] = object;
        let payload = Payload::NeedCopy { offset, len_bytes };
        Self {
            object,
            keys,
            is_sync,
            promotes: [ObjectId::NONE; PROMOTED_MAX],
            class: WriteClass::NeedCopy,
            payload,
        }
    }

    /// The same, ordered after the records of `object` so far: for a name that must not exist before the data
    /// does (rename, link). Of an exchange both files get new names.
    ///
    /// # Panics
    /// Caller bug only: more than two.
    #[must_use]
    pub fn behind(mut self, object: ObjectId) -> Self {
        let place = self.promotes.iter_mut().find(|place| **place == ObjectId::NONE);
        *place.expect("at most two files") = object;
        self
    }

    /// How the data reaches the log; [`WriteClass::Copied`] for records that are not writes.
    pub fn class(&self) -> WriteClass {
        self.class
    }

    /// Bytes of the data and header that it stands for.
    pub fn len_bytes(&self) -> u64 {
        match &self.payload {
            Payload::Record(record) => record.len() as u64,
            Payload::NeedCopy { len_bytes, .. } => HEAD_BYTES as u64 + len_bytes,
            Payload::Written => 0,
        }
    }

    pub(crate) fn object(&self) -> ObjectId {
        self.object
    }

    pub(crate) fn into_entry(mut self, txg: Txg) -> Entry {
        if let Payload::Record(record) = &mut self.payload {
            Head::set_txg(record, txg);
        }
        let Self { object, keys, is_sync, payload, .. } = self;
        Entry { txg, object, keys, is_sync, payload }
    }
}

fn class_of(record: &Record<'_>) -> WriteClass {
    match record {
        Record::Write(Write { data: WriteData::Indirect { .. }, .. }) => WriteClass::Indirect,
        _ => WriteClass::Copied,
    }
}
