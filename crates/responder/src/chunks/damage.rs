//! What a recovery gives up with consent: tags and operations that are damaged, or that PM does not give.

use fastness_sync::lock;

use crate::error::Error;
use crate::group::Group;
use crate::medium::CacheMedium;
use crate::tag::Tag;

use super::ChunkStore;

impl<M: CacheMedium> ChunkStore<M> {
    /// Empties damaged tags and forgets damaged operations; says how many. Everything else is recovered.
    ///
    /// Of which file a chunk was is not known when its tag is damaged. If the directory does not have it, an
    /// older state of its bytes is there afterwards; and if it was the first of a write that was under way,
    /// a part of that may stay.
    ///
    /// Persistence: a crash finds the same damage, and needs consent again, until the recovery has written
    /// back all tags.
    pub(super) fn drop_damaged(&self) -> Result<u64, Error> {
        let mut count = 0;
        for operation in &self.operations {
            let mut operation = lock(operation);
            if is_damaged(operation.interrupted())? {
                operation.forget()?;
                count += 1;
            }
        }
        for journal in &self.journals {
            let mut journal = lock(journal);
            if is_damaged(journal.interrupted())? {
                journal.forget()?;
                count += 1;
            }
        }
        self.for_each_group(|group| {
            for chunk in 0..group.len() {
                if is_damaged(self.checked_tag(group, chunk))? {
                    group.set_tag(chunk, &Tag::default());
                    count += 1;
                }
            }
            Ok(())
        })?;
        Ok(count)
    }

    fn checked_tag(&self, group: &Group<M>, chunk: usize) -> Result<(), Error> {
        let tag = group.tag(chunk)?;
        if tag.is_valid() && !self.is_possible(&tag) { Err(group.damaged(chunk)) } else { Ok(()) }
    }
}

/// Whether this says that something is damaged.
fn is_damaged<T>(looked: Result<T, Error>) -> Result<bool, Error> {
    match looked {
        Ok(_) => Ok(false),
        Err(Error::Tag { .. } | Error::Operation { .. } | Error::Read(_)) => Ok(true),
        Err(other) => Err(other),
    }
}
