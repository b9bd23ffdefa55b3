//! What is known of a request while it is carried out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastness_sync::{Mutex, lock};

/// What of a request is to be done by a thread that may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PutOff {
    Nothing,
    /// All of it.
    Whole,
    /// Only what comes after its result.
    Rest,
}

/// Interrupts of requests that no thread knows yet: the kernel sends an interrupt once, and it may come
/// first.
#[derive(Debug, Default)]
pub(crate) struct EarlyInterrupts {
    uniques: Mutex<VecDeque<(u64, Instant)>>,
    count: AtomicUsize,
}

impl EarlyInterrupts {
    /// Longer than a request is between the kernel and a thread that waits for it: what is older was
    /// answered.
    const AGE: Duration = Duration::from_secs(60);
    const COUNT_MAX: usize = 1024;

    pub(crate) fn add(&self, unique: u64) {
        self.change(|uniques| {
            uniques.truncate(EarlyInterrupts::COUNT_MAX - 1);
            uniques.push_front((unique, Instant::now()));
        });
    }

    /// Whether there was one for this request, which is then taken.
    pub(crate) fn take(&self, unique: u64) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        self.change(|uniques| {
            let at = uniques.iter().position(|(other, _)| *other == unique);
            at.and_then(|at| uniques.remove(at)).is_some()
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut VecDeque<(u64, Instant)>) -> T) -> T {
        let mut uniques = lock(&self.uniques);
        uniques.retain(|(_, since)| since.elapsed() < EarlyInterrupts::AGE);
        let changed = change(&mut uniques);
        self.count.store(uniques.len(), Ordering::SeqCst);
        changed
    }
}

/// The request of one thread.
#[derive(Debug, Default)]
pub(crate) struct RequestState {
    /// 0: none.
    unique: AtomicU64,
    is_interrupted: AtomicBool,
    may_wait: AtomicBool,
    put_off: AtomicU8,
}

impl RequestState {
    pub(crate) fn begin(&self, unique: u64, may_wait: bool) {
        self.is_interrupted.store(false, Ordering::Relaxed);
        self.may_wait.store(may_wait, Ordering::Relaxed);
        self.put_off.store(PutOff::Nothing as u8, Ordering::Relaxed);
        self.unique.store(unique, Ordering::SeqCst);
    }

    pub(crate) fn end(&self) {
        self.unique.store(0, Ordering::SeqCst);
    }

    pub(crate) fn is(&self, unique: u64) -> bool {
        self.unique.load(Ordering::SeqCst) == unique
    }

    pub(crate) fn interrupt(&self) {
        self.is_interrupted.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::Relaxed)
    }

    pub(crate) fn may_wait(&self) -> bool {
        self.may_wait.load(Ordering::Relaxed)
    }

    pub(crate) fn put_off(&self, what: PutOff) {
        // What has its result is not to be done again.
        if self.put_off_now() != PutOff::Rest {
            self.put_off.store(what as u8, Ordering::Relaxed);
        }
    }

    pub(crate) fn put_off_now(&self) -> PutOff {
        match self.put_off.load(Ordering::Relaxed) {
            1 => PutOff::Whole,
            2 => PutOff::Rest,
            _ => PutOff::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_interrupt_is_kept_for_its_request_and_only_the_latest_ones_are() {
        let early = EarlyInterrupts::default();
        assert!(!early.take(2));
        early.add(2);
        early.add(4);
        assert!(early.take(4) && !early.take(4) && !early.take(6) && early.take(2));
        let last = EarlyInterrupts::COUNT_MAX as u64;
        (0..=last).for_each(|unique| early.add(unique));
        assert!(!early.take(0) && early.take(1) && early.take(last));
    }
}
