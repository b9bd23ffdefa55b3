//! For front ends that know the directory themselves: what the cache adds to what the directory says, and
//! changes that it has no call for.

use std::io;
use std::sync::Arc;

use fastness_sync::atomic::Ordering;
use fastness_sync::lock;

use crate::backing::{FileId, Stat};
use crate::cache::Cache;
use crate::error::Error;
use crate::medium::CacheMedium;
use crate::protocol::Protocol;

impl<M: CacheMedium> Cache<M> {
    /// What the backing store says of a file, with the length and times as programs are to see them. If the
    /// cache knows the file, or knew it a moment ago, `again` asks the backing store once more.
    ///
    /// # Errors
    /// Those of `again` alone, in the process that serves a cache.
    pub fn current(&self, stat: Stat, again: impl Fn() -> io::Result<Stat>) -> Result<Stat, Error> {
        let known = self.files.by_id(stat.id);
        if let Some(file) = &known {
            let now = Self::with_cached(file, &again);
            if self.files.by_id(stat.id).is_some_and(|still| Arc::ptr_eq(&still, file)) {
                return now;
            }
        }
        again().map_err(Error::backing("say what a file is"))
    }

    /// Changes a file in the backing store by `act`: times, allocation, contents without a write. The backing
    /// store has everything of the file before that, and its length and time count after that.
    ///
    /// Persistence: what `act` did is durable on return. A crash inside leaves what a crash in it leaves.
    ///
    /// # Errors
    /// [`Error`]: those of a flush, and nothing was done; those of `act`, and of the sync after it.
    pub fn change_below<T>(&self, id: FileId, act: impl FnOnce() -> io::Result<T>) -> Result<T, Error> {
        let act = || act().map_err(Error::backing("change a file"));
        self.protocol.prepare_cut()?;
        // A file that the cache does not know is not opened meanwhile.
        let _held = self.names.hold_file(id);
        let Some(file) = self.files.by_id(id) else { return act() };
        let mut size = file.size.hold()?;
        self.finish_truncation(&file)?;
        self.protocol.flush(Some(&file))?;
        let _flush = lock(&file.flush);
        self.protocol.cut(&file, 0, *size)?;
        let done = act();
        let stat = file.backing.stat().map_err(Error::backing("say what a file is"))?;
        let before = std::mem::replace(&mut *size, stat.size);
        self.resized(&file, before, stat.size);
        file.modified_ns().store(stat.modified_ns, Ordering::Relaxed);
        self.protocol.sync_below(&file)?;
        done
    }
}
