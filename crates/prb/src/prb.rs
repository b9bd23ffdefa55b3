//! The PRB: a persistent, unordered set of entries in chunks, shared by many logs.
//!
//! A writer takes a commit slot and inserts into the slot's open chunk; the lists are touched only when a
//! chunk is full. After a txg has synced, [`Prb::collect`] empties the chunks whose entries are all obsolete.
//!
//! Source: zil-pmem thesis, 5.8, 5.12 and 5.13.

use std::sync::Arc;

use fastness_base::LogPlace;
use fastness_pmem::{Medium, PersistError, SIDES_MAX, WriterSlots};
use fastness_sync::atomic::{AtomicU8, AtomicU64, Ordering};
use fastness_sync::{Condvar, Mutex, MutexGuard, lock, wait};

use crate::chunk::{Chunk, EntryMeta, Inserting, Layout};
use crate::config::Config;
use crate::error::{Misuse, SetupError, WriteError};
use crate::health::{Health, SideHealth};
use crate::ids::{ChunkId, EntryId, Txg};
use crate::lists::{Fill, Lists};
use crate::mirror::{self, SideRepairs};
use crate::scan::{ChunkEnd, Scan};
use crate::slots::{CommitSlots, SlotGuard};
use crate::stats::{SlotStats, Stats};

/// What a writer does when there is no free chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Waits for one, off the CPU and without a commit slot.
    ///
    /// The caller must not hold a transaction open: that would keep the txg from syncing, and only a synced
    /// txg frees chunks. Source: zil-pmem thesis, 5.12.1.
    Block,
    /// Fails with [`WriteError::NoFreeChunk`].
    Fail,
}

/// An entry that was written, and where it is.
///
/// It stays there until its chunk is emptied: no sooner than in the [`Prb::collect`] of its txg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Place in the log.
    pub id: EntryId,
    /// Region offset of its header, in bytes; the body follows after [`HEADER_BYTES`](crate::HEADER_BYTES).
    pub region_offset: u64,
    /// Part of its header's checksum; see [`EntryViews`](crate::EntryViews).
    pub sum: u64,
}

/// The open chunk of a commit slot.
type OpenChunk<M> = Option<Chunk<M>>;

/// A persistent ring buffer; see the module.
///
/// Concurrency: shared by all logs ([`crate::Hdl`]) on it and the thread that syncs txgs.
#[derive(Debug)]
pub struct Prb<M> {
    pub(crate) config: Config,
    layout: Layout,
    body_bytes_max: usize,
    pub(crate) slots: CommitSlots<OpenChunk<M>>,
    /// Those of the region's gate, which others that write to it take, too.
    region_slots: Option<Arc<WriterSlots>>,
    slot_stats: Box<[SlotStats]>,
    pub(crate) lists: Mutex<Lists<M>>,
    /// Held by who holds more than one slot and waits for more.
    pub(crate) reading: Mutex<()>,
    pub(crate) chunk_freed: Condvar,
    pub(crate) fill: Fill,
    /// Newest txg passed to `collect`.
    pub(crate) synced: AtomicU64,
    /// A [`Health`]; changed under the lock of the lists.
    pub(crate) health: AtomicU8,
    pub(crate) sides: SideHealth,
    chunk_waits: AtomicU64,
    pub(crate) chunks_collected: AtomicU64,
    pub(crate) media_faults: AtomicU64,
    pub(crate) side_faults: [AtomicU64; SIDES_MAX],
    repairs: SideRepairs,
    /// By which its owner knows it, and 0 if nobody reads its entries by their places.
    number: AtomicU64,
}

impl<M: Medium + Sync> Prb<M> {
    /// Makes all chunks durably empty and returns a PRB on them. Their old contents are lost.
    ///
    /// # Errors
    /// [`SetupError`]; some chunks may have been emptied.
    pub fn format(config: Config, ranges: Vec<M>) -> Result<Arc<Self>, SetupError> {
        let prb = Self::new(config, &ranges, false)?;
        for (index, range) in ranges.into_iter().enumerate() {
            let mut chunk = Chunk::new(ChunkId(index as u32), range);
            chunk.make_empty(prb.config.random_epoch())?;
            if let Some(side) = chunk.medium().lost_side() {
                return Err(SetupError::SideLost { side });
            }
            lock(&prb.lists).free.push_back(chunk);
        }
        Ok(Arc::new(prb))
    }

    /// Returns a PRB on chunks that may hold entries, in the claiming phase: set up the logs, claim each,
    /// then call [`Prb::finish_claiming`]. No entry is changed; each side of a mirror gets the entries that
    /// only the other has, unless [`Config::repairs_sides`] is off.
    ///
    /// The chunks must be the ones that the PRB was formatted with, in the same order; either side of a
    /// mirror suffices. If a side is lost now, the entries of both are found, and nothing can be written
    /// before the owner has recorded the loss ([`lost_side`](Self::lost_side)).
    ///
    /// # Errors
    /// [`SetupError`]; what can be read of the chunks is unchanged.
    pub fn open(config: Config, mut ranges: Vec<M>) -> Result<Arc<Self>, SetupError> {
        let mut prb = Self::new(config, &ranges, true)?;
        for range in &mut ranges {
            range.write_back(0, range.len_bytes());
            if prb.config.repairs_sides {
                mirror::repair(range, &mut prb.repairs);
            }
            // PERSIST: orders the stores of a process that died, and what one side of a mirror gets from the
            // other, before everything that the owner does with it. Without write-back and fence, claim could
            // count an entry that is only in a CPU cache, and a power cut would leave a header that counts it
            // without the entry; without the repair, claim could count one that is on one side only, and the
            // loss of that side would do the same.
            range.fence()?;
            if let Some(side) = range.lost_side() {
                prb.lose_side(side);
            }
        }
        let chunks = ranges.into_iter().enumerate();
        lock(&prb.lists).wait_replay =
            chunks.map(|(index, range)| Arc::new(Chunk::new(ChunkId(index as u32), range))).collect();
        Ok(Arc::new(prb))
    }

    fn new(config: Config, ranges: &[M], claiming: bool) -> Result<Self, SetupError> {
        let body_bytes_max = config.check(ranges)?;
        let committers = config.ncommitters as usize;
        Ok(Self {
            layout: config.layout(),
            body_bytes_max,
            slots: CommitSlots::new((0..committers).map(|_| None)),
            region_slots: ranges.first().and_then(Medium::writer_slots),
            slot_stats: (0..committers).map(|_| SlotStats::default()).collect(),
            lists: Mutex::new(Lists::new(ranges.len(), claiming)),
            reading: Mutex::new(()),
            chunk_freed: Condvar::new(),
            fill: Fill::new(committers),
            synced: AtomicU64::new(0),
            health: AtomicU8::new(Health::Good as u8),
            sides: SideHealth::new(ranges.first().map_or(1, Medium::sides)),
            chunk_waits: AtomicU64::new(0),
            chunks_collected: AtomicU64::new(0),
            media_faults: AtomicU64::new(0),
            side_faults: Default::default(),
            repairs: SideRepairs::default(),
            number: AtomicU64::new(0),
            config,
        })
    }

    /// Says that entries can be read by their places, with [`EntryViews`](crate::EntryViews) that the owner
    /// knows by this number; not 0.
    pub fn set_number(&self, number: u32) {
        self.number.store(u64::from(number), Ordering::Relaxed);
    }

    /// Where the body of an entry can be read; `None` before a number [was set](Self::set_number).
    #[inline]
    pub fn place_of(&self, placed: &Placed) -> Option<LogPlace> {
        let log = self.number.load(Ordering::Relaxed) as u32;
        (log != 0).then_some(LogPlace { log, offset: placed.region_offset, sum: placed.sum })
    }

    /// Ends the claiming phase: from now on, chunks that no log holds can be collected.
    ///
    /// Call it once every dataset's log has been set up and claimed, before the first txg syncs.
    ///
    /// # Errors
    /// [`Misuse::ClaimingNotOver`] while a log that is set up is not claimed.
    pub fn finish_claiming(&self) -> Result<(), Misuse> {
        let mut lists = lock(&self.lists);
        match lists.roster.unclaimed {
            0 => {
                lists.roster.claiming = false;
                lists.roster.scan = None;
                Ok(())
            }
            unclaimed => Err(Misuse::ClaimingNotOver { unclaimed }),
        }
    }

    /// Inserts an entry into the open chunk of a free commit slot.
    ///
    /// `reserve` is called once there is space, before the copy; what it returns is called during the copy.
    #[inline]
    pub(crate) fn insert<P: FnOnce() -> EntryMeta>(
        &self,
        body: [&[u8]; 2],
        wait: Wait,
        reserve: impl FnOnce() -> Result<P, WriteError>,
    ) -> Result<Placed, WriteError> {
        let body_bytes = body[0].len() + body[1].len();
        let slot = self.slot_with_room(body_bytes, wait)?;
        self.insert_into(slot, body, reserve)
    }

    /// Inserts an entry without a body where a fault that hits one range of the region rarely hits the newest
    /// records as well: into the open chunk of the last free slot. `None` if that has no room and there is no
    /// chunk to spare: the last free one is for records.
    ///
    /// `reserve` as in [`insert`](Self::insert).
    pub(crate) fn insert_apart<P: FnOnce() -> EntryMeta>(
        &self,
        reserve: impl FnOnce() -> Result<P, WriteError>,
    ) -> Result<Option<EntryId>, WriteError> {
        let Some(mut slot) = self.slots.try_acquire_last() else { return Ok(None) };
        self.check_health()?;
        let has_room = slot.as_ref().is_some_and(|chunk| chunk.has_room(self.layout, 0));
        if has_room || self.free_chunks() >= 2 && self.replace_chunk(&mut slot) {
            return self.insert_into(slot, [&[], &[]], reserve).map(|placed| Some(placed.id));
        }
        Ok(None)
    }

    #[inline]
    fn insert_into<P: FnOnce() -> EntryMeta>(
        &self,
        mut slot: SlotGuard<'_, OpenChunk<M>>,
        body: [&[u8]; 2],
        reserve: impl FnOnce() -> Result<P, WriteError>,
    ) -> Result<Placed, WriteError> {
        let body_bytes = body[0].len() + body[1].len();
        let stats = &self.slot_stats[slot.index()];
        let started = stats.times_next().then(self.config.clock);
        let chunk = slot.as_mut().expect("the caller has opened a chunk with room");
        let place = reserve()?;
        let region_offset = chunk.next_offset();
        let _writer = self.region_slots.as_deref().map(WriterSlots::enter);
        let inserted = chunk.insert(self.layout, body, place);
        let Inserting { id, sum, written_bytes } = inserted.map_err(|error| self.insert_failed(error))?;
        let lost = chunk.medium().lost_side();
        stats.entry(body_bytes, self.layout.alignment.round_up(body_bytes) - body_bytes, written_bytes);
        if let Some(started) = started {
            stats.timed((self.config.clock)() - started);
        }
        match lost {
            Some(side) if !self.note_lost(side) => {
                Err(WriteError::OnOneSide { id, region_offset, lost: side })
            }
            _ => Ok(Placed { id, region_offset, sum }),
        }
    }

    #[cold]
    fn insert_failed(&self, error: PersistError) -> WriteError {
        self.fail();
        error.into()
    }

    #[inline]
    fn slot_with_room(
        &self,
        body_bytes: usize,
        wait: Wait,
    ) -> Result<SlotGuard<'_, OpenChunk<M>>, WriteError> {
        if body_bytes > self.body_bytes_max {
            return Err(WriteError::TooLarge { body_bytes, max_bytes: self.body_bytes_max });
        }
        loop {
            let mut slot = self.slots.acquire();
            self.check_health()?;
            let has_room = slot.as_ref().is_some_and(|chunk| chunk.has_room(self.layout, body_bytes));
            if has_room || self.replace_chunk(&mut slot) {
                return Ok(slot);
            }
            // A writer that waits for a chunk must not keep others from their slots.
            drop(slot);
            self.wait_for_chunk(wait)?;
        }
    }

    /// Retires the slot's chunk and opens a free one; false if there is none.
    #[cold]
    fn replace_chunk(&self, slot: &mut OpenChunk<M>) -> bool {
        let mut lists = lock(&self.lists);
        if let Some(full) = slot.take() {
            debug_assert!(!full.is_empty(), "an empty chunk has room for every admitted body");
            lists.retire(full);
        }
        *slot = lists.free.pop_front();
        self.fill.note(&lists);
        slot.is_some()
    }

    #[cold]
    fn wait_for_chunk(&self, on_none: Wait) -> Result<(), WriteError> {
        let mut lists = lock(&self.lists);
        self.chunk_waits.fetch_add(1, Ordering::Relaxed);
        while lists.free.is_empty() {
            if lists.usable == 0 {
                return Err(WriteError::NoUsableChunk);
            }
            self.check_health()?;
            if on_none == Wait::Fail {
                return Err(WriteError::NoFreeChunk);
            }
            lists = wait(&self.chunk_freed, lists);
        }
        Ok(())
    }

    /// Entries written since the PRB was opened; as cheap as a few loads.
    pub fn entries_written(&self) -> u64 {
        self.slot_stats.iter().map(SlotStats::entries).sum()
    }

    /// Newest txg known to have synced.
    #[inline]
    pub(crate) fn synced(&self) -> Txg {
        Txg(self.synced.load(Ordering::Relaxed))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The scan of all chunks; made once in the claiming phase.
    pub(crate) fn scan(&self, lists: &mut MutexGuard<'_, Lists<M>>) -> Arc<Scan<M>> {
        let lists = &mut **lists;
        Arc::clone(lists.roster.scan.get_or_insert_with(|| Arc::new(Scan::new(&lists.wait_replay))))
    }

    /// What opening repaired on the sides of a mirror.
    pub fn side_repairs(&self) -> SideRepairs {
        self.repairs
    }

    /// How the traversal of each chunk ended when the PRB was opened, for reports to the operator.
    pub fn chunk_ends(&self) -> Vec<ChunkEnd> {
        let mut lists = lock(&self.lists);
        if lists.roster.claiming { self.scan(&mut lists).ends.clone() } else { Vec::new() }
    }

    /// Longest body that can be written, in bytes.
    pub fn body_bytes_max(&self) -> usize {
        self.body_bytes_max
    }

    /// Number of free chunks right now.
    pub fn free_chunks(&self) -> usize {
        lock(&self.lists).free.len()
    }

    /// Chunks that are neither free nor open in a slot, in 1024ths of those that can be. For owners that slow
    /// writers down before all of them must wait; nearly free to call.
    #[inline]
    pub fn used_per_1024(&self) -> u32 {
        self.fill.used_per_1024()
    }

    /// What the PRB has done since it was opened.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            slot_waits: self.slots.waits(),
            chunk_waits: self.chunk_waits.load(Ordering::Relaxed),
            chunks_collected: self.chunks_collected.load(Ordering::Relaxed),
            media_faults: self.media_faults.load(Ordering::Relaxed),
            side_faults: self.side_faults.each_ref().map(|count| count.load(Ordering::Relaxed)),
            ..Stats::default()
        };
        self.slot_stats.iter().for_each(|slot| stats.add_slot(slot));
        stats
    }

    /// Closes the PRB and returns the chunks' ranges, in their original order. Nothing is written.
    ///
    /// # Errors
    /// Returns the PRB if a log is still set up on it or another reference to it exists.
    pub fn close(self: Arc<Self>) -> Result<Vec<M>, (Arc<Self>, Misuse)> {
        let hdls = lock(&self.lists).roster.hdls;
        if hdls > 0 {
            return Err((self, Misuse::StillInUse { hdls }));
        }
        let prb = Arc::try_unwrap(self).map_err(|prb| (prb, Misuse::StillInUse { hdls: 0 }))?;
        let mut lists = prb.lists.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        lists.roster.scan = None;
        lists.releases.clear();
        let held = lists.wait_replay.into_iter().filter_map(Arc::into_inner);
        let mut chunks: Vec<_> = prb.slots.into_values().flatten().chain(held).collect();
        chunks.extend(lists.free);
        chunks.extend(lists.full.into_values().flatten());
        chunks.extend(lists.faulty);
        chunks.sort_by_key(|chunk| chunk.id);
        Ok(chunks.into_iter().map(Chunk::into_medium).collect())
    }
}
