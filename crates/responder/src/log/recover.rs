//! Carries out the records after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastness_pmlog::{RecordLog, RecoverError, Recovery};
use fastness_prb::{EntryId, OnLoss};
use fastness_sync::{lock, write};

use crate::backing::{BackingFile, FileId};
use crate::chunks::{DirtyFiles, Found};
use crate::error::{Error, LogError};
use crate::geometry::Geometry;
use crate::medium::CacheMedium;
use crate::stats::Orphan;

use super::damage::{Damage, END};
use super::medium::LogRange;
use super::orphans::{Changed, Orphans};
use super::record::{Record, What};
use super::{Claimed, Counting, LogStore, Stage, open_options};

/// What the records say of one file.
#[derive(Debug, Default)]
struct Said {
    records: Vec<(EntryId, u64)>,
    settled: u64,
}

impl Said {
    fn note(&mut self, id: EntryId, record: &Record) {
        match record.what {
            What::Data { .. } => self.records.push((id, record.number)),
            What::Settled => self.settled = self.settled.max(record.number),
        }
    }

    /// Records that count: those before `end`, and the others.
    fn counts(&self, end: EntryId) -> (u64, u64) {
        let count = |is_before: bool| {
            let mut ids = self.records.iter().filter(|(_, number)| *number > self.settled);
            ids.by_ref().filter(|(id, _)| (*id < end) == is_before).count() as u64
        };
        (count(true), count(false))
    }
}

/// What the records of a log say.
#[derive(Debug)]
struct Looked {
    files: BTreeMap<FileId, Said>,
    damage: Option<Damage>,
}

impl Looked {
    /// The first record that is not carried out.
    fn end(&self) -> EntryId {
        self.damage.as_ref().map_or(END, |damage| damage.at)
    }

    fn counts(&self, is_before: bool) -> impl Iterator<Item = (FileId, u64)> {
        let end = self.end();
        let count = move |said: &Said| if is_before { said.counts(end).0 } else { said.counts(end).1 };
        let counts = self.files.iter().map(move |(file, said)| (*file, count(said)));
        counts.filter(|(_, count)| *count > 0)
    }

    /// The error of a log that is not carried out in part without consent.
    fn refusal(&self) -> Option<LogError> {
        let damage = self.damage.as_ref()?;
        let sum = |is_before| self.counts(is_before).map(|(_, count)| count).sum::<u64>();
        Some(damage.error(sum(true), sum(false)))
    }
}

fn decoded(id: EntryId, bytes: &[u8]) -> Result<(Record, &[u8]), Error> {
    Record::decode(bytes).ok_or_else(|| LogError::Record { id }.into())
}

/// Opens the log; nothing of it is changed, so what is lost is decided after that.
fn open<M: CacheMedium>(
    range: LogRange<M>,
    geometry: &Geometry,
) -> Result<(Recovery<LogRange<M>>, Looked), Error> {
    let options = open_options(geometry).on_loss(OnLoss::DropTail);
    let recovery = RecordLog::open(range, &options).map_err(LogError::from)?;
    let (mut files, mut ids): (BTreeMap<FileId, Said>, _) = (BTreeMap::new(), Vec::new());
    let looked = recovery.look(|id, bytes| {
        let (record, _) = decoded(id.entry, bytes)?;
        ids.push(id.entry);
        files.entry(record.file).or_default().note(id.entry, &record);
        Ok(())
    });
    looked.map_err(stopped)?;
    let damage = Damage::of(recovery.loss(), recovery.hidden(), recovery.dropped(), &ids);
    Ok((recovery, Looked { files, damage }))
}

/// How many records of each file a recovery would carry out, and what is damaged; nothing is changed.
pub(crate) fn records_of<M: CacheMedium>(
    range: M,
    geometry: &Geometry,
) -> Result<(BTreeMap<FileId, u64>, Option<LogError>), Error> {
    let (_, looked) = open(LogRange::new(range), geometry)?;
    Ok((looked.counts(true).collect(), looked.refusal()))
}

impl<M: CacheMedium> LogStore<M> {
    /// Opens the log, and says which files have records; nothing is changed. What is damaged is given up only
    /// if that is asked for.
    pub(crate) fn recover_log(&self, drops_tail: bool) -> Result<DirtyFiles, Error> {
        let mut stage = write(&self.stage);
        let Stage::Unopened(range) = std::mem::replace(&mut *stage, Stage::Failed) else {
            return Err(LogError::NotOpen.into());
        };
        let (recovery, looked) = open(range, &self.geometry)?;
        if let Some(refusal) = looked.refusal().filter(|_| !drops_tail) {
            return Err(refusal.into());
        }
        let orphans = Orphans::read(&*self.backing, self.cache)?;
        // Also what stands after the damage says truly that earlier records do not count.
        let settled = looked.files.iter().map(|(file, said)| (*file, said.settled)).collect();
        let counting = Counting { settled, end: looked.end() };
        let mut counts: BTreeMap<FileId, u64> = looked.counts(true).collect();
        for record in orphans.iter() {
            let (record, _) = Record::decode(record).ok_or(LogError::Orphans)?;
            *counts.entry(record.file).or_default() += 1;
        }
        *lock(&self.orphans) = orphans;
        *stage = Stage::Found(Box::new(Claimed { recovery, counting, done: BTreeSet::new() }));
        let found =
            |(key, (file, records))| (file, Found { dirty_chunks: records, chunks: 1, ..Found::new(key) });
        Ok(DirtyFiles {
            files: (0..).zip(counts).map(found).collect(),
            left_out: looked.counts(false).collect(),
            unreadable: looked.damage.map_or(0, |damage| damage.unreadable),
            ..DirtyFiles::default()
        })
    }

    /// Carries out the records of some files, before [`replay`](Self::replay) does of the others.
    ///
    /// Persistence: the files have everything on return; the log has it, too.
    pub(crate) fn carry_out(&self, there: &BTreeMap<FileId, Arc<dyn BackingFile>>) -> Result<u64, Error> {
        let mut stage = write(&self.stage);
        let Stage::Found(claimed) = &mut *stage else { return Err(LogError::NotOpen.into()) };
        let Claimed { recovery, counting, done } = &mut **claimed;
        let (mut changed, mut count) = (Changed::default(), 0);
        let mut carry_out = |record: &Record, data: &[u8]| match there.get(&record.file) {
            Some(file) => {
                count += 1;
                changed.carry_out(file, record, data)
            }
            None => Ok(()),
        };
        for bytes in lock(&self.orphans).iter() {
            let (record, data) = Record::decode(bytes).ok_or(LogError::Orphans)?;
            carry_out(&record, data)?;
        }
        let looked = recovery.look(|id, bytes| {
            let (record, data) = decoded(id.entry, bytes)?;
            if counting.counts(id.entry, &record) { carry_out(&record, data) } else { Ok(()) }
        });
        looked.map_err(stopped)?;
        changed.sync()?;
        done.extend(there.keys());
        Ok(count)
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
        let Claimed { mut recovery, counting, done } = *claimed;
        let mut known = lock(&self.orphans);
        let (mut changed, mut left, mut count) = (Changed::default(), Orphans::default(), 0);
        let mut carry_out = |record: &Record, bytes: &[u8], data: &[u8]| {
            match there.get(&record.file) {
                Some(file) => {
                    changed.carry_out(file, record, data)?;
                    count += 1;
                }
                None if gone.contains(&record.file) || done.contains(&record.file) => {}
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
            if counting.counts(id.entry, &record) { carry_out(&record, bytes, data) } else { Ok(()) }
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

/// Files that are not in the directory.
impl<M: CacheMedium> LogStore<M> {
    pub(crate) fn orphans(&self) -> Result<Vec<Orphan>, Error> {
        let mut all: BTreeMap<FileId, Orphan> = BTreeMap::new();
        for bytes in lock(&self.orphans).iter() {
            let (Record { file, what, .. }, _) = Record::decode(bytes).ok_or(LogError::Orphans)?;
            let What::Data { size, modified_ns, .. } = what else { continue };
            let orphan = all.entry(file).or_insert(Orphan { file, size: 0, modified_ns: 0, chunks: 0 });
            (orphan.size, orphan.chunks) = (size, orphan.chunks + 1);
            orphan.modified_ns = orphan.modified_ns.max(modified_ns);
        }
        Ok(all.into_values().collect())
    }

    /// Shows the bytes of one, in the order of its syncs.
    pub(crate) fn copy_orphan(
        &self,
        id: FileId,
        see: &mut impl FnMut(u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (of_file, _) = lock(&self.orphans).of_file(id);
        for bytes in of_file.iter() {
            let (record, mut rest) = Record::decode(bytes).ok_or(LogError::Orphans)?;
            let What::Data { ranges, .. } = record.what else { continue };
            for range in ranges {
                let part;
                (part, rest) = rest.split_at((range.end - range.start) as usize);
                see(range.start, part)?;
            }
        }
        Ok(())
    }

    /// Persistence: they are gone on return.
    pub(crate) fn give_up_orphans(&self) -> Result<(), Error> {
        let mut known = lock(&self.orphans);
        if known.records() > 0 {
            Orphans::default().write(&*self.backing, self.cache)?;
            *known = Orphans::default();
        }
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
