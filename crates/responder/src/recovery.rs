//! Takes up a cache after a crash, or after it was closed: there is no difference.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::Arc;

use fastness_sync::lock;

use crate::backing::{Backing, BackingFile, FileId, Mark, Opening};
use crate::cache::Cache;
use crate::chunks::Found;
use crate::error::Error;
use crate::intent::{Intent, Numbered};
use crate::medium::CacheMedium;
use crate::names::Noted;
use crate::names::replay::{Replayed, replay};
use crate::opening::Openings;
use crate::options::Options;
use crate::protocol::Protocol;
use crate::stats::Recovered;
use crate::superblock::Superblock;

impl<M: CacheMedium> Cache<M> {
    /// Opens the cache of a region: makes names again that the directory does not have, undoes what was not
    /// complete, completes what has an intent, and finds the files of the dirty chunks in the directory. The
    /// directory changes only where names are made again, or a truncation is completed; files that were made
    /// again get their data. [`flush`](Self::flush) writes all other data.
    ///
    /// Persistence: what was acknowledged is there, and what was recovered is durable. A crash inside leaves
    /// a region that is recovered in the same way.
    ///
    /// # Errors
    /// [`Error`]; the region is as it was, or as a crash would leave it. [`Error::WrongDirectory`],
    /// [`Error::Unmarked`], [`Error::Copy`]: nothing was touched.
    pub fn open(
        region: M,
        backing: Arc<dyn Backing>,
        options: &Options,
    ) -> Result<(Cache<M>, Recovered), Error> {
        let superblock = Superblock::read(&region)?;
        if superblock.geometry.region_bytes > region.len_bytes() as u64 {
            return Err(Error::Geometry("the region is shorter than when the cache was created"));
        }
        let openings = Openings::read(&region, superblock.cache);
        let has = check_directory(&superblock, &openings, (&*backing, options.pairs_anew))?;
        let cache = Cache::taken_up(region, backing, superblock, options)?;
        // Before anything else changes: from now on, copies that were made earlier are older.
        let what = (cache.superblock.cache, has);
        let set_mark = |mark| set_mark(&*cache.backing, mark);
        openings.begin(lock(&cache.intents).front(), what, set_mark)?;
        let intents = lock(&cache.intents).recover()?;
        let recovered = cache.recover(&intents, options)?;
        Ok((cache, recovered))
    }

    /// Names first, then what is in PM of files, then intents; the records of names are free last.
    ///
    /// Names come first because bytes need their files: what is in PM of a file that the crash has lost goes
    /// to the one that is made in its place, and names say which files are gone for good. They are free last
    /// because PM goes on naming the lost file: until nothing does, only the records of names say which file
    /// is there instead.
    ///
    /// Crash cases:
    /// 1. While names are made again: the next recovery goes on with what it finds (`names::replay`).
    /// 2. After that: it finds names as they should be, and the same substitutes, which were durable before
    ///    any data went to them. It sets no attributes: files may have newer times by now.
    /// 3. While what is in PM goes to files: a chunk is clean, a record of the protocol Log gone, only after
    ///    a sync of the file, whose name is durable by then. What is done again comes to the same.
    /// 4. After that, before the records of names are free: nothing is left to do but that.
    fn recover(&self, intents: &[Numbered], options: &Options) -> Result<Recovered, Error> {
        let (noted, is_done) = self.names.recover()?;
        let substitute = |noted: &Noted, id| self.names.substitute(noted, id);
        let replayed = replay(&*self.backing, (&noted, is_done), &substitute)?;
        if !noted.is_empty() && !is_done {
            self.names.set_replayed()?;
        }
        let mut chunks = self.protocol.recover(options.drops_tail)?;
        let mut recovered = Recovered {
            names: noted.len() as u64,
            made_again: replayed.substitutes.len() as u64,
            undone_writes: chunks.undone,
            redone_writes: chunks.redone,
            left_out: std::mem::take(&mut chunks.left_out),
            unreadable: chunks.unreadable,
            damaged: chunks.damaged,
            ..Recovered::default()
        };
        let named: BTreeSet<FileId> = intents.iter().map(|(_, intent)| intent.file()).collect();
        let excluded = named.iter().chain(&replayed.gone).copied().collect();
        let how = (options.recovery_files, options.drops_tail);
        self.recover_few(&mut chunks, &excluded, &replayed, how, &mut recovered)?;
        let wanted: BTreeSet<FileId> = chunks.files.keys().copied().chain(named).collect();
        let found = self.find(&wanted, &replayed)?;
        // Removed for good: records of names say so, or an intent does, and the file is not there.
        let is_gone = |intent: &Intent| !intent.is_truncation() && !found.contains_key(&intent.file());
        let by_intents =
            intents.iter().filter(|(_, intent)| is_gone(intent)).map(|(_, intent)| intent.file());
        let gone: BTreeSet<FileId> = replayed.gone.iter().copied().chain(by_intents).collect();
        let reached = reached(intents, &found);
        recovered.records += self.protocol.replay(&found, &gone, &mut chunks)?;
        for gone in gone.iter().filter_map(|id| chunks.files.remove(id)) {
            self.protocol.give_up_all(gone.key)?;
        }
        for &(number, intent) in intents.iter().filter(|(_, intent)| gone.contains(&intent.file())) {
            lock(&self.intents).end(number)?;
            recovered.removals += u64::from(!intent.is_truncation());
        }
        for (&id, of_file) in &chunks.files {
            lock(&self.keys).skip(of_file.key, of_file.chunks);
            recovered.dirty_chunks += of_file.dirty_chunks;
            let Some(backing) = found.get(&id) else {
                recovered.orphaned_chunks += of_file.dirty_chunks;
                lock(&self.orphans).insert(id, *of_file);
                continue;
            };
            self.add_found(id, of_file, backing)?;
        }
        for &(number, intent) in intents.iter().filter(|(_, intent)| found.contains_key(&intent.file())) {
            let file = intent.file();
            self.complete(number, intent, &found[&file], reached.get(&file).copied())?;
            recovered.truncations += u64::from(intent.is_truncation());
        }
        // A truncation of a file that is not there waits for it, as its data do.
        for &(number, intent) in intents.iter().filter(|(_, intent)| !found.contains_key(&intent.file())) {
            if let Intent::Truncate(id, size) = intent {
                let waits = |orphan: &mut Found| orphan.truncation = Some((number, size));
                lock(&self.orphans).entry(id).and_modify(waits);
            }
        }
        for lost in replayed.substitutes.keys() {
            recovered.unreadable += self.hand_over(*lost, options.drops_tail)?;
        }
        self.names.clear()?;
        Ok(recovered)
    }

    /// A file of the directory of which PM has something.
    pub(crate) fn add_found(
        &self,
        id: FileId,
        of_file: &Found,
        backing: &Arc<dyn BackingFile>,
    ) -> Result<(), Error> {
        let stat = backing.stat().map_err(Error::backing("say what a file is"))?;
        let size = stat.size.max(of_file.end);
        // A flush that was cut short may have moved the directory's.
        let modified_ns = if of_file.end > 0 { of_file.modified_ns } else { stat.modified_ns };
        let file = self.new_file(id, of_file.key, 0, Arc::clone(backing), (size, modified_ns));
        file.times.set_settled(of_file.end == 0);
        self.files.add(file);
        Ok(())
    }

    /// Finds files in the directory; those that were made again by what they were.
    pub(crate) fn find(
        &self,
        wanted: &BTreeSet<FileId>,
        replayed: &Replayed,
    ) -> Result<BTreeMap<FileId, Arc<dyn BackingFile>>, Error> {
        let made = |id: &FileId| replayed.substitutes.get(id).copied().unwrap_or(*id);
        let below: BTreeSet<FileId> = wanted.iter().map(made).collect();
        let found = self.backing.find(&below).map_err(Error::backing("find the files of the cache"))?;
        Ok(wanted.iter().filter_map(|id| Some((*id, Arc::clone(found.get(&made(id))?)))).collect())
    }

    /// Gives a file that was made again what PM has of the one that was lost: tags name that one.
    ///
    /// Persistence: its name is durable already, so its bytes are on return. With consent, what PM does not
    /// give is given up; says of how many files that is.
    pub(crate) fn hand_over(&self, lost: FileId, drops_unreadable: bool) -> Result<u64, Error> {
        let Some(file) = self.files.by_id(lost) else { return Ok(0) };
        let size = file.size.hold()?;
        let unreadable = match self.protocol.flush(Some(&file)) {
            Err(Error::Read(_)) if drops_unreadable => 1,
            flushed => flushed.map(|()| 0)?,
        };
        let _flush = lock(&file.flush);
        self.protocol.cut(&file, 0, *size)?;
        self.files.remove(&file);
        Ok(unreadable)
    }
}

/// Files that truncations under way had given their length, with the times of these: records of the protocol
/// Log may make them longer again before they are truncated once more.
fn reached(intents: &[Numbered], found: &BTreeMap<FileId, Arc<dyn BackingFile>>) -> BTreeMap<FileId, u64> {
    let of = |(_, intent): &Numbered| {
        let Intent::Truncate(id, size) = *intent else { return None };
        let stat = found.get(&id)?.stat().ok()?;
        (stat.size == size).then_some((id, stat.modified_ns))
    };
    intents.iter().filter_map(of).collect()
}

/// Checks that they belong together; the opening that the directory names.
fn check_directory(
    superblock: &Superblock,
    openings: &Openings,
    (backing, pairs_anew): (&dyn Backing, bool),
) -> Result<Option<Opening>, Error> {
    let has = match backing.mark() {
        Err(error) if pairs_anew && error.kind() == ErrorKind::InvalidData => None,
        has => has.map_err(Error::backing("say which cache it has"))?,
    };
    if has.is_none() && !pairs_anew {
        return Err(Error::Unmarked);
    }
    if has.is_some_and(|has| has.cache != superblock.cache) {
        return Err(Error::WrongDirectory("the directory belongs to another region"));
    }
    let directory = backing.directory().map_err(Error::backing("say which directory it is"))?;
    if directory.id != superblock.directory.id {
        return Err(Error::WrongDirectory("the directory is a copy of the one that the region belongs to"));
    }
    // An inode without a birth is one of many, and nothing else says that it is this one.
    let is_certain = has.is_some() || directory.id.generation != 0;
    if !is_certain && directory.device != superblock.directory.device {
        return Err(Error::WrongDirectory(
            "the directory is on another device, and does not say that it is it",
        ));
    }
    let opening = has.map(|has| has.opening);
    match opening.map_or(Ok(()), |opening| openings.check(opening)) {
        Err(copied) if !pairs_anew => Err(Error::Copy(copied)),
        _ => Ok(opening),
    }
}

/// Gives a directory its mark; `false`: it has no room for that, or may not be written to.
fn set_mark(backing: &dyn Backing, mark: Mark) -> Result<bool, Error> {
    use ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match backing.set_mark(Some(mark)) {
        Err(error) if matches!(error.kind(), QuotaExceeded | ReadOnlyFilesystem | StorageFull) => Ok(false),
        set => set.map(|()| true).map_err(Error::backing("note its cache")),
    }
}
