//! What is found out once for each image, by whichever thread comes first.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::Result;
use crate::generate::Known;
use crate::image::ImageHash;

/// Results by image, in bounded memory: those of old images are forgotten.
pub(super) struct Once<T> {
    slots: Mutex<Known<Slot<T>>>,
    changed: Condvar,
}

enum Slot<T> {
    /// Nobody works on it.
    Free,
    /// A thread does.
    Taken,
    Done(T),
}

impl<T: Clone> Once<T> {
    /// At least `most` are known.
    pub(super) fn new(most: usize) -> Once<T> {
        Once { slots: Mutex::new(Known::new(most)), changed: Condvar::new() }
    }

    /// The result for an image: that of `make`, unless it is known, or another thread is making it. None is
    /// not kept.
    pub(super) fn get(
        &self,
        hash: &ImageHash,
        make: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match slots.get_mut(hash) {
                Some(Slot::Done(result)) => return Ok(Some(result.clone())),
                Some(Slot::Taken) => {
                    slots = self.changed.wait(slots).unwrap_or_else(PoisonError::into_inner);
                }
                Some(Slot::Free) | None => break,
            }
        }
        slots.put(hash, Slot::Taken);
        drop(slots);
        let mut mine = Mine { once: self, hash, slot: Slot::Free };
        let result = make()?;
        mine.slot = result.clone().map_or(Slot::Free, Slot::Done);
        Ok(result)
    }
}

/// A slot that a thread has taken; others get it however that ends.
struct Mine<'a, T> {
    once: &'a Once<T>,
    hash: &'a ImageHash,
    slot: Slot<T>,
}

impl<T> Drop for Mine<'_, T> {
    fn drop(&mut self) {
        let slot = std::mem::replace(&mut self.slot, Slot::Free);
        self.once.slots.lock().unwrap_or_else(PoisonError::into_inner).put(self.hash, slot);
        self.once.changed.notify_all();
    }
}
