//! A log that was opened: what is in it, and handing it out.

use std::fmt;
use std::sync::Arc;

use fastness_pmem::RegionInfo;
use fastness_prb::{BodyError, ChunkEnd, ClaimError, Claimed, Entry, Hdl, HdlHeader, Prb, ReplayError};

use crate::error::{FormatError, RecoverError};
use crate::front::Front;
use crate::geometry::Geometry;
use crate::log::RecordId;
use crate::medium::LogMedium;
use crate::slot::HeaderSlot;
use crate::superblock::Superblock;

/// Records are missing although every record that was found is in order: what no crash leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hidden {
    /// What a chunk says.
    End(fastness_prb::Hidden),
    /// More records are missing in the last generation than were being written at one time.
    Gaps {
        /// How many are missing.
        missing: u64,
        /// How many could have been in flight.
        in_flight: u64,
    },
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End(hidden) => hidden.fmt(f),
            Self::Gaps { missing, in_flight } => write!(
                f,
                "{missing} records are missing in the last generation, at most {in_flight} were being written"
            ),
        }
    }
}

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

/// A log that was opened and whose records wait to be carried out.
///
/// The order of use is [`Recovery::replay`], then [`Recovery::finish`]. Dropping it instead leaves the
/// records for the next [`PmLog::open`](crate::PmLog::open).
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

/// Why the function that carries out an entry was stopped.
enum Stop<E> {
    Body(BodyError),
    Callback(E),
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
    /// If it fails, a later call goes on with the record that it failed for. After a crash, the next recovery
    /// begins with the first record again: carrying out a record twice must do no harm.
    /// Persistence: before the first record is handed out, it is durable which records belong to the log, so
    /// that each later recovery finds the same ones or reports their loss.
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

    /// Hands out the records as [`Recovery::replay`] does, but changes nothing on the medium, and leaves the
    /// log as it was.
    ///
    /// # Errors
    /// [`RecoverError`].
    pub fn inspect<E>(
        mut self,
        apply: impl FnMut(RecordId, &[u8]) -> Result<(), E>,
    ) -> Result<Replayed, RecoverError<E>> {
        self.hand_out(apply)
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
        // The update is the place that replay has come to; records are handed out from the first one again.
        let replayed = self.hdl.replay(|entry: Entry<'_, R>, _update| {
            let len = entry.body_len_bytes();
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            match entry.read_body(&mut buffer) {
                Ok(()) | Err(BodyError::Padding { .. }) => {}
                Err(error) => return Err(Stop::Body(error)),
            }
            apply(RecordId { log_number, entry: entry.id() }, &buffer[..len]).map_err(Stop::Callback)
        });
        match replayed {
            Ok(replayed) => Ok(Replayed { records: replayed.entries }),
            Err(ReplayError::Callback { id, source: Stop::Callback(source) }) => {
                Err(RecoverError::Callback { id, source })
            }
            Err(ReplayError::Callback { id, source: Stop::Body(source) }) => {
                Err(RecoverError::Body { id, source })
            }
            Err(ReplayError::Log(error)) => Err(RecoverError::Log(error)),
            Err(ReplayError::Misuse(error)) => Err(RecoverError::Bug(error)),
            Err(_) => unreachable!("replay has no other errors"),
        }
    }

    /// Number of records to hand out.
    pub fn records(&self) -> usize {
        self.claimed.entries
    }

    /// Bytes of those records.
    pub fn record_bytes(&self) -> u64 {
        self.claimed.body_bytes
    }

    /// Places missing in the last generation: records whose append had not returned when the crash came.
    pub fn gaps(&self) -> u64 {
        self.claimed.gaps
    }

    /// Records given up because they are unreadable or depend on missing ones (`OnLoss::DropTail`).
    pub fn dropped(&self) -> usize {
        self.claimed.dropped
    }

    /// The first reason for giving records up.
    pub fn loss(&self) -> Option<&ClaimError> {
        self.claimed.loss.as_ref()
    }

    /// Signs of missing records that no record depends on.
    pub fn hidden(&self) -> &[Hidden] {
        &self.findings.hidden
    }

    /// Records that are there but were not when the log was recovered first; they are not handed out.
    pub fn reappeared(&self) -> usize {
        self.claimed.reappeared
    }

    /// Superblock copies and header slots that cannot be used; the other one of the pair serves.
    ///
    /// A torn header slot is what a crash in a trim or in a recovery leaves.
    pub fn damaged_blocks(&self) -> &[FormatError] {
        &self.findings.damaged_blocks
    }

    /// Where and why each chunk ends.
    pub fn chunk_ends(&self) -> &[ChunkEnd] {
        &self.findings.ends
    }

    /// True if an earlier recovery was begun and not finished.
    pub fn is_resumed(&self) -> bool {
        matches!(self.front.slot().header, HdlHeader::Replaying(_))
    }

    /// How many unsafe shutdowns the region has gone through since the log was started; `None` if unknown.
    ///
    /// After one, nothing that the persistence domain promised may be relied upon.
    pub fn unsafe_shutdowns(&self) -> Option<u64> {
        let now = self.region_info()?.unsafe_shutdowns?;
        self.front.slot().unsafe_shutdowns.map(|then| now.saturating_sub(then))
    }

    /// Number of the log, as in [`RecordId`].
    pub fn log_number(&self) -> u64 {
        self.front.slot().log_number
    }

    /// What the superblock says.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// How the region is divided.
    pub fn geometry(&self) -> &Geometry {
        &self.superblock.geometry
    }

    /// What is known of the region; `None` for a medium that is only a model.
    pub fn region_info(&self) -> Option<&RegionInfo> {
        self.front.range().region_info()
    }
}
