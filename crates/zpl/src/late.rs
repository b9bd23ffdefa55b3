//! Times of files that are being written: they change with every write, and rows need not.
//!
//! The first write of a file in a txg stores its inode; the times of later ones in the same txg are kept
//! here, until the inode is stored for another reason, the file is closed or synced, or there are too many.
//! After a crash a file's times may be those of its first write in a txg.

use std::hash::BuildHasherDefault;

use fastness_base::{NumberHasher, Roomy};
use fastness_store::Txg;
use fastness_store::record::Time;
use fastness_sync::atomic::{AtomicUsize, Ordering};
use fastness_sync::{Mutex, MutexGuard, lock};

use crate::ino::Ino;
use crate::inode::{Inode, mode};

const SHARDS: usize = 64;
/// Files in one shard from which on those whose rows have their times are forgotten.
const KNOWN_MIN: usize = 1024;

/// What is known of a file that was written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    /// Txg in which its inode was stored last.
    pub(crate) stored: Txg,
    /// Whether it has a name: changes of others are not logged.
    pub(crate) has_name: bool,
    /// Whether it has a bit that runs it as another user or group.
    pub(crate) has_set_id: bool,
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

impl Known {
    /// Of an inode that was stored in a txg.
    pub(crate) fn of(inode: &Inode, stored: Txg) -> Known {
        let (has_name, times) = (inode.links > 0, Times::of(inode));
        let has_set_id = inode.mode & (mode::SET_UID | mode::SET_GID) != 0;
        Known { stored, has_name, has_set_id, times, is_late: false, logged: None }
    }
}

type Files = Roomy<Ino, Known, BuildHasherDefault<NumberHasher>>;

/// In its own cache lines.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Shard {
    files: Mutex<Files>,
    /// How many have newer times than their rows. Changed under the lock.
    late_count: AtomicUsize,
}

/// All files of which something is known.
#[derive(Debug)]
pub(crate) struct Late(Box<[Shard]>);

impl Default for Late {
    fn default() -> Late {
        Late((0..SHARDS).map(|_| Shard::default()).collect())
    }
}

impl Shard {
    /// Notes that a file has become late, or is not any more.
    fn count(&self, before: Option<bool>, is_late: bool) {
        match (before.unwrap_or(false), is_late) {
            (false, true) => drop(self.late_count.fetch_add(1, Ordering::Release)),
            (true, false) => drop(self.late_count.fetch_sub(1, Ordering::Release)),
            _ => {}
        }
    }
}

impl Late {
    fn of(&self, ino: Ino) -> &Shard {
        &self.0[ino.0 as usize % SHARDS]
    }

    fn shard(&self, ino: Ino) -> MutexGuard<'_, Files> {
        lock(&self.of(ino).files)
    }

    /// What is known of a file.
    pub(crate) fn get(&self, ino: Ino) -> Option<Known> {
        self.shard(ino).get(&ino).copied()
    }

    /// Puts its newer times into an inode.
    pub(crate) fn show(&self, ino: Ino, inode: &mut Inode) {
        // Most files have no times that are newer than their rows.
        if self.of(ino).late_count.load(Ordering::Acquire) > 0
            && let Some(known) = self.get(ino).filter(|known| known.is_late)
        {
            known.times.put(inode);
        }
    }

    /// Remembers a file.
    pub(crate) fn set(&self, ino: Ino, known: Known) {
        self.update(ino, |_| known);
    }

    fn update(&self, ino: Ino, new: impl FnOnce(Option<&Known>) -> Known) {
        let mut shard = self.shard(ino);
        let before = shard.get(&ino);
        let (known, was_late) = (new(before), before.map(|before| before.is_late));
        if was_late.is_none() {
            shard.make_room(KNOWN_MIN, |known| known.is_late);
        }
        shard.insert(ino, known);
        self.of(ino).count(was_late, known.is_late);
    }

    /// The inode was stored in a txg, with its newest times.
    pub(crate) fn stored(&self, ino: Ino, inode: &Inode, txg: Txg) {
        self.update(ino, |before| {
            let logged = before.and_then(|before| before.logged);
            Known { logged, ..Known::of(inode, txg) }
        });
    }

    /// The log has these times.
    pub(crate) fn logged(&self, ino: Ino) {
        if let Some(known) = self.shard(ino).get_mut(&ino) {
            known.logged = Some(known.times);
        }
    }

    /// The log has, or will have with the next commit, a write with its time, and the txg has the same: while
    /// that is the file's newest change, only the time of access may still have to be logged.
    pub(crate) fn logged_write(&self, ino: Ino, time: Time) {
        if let Some(logged) = self.shard(ino).get_mut(&ino).and_then(|known| known.logged.as_mut()) {
            (logged.mtime, logged.ctime) = (time, time);
        }
    }

    /// Files with newer times than their rows.
    pub(crate) fn all_late(&self) -> Vec<(Ino, Known)> {
        let of = |shard: &Shard| {
            let files = lock(&shard.files);
            let late = files.iter().filter(|(_, known)| known.is_late);
            late.map(|(ino, known)| (*ino, *known)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect()
    }

    /// The inode is gone.
    pub(crate) fn forget(&self, ino: Ino) {
        let mut shard = self.shard(ino);
        let before = shard.remove(&ino);
        self.of(ino).count(before.map(|before| before.is_late), false);
    }

    /// Files whose newest times are not in the log.
    pub(crate) fn unlogged(&self) -> Vec<Ino> {
        let of = |shard: &Shard| {
            let shard = lock(&shard.files);
            let unlogged = shard.iter().filter(|(_, known)| known.logged != Some(known.times));
            unlogged.map(|(ino, _)| *ino).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect()
    }
}
