//! A snapshot, or what it has changed since another one, becomes a stream.
//!
//! Only blocks that differ are read. The snapshots are held meanwhile, so that neither is destroyed.

use std::io::Write;
use std::sync::Arc;

use fastness_store::{Dataset, DatasetHold, DatasetKind, Guid, Object, Pool, Store};
use fastness_stream::{Begin, DATA_BYTES_MAX, RECORD_BYTES, Token, Writer, begin_bytes};

use crate::transfer::error::TransferError;
use crate::volume::DATA;

/// Rows of 32 blocks that are looked at in one step.
const STEP_ROWS: usize = 1024;

/// How long a stream is, to the byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamSize {
    /// The whole stream.
    pub stream_bytes: u64,
    /// Bytes of the volume in it.
    pub data_bytes: u64,
    /// Records.
    pub records: u64,
}

/// A snapshot that is to be sent.
pub struct Outgoing {
    pool: Arc<Pool>,
    to: Dataset,
    from: Option<Dataset>,
    data: Object,
    begin: Begin,
    _holds: Vec<DatasetHold>,
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outgoing({})", self.begin.name)
    }
}

impl Outgoing {
    /// All of a snapshot, or what it has changed since another one of its volume, or of the volume that its
    /// volume is a clone of.
    ///
    /// # Errors
    /// [`TransferError::NoSnapshot`]; an older one that is not (`PoolError::Invalid`); those of the pool.
    pub fn open(store: &Store, snapshot: &str, from: Option<&str>) -> Result<Outgoing, TransferError> {
        Outgoing::at(store, snapshot, from, 0)
    }

    /// The rest of a stream that was interrupted.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`TransferError::NoSuchGuid`].
    pub fn resume(store: &Store, token: &Token) -> Result<Outgoing, TransferError> {
        let pool = store.pool();
        let find = |guid: u64| {
            let found = pool.snapshots_with_guid(Guid(guid), None)?;
            if found.is_empty() { Err(TransferError::NoSuchGuid(guid)) } else { Ok(found) }
        };
        let mut ends = find(token.to)?;
        // Rather the one that was sent.
        ends.sort_by_key(|name| *name != token.name);
        let beginnings = match token.from {
            Some(from) => find(from)?.into_iter().map(Some).collect(),
            None => vec![None],
        };
        // What was received in the pool that it was sent from has the same GUIDs: those that belong together.
        let mut refused = TransferError::NoSuchGuid(token.to);
        for to in &ends {
            for from in &beginnings {
                match Outgoing::at(store, to, from.as_deref(), token.offset) {
                    Ok(outgoing) => return Ok(outgoing),
                    Err(error) => refused = error,
                }
            }
        }
        Err(refused)
    }

    fn at(
        store: &Store,
        snapshot: &str,
        from: Option<&str>,
        resumes_at: u64,
    ) -> Result<Outgoing, TransferError> {
        let pool = store.pool();
        let mut holds = Vec::new();
        let mut open = |name: &str| {
            let dataset = pool.dataset(name)?;
            if dataset.snapshot_of() != Some(DatasetKind::Volume) {
                return Err(TransferError::NoSnapshot(name.to_owned()));
            }
            holds.push(dataset.hold()?);
            Ok((pool.snapshot_guid(name)?.0, dataset))
        };
        let (guid, to) = open(snapshot)?;
        let from = from.map(&mut open).transpose()?;
        let data = to.object(DATA)?;
        let begin = Begin {
            to: guid,
            from: from.as_ref().map(|(guid, _)| *guid),
            name: snapshot.to_owned(),
            size_bytes: data.size_bytes(),
            block_bytes: data.block_bytes(),
            resumes_at,
        };
        let outgoing = Outgoing { from: from.map(|(_, from)| from), pool, to, data, begin, _holds: holds };
        // Whether the one is a state of before the other.
        outgoing.pool.difference(
            outgoing.from.as_ref().map(Dataset::id),
            outgoing.to.id(),
            u64::MAX / 2,
            1,
        )?;
        if resumes_at > outgoing.begin.size_bytes {
            return Err(fastness_stream::StreamError::BadToken(format!("offset {resumes_at}")).into());
        }
        Ok(outgoing)
    }

    /// What the stream says of itself.
    pub fn about(&self) -> &Begin {
        &self.begin
    }

    /// Calls `each` with the ranges that a record is made of: offset, length, whether it is a hole.
    fn ranges(
        &self,
        mut each: impl FnMut(u64, u64, bool) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        let block_bytes = u64::from(self.begin.block_bytes);
        let mut next = Some(self.begin.resumes_at / block_bytes);
        while let Some(first) = next {
            let from = self.from.as_ref().map(Dataset::id);
            let found = self.pool.difference(from, self.to.id(), first, STEP_ROWS)?;
            for (blocks, is_hole) in found.runs {
                let end = blocks.end.saturating_mul(block_bytes).min(self.begin.size_bytes);
                let mut at = blocks.start.saturating_mul(block_bytes).max(self.begin.resumes_at);
                while at < end {
                    let len = if is_hole { end - at } else { (end - at).min(DATA_BYTES_MAX as u64) };
                    each(at, len, is_hole)?;
                    at += len;
                }
            }
            next = found.next;
        }
        Ok(())
    }

    /// How long the stream is. Reads rows, and no data.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn size(&self) -> Result<StreamSize, TransferError> {
        let mut size = StreamSize {
            stream_bytes: begin_bytes(&self.begin.name) + RECORD_BYTES as u64,
            data_bytes: 0,
            records: 2,
        };
        self.ranges(|_, len, is_hole| {
            let data_bytes = if is_hole { 0 } else { len };
            size.stream_bytes += RECORD_BYTES as u64 + data_bytes;
            size.data_bytes += data_bytes;
            size.records += 1;
            Ok(())
        })?;
        Ok(size)
    }

    /// Writes the stream.
    ///
    /// # Errors
    /// [`DamagedBlock`](fastness_store::PoolError::DamagedBlock): the stream then has no end; those of
    /// `output`.
    pub fn write(&self, output: impl Write) -> Result<(), TransferError> {
        let mut writer = Writer::begin(output, &self.begin)?;
        let mut buffer = vec![0; DATA_BYTES_MAX.min(self.begin.size_bytes as usize)];
        self.ranges(|at, len, is_hole| {
            if is_hole {
                return Ok(writer.hole(at, len)?);
            }
            let part = &mut buffer[..len as usize];
            let read = self.data.read(at, part)?;
            part[read..].fill(0);
            Ok(writer.data(at, part)?)
        })?;
        Ok(writer.end()?)
    }
}
