//! Acknowledged data of files that are not in the directory: shown, copied out, and given up.
//!
//! Such a file was moved away past the cache, or removed. What PM has of it waits for it to come back, and
//! keeps a cache from being detached. Whoever gives it up can have it copied first.

use std::io;

use fastness_sync::lock;

use crate::backing::FileId;
use crate::cache::Cache;
use crate::chunks::Found;
use crate::error::Error;
use crate::medium::CacheMedium;
use crate::protocols::Protocols;
use crate::stats::Orphan;

impl<M: CacheMedium> Cache<M> {
    /// The files that were not in the directory when the cache was opened, and have not been opened since.
    ///
    /// # Errors
    /// What is kept of them is damaged.
    pub fn orphans(&self) -> Result<Vec<Orphan>, Error> {
        let orphans = lock(&self.orphans);
        let all = match &self.protocol {
            Protocols::Log(log) => log.orphans(),
            Protocols::Chunks(_) => {
                let orphan = |(file, found): (&FileId, &Found)| Orphan {
                    file: *file,
                    size: found.size,
                    modified_ns: found.modified_ns,
                    chunks: found.dirty_chunks,
                };
                Ok(orphans.iter().map(orphan).collect())
            }
        };
        let cut = |orphan: Orphan| {
            let truncation = orphans.get(&orphan.file).and_then(|found| found.truncation);
            Orphan { size: truncation.map_or(orphan.size, |(_, size)| size.min(orphan.size)), ..orphan }
        };
        Ok(all?.into_iter().map(cut).collect())
    }

    /// Copies what PM has of such a file: `write` gets each piece, and where it begins in the file; of pieces
    /// that overlap, the later one counts. What is between the pieces only the file itself has.
    ///
    /// # Errors
    /// PM cannot be read; those of `write`.
    pub fn copy_orphan(
        &self,
        file: FileId,
        write: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<(), Error> {
        let orphans = lock(&self.orphans);
        let Some(orphan) = orphans.get(&file) else { return Ok(()) };
        let end = orphan.truncation.map_or(u64::MAX, |(_, size)| size);
        let mut see = |offset: u64, bytes: &[u8]| {
            let len = end.saturating_sub(offset).min(bytes.len() as u64) as usize;
            match len {
                0 => Ok(()),
                len => write(offset, &bytes[..len]).map_err(Error::backing("copy a file")),
            }
        };
        match &self.protocol {
            Protocols::Log(log) => log.copy_orphan(file, &mut see),
            Protocols::Chunks(chunks) => chunks.show_dirty(orphan.key, &mut see),
        }
    }

    /// Gives up what PM has of files that are not in the directory.
    ///
    /// Persistence: it is gone on return; a crash inside leaves any of these files.
    ///
    /// # Errors
    /// PM, or with the protocol Log the directory, cannot be written to; some may be gone.
    pub fn give_up_orphans(&self) -> Result<(), Error> {
        let mut orphans = lock(&self.orphans);
        if let Protocols::Log(log) = &self.protocol {
            log.give_up_orphans()?;
        }
        while let Some((&file, &orphan)) = orphans.first_key_value() {
            self.protocol.give_up_all(orphan.key)?;
            // After its chunks: they must not come back longer than the file was.
            if let Some((intent, _)) = orphan.truncation {
                lock(&self.intents).end(intent)?;
            }
            orphans.remove(&file);
        }
        Ok(())
    }
}
