//! A recovery by a process that may have fewer descriptors than there are files of which PM has something.
//!
//! A recovery opens all of these, and keeps them open for the flusher. If they are too many, those beyond
//! what can be are opened a few at a time: each gets what PM has of it, durably, and is closed again. The
//! directory is searched once for each time. Where it takes no data (it is full), such a recovery fails, and
//! can be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastness_sync::lock;

use crate::backing::{BackingFile, FileId};
use crate::cache::Cache;
use crate::chunks::DirtyFiles;
use crate::error::Error;
use crate::medium::CacheMedium;
use crate::names::replay::Replayed;
use crate::protocols::Protocols;
use crate::stats::Recovered;

impl<M: CacheMedium> Cache<M> {
    /// Leaves at most `most` files of which PM has something, besides those of which an intent or a record of
    /// names says more (`excluded`). What is not found stays.
    ///
    /// Persistence: files that were dealt with have everything; a crash inside leaves some to be dealt with.
    pub(crate) fn recover_few(
        &self,
        chunks: &mut DirtyFiles,
        excluded: &BTreeSet<FileId>,
        replayed: &Replayed,
        (most, drops_unreadable): (usize, bool),
        recovered: &mut Recovered,
    ) -> Result<(), Error> {
        let candidates: Vec<FileId> =
            chunks.files.keys().copied().filter(|file| !excluded.contains(file)).collect();
        let excess = candidates.len().saturating_sub(most);
        for batch in candidates[..excess].chunks(most.max(1)) {
            let found = self.find(&batch.iter().copied().collect(), replayed)?;
            if let Protocols::Log(log) = &self.protocol {
                recovered.records += log.carry_out(&found)?;
                chunks.files.retain(|file, _| !found.contains_key(file));
                continue;
            }
            recovered.unreadable += self.give_each(chunks, found, drops_unreadable, recovered)?;
        }
        Ok(())
    }

    fn give_each(
        &self,
        chunks: &mut DirtyFiles,
        found: BTreeMap<FileId, Arc<dyn BackingFile>>,
        drops_unreadable: bool,
        recovered: &mut Recovered,
    ) -> Result<u64, Error> {
        let mut unreadable = 0;
        for (id, backing) in found {
            let Some(of_file) = chunks.files.remove(&id) else { continue };
            lock(&self.keys).skip(of_file.key, of_file.chunks);
            recovered.dirty_chunks += of_file.dirty_chunks;
            self.add_found(id, &of_file, &backing)?;
            drop(backing);
            unreadable += self.hand_over(id, drops_unreadable)?;
        }
        Ok(unreadable)
    }
}
