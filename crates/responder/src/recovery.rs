//! Takes up a cache after a crash, or after it was closed: there is no difference.

use std::collections::BTreeSet;
use std::sync::Arc;

use fastness_sync::lock;

use crate::backing::{Backing, FileId};
use crate::cache::Cache;
use crate::error::Error;
use crate::intent::{Intent, Numbered};
use crate::medium::CacheMedium;
use crate::options::Options;
use crate::stats::Recovered;
use crate::superblock::Superblock;

impl<M: CacheMedium> Cache<M> {
    /// Opens the cache of a region: undoes what was not complete, completes what has an intent, and finds the
    /// files of the dirty chunks in the directory. The directory changes only where a truncation is
    /// completed; [`flush`](Self::flush) writes to it.
    ///
    /// Persistence: what was acknowledged is there, and what was recovered is durable. A crash inside leaves
    /// a region that is recovered in the same way.
    ///
    /// # Errors
    /// [`Error`]; the region is as it was, or as a crash would leave it. [`Error::WrongDirectory`]: nothing
    /// was touched.
    pub fn open(
        region: M,
        backing: Arc<dyn Backing>,
        options: &Options,
    ) -> Result<(Cache<M>, Recovered), Error> {
        let superblock = Superblock::read(&region)?;
        if superblock.geometry.region_bytes > region.len_bytes() as u64 {
            return Err(Error::Geometry("the region is shorter than when the cache was created"));
        }
        check_directory(&superblock, &*backing)?;
        let cache = Cache::taken_up(region, backing, superblock, options)?;
        let intents = lock(&cache.intents).recover()?;
        let recovered = cache.recover(&intents)?;
        Ok((cache, recovered))
    }

    fn recover(&self, intents: &[Numbered]) -> Result<Recovered, Error> {
        let mut chunks = self.protocol.recover()?;
        let mut recovered =
            Recovered { undone_writes: chunks.undone, redone_writes: chunks.redone, ..Recovered::default() };
        let named = intents.iter().map(|(_, intent)| intent.file());
        let wanted: BTreeSet<FileId> = chunks.files.keys().copied().chain(named).collect();
        let found = self.backing.find(&wanted).map_err(Error::backing("find the files of the cache"))?;
        // Removed for good: the intent says so, and the file is not there.
        let is_gone = |intent: Intent| !intent.is_truncation() && !found.contains_key(&intent.file());
        let gone = intents.iter().filter(|(_, intent)| is_gone(*intent)).map(|(_, intent)| intent.file());
        recovered.records = self.protocol.replay(&found, &gone.collect(), &mut chunks)?;
        for &(number, intent) in intents.iter().filter(|(_, intent)| is_gone(*intent)) {
            if let Some(gone) = chunks.files.remove(&intent.file()) {
                self.protocol.give_up_all(gone.key)?;
            }
            lock(&self.intents).end(number)?;
            recovered.removals += 1;
        }
        for (&id, of_file) in &chunks.files {
            lock(&self.keys).skip(of_file.key, of_file.chunks);
            recovered.dirty_chunks += of_file.dirty_chunks;
            let Some(backing) = found.get(&id) else {
                recovered.orphaned_chunks += of_file.dirty_chunks;
                lock(&self.orphans).insert(id, *of_file);
                continue;
            };
            let stat = backing.stat().map_err(Error::backing("say what a file is"))?;
            let (size, modified_ns) = (stat.size.max(of_file.end), stat.modified_ns.max(of_file.modified_ns));
            self.files.add(self.new_file(id, of_file.key, 0, Arc::clone(backing), (size, modified_ns)));
        }
        for &(number, intent) in intents.iter().filter(|(_, intent)| found.contains_key(&intent.file())) {
            self.complete(number, intent, &found[&intent.file()])?;
            recovered.truncations += u64::from(intent.is_truncation());
        }
        // A truncation of a file that is not there waits for it, as its data do.
        for (_, intent) in intents.iter().filter(|(_, intent)| !found.contains_key(&intent.file())) {
            lock(&self.orphans).entry(intent.file()).and_modify(|orphan| orphan.has_intent = true);
        }
        Ok(recovered)
    }
}

fn check_directory(superblock: &Superblock, backing: &dyn Backing) -> Result<(), Error> {
    let has = backing.cache().map_err(Error::backing("say which cache it has"))?;
    let has = has.ok_or(Error::WrongDirectory("the directory belongs to no region"))?;
    if has != superblock.cache {
        return Err(Error::WrongDirectory("the directory belongs to another region"));
    }
    let directory = backing.directory().map_err(Error::backing("say which directory it is"))?;
    if directory.id != superblock.directory.id {
        return Err(Error::WrongDirectory("the directory is a copy of the one that the region belongs to"));
    }
    Ok(())
}
