//! Offline inspection of a pool's log: shows everything in it, damaged or not, without putting it into use.
//!
//! The pool is imported read-only. Nothing here stores to the region or writes to a device.

mod data;
mod dry;

use fastness_lwb::{Chain, Header as ChainHeader};
use fastness_pmem::{AnyRange, Medium, Mirror, Region};
use fastness_pool::{DatasetKind, Pool};
use fastness_prb::{
    BodyError, End, HdlHeader, Located, LogGuid, SideReport, Traversal, entries_behind, read_body,
    side_report,
};
use fastness_zil::record::{Head, Record, RecordError, RecordType, WriteData};
use fastness_zil::{ClaimCause, DatasetId, KindId, ObjectId, StoredHeader, Txg};

use crate::config::{LogConfig, RegionId};
use crate::error::StoreError;
use crate::log::logged;
use crate::region::{self, RegionParts};
use crate::sides;

pub use data::DataSurvey;
pub use dry::{DryClaim, Untouched, claim_dry};

/// A stored log header, decoded.
#[derive(Debug, Clone)]
pub enum StoredLog {
    /// There is no log.
    None,
    /// Of kind pmem.
    Pmem(HdlHeader),
    /// Of kind lwb.
    Lwb(ChainHeader),
}

/// A volume, and the header of its log.
#[derive(Debug, Clone)]
pub struct VolumeSurvey {
    /// Name.
    pub name: String,
    /// Number.
    pub dataset: DatasetId,
    /// The last synced txg's header of its log, or why that cannot be used.
    pub header: Result<StoredLog, ClaimCause>,
}

impl VolumeSurvey {
    /// Kind pmem: the log whose entries count, and the first txg for which it is needed.
    pub fn entries(&self, first_txg: Txg) -> Option<(LogGuid, Txg)> {
        match self.header.as_ref().ok()? {
            StoredLog::Pmem(HdlHeader::Logging { log }) => Some((*log, first_txg)),
            StoredLog::Pmem(HdlHeader::Replaying(replaying)) => Some((replaying.log, replaying.first_txg)),
            _ => None,
        }
    }

    /// Kind lwb: where the chain begins.
    pub fn chain(&self) -> Option<Chain> {
        match self.header.as_ref().ok()? {
            StoredLog::Lwb(ChainHeader::Logging(chain)) => Some(*chain),
            StoredLog::Lwb(ChainHeader::Claimed(claim)) => Some(claim.chain),
            _ => None,
        }
    }
}

/// The stored headers of all volumes' logs.
///
/// # Errors
/// Those of reading the tables.
pub fn headers(pool: &Pool) -> Result<Vec<VolumeSurvey>, StoreError> {
    let with_logs = logged(pool, |kind| kind != DatasetKind::Folder)?.into_iter();
    let found = with_logs.map(|(dataset, header)| {
        let header = header.map_or(Ok(StoredLog::None), |bytes| decode_header(&bytes));
        VolumeSurvey { name: dataset.name(), dataset: dataset.id(), header }
    });
    Ok(found.collect())
}

/// Decodes a stored header; the bytes are not trusted.
///
/// # Errors
/// What is wrong with it.
pub fn decode_header(bytes: &[u8]) -> Result<StoredLog, ClaimCause> {
    let stored = StoredHeader::decode(bytes)?;
    Ok(match stored.kind {
        KindId::Pmem => StoredLog::Pmem(HdlHeader::decode(stored.bytes)?),
        KindId::Lwb => StoredLog::Lwb(ChainHeader::decode(stored.bytes)?),
    })
}

/// The contents of a record, without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordSurvey {
    /// What happened.
    pub record_type: RecordType,
    /// Which object it happened to.
    pub object: ObjectId,
    /// The txg that makes it durable elsewhere.
    pub txg: Txg,
    /// First byte and number of bytes, if it has a range.
    pub range: Option<(u64, u64)>,
    /// Whether its data is not in the log but in the pool.
    pub is_indirect: bool,
    /// Where that data is; also `None` if its address is invalid.
    pub data: Option<DataSurvey>,
}

/// Decodes a record; the bytes are not trusted.
///
/// # Errors
/// [`RecordError`] with the place in the record.
pub fn record(bytes: &[u8]) -> Result<RecordSurvey, RecordError> {
    let (Head { txg, object, .. }, record) = Record::decode(bytes)?;
    let range = match &record {
        Record::Write(write) => Some(match write.data {
            WriteData::Inline(data) => (write.offset, data.len() as u64),
            WriteData::Indirect { len_bytes, .. } => (write.offset, len_bytes),
        }),
        Record::TimedWrite(write) => Some((write.offset, write.data.len() as u64)),
        Record::Extend { offset, len_bytes } => Some((*offset, *len_bytes)),
        Record::Truncate(cut) => Some((cut.offset, cut.len_bytes)),
        Record::Zeroes(zeroes) => Some((zeroes.offset, zeroes.len_bytes)),
        Record::CloneRange(clone) => Some((clone.offset, clone.len_bytes)),
        _ => None,
    };
    let (is_indirect, data) = (record.is_indirect(), DataSurvey::of(&record));
    Ok(RecordSurvey { record_type: record.record_type(), object, txg, range, is_indirect, data })
}

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
pub struct RegionSurvey {
    errors: Vec<(usize, StoreError)>,
    chunks: Vec<Mirror<AnyRange>>,
}

impl RegionSurvey {
    /// Inspects the regions of a pool's log; each chunk shows what either side has. The chunks of a region
    /// whose superblocks are damaged, or that is an earlier copy, are included too, in case it is the only
    /// one: they are always at the same places.
    ///
    /// # Errors
    /// What is wrong with the first region, if none of them can be inspected.
    pub fn new(pool: &Pool, config: &LogConfig, regions: Vec<Region>) -> Result<RegionSurvey, StoreError> {
        let first = config.regions.first();
        let expected = first.map_or(RegionId(0), |region| region.id);
        let last = || first.map(|region| region.path.clone()).unwrap_or_default();
        let (mut good, mut damaged, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for (side, region) in regions.into_iter().enumerate() {
            let path = region.info().path.clone();
            let look = |region| {
                let parts = RegionParts::of(region)?;
                let found = region::read(&parts.front, parts.len_bytes());
                let RegionParts { info, front, chunks } = parts;
                let found = found.and_then(|found| {
                    sides::check_marks(&front, found.id, &info, pool.synced_mark()).map(|()| found)
                });
                Ok((found, chunks))
            };
            match look(region) {
                Err(error) => errors.push((side, error)),
                Ok((Err(error), chunks)) => {
                    errors.push((side, error));
                    damaged.push(chunks);
                }
                Ok((Ok(found), chunks)) if config.in_use().any(|known| known.id == found.id) => {
                    good.push(chunks);
                }
                Ok((Ok(found), _)) => {
                    errors
                        .push((side, StoreError::OtherLog { found: found.id, path, last: last(), expected }));
                }
            }
        }
        let mut sides = if good.is_empty() { damaged } else { good }.into_iter();
        let Some(first) = sides.next() else {
            let first = errors.into_iter().next();
            return Err(
                first.map_or_else(|| StoreError::Missing { last: last(), expected }, |(_, error)| error)
            );
        };
        // Nothing after the end of the shorter side is in use.
        let chunks = match sides.next() {
            None => first.into_iter().map(Mirror::single).collect(),
            Some(second) => first.into_iter().zip(second).map(|(a, b)| Mirror::pair(a, b)).collect(),
        };
        Ok(RegionSurvey { errors, chunks })
    }

    /// The regions, by index among those given, that an import would leave out or refuse, and why.
    pub fn errors(&self) -> &[(usize, StoreError)] {
        &self.errors
    }

    /// How the sides of a chunk differ, if it has two.
    ///
    /// # Panics
    /// Caller bug only: the chunk does not exist.
    pub fn side_report(&self, index: usize) -> SideReport {
        side_report(&self.chunks[index])
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Reads a chunk: every entry with its record, up to where the entries end.
    ///
    /// # Panics
    /// Caller bug only: the chunk does not exist.
    pub fn chunk(&self, index: usize) -> ChunkSurvey {
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
    pub fn behind(
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

/// The first txg for which a log is needed.
pub fn first_needed_txg(pool: &Pool) -> Txg {
    pool.synced_txg().next()
}
