//! Offline inspection of a pool's log: shows everything in it, damaged or not, without putting it into use.
//!
//! The pool is imported read-only. Nothing here stores to the region or writes to a device.

mod data;
mod dry;
mod offline;
mod regions;

use fastness_lwb::{Chain, Header as ChainHeader};
use fastness_pool::{DatasetKind, Pool};
use fastness_prb::{HdlHeader, LogGuid};
use fastness_zil::record::{Head, Record, RecordError, RecordType, WriteData};
use fastness_zil::{ClaimCause, DatasetId, KindId, ObjectId, StoredHeader, Txg};

use crate::error::StoreError;
use crate::log::logged;

pub use data::DataSurvey;
pub use dry::{DryClaim, Untouched, claim_dry};
pub use offline::{ChunkFound, LogSurvey, RegionsFound, import_to_look};
pub use regions::{ChunkSurvey, EntryFault, EntrySurvey};

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

/// The first txg for which a log is needed.
pub fn first_needed_txg(pool: &Pool) -> Txg {
    pool.synced_txg().next()
}
