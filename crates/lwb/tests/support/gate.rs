//! A space whose writes and flushes end when the test says so, and how.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use fastness_blkdev::ErrorKind;
use fastness_lwb::{Extent, Place, Space, SpaceError};

use super::DiskSpace;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Write,
    Flush,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Waiting,
    Ends { well: bool },
    Panics,
    Ended,
}

#[derive(Default)]
struct Calls {
    calls: Vec<(Kind, Call)>,
    is_open: bool,
}

/// Calls by number, from 0 in the order in which they began.
#[derive(Clone)]
pub struct Gate {
    inner: DiskSpace,
    calls: Arc<(Mutex<Calls>, Condvar)>,
}

impl Gate {
    pub fn new(inner: DiskSpace) -> Gate {
        Gate { inner, calls: Arc::default() }
    }

    /// Waits until call `number` has begun; it is of this kind.
    pub fn began(&self, number: usize, kind: Kind) {
        self.has_begun(number);
        assert!(self.is(number, kind), "call {number} is no {kind:?}");
    }

    /// Waits until call `number` has begun.
    pub fn has_begun(&self, number: usize) {
        let (calls, changed) = &*self.calls;
        let calls = calls.lock().unwrap();
        let waiting = |calls: &mut Calls| calls.calls.len() <= number;
        let (calls, timeout) = changed.wait_timeout_while(calls, Duration::from_secs(20), waiting).unwrap();
        assert!(!timeout.timed_out(), "call {number} never began: {:?}", calls.calls);
    }

    /// Calls so far.
    pub fn count(&self) -> usize {
        self.calls.0.lock().unwrap().calls.len()
    }

    /// Whether call `number`, which has begun, is of this kind.
    pub fn is(&self, number: usize, kind: Kind) -> bool {
        self.calls.0.lock().unwrap().calls[number].0 == kind
    }

    /// Lets a call end, and waits until it has.
    pub fn end(&self, number: usize, well: bool) {
        let (calls, changed) = &*self.calls;
        let mut calls = calls.lock().unwrap();
        calls.calls[number].1 = Call::Ends { well };
        changed.notify_all();
        drop(changed.wait_while(calls, |calls| calls.calls[number].1 != Call::Ended).unwrap());
    }

    /// The thread of a call panics.
    pub fn panic(&self, number: usize) {
        let (calls, changed) = &*self.calls;
        calls.lock().unwrap().calls[number].1 = Call::Panics;
        changed.notify_all();
    }

    /// Everything ends well from now on.
    pub fn open(&self) {
        let (calls, changed) = &*self.calls;
        calls.lock().unwrap().is_open = true;
        changed.notify_all();
    }

    fn pass(&self, kind: Kind, act: impl FnOnce() -> Result<(), SpaceError>) -> Result<(), SpaceError> {
        let (calls, changed) = &*self.calls;
        let mut guard = calls.lock().unwrap();
        let number = guard.calls.len();
        guard.calls.push((kind, Call::Waiting));
        changed.notify_all();
        let is_waiting = |calls: &mut Calls| calls.calls[number].1 == Call::Waiting && !calls.is_open;
        let mut guard = changed.wait_while(guard, is_waiting).unwrap();
        if guard.calls[number].1 == Call::Panics {
            drop(guard);
            panic!("as the test has asked for");
        }
        let fails = guard.calls[number].1 == Call::Ends { well: false };
        let result =
            if fails { Err(SpaceError::new(ErrorKind::MediaFailed, "the gate is shut")) } else { act() };
        guard.calls[number].1 = Call::Ended;
        changed.notify_all();
        result
    }
}

impl Space for Gate {
    fn allocate(&self, len_bytes: u32) -> Result<Place, SpaceError> {
        self.inner.allocate(len_bytes)
    }
    fn free(&self, extent: Extent) {
        self.inner.free(extent);
    }
    fn claim(&self, extent: Extent) -> Result<(), SpaceError> {
        self.inner.claim(extent)
    }
    fn contains(&self, extent: Extent) -> bool {
        self.inner.contains(extent)
    }
    fn write(&self, place: Place, data: &[u8]) -> Result<(), SpaceError> {
        self.pass(Kind::Write, || self.inner.write(place, data))
    }
    fn read(&self, place: Place, buf: &mut [u8]) -> Result<(), SpaceError> {
        self.inner.read(place, buf)
    }
    fn flush(&self, devices: &[u32]) -> Result<(), SpaceError> {
        self.pass(Kind::Flush, || self.inner.flush(devices))
    }
}
