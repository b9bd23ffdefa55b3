//! Locks whose poison does not matter: a thread that panics in the pool suspends it, or leaves whatever it
//! had locked intact.

use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use fastness_sync::acquire;

pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    acquire(|| mutex.try_lock(), || mutex.lock())
}

pub(crate) fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    acquire(|| lock.try_read(), || lock.read())
}

pub(crate) fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    acquire(|| lock.try_write(), || lock.write())
}
