//! What is known of a request while it is carried out.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

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
