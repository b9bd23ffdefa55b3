//! The end of a cache.

use fastness_pmem::NoSum;
use fastness_sync::lock;

use crate::cache::Cache;
use crate::error::Error;
use crate::medium::CacheMedium;
use crate::superblock::BLOCK_BYTES;

impl<M: CacheMedium> Cache<M> {
    /// Ends the cache: the directory has everything, and belongs to no region; the region holds no cache.
    ///
    /// Persistence: durable on return. A crash inside leaves a cache without dirty data, or none.
    ///
    /// # Errors
    /// [`Error::Orphans`], [`Error::NotFlushed`] and those of a flush: nothing was ended. The cache comes
    /// back, to go on with.
    pub fn detach(self) -> Result<(), Box<(Cache<M>, Error)>> {
        let result = self.flush().and_then(|()| self.status()).and_then(|status| match status.dirty_chunks {
            0 => self.end(),
            chunks if chunks == status.orphaned_chunks => Err(Error::Orphans { chunks }),
            chunks => Err(Error::NotFlushed { chunks }),
        });
        result.map_err(|error| Box::new((self, error)))
    }

    fn end(&self) -> Result<(), Error> {
        let mut intents = lock(&self.intents);
        for offset in [0, BLOCK_BYTES] {
            intents.front().copy(offset, &[], BLOCK_BYTES, &mut NoSum);
        }
        // PERSIST: there is no cache before the directory says so. Excludes a cache that is taken up again
        // after the directory was changed without it.
        intents.front().fence()?;
        self.backing.set_mark(None).map_err(Error::backing("note that it has no cache"))
    }
}
