//! One order for the changes of each inode, and for their records.
//!
//! A lock for each inode would have to be found and kept; instead there are stripes, and an inode's number
//! says which is its. An operation takes the stripes of all inodes that it changes, in ascending order, so
//! that no two operations wait for each other. What it found out before it had the locks it checks again.

use fastness_sync::{Mutex, MutexGuard, lock};

use crate::ino::Ino;

const STRIPES: usize = 1024;
/// Most inodes that one operation changes: two directories, the file moved, the one replaced, a whiteout.
const INOS_MAX: usize = 5;

/// The stripes of a file system.
#[derive(Debug)]
pub(crate) struct Locks(Box<[Mutex<()>]>);

/// Stripes that are held.
pub(crate) struct Held<'a>(#[expect(dead_code, reason = "guards")] [Option<MutexGuard<'a, ()>>; INOS_MAX]);

impl Default for Locks {
    fn default() -> Locks {
        Locks((0..STRIPES).map(|_| Mutex::default()).collect())
    }
}

impl Locks {
    /// Locks one inode.
    pub(crate) fn one(&self, ino: Ino) -> MutexGuard<'_, ()> {
        lock(&self.0[stripe(ino)])
    }

    /// Locks several inodes, up to [`INOS_MAX`].
    pub(crate) fn all(&self, inos: &[Ino]) -> Held<'_> {
        let mut stripes = [usize::MAX; INOS_MAX];
        stripes.iter_mut().zip(inos).for_each(|(place, ino)| *place = stripe(*ino));
        stripes.sort_unstable();
        let mut held = [const { None }; INOS_MAX];
        let mut last = usize::MAX;
        for (place, stripe) in held.iter_mut().zip(stripes) {
            if stripe != usize::MAX && stripe != last {
                *place = Some(lock(&self.0[stripe]));
                last = stripe;
            }
        }
        Held(held)
    }
}

fn stripe(ino: Ino) -> usize {
    (ino.0 % STRIPES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_with_the_same_stripe_are_locked_once() {
        let locks = Locks::default();
        let far = Ino(3 + STRIPES as u64);
        drop(locks.all(&[Ino(3), far, Ino(3), Ino(1), Ino(0)]));
        let held = locks.all(&[Ino(3)]);
        assert!(locks.0[3].try_lock().is_err() && locks.0[0].try_lock().is_ok());
        drop(held);
        assert!(locks.0[3].try_lock().is_ok());
    }
}
