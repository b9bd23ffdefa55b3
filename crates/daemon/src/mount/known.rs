//! The files that the kernel knows.
//!
//! Every answer with a file counts; the kernel says when it has forgotten some of these times. A file without
//! a name is erased when it knows it no more. The counts outlive imports of the pool, as the mount does.

use std::collections::HashMap;

use fastness_sync::{Mutex, lock};
use fastness_zpl::Ino;

const SHARDS: usize = 64;

/// How often the kernel knows each file.
#[derive(Debug)]
pub(crate) struct Known(Box<[Mutex<HashMap<Ino, u64>>]>);

impl Default for Known {
    fn default() -> Known {
        Known((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl Known {
    fn shard(&self, ino: Ino) -> &Mutex<HashMap<Ino, u64>> {
        &self.0[ino.0 as usize % SHARDS]
    }

    /// The kernel is about to be told of a file.
    pub(crate) fn add(&self, ino: Ino) {
        *lock(self.shard(ino)).entry(ino).or_default() += 1;
    }

    /// It has forgotten a file so often, or was not told after all. Returns whether it knows the file no
    /// more.
    pub(crate) fn sub(&self, ino: Ino, times: u64) -> bool {
        let mut shard = lock(self.shard(ino));
        let Some(count) = shard.get_mut(&ino) else { return true };
        *count = count.saturating_sub(times);
        let is_forgotten = *count == 0;
        if is_forgotten {
            shard.remove(&ino);
        }
        is_forgotten
    }

    /// Whether it knows a file.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        lock(self.shard(ino)).contains_key(&ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_until_it_was_forgotten_as_often() {
        let known = Known::default();
        known.add(Ino(5));
        known.add(Ino(5));
        assert!(!known.sub(Ino(5), 1) && known.has(Ino(5)));
        assert!(known.sub(Ino(5), 1) && !known.has(Ino(5)));
        // More than it was told cannot be forgotten.
        assert!(known.sub(Ino(5), 7));
    }
}
