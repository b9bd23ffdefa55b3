//! Times of files that are being written: they change with every write, and rows need not.
//!
//! The first write of a file in a txg stores its inode; the times of later ones in the same txg are kept
//! here, until the inode is stored for another reason, the file is closed or synced, or there are too many.
//! After a crash a file's times may be those of its first write in a txg.

use std::collections::HashMap;

use fastness_store::Txg;
use fastness_store::record::Time;
use fastness_sync::{Mutex, MutexGuard, lock};

use crate::ino::Ino;
use crate::inode::Inode;

const SHARDS: usize = 64;
/// Files in one shard that may be known; one that comes when there are so many forgets the others whose rows
/// have their times.
const KNOWN_MAX: usize = 1024;

/// What is known of a file that was written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    /// Txg in which its inode was stored last.
    pub(crate) stored: Txg,
    /// Whether it has a name: changes of others are not logged.
    pub(crate) has_name: bool,
    pub(crate) times: Times,
    /// Whether its row has older ones.
    pub(crate) is_late: bool,
    /// The times that the log has, or will have with the next commit.
    pub(crate) logged: Option<Times>,
}

/// Times that writes and reads change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
}

impl Times {
    pub(crate) fn of(inode: &Inode) -> Times {
        Times { atime: inode.atime, mtime: inode.mtime, ctime: inode.ctime }
    }

    pub(crate) fn put(self, inode: &mut Inode) {
        (inode.atime, inode.mtime, inode.ctime) = (self.atime, self.mtime, self.ctime);
    }
}

type Shard = HashMap<Ino, Known>;

/// All files of which something is known.
#[derive(Debug)]
pub(crate) struct Late(Box<[Mutex<Shard>]>);

impl Default for Late {
    fn default() -> Late {
        Late((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl Late {
    fn shard(&self, ino: Ino) -> MutexGuard<'_, Shard> {
        lock(&self.0[ino.0 as usize % SHARDS])
    }

    /// What is known of a file.
    pub(crate) fn get(&self, ino: Ino) -> Option<Known> {
        self.shard(ino).get(&ino).copied()
    }

    /// Puts its newer times into an inode.
    pub(crate) fn show(&self, ino: Ino, inode: &mut Inode) {
        if let Some(known) = self.get(ino).filter(|known| known.is_late) {
            known.times.put(inode);
        }
    }

    /// Remembers a file.
    pub(crate) fn set(&self, ino: Ino, known: Known) {
        let mut shard = self.shard(ino);
        if shard.len() >= KNOWN_MAX && !shard.contains_key(&ino) {
            shard.retain(|_, known| known.is_late);
        }
        shard.insert(ino, known);
    }

    /// The inode was stored in a txg, with its newest times.
    pub(crate) fn stored(&self, ino: Ino, inode: &Inode, txg: Txg) {
        let (has_name, times) = (inode.links > 0, Times::of(inode));
        self.set(ino, Known { stored: txg, has_name, times, is_late: false, logged: None });
    }

    /// The log has these times.
    pub(crate) fn logged(&self, ino: Ino) {
        if let Some(known) = self.shard(ino).get_mut(&ino) {
            known.logged = Some(known.times);
        }
    }

    /// The inode is gone.
    pub(crate) fn forget(&self, ino: Ino) {
        self.shard(ino).remove(&ino);
    }

    /// Files whose newest times are not in the log.
    pub(crate) fn unlogged(&self) -> Vec<Ino> {
        let of = |shard: &Mutex<Shard>| {
            let shard = lock(shard);
            let unlogged = shard.iter().filter(|(_, known)| known.logged != Some(known.times));
            unlogged.map(|(ino, _)| *ino).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect()
    }
}
