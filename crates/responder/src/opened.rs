//! What a file gets that the cache has not had open yet.

use std::sync::Arc;

use fastness_sync::atomic::Ordering;
use fastness_sync::lock;

use crate::backing::{BackingFile, FileId, Stat};
use crate::board::SharedFile;
use crate::cache::Cache;
use crate::chunks::Found;
use crate::error::Error;
use crate::file::File;
use crate::intent::Intent;
use crate::medium::CacheMedium;

impl<M: CacheMedium> Cache<M> {
    /// A file that the cache meets, with a place for other processes to see it, if there are any.
    pub(crate) fn new_file(
        &self,
        id: FileId,
        key: u64,
        tenant: u32,
        backing: Arc<dyn BackingFile>,
        (size, modified_ns): (u64, u64),
    ) -> File {
        let board = self.protocol.board();
        let shared = board.and_then(|board| SharedFile::take(board, size, modified_ns));
        let backing = self.names.opened(backing, id);
        let file = File::new(id, key, tenant, backing, (size, modified_ns), shared);
        // What was written before may not be synced.
        lock(&file.logged.state).is_unknown = size > 0;
        file
    }

    /// The intent of a file that had lost its last name before it was opened: the caller had found it.
    pub(crate) fn removal_of(&self, stat: &Stat) -> Result<Option<usize>, Error> {
        match stat.links {
            0 if self.has_lost.load(Ordering::Relaxed) => {
                Err(Error::backing("open a file")(rustix::io::Errno::STALE.into()))
            }
            0 => Ok(Some(lock(&self.intents).begin(Intent::Remove(stat.id))?)),
            _ => Ok(None),
        }
    }

    /// The chunks of a file that has come back to the directory.
    pub(crate) fn take_orphan(&self, id: FileId) -> Result<Option<Found>, Error> {
        let mut orphans = lock(&self.orphans);
        match orphans.get(&id) {
            // Only a recovery completes its truncation.
            Some(orphan) if orphan.truncation.is_some() => Err(Error::Orphan { inode: id.inode }),
            _ => Ok(orphans.remove(&id)),
        }
    }
}
