//! Poison: after a failed flush, no later flush may claim that the lost data is durable.
//!
//! The kernel reports a failed write-back once to each open file, marks the pages clean and forgets them. Of
//! two concurrent flushes only one may see the error, although both cover the lost write. So:
//! 1. A call that may consume an error from the kernel (a *syncer*: flush or FUA write) holds `syncing`
//!    shared, from before the system call until the poison is set.
//! 2. Before it claims success, a call takes `syncing` exclusively for a moment, after its own system call.
//!    Every syncer that could have consumed an error before that has then set the poison; the flag decides.
//!
//! The state is shared by all handles of a device in this process (registry, by identity of the file or
//! device), and a poisoned device is remembered after its last handle was dropped, so that the next one
//! drops the cached contents. The locks taken at open keep other processes out.
//!
//! Source: Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020;
//! Linux `Documentation/filesystems/vfs.rst`, section "Handling errors during writeback".

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};

use crate::error::Cause;

/// Identifies a device across handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    File { device: u64, inode: u64 },
    Block { device: u64 },
}

#[derive(Debug, Default)]
struct Entry {
    health: Weak<Health>,
    /// A flush failed, and the device has not been opened successfully since.
    is_dirty: bool,
}

type Registry = HashMap<Identity, Entry>;

fn registry() -> MutexGuard<'static, Registry> {
    static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);
    // Every change of the map is one step, so a panic leaves no change half done.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a device's durability acknowledgements can still be trusted.
///
/// A flush or FUA write calls [`enter`](Self::enter), makes its request, calls [`poison`](Self::poison) if
/// that failed, drops the guard, and reports success only if [`settle`](Self::settle) agrees.
#[derive(Debug)]
pub struct Health {
    identity: Option<Identity>,
    is_poisoned: AtomicBool,
    syncing: RwLock<()>,
}

/// An operation was called after a failed flush.
#[derive(Debug)]
pub struct Poisoned;

impl From<Poisoned> for Cause {
    fn from(_: Poisoned) -> Cause {
        Cause::Poisoned
    }
}

impl Health {
    /// The health of a device that no other handle can share.
    pub fn alone() -> Arc<Health> {
        Arc::new(Health { identity: None, is_poisoned: AtomicBool::new(false), syncing: RwLock::new(()) })
    }

    /// The health that all handles of `identity` share, and whether the device's last handles ended
    /// poisoned.
    pub(crate) fn join(identity: Identity) -> Result<(Arc<Health>, bool), Poisoned> {
        let mut registry = registry();
        let entry = registry.entry(identity).or_default();
        if let Some(health) = entry.health.upgrade() {
            return if health.is_poisoned() { Err(Poisoned) } else { Ok((health, entry.is_dirty)) };
        }
        let health = Arc::new(Health {
            identity: Some(identity),
            is_poisoned: AtomicBool::new(false),
            syncing: RwLock::new(()),
        });
        entry.health = Arc::downgrade(&health);
        Ok((health, entry.is_dirty))
    }

    /// Forgets an earlier poison: the caller has made reads show what is on the medium.
    pub(crate) fn recovered(&self) {
        let Some(identity) = self.identity else { return };
        if let Some(entry) = registry().get_mut(&identity) {
            entry.is_dirty = false;
        }
    }

    /// Whether a flush or FUA write has failed.
    pub fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(Ordering::SeqCst)
    }

    /// Fails if the device is poisoned.
    ///
    /// # Errors
    /// [`Poisoned`].
    pub fn check(&self) -> Result<(), Poisoned> {
        if self.is_poisoned() { Err(Poisoned) } else { Ok(()) }
    }

    /// Begins a call that may consume an error from the kernel. Set the poison before dropping the guard.
    ///
    /// # Errors
    /// [`Poisoned`].
    pub fn enter(&self) -> Result<RwLockReadGuard<'_, ()>, Poisoned> {
        let guard = self.syncing.read().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        Ok(guard)
    }

    /// Confirms a success: fails if another syncer consumed an error that this caller should have seen.
    ///
    /// The caller must not hold a guard of [`enter`](Self::enter).
    ///
    /// # Errors
    /// [`Poisoned`].
    pub fn settle(&self) -> Result<(), Poisoned> {
        drop(self.syncing.write().unwrap_or_else(PoisonError::into_inner));
        self.check()
    }

    /// Notes that a flush or FUA write failed.
    pub fn poison(&self) {
        self.is_poisoned.store(true, Ordering::SeqCst);
        if let Some(identity) = self.identity {
            // At once, not when the last handle is dropped: another thread may open the device in between.
            registry().entry(identity).or_default().is_dirty = true;
        }
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        let Some(identity) = self.identity else { return };
        let mut registry = registry();
        let is_last = registry
            .get(&identity)
            .is_some_and(|entry| std::ptr::eq(entry.health.as_ptr(), self) && !entry.is_dirty);
        if is_last {
            registry.remove(&identity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = Identity::File { device: u64::MAX, inode: 1 };

    #[test]
    fn poison_is_shared_until_the_last_handle_is_gone_and_then_remembered_once() {
        let (first, is_dirty) = Health::join(IDENTITY).unwrap();
        assert!(!is_dirty);
        let (second, _) = Health::join(IDENTITY).unwrap();
        first.poison();
        assert!(second.enter().is_err() && second.settle().is_err() && second.is_poisoned());
        assert!(Health::join(IDENTITY).is_err());
        drop(first);
        assert!(Health::join(IDENTITY).is_err(), "one handle is left");
        drop(second);
        let (third, is_dirty) = Health::join(IDENTITY).unwrap();
        assert!(is_dirty && third.enter().is_ok());
        drop(third);
        let (fourth, is_dirty) = Health::join(IDENTITY).unwrap();
        assert!(is_dirty, "the third did not recover");
        fourth.recovered();
        drop(fourth);
        assert!(!Health::join(IDENTITY).unwrap().1);
    }

    #[test]
    fn a_success_waits_for_those_who_may_have_taken_the_error() {
        let health = Health::alone();
        let guard = health.enter().unwrap();
        std::thread::scope(|scope| {
            // The other flush has succeeded in the kernel; ours, which consumed the error, has not reported
            // it yet.
            let other = scope.spawn(|| health.settle());
            while health.syncing.try_read().is_ok() {
                // `settle` is or will soon be waiting for the lock; a waiting writer blocks new readers.
                std::thread::yield_now();
            }
            health.poison();
            drop(guard);
            assert!(other.join().unwrap().is_err());
        });
    }
}
