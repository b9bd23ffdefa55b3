//! An opened log: what it holds, and handing out its records.

use std::sync::Arc;

use fastness_pmem::RegionInfo;
use fastness_prb::{BodyError, ChunkEnd, ClaimError, Claimed, Entry, Hdl, HdlHeader, Prb, ReplayError};

use crate::error::{FormatError, RecoverError};
use crate::front::Front;
use crate::geometry::Geometry;
use crate::hidden::Hidden;
use crate::log::RecordId;
use crate::medium::LogMedium;
use crate::slot::HeaderSlot;
use crate::superblock::Superblock;

/// What opening found besides the records.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) damaged_blocks: Vec<FormatError>,
    pub(crate) ends: Vec<ChunkEnd>,
    pub(crate) hidden: Vec<Hidden>,
}

/// What a replay did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// Records handed out by this call.
    pub records: usize,
}

/// An opened log whose records wait to be carried out.
///
/// The order of use is [`Recovery::replay`], then [`Recovery::finish`]. Dropping it instead leaves the
/// records for the next [`RecordLog::open`](crate::RecordLog::open).
#[derive(Debug)]
pub struct Recovery<R: LogMedium> {
    pub(crate) prb: Arc<Prb<R>>,
    pub(crate) hdl: Hdl<R>,
    pub(crate) front: Front<R>,
    superblock: Superblock,
    pub(crate) committers: u32,
    pub(crate) claimed: Claimed,
    findings: Findings,
}

/// Why carrying out an entry stopped.
enum Stop<E> {
    Body(BodyError),
    Callback(E),
}

fn hand_out<R: LogMedium, E>(
    entry: Entry<'_, R>,
    log_number: u64,
    buffer: &mut Vec<u8>,
    apply: &mut impl FnMut(RecordId, &[u8]) -> Result<(), E>,
) -> Result<(), Stop<E>> {
    let len = entry.body_len_bytes();
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    match entry.read_body(buffer) {
        Ok(()) | Err(BodyError::Padding { .. }) => {}
        Err(error) => return Err(Stop::Body(error)),
    }
    apply(RecordId { log_number, entry: entry.id() }, &buffer[..len]).map_err(Stop::Callback)
}

fn recovered<T, E>(replayed: Result<T, ReplayError<Stop<E>>>) -> Result<T, RecoverError<E>> {
    replayed.map_err(|error| match error {
        ReplayError::Callback { id, source: Stop::Callback(source) } => RecoverError::Callback { id, source },
        ReplayError::Callback { id, source: Stop::Body(source) } => RecoverError::Body { id, source },
        ReplayError::Log(error) => RecoverError::Log(error),
        ReplayError::Misuse(error) => RecoverError::Bug(error),
        _ => unreachable!("replay has no other errors"),
    })
}

impl<R: LogMedium> Recovery<R> {
    pub(crate) fn new(
        prb: Arc<Prb<R>>,
        hdl: Hdl<R>,
        front: Front<R>,
        superblock: Superblock,
        committers: u32,
        claimed: Claimed,
        findings: Findings,
    ) -> Self {
        Self { prb, hdl, front, superblock, committers, claimed, findings }
    }

    /// Hands out the records in order; `apply` must make the effects of each durable before it returns, or at
    /// the latest before [`Recovery::finish`].
    ///
    /// If it fails, a later call continues with the record that it failed for. After a crash, the next
    /// recovery starts again with the first record: carrying out a record twice must do no harm. Persistence:
    /// before the first record is handed out, the set of records that belong to the log is durable, so each
    /// later recovery finds the same ones or reports their loss.
    ///
    /// # Errors
    /// [`RecoverError`].
    pub fn replay<E>(
        &mut self,
        apply: impl FnMut(RecordId, &[u8]) -> Result<(), E>,
    ) -> Result<Replayed, RecoverError<E>> {
        self.persist_claim()?;
        self.hand_out(apply)
    }

    /// Hands out the records as [`Recovery::replay`] does, but changes neither the medium nor the log.
    ///
    /// # Errors
    /// [`RecoverError`].
    pub fn inspect<E>(
        mut self,
        apply: impl FnMut(RecordId, &[u8]) -> Result<(), E>,
    ) -> Result<Replayed, RecoverError<E>> {
        self.hand_out(apply)
    }

    /// Hands out the records as [`Recovery::replay`] will, before it does; nothing is changed.
    ///
    /// # Errors
    /// [`RecoverError`].
    pub fn look<E>(
        &self,
        mut look: impl FnMut(RecordId, &[u8]) -> Result<(), E>,
    ) -> Result<(), RecoverError<E>> {
        let log_number = self.front.slot().log_number;
        let mut buffer = Vec::new();
        recovered(self.hdl.peek(|entry| hand_out(entry, log_number, &mut buffer, &mut look)))
    }

    fn persist_claim<E>(&mut self) -> Result<(), RecoverError<E>> {
        let Some(update) = self.claimed.update.take() else { return Ok(()) };
        if update.header() != &self.front.slot().header {
            let slot = HeaderSlot { header: update.clone().into_header(), ..self.front.slot().clone() };
            if let Err(error) = self.front.update(slot) {
                self.claimed.update = Some(update);
                return Err(error.into());
            }
        }
        Ok(())
    }

    pub(crate) fn hand_out<E>(
        &mut self,
        mut apply: impl FnMut(RecordId, &[u8]) -> Result<(), E>,
    ) -> Result<Replayed, RecoverError<E>> {
        let log_number = self.front.slot().log_number;
        let mut buffer = Vec::new();
        // The update is how far replay has got; it is ignored, since records are handed out from the first
        // one again.
        let replayed = self.hdl.replay(|entry, _update| hand_out(entry, log_number, &mut buffer, &mut apply));
        Ok(Replayed { records: recovered(replayed)?.entries })
    }

    /// Number of records to hand out.
    pub fn records(&self) -> usize {
        self.claimed.entries
    }

    /// Bytes of those records.
    pub fn record_bytes(&self) -> u64 {
        self.claimed.body_bytes
    }

    /// Places missing in the last generation: records whose append had not returned at the crash.
    pub fn gaps(&self) -> u64 {
        self.claimed.gaps
    }

    /// Records dropped because they are unreadable or depend on missing ones (`OnLoss::DropTail`).
    pub fn dropped(&self) -> usize {
        self.claimed.dropped
    }

    /// The first reason for dropping records.
    pub fn loss(&self) -> Option<&ClaimError> {
        self.claimed.loss.as_ref()
    }

    /// Signs of missing records that no other record depends on.
    pub fn hidden(&self) -> &[Hidden] {
        &self.findings.hidden
    }

    /// Records that were missing at the first recovery but are present now; they are not handed out.
    pub fn reappeared(&self) -> usize {
        self.claimed.reappeared
    }

    /// Unusable superblock copies and header slots; the other one of the pair is used.
    ///
    /// A crash in a trim or a recovery leaves a torn header slot.
    pub fn damaged_blocks(&self) -> &[FormatError] {
        &self.findings.damaged_blocks
    }

    /// Where and why each chunk ends.
    pub fn chunk_ends(&self) -> &[ChunkEnd] {
        &self.findings.ends
    }

    /// True if an earlier recovery was begun but not finished.
    pub fn is_resumed(&self) -> bool {
        matches!(self.front.slot().header, HdlHeader::Replaying(_))
    }

    /// How many unsafe shutdowns the region has gone through since the log was started; `None` if unknown.
    ///
    /// After one, no promise of the persistence domain may be relied upon.
    pub fn unsafe_shutdowns(&self) -> Option<u64> {
        let now = self.region_info()?.unsafe_shutdowns?;
        self.front.slot().unsafe_shutdowns.map(|then| now.saturating_sub(then))
    }

    /// Number of the log, as in [`RecordId`].
    pub fn log_number(&self) -> u64 {
        self.front.slot().log_number
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// How the region is divided.
    pub fn geometry(&self) -> &Geometry {
        &self.superblock.geometry
    }

    /// Information on the region; `None` for a medium that is only a model.
    pub fn region_info(&self) -> Option<&RegionInfo> {
        self.front.range().region_info()
    }
}
