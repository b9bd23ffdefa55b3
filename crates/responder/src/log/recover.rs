//! Carries out the records after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastness_pmlog::{RecordLog, RecoverError, Recovery};
use fastness_prb::EntryId;
use fastness_sync::{lock, write};

use crate::backing::{BackingFile, FileId};
use crate::chunks::{DirtyFiles, Found};
use crate::error::{Error, LogError};
use crate::geometry::Geometry;
use crate::medium::CacheMedium;

use super::medium::LogRange;
use super::orphans::{Changed, Orphans};
use super::record::{Record, What};
use super::{Claimed, LogStore, Stage, open_options};

/// What the records say of one file.
#[derive(Debug, Default)]
struct Said {
    numbers: Vec<u64>,
    settled: u64,
}

impl Said {
    fn note(&mut self, record: &Record) {
        match record.what {
            What::Data { .. } => self.numbers.push(record.number),
            What::Settled => self.settled = self.settled.max(record.number),
        }
    }

    fn count(&self) -> u64 {
        self.numbers.iter().filter(|&&number| number > self.settled).count() as u64
    }
}

fn decoded(id: EntryId, bytes: &[u8]) -> Result<(Record, &[u8]), Error> {
    Record::decode(bytes).ok_or_else(|| LogError::Record { id }.into())
}

fn look<M: CacheMedium>(recovery: &Recovery<LogRange<M>>) -> Result<BTreeMap<FileId, Said>, Error> {
    let mut said: BTreeMap<FileId, Said> = BTreeMap::new();
    let looked = recovery.look(|id, bytes| {
        let (record, _) = decoded(id.entry, bytes)?;
        said.entry(record.file).or_default().note(&record);
        Ok(())
    });
    looked.map_err(stopped)?;
    Ok(said)
}

/// How many records of each file a recovery would carry out, by inode; nothing is changed.
pub(crate) fn records_of<M: CacheMedium>(range: M, geometry: &Geometry) -> Result<BTreeMap<u64, u64>, Error> {
    let recovery = RecordLog::open(LogRange::new(range), &open_options(geometry)).map_err(LogError::from)?;
    let counts = look(&recovery)?.into_iter().map(|(file, said)| (file.inode, said.count()));
    Ok(counts.filter(|(_, count)| *count > 0).collect())
}

impl<M: CacheMedium> LogStore<M> {
    /// Opens the log, and says which files have records; nothing is changed.
    pub(crate) fn recover_log(&self) -> Result<DirtyFiles, Error> {
        let mut stage = write(&self.stage);
        let Stage::Unopened(range) = std::mem::replace(&mut *stage, Stage::Failed) else {
            return Err(LogError::NotOpen.into());
        };
        let recovery = RecordLog::open(range, &open_options(&self.geometry)).map_err(LogError::from)?;
        let orphans = Orphans::read(&*self.backing, self.cache)?;
        let said = look(&recovery)?;
        let settled = said.iter().map(|(file, said)| (*file, said.settled)).collect();
        let mut counts: BTreeMap<FileId, u64> =
            said.iter().map(|(file, said)| (*file, said.count())).filter(|(_, count)| *count > 0).collect();
        for record in orphans.iter() {
            let (record, _) = Record::decode(record).ok_or(LogError::Orphans)?;
            *counts.entry(record.file).or_default() += 1;
        }
        *lock(&self.orphans) = orphans;
        *stage = Stage::Found(Box::new(Claimed { recovery, settled }));
        let found = |(key, (file, records))| {
            let found =
                Found { key, dirty_chunks: records, end: 0, chunks: 1, modified_ns: 0, has_intent: false };
            (file, found)
        };
        Ok(DirtyFiles { files: (0..).zip(counts).map(found).collect(), ..DirtyFiles::default() })
    }

    /// Carries out the records of files that are there, keeps those of files that are not, unless they are
    /// `gone` for good, and empties the log. Returns how many were carried out.
    ///
    /// Persistence: the files have everything when the log is empty. A crash inside leaves both to be done
    /// again, or done.
    pub(crate) fn replay(
        &self,
        there: &BTreeMap<FileId, Arc<dyn BackingFile>>,
        gone: &BTreeSet<FileId>,
    ) -> Result<u64, Error> {
        let mut stage = write(&self.stage);
        let Stage::Found(claimed) = std::mem::replace(&mut *stage, Stage::Failed) else {
            return Err(LogError::NotOpen.into());
        };
        let Claimed { mut recovery, settled } = *claimed;
        let mut known = lock(&self.orphans);
        let (mut changed, mut left, mut count) = (Changed::default(), Orphans::default(), 0);
        let mut carry_out = |record: &Record, bytes: &[u8], data: &[u8]| {
            match there.get(&record.file) {
                Some(file) => {
                    changed.carry_out(file, record, data)?;
                    count += 1;
                }
                None if gone.contains(&record.file) => {}
                None => left.add(bytes),
            }
            Ok::<_, Error>(())
        };
        for bytes in known.iter() {
            let (record, data) = Record::decode(bytes).ok_or(LogError::Orphans)?;
            carry_out(&record, bytes, data)?;
        }
        let replayed = recovery.replay(|id, bytes| {
            let (record, data) = decoded(id.entry, bytes)?;
            let counts = record.what != What::Settled && record.number > settled[&record.file];
            if counts { carry_out(&record, bytes, data) } else { Ok(()) }
        });
        replayed.map_err(stopped)?;
        changed.sync()?;
        if known.records() + left.records() > 0 {
            left.write(&*self.backing, self.cache)?;
        }
        // Only now: what the log has is durable elsewhere.
        let log = recovery.finish().map_err(LogError::recover)?;
        *known = left;
        *stage = Stage::Open(Box::new(log));
        Ok(count)
    }

    /// A file that has come back: carries out the records that were kept of it.
    ///
    /// Persistence: the file has them on return.
    pub(crate) fn adopt_orphan(&self, id: FileId, file: &Arc<dyn BackingFile>) -> Result<(), Error> {
        let mut known = lock(&self.orphans);
        let (of_file, others) = known.of_file(id);
        let mut changed = Changed::default();
        for bytes in of_file.iter() {
            let (record, data) = Record::decode(bytes).ok_or(LogError::Orphans)?;
            changed.carry_out(file, &record, data)?;
        }
        changed.sync()?;
        others.write(&*self.backing, self.cache)?;
        *known = others;
        Ok(())
    }
}

fn stopped(error: RecoverError<Error>) -> Error {
    match error {
        RecoverError::Callback { source, .. } => source,
        RecoverError::Body { id, source } => LogError::recover(RecoverError::Body { id, source }).into(),
        RecoverError::Log(error) => LogError::recover(RecoverError::Log(error)).into(),
        RecoverError::NotReplayed => LogError::recover(RecoverError::NotReplayed).into(),
        RecoverError::Persist(error) => LogError::recover(RecoverError::Persist(error)).into(),
        RecoverError::Collect(error) => LogError::recover(RecoverError::Collect(error)).into(),
        RecoverError::Bug(error) => LogError::recover(RecoverError::Bug(error)).into(),
        _ => LogError::NotOpen.into(),
    }
}
