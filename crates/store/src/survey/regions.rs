//! Kind pmem: the chunks of a log's regions, entry by entry.

use fastness_pmem::{AnyRange, Medium, Mirror};
use fastness_pool::Pool;
use fastness_prb::{BodyError, End, Located, SideReport, Traversal, entries_behind, read_body, side_report};
use fastness_zil::Txg;
use fastness_zil::record::RecordError;

use crate::config::{LogConfig, RegionId};
use crate::error::StoreError;
use crate::region::{self, RegionParts};
use crate::sides;
use crate::survey::{RecordSurvey, record};

/// What is wrong with an entry whose header is intact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryFault {
    /// Its body is damaged.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// Its body is intact, but is not a record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Its data is elsewhere, which is impossible for records of this kind.
    #[error("its data is not in the log, and a log of this kind has no such records")]
    Elsewhere,
    /// Its txg differs from that of its record.
    #[error("the entry is of {entry}, its record of {record}")]
    OtherTxg {
        /// In the entry.
        entry: Txg,
        /// In the record.
        record: Txg,
    },
}

/// An entry of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntrySurvey {
    /// Its header, and where it is in the chunk.
    pub entry: Located,
    /// Where it is in the region.
    pub region_offset: u64,
    /// Its contents; `None` for an entry without a body, which only counts what precedes it.
    pub record: Result<Option<RecordSurvey>, EntryFault>,
}

/// The contents of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkSurvey {
    /// Region offset of the chunk.
    pub region_offset: u64,
    /// The entries of all logs, front to back.
    pub entries: Vec<EntrySurvey>,
    /// Region offset at which they end.
    pub ends_at: u64,
    /// Why.
    pub end: End,
}

/// A log of kind pmem that is inspected: one region, or a mirror of two.
#[derive(Debug)]
pub(super) struct RegionSurvey {
    errors: Vec<StoreError>,
    chunks: Vec<Mirror<AnyRange>>,
}

impl RegionSurvey {
    /// Inspects the regions of a pool's log; each chunk shows what either side has. The chunks of a region
    /// whose superblocks are damaged, or that is an earlier copy, are included too, in case it is the only
    /// one: they are always at the same places.
    ///
    /// # Errors
    /// What is wrong with the first region, if none of them can be inspected.
    pub(super) fn new(
        pool: &Pool,
        config: &LogConfig,
        regions: Vec<Result<RegionParts, StoreError>>,
    ) -> Result<RegionSurvey, StoreError> {
        let first = config.regions.first();
        let expected = first.map_or(RegionId(0), |region| region.id);
        let last = || first.map(|region| region.path.clone()).unwrap_or_default();
        let (mut good, mut damaged, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for region in regions {
            let parts = match region {
                Ok(parts) => parts,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            let len_bytes = parts.len_bytes();
            let RegionParts { info, front, chunks, .. } = parts;
            let checked = region::read(&front, len_bytes).and_then(|found| {
                sides::check_marks(&front, found.id, &info, pool.synced_mark()).map(|()| found)
            });
            match checked {
                Err(error) => {
                    errors.push(error);
                    damaged.push(chunks);
                }
                Ok(found) if config.in_use().any(|known| known.id == found.id) => good.push(chunks),
                Ok(found) => {
                    let path = info.path;
                    errors.push(StoreError::OtherLog { found: found.id, path, last: last(), expected });
                }
            }
        }
        let mut sides = if good.is_empty() { damaged } else { good }.into_iter();
        let Some(first) = sides.next() else {
            let first = errors.into_iter().next();
            return Err(first.unwrap_or_else(|| StoreError::Missing { last: last(), expected }));
        };
        // Nothing after the end of the shorter side is in use.
        let chunks = match sides.next() {
            None => first.into_iter().map(Mirror::single).collect(),
            Some(second) => first.into_iter().zip(second).map(|(a, b)| Mirror::pair(a, b)).collect(),
        };
        Ok(RegionSurvey { errors, chunks })
    }

    /// Why an import would leave out or refuse regions.
    pub(super) fn into_errors(self) -> Vec<StoreError> {
        self.errors
    }

    /// How the sides of a chunk differ, if it has two.
    ///
    /// # Panics
    /// Caller bug only: the chunk does not exist.
    pub(super) fn side_report(&self, index: usize) -> SideReport {
        side_report(&self.chunks[index])
    }

    /// Number of chunks.
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Reads a chunk: every entry with its record, up to where the entries end.
    ///
    /// # Panics
    /// Caller bug only: the chunk does not exist.
    pub(super) fn chunk(&self, index: usize) -> ChunkSurvey {
        let chunk = &self.chunks[index];
        let region_offset = chunk.region_offset();
        let mut buffer = Vec::new();
        let mut look = |entry: Located| EntrySurvey {
            entry,
            region_offset: region_offset + entry.offset as u64,
            record: read_record(chunk, &entry, &mut buffer),
        };
        let mut survey = ChunkSurvey { region_offset, entries: Vec::new(), ends_at: 0, end: End::Full };
        for mut traversal in Traversal::of_chunk(chunk) {
            survey.entries.extend(traversal.by_ref().map(&mut look));
            survey.ends_at = survey.ends_at.max(region_offset + traversal.offset() as u64);
            survey.end = traversal.end().unwrap_or(End::Full);
        }
        survey
    }

    /// The first needed entry after the end of a chunk: if there is one, the end is damage, because entries
    /// are written front to back and a chunk is emptied only when none of them is needed. Also returns its
    /// region offset.
    ///
    /// # Panics
    /// Caller bug only: the chunk does not exist.
    pub(super) fn behind(
        &self,
        index: usize,
        survey: &ChunkSurvey,
        is_needed: impl Fn(&Located) -> bool,
    ) -> Option<(u64, Located)> {
        let chunk = &self.chunks[index];
        let from = (survey.ends_at - survey.region_offset) as usize;
        let entry = entries_behind(chunk, from).find(is_needed)?;
        Some((survey.region_offset + entry.offset as u64, entry))
    }
}

fn read_record(
    chunk: &Mirror<AnyRange>,
    entry: &Located,
    buffer: &mut Vec<u8>,
) -> Result<Option<RecordSurvey>, EntryFault> {
    // The traversal has checked that the body is inside the chunk.
    let len = entry.header.body_len_bytes as usize;
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    match read_body(chunk, entry, buffer) {
        // The record itself is intact, and replay accepts it.
        Ok(()) | Err(BodyError::Padding { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    if len == 0 {
        return Ok(None);
    }
    let found = record(&buffer[..len])?;
    if found.txg != entry.header.txg {
        return Err(EntryFault::OtherTxg { entry: entry.header.txg, record: found.txg });
    }
    if found.is_indirect {
        return Err(EntryFault::Elsewhere);
    }
    Ok(Some(found))
}
