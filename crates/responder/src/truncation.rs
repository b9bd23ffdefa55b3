//! Lengths, and what must leave no chunk in PM: truncations and removals.

use std::sync::Arc;

use fastness_sync::atomic::Ordering;
use fastness_sync::lock;

use crate::backing::BackingFile;
use crate::cache::{Cache, Handle};
use crate::error::Error;
use crate::file::{File, Truncation};
use crate::intent::Intent;
use crate::medium::CacheMedium;
use crate::protocol::Protocol;

/// Files that are forgotten later are at most so many: each has an intent.
const DEPARTED_MAX: usize = 16;

impl<M: CacheMedium> Cache<M> {
    /// Leaves a file without a name to the flusher, if a flush of it is under way: nobody waits for what
    /// nobody will see.
    pub(crate) fn departs_later(&self, file: &Arc<File>) -> bool {
        if file.flushing_since_ns.load(Ordering::Relaxed) == 0 || self.protocol.chunks().is_none() {
            return false;
        }
        let mut departed = lock(&self.departed);
        let has_room = departed.len() < DEPARTED_MAX;
        if has_room {
            departed.push(Arc::clone(file));
        }
        has_room
    }

    /// Forgets the files that were left for later; the first error.
    pub(crate) fn forget_departed(&self) -> Result<(), Error> {
        let (departed, mut result) = (std::mem::take(&mut *lock(&self.departed)), Ok(()));
        for file in departed {
            result = result.and(self.forget_unused(&file));
        }
        result
    }

    /// Forgets a file without a name, if nothing has it open.
    pub(crate) fn forget_unused(&self, file: &Arc<File>) -> Result<(), Error> {
        // Nobody opens it meanwhile.
        let _held = self.names.hold_file(file.id);
        let removal = {
            let mut state = lock(&file.state);
            if state.opens > 0 { None } else { state.removal.take() }
        };
        removal.map_or(Ok(()), |intent| self.forget(file, Some(intent)))
    }

    /// Gives up everything in PM of a file without a name.
    pub(crate) fn forget(&self, file: &Arc<File>, intent: Option<usize>) -> Result<(), Error> {
        let mut size = file.size.hold()?;
        let flush = lock(&file.flush);
        // With a truncation that is not completed, it has chunks beyond its length.
        let unfinished = file.set_truncation(None);
        // Who has found it may open it still: then the backing store alone has its bytes.
        if unfinished.is_some() || self.protocol.leave(file, *size).is_err() {
            self.has_lost.store(true, Ordering::Relaxed);
        }
        self.protocol.cut(file, 0, unfinished.map_or(*size, |_| i64::MAX as u64))?;
        if let Some(truncation) = unfinished.and_then(|unfinished| unfinished.intent) {
            lock(&self.intents).end(truncation)?;
        }
        let chunks = (*size).div_ceil(self.superblock.geometry.chunk_bytes);
        lock(&self.keys).resized(file.tenant, chunks, None);
        *size = 0;
        drop(flush);
        self.files.remove(file);
        intent.map_or(Ok(()), |intent| lock(&self.intents).end(intent))
    }

    /// Sets the length of a file.
    ///
    /// Persistence: durable on return; a crash inside leaves the old length with everything, or the new one.
    ///
    /// # Errors
    /// [`Error`]; the length is the old one, unless the backing store failed after it had changed it: then it
    /// is the new one, and the next write waits until that is durable.
    pub fn truncate(&self, handle: &Handle, size: u64) -> Result<(), Error> {
        let file = &handle.file;
        self.protocol.prepare_cut()?;
        let mut now = file.size.hold()?;
        self.finish_truncation(file)?;
        if size > *now {
            let done = file.backing.truncate(size).map_err(Error::backing("lengthen a file"));
            if done.is_err() && !Self::has_size(file, size) {
                return done;
            }
            file.take_time();
            let before = std::mem::replace(&mut *now, size);
            self.resized(file, before, size);
            self.unfinished(file, size, None);
            return done.and(self.truncate_backing(file, size, before));
        }
        let intent = lock(&self.intents).begin(Intent::Truncate(file.id, size))?;
        let flush = lock(&file.flush);
        let done = self
            .keep_last_bytes(file, size)
            .and_then(|()| file.backing.truncate(size).map_err(Error::backing("shorten a file")));
        if done.is_err() && !Self::has_size(file, size) {
            lock(&self.intents).end(intent)?;
            return done;
        }
        drop(flush);
        file.take_time();
        let before = std::mem::replace(&mut *now, size);
        self.resized(file, before, size);
        self.unfinished(file, size, Some(intent));
        done.and(self.truncate_backing(file, size, before))
    }

    /// Notes a truncation that has begun; a flush completes it if this call does not.
    fn unfinished(&self, file: &File, size: u64, intent: Option<usize>) {
        file.set_truncation(Some(Truncation { size, intent }));
        self.files.note_trouble();
    }

    /// Whether the backing store has changed the length although it has failed.
    fn has_size(file: &File, size: u64) -> bool {
        file.backing.stat().is_ok_and(|stat| stat.size == size)
    }

    /// The chunk in which the file is to end is given up: the backing store gets what stays of it.
    fn keep_last_bytes(&self, file: &File, size: u64) -> Result<(), Error> {
        match self.protocol.last_dirty_bytes(file, size)? {
            Some((offset, bytes)) => {
                file.backing.write_at(offset, &bytes).map_err(Error::backing("write to a file"))
            }
            None => Ok(()),
        }
    }

    /// Sets the length in the backing store, then shortens the file in PM; notes that it is done.
    fn truncate_backing(&self, file: &File, size: u64, before: u64) -> Result<(), Error> {
        // A file that gets longer loses nothing in PM. Nothing is written for it, either: of what is not
        // synced a crash may leave a part, and with it a length that nothing asked for.
        let shortens = lock(&file.state).truncation.is_some_and(|truncation| truncation.intent.is_some());
        let flush = lock(&file.flush);
        if shortens {
            self.keep_last_bytes(file, size)?;
        }
        // Again, if a program's call has done so: it is that one's time that counts.
        file.times.begin(&*file.backing);
        let set = file.backing.truncate(size).map_err(Error::backing("set the length of a file"));
        let set = set.and_then(|()| file.restore_time());
        file.times.end(&*file.backing, 0);
        set?;
        self.protocol.sync_below(file)?;
        if shortens {
            self.protocol.cut(file, size, before)?;
        }
        drop(flush);
        let done = file.set_truncation(None);
        done.and_then(|done| done.intent).map_or(Ok(()), |intent| lock(&self.intents).end(intent))
    }

    /// Completes a truncation whose sync failed. The caller holds the size.
    pub(crate) fn finish_truncation(&self, file: &File) -> Result<(), Error> {
        let unfinished = lock(&file.state).truncation;
        match unfinished {
            // All its chunks are looked at: how many it had is not known any more.
            Some(unfinished) => self.truncate_backing(file, unfinished.size, i64::MAX as u64),
            None => Ok(()),
        }
    }

    /// Completes what an intent names, of a file that is in the directory. `reached_ns`: it had the length
    /// before the recovery wrote to it, and this time.
    pub(crate) fn complete(
        &self,
        number: usize,
        intent: Intent,
        backing: &Arc<dyn BackingFile>,
        reached_ns: Option<u64>,
    ) -> Result<(), Error> {
        let Intent::Truncate(id, size) = intent else { return lock(&self.intents).end(number) };
        let file = match self.files.by_id(id) {
            Some(file) => file,
            None => {
                // Nothing of it is in PM; the truncation may not have reached the directory.
                let key = lock(&self.keys).give(0, 0, self.superblock.geometry.slots)?;
                self.files.add(self.new_file(id, key, 0, Arc::clone(backing), (0, 0)))
            }
        };
        self.unfinished(&file, size, Some(number));
        let mut now = file.size.hold()?;
        if backing.stat().is_ok_and(|stat| stat.size != size) {
            // The call had not got so far, or a record has made it longer again.
            backing.truncate(size).map_err(Error::backing("set the length of a file"))?;
        }
        match reached_ns {
            Some(modified_ns) => drop(file.modified_ns().fetch_max(modified_ns, Ordering::Relaxed)),
            None => file.take_time(),
        }
        self.truncate_backing(&file, size, i64::MAX as u64)?;
        *now = size;
        Ok(())
    }
}
