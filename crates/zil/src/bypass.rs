//! Volumes: the *bypass*, where records go directly to the log, from within the transaction that makes the
//! change; and the *list*, for kinds that are too slow for that ([`Kind::writes_alone`]) or when the bypass
//! is off: the call assigns an itx, and a flush is a commit.
//!
//! List: the data of a write is read back at the flush, and most data never is; that of a write with FUA is
//! copied at once. A flush makes durable what was listed when it began. Overlapping ranges have one order for
//! the same reason as in the bypass: the record is assigned under the range lock.
//!
//! Between the two, when the kind or the bypass was changed: a record may not go directly to the log while an
//! earlier one is listed and has not synced, or a flush would write the earlier one after it. Until then the
//! record is not logged, and flushes wait for its txg. The other direction needs nothing: what is listed is
//! written after what went directly to the log.
//!
//! # Bypass
//! A disk does not order requests that are in flight together, and it promises nothing for what was not
//! flushed. So records need no commit list: each is written as its request runs, in parallel with others, all
//! in one generation; replay goes by the place that each took when it began to be written. Consequences for
//! requests whose ranges overlap:
//! 1. *One returned before the other began*: its record took the earlier place, and is durable. Replay
//!    applies it first, or without the other; never the other way round, and never the second without the
//!    first.
//! 2. *Both in flight*: any order is right for a disk, but it must be one order: what a reader saw after both
//!    returned is what must be there after a crash. So the caller holds the range's
//!    [`RangeLocks`](crate::RangeLocks) (or an equivalent) throughout: beginning the transaction, changing
//!    the object, `log_write`. Then place, txg and contents have one order.
//!
//! A flush starts a generation. This is for media errors, not for crashes: an entry of a later generation
//! counts those of earlier ones, so that a flushed record that the medium loses is missed at claim and not
//! skipped. A flush itself has nothing to write, because every record that returned is durable. A write with
//! FUA is as durable as any other; it starts a generation if no other write is in flight, and at least every
//! 64th time: in a series of writes with FUA from many threads, each would otherwise wait for all others.
//!
//! A record that the log does not take (no space, suspended, failed) is not an error of the write: it is in
//! the txg, and the next flush waits for that. Later records are logged all the same: a crash may then leave
//! the later write without the earlier one, as a disk may for writes that were not flushed.
//!
//! # Files
//! Their records do have an order, and most of them wait on the commit list. A write that is to be durable on
//! return goes past it ([`Zil::place_at_once`]) when a commit of its file would find nothing to write: then
//! everything that it depends on is durable, and it is the next one in the order of its file. It enters the
//! generation as a record from the list does.
//!
//! Performance: the cost for a write is a head of 64 bytes on the stack, two loads to see where it goes
//! (`arc_swap` allocates on a thread's first), a read lock of this dataset's log, and what the PRB does with
//! head and data; data is copied only to the medium, unless the length is not a multiple of 8.
//!
//! Source: zil-pmem thesis, 6.3.5.

use std::cell::RefCell;

use fastness_sync::atomic::Ordering;
use fastness_sync::lock;

use crate::error::{CommitError, LogCause, NotPersisted};
use crate::itx::{Itx, WriteClass};
use crate::kind::Kind;
use crate::pool::Pool;
use crate::record::{
    Head, Record, Time, Truncate, WRITE_HEAD_BYTES, Write, WriteData, Zeroes, encode_write, encode_write_head,
};
use crate::zil::{Committed, Zil};
use fastness_base::{LogPlace, ObjectId, Txg};

/// Data of one record; a longer write becomes several records, as a disk may tear it.
const DATA_BYTES_MAX: usize = 128 << 10;

fastness_sync::thread_local! {
    /// Head and data of the record that this thread is writing; an entry's body is one range of bytes.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Whether a record is in the log, if it was put there, and where.
type Put = (Option<bool>, Option<LogPlace>);

/// Where a record of a volume goes.
enum Way {
    Alone,
    List,
    /// Neither: an earlier record is listed. This one is durable with its txg.
    Txg,
}

impl<P: Pool, K: Kind> Zil<P, K> {
    /// Logs that `data` was written to the object at `offset` in a transaction of `txg`, which is still open.
    /// `commits_at_once`: [`after_fua`](Self::after_fua) follows, and the data is not part of a longer write.
    ///
    /// Persistence: `true`: the log has the record. In the bypass it is durable on return, as one or several
    /// records of up to 128 KiB, each of which a crash during the call leaves whole or not at all; on the
    /// list it is durable with the next [`flush`](Self::flush) or [`after_fua`](Self::after_fua). `false`:
    /// durable with the txg; both wait for it. Concurrency: any number of threads; for overlapping ranges see
    /// the module.
    #[inline]
    pub fn log_write(
        &self,
        txg: Txg,
        object: ObjectId,
        offset: u64,
        data: &[u8],
        commits_at_once: bool,
    ) -> bool {
        self.place_write(txg, object, offset, data, commits_at_once).0
    }

    /// As [`log_write`](Self::log_write); also returns where the log has all of `data` in one record, from
    /// byte [`WRITE_HEAD_BYTES`] of its body on, if it can be read there until the txg has synced.
    #[inline]
    pub fn place_write(
        &self,
        txg: Txg,
        object: ObjectId,
        offset: u64,
        data: &[u8],
        commits_at_once: bool,
    ) -> (bool, Option<LogPlace>) {
        let kind = self.kind.load();
        match self.way(&kind) {
            Way::Alone => {
                let put = |record: [&[u8]; 2]| {
                    let (is_logged, place) = self.log_record(&kind, txg, record);
                    (Some(is_logged), place)
                };
                let (is_logged, place) = self.write_pieces(&kind, (txg, object), offset, data, None, put);
                (is_logged == Some(true), place)
            }
            Way::List => (self.list_write(&kind, txg, object, offset, data, commits_at_once), None),
            Way::Txg => (self.not_logged(NotPersisted { txg, cause: LogCause::Behind }), None),
        }
    }

    /// Logs that a range was zeroed or discarded; otherwise as [`log_write`](Self::log_write).
    pub fn log_zeroes(&self, txg: Txg, object: ObjectId, zeroes: Zeroes) -> bool {
        self.log_small(txg, object, &Record::Zeroes(zeroes))
    }

    /// Logs that a range was freed, or the object truncated; otherwise as [`log_write`](Self::log_write).
    pub fn log_truncate(&self, txg: Txg, object: ObjectId, truncate: Truncate) -> bool {
        self.log_small(txg, object, &Record::Truncate(truncate))
    }

    #[inline]
    fn way(&self, kind: &K) -> Way {
        if !kind.writes_alone() || !self.has_bypass.load(Ordering::Relaxed) {
            return Way::List;
        }
        if self.unsynced_list().is_some() { Way::Txg } else { Way::Alone }
    }

    /// The newest txg with a record of the volume on the commit list, unless that has synced.
    #[inline]
    fn unsynced_list(&self) -> Option<Txg> {
        let listed = self.listed_txg.load(Ordering::SeqCst);
        if listed == 0 { None } else { self.look_at_list(listed) }
    }

    #[cold]
    fn look_at_list(&self, listed: u64) -> Option<Txg> {
        if listed > self.pool.synced_txg().0 {
            return Some(Txg(listed));
        }
        // Later calls need not ask the pool again, unless another record is listed meanwhile.
        let _ = self.listed_txg.compare_exchange(listed, 0, Ordering::SeqCst, Ordering::SeqCst);
        None
    }

    /// Logs a write to a file, and its time, at once, in a transaction of `txg` that is still open and makes
    /// it, if the commit list has nothing that a commit of the file would have to write first. `None`:
    /// it has, or the kind is too slow for this: to be assigned. The caller holds the lock that orders
    /// changes of the file.
    ///
    /// Persistence: `Some(true)`: durable on return, with everything that a commit of the file would make
    /// durable; in pieces as [`log_write`](Self::log_write) makes them. `Some(false)`: with the txg, and
    /// every commit waits for that. Also returns where the log has all of `data` in one record, as
    /// [`place_write`](Self::place_write) does.
    #[inline]
    pub fn place_at_once(
        &self,
        txg: Txg,
        object: ObjectId,
        offset: u64,
        data: &[u8],
        time: Time,
    ) -> (Option<bool>, Option<LogPlace>) {
        let kind = self.kind.load();
        if !kind.writes_alone()
            || !self.has_bypass.load(Ordering::Relaxed)
            || self.unlogged_txg.load(Ordering::SeqCst) > 0
            // First these and then the kind: what leaves the lists in between is found there.
            || lock(&self.lists).needs(object)
        {
            return (None, None);
        }
        let put = |record: [&[u8]; 2]| match kind.log_next(txg, object, record) {
            Ok((false, _)) => (None, None),
            Ok((true, place)) => {
                self.stats.bypass(record[0].len() + record[1].len());
                (Some(true), place)
            }
            Err(not_persisted) => (Some(self.not_logged(not_persisted)), None),
        };
        self.write_pieces(&kind, (txg, object), offset, data, Some(time), put)
    }

    /// Has each piece of a write put into the log; stops at the first that is not. Returns what was said of
    /// the last one, and the place of the only one.
    #[inline]
    fn write_pieces(
        &self,
        kind: &K,
        (txg, object): (Txg, ObjectId),
        offset: u64,
        data: &[u8],
        time: Option<Time>,
        put: impl Fn([&[u8]; 2]) -> Put,
    ) -> Put {
        let head = Head::new(txg, object);
        let piece_bytes = DATA_BYTES_MAX.min(kind.record_bytes_max().saturating_sub(WRITE_HEAD_BYTES) & !7);
        if piece_bytes == 0 {
            return (Some(self.not_logged(NotPersisted { txg, cause: LogCause::TooLarge })), None);
        }
        let (mut at, mut place) = (offset, None);
        for piece in data.chunks(piece_bytes) {
            let put = if piece.len().is_multiple_of(8) {
                let front = encode_write_head(head, at, piece.len(), time);
                put([&front, piece])
            } else {
                (log_padded(head, at, piece, time, &put), None)
            };
            if put.0 != Some(true) {
                return (put.0, None);
            }
            place = put.1.filter(|_| piece.len() == data.len());
            at += piece.len() as u64;
        }
        (Some(true), place)
    }

    fn list_write(
        &self,
        kind: &K,
        txg: Txg,
        object: ObjectId,
        offset: u64,
        data: &[u8],
        commits_at_once: bool,
    ) -> bool {
        let is_copied = WriteClass::choose(data.len() as u64, commits_at_once) == WriteClass::Copied
            && data.len() + WRITE_HEAD_BYTES + 8 <= kind.record_bytes_max();
        let itx = if is_copied {
            Itx::sync(object, &Record::Write(Write { offset, data: WriteData::Inline(data) }), &[])
        } else {
            Itx::need_copy(object, offset, data.len() as u64, true)
        };
        self.list(txg, itx)
    }

    fn log_small(&self, txg: Txg, object: ObjectId, record: &Record<'_>) -> bool {
        let kind = self.kind.load();
        match self.way(&kind) {
            Way::Alone => {
                let mut buffer = [0; WRITE_HEAD_BYTES];
                let len = record.encode(Head::new(txg, object), &mut buffer);
                self.log_record(&kind, txg, [&[], &buffer[..len]]).0
            }
            Way::List => self.list(txg, Itx::sync(object, record, &[])),
            Way::Txg => self.not_logged(NotPersisted { txg, cause: LogCause::Behind }),
        }
    }

    /// Puts a record on the commit list. Called before the write returns, so that every flush that begins
    /// afterwards, and every write of the same range, sees that there is one.
    fn list(&self, txg: Txg, itx: Itx) -> bool {
        self.listed_txg.fetch_max(txg.0, Ordering::SeqCst);
        self.assign(txg, itx);
        true
    }

    #[inline]
    fn log_record(&self, kind: &K, txg: Txg, record: [&[u8]; 2]) -> (bool, Option<LogPlace>) {
        match kind.log_alone(txg, record) {
            Ok(place) => {
                self.stats.bypass(record[0].len() + record[1].len());
                (true, place)
            }
            Err(not_persisted) => (self.not_logged(not_persisted), None),
        }
    }

    #[cold]
    fn not_logged(&self, not_persisted: NotPersisted) -> bool {
        let cause = not_persisted.cause;
        if matches!(cause, LogCause::Failed | LogCause::SideLost) && self.stats.is_first_unlogged(cause) {
            // What has not synced yet is now only in the log, or only on its one remaining side.
            self.pool.end_txg_soon();
        }
        self.stats.unlogged(cause);
        // Before the write returns, so that every flush that begins afterwards sees it.
        self.unlogged_txg.fetch_max(not_persisted.txg.0, Ordering::SeqCst);
        false
    }

    /// Notes that the log was skipped for a change (`sync=disabled`, a resize): flushes and commits will wait
    /// for its txg.
    pub fn note_unlogged(&self, txg: Txg) {
        self.unlogged_txg.fetch_max(txg.0, Ordering::SeqCst);
    }

    /// Makes every write durable that had returned before the call, and makes every later one depend on them.
    ///
    /// Persistence: on return. If all of them are in the log, this waits only for writes in flight.
    ///
    /// # Errors
    /// [`CommitError`]; how much of the unlogged writes is durable is then unknown.
    pub fn flush(&self) -> Result<Committed, CommitError> {
        self.stats.flush();
        // A log that is out of use has nothing to order; what was written meanwhile is unlogged.
        let ordered = self.kind.load().order(true);
        let listed = self.commit_listed()?;
        let unlogged = self.wait_unlogged(ordered.err())?;
        Ok(if unlogged == Committed::Logged { listed } else { unlogged })
    }

    /// Commits a volume's list, with whatever kind is current.
    fn commit_listed(&self) -> Result<Committed, CommitError> {
        match self.unsynced_list() {
            Some(_) => self.commit_lists(ObjectId::NONE),
            None => Ok(Committed::Logged),
        }
    }

    /// Called for a write with FUA after its transaction ended; see the module. `logged` is what `log_write`
    /// returned.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn after_fua(&self, txg: Txg, logged: bool) -> Result<Committed, CommitError> {
        if logged {
            if self.unsynced_list().is_some() {
                return self.commit_lists(ObjectId::NONE);
            }
            let is_forced = self.stats.fua_is_64th();
            // A log that went out of use after the record was written has made it durable through its txg.
            let _ = self.kind.load().order(is_forced);
            return Ok(Committed::Logged);
        }
        self.wait_instead(NotPersisted { txg, cause: LogCause::Behind })
    }

    pub(crate) fn wait_unlogged(&self, cause: Option<LogCause>) -> Result<Committed, CommitError> {
        let txg = Txg(self.unlogged_txg.load(Ordering::SeqCst));
        if cause == Some(LogCause::NotReplayed) {
            return self.wait_instead(NotPersisted { txg, cause: LogCause::NotReplayed });
        }
        if txg <= self.pool.synced_txg() {
            return Ok(Committed::Logged);
        }
        self.wait_instead(NotPersisted { txg, cause: cause.unwrap_or(LogCause::Behind) })
    }
}

/// Logs data that needs padding after it.
#[cold]
fn log_padded(
    head: Head,
    at: u64,
    piece: &[u8],
    time: Option<Time>,
    put: impl Fn([&[u8]; 2]) -> Put,
) -> Option<bool> {
    SCRATCH.with(|buffer| {
        let mut buffer = buffer.borrow_mut();
        let needed = (WRITE_HEAD_BYTES + piece.len()).next_multiple_of(8);
        if buffer.len() < needed {
            buffer.resize(needed, 0);
        }
        let len = encode_write(head, at, piece, time, &mut buffer);
        put([&[], &buffer[..len]]).0
    })
}
