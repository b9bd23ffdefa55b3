//! Reading entries by their places, while others are written: for owners that keep a body nowhere else.
//!
//! An entry stays as it is until its chunk is emptied, which is after its txg has synced
//! ([`Prb::collect`](crate::Prb::collect)). Nothing is locked. What is found is checked all the same: the
//! header by its own checksum and by what the writer was told of it, the body by the header's.
//!
//! Of a mirror the first side that has the entry gives it. One that does not is counted.

use std::cell::RefCell;
use std::sync::Arc;

use fastness_base::{LogPlace, LostInLog, ReadLogged};
use fastness_pmem::{SIDES_MAX, View};
use fastness_sync::atomic::{AtomicU64, Ordering};

use crate::entry::{EntryHeader, HEADER_BYTES, header_sum};
use crate::traverse::BodyError;

thread_local! {
    /// An entry that is being checked. It is as long as the longest one that this thread has read.
    static ENTRY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Most bytes of a body that are read with its header.
const WITH_HEADER_BYTES_MAX: usize = 1 << 20;

/// The regions that the chunks of a PRB lie in.
pub struct EntryViews {
    /// By side; a place is at the same offset in each.
    sides: Vec<Arc<dyn View>>,
    read_bytes: AtomicU64,
    /// By side.
    faults: [AtomicU64; SIDES_MAX],
}

impl std::fmt::Debug for EntryViews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EntryViews({} sides)", self.sides.len())
    }
}

impl EntryViews {
    /// Views of all of each side.
    pub fn new(sides: Vec<Arc<dyn View>>) -> EntryViews {
        EntryViews { sides, read_bytes: AtomicU64::new(0), faults: Default::default() }
    }

    /// Bytes that were read of the regions: headers and whole bodies.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// How often each side did not have what was written.
    pub fn faults(&self) -> [u64; SIDES_MAX] {
        self.faults.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Calls `take` with the body of the entry whose header is at a region offset, from the first side that
    /// has it. `sum`: what [`Placed`](crate::Placed) says. `least_bytes`: the body is known to be so long, or
    /// longer; so much of it is read together with the header, since the first bytes of a read from PM are
    /// what takes the time.
    ///
    /// # Errors
    /// [`BodyError`] of the first side if none has it.
    pub fn read<T>(
        &self,
        region_offset: u64,
        sum: u64,
        least_bytes: usize,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, BodyError> {
        ENTRY.with(|entry| {
            let mut entry = entry.borrow_mut();
            let mut failed = None;
            for (side, faults) in self.sides.iter().zip(&self.faults) {
                match self.read_side(&**side, region_offset, sum, least_bytes, &mut entry) {
                    Ok(end) => return Ok(take(&entry[HEADER_BYTES..end])),
                    Err(error) => {
                        faults.fetch_add(1, Ordering::Relaxed);
                        failed.get_or_insert(error);
                    }
                }
            }
            Err(failed.unwrap_or(BodyError::HeaderChanged { region_offset }))
        })
    }

    /// Reads the whole entry into the front of `entry`; returns its length.
    fn read_side(
        &self,
        side: &dyn View,
        region_offset: u64,
        sum: u64,
        least_bytes: usize,
        entry: &mut Vec<u8>,
    ) -> Result<usize, BodyError> {
        let front = HEADER_BYTES + least_bytes.min(WITH_HEADER_BYTES_MAX);
        if entry.len() < front {
            entry.resize(front, 0);
        }
        side.read(region_offset, &mut entry[..front])?;
        let changed = BodyError::HeaderChanged { region_offset };
        let header: &[u8; HEADER_BYTES] = entry.first_chunk().ok_or(changed)?;
        let found = EntryHeader::decode(header).ok().filter(|_| header_sum(header) == sum);
        let Some(found) = found else { return Err(changed) };
        let len = usize::try_from(found.body_len_bytes).map_err(|_| changed)?;
        let end = HEADER_BYTES.checked_add(len).ok_or(changed)?;
        if entry.len() < end {
            entry.resize(end, 0);
        }
        if front < end {
            side.read(region_offset + front as u64, &mut entry[front..end])?;
        }
        self.read_bytes.fetch_add(front.max(end) as u64, Ordering::Relaxed);
        if found.checksum_kind.of(&entry[HEADER_BYTES..end]) != found.body_checksum {
            return Err(BodyError::Checksum { region_offset: region_offset + HEADER_BYTES as u64 });
        }
        Ok(end)
    }
}

impl ReadLogged for EntryViews {
    fn read(&self, place: LogPlace, within: usize, out: &mut [u8]) -> Result<(), LostInLog> {
        let lost = |why| LostInLog { offset: place.offset, why };
        let least_bytes = within.saturating_add(out.len());
        let taken = self.read(place.offset, place.sum, least_bytes, |body| {
            let part = within.checked_add(out.len()).and_then(|end| body.get(within..end));
            part.map(|part| out.copy_from_slice(part))
        });
        match taken {
            Ok(Some(())) => Ok(()),
            Ok(None) => Err(lost("it is shorter than what it is to have".to_owned())),
            Err(error) => Err(lost(error.to_string())),
        }
    }
}
