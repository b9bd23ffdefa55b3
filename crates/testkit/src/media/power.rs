//! One power supply for persistent memory and for disks: one count of events over both, and a cut at any of
//! them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The power, and when it fails. A process that dies is the same without what a power cut does to the media.
#[derive(Debug, Default)]
pub struct Power {
    /// Accesses to media are places where another thread may have its turn.
    gate: Option<fn()>,
    events: AtomicU64,
    cut_at: AtomicU64,
    is_off: AtomicBool,
    /// Devices do not fail for now.
    is_quiet: AtomicBool,
}

/// What an access to a medium meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Power.
    On,
    /// The power fails during it: it was begun, and nothing hears of its end.
    Last,
    /// None.
    Off,
}

impl Power {
    /// A supply whose users call `gate` at each access to a medium.
    pub fn with_gate(gate: fn()) -> Power {
        Power { gate: Some(gate), ..Power::default() }
    }

    /// Accesses so far that change a medium.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::SeqCst)
    }

    /// An access that changes nothing.
    pub fn pass(&self) {
        if let Some(gate) = self.gate {
            gate();
        }
    }

    /// Lets it fail at the `nth` event from now on.
    pub fn cut_in(&self, nth: u64) {
        self.cut_at.store(self.events.load(Ordering::SeqCst).saturating_add(nth), Ordering::SeqCst);
    }

    /// It fails now.
    pub fn turn_off(&self) {
        self.is_off.store(true, Ordering::SeqCst);
    }

    /// It is back, and does not fail until told so.
    pub fn turn_on(&self) {
        self.cut_at.store(0, Ordering::SeqCst);
        self.is_off.store(false, Ordering::SeqCst);
    }

    /// Whether it has failed.
    pub fn is_off(&self) -> bool {
        self.is_off.load(Ordering::SeqCst)
    }

    /// Looks at something in spite of devices that fail.
    pub fn without_faults<T>(&self, look: impl FnOnce() -> T) -> T {
        self.is_quiet.store(true, Ordering::SeqCst);
        let seen = look();
        self.is_quiet.store(false, Ordering::SeqCst);
        seen
    }

    /// Whether something is looked at in spite of devices that fail.
    pub fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::SeqCst)
    }

    /// An access that changes a medium.
    pub fn event(&self) -> Event {
        self.pass();
        if self.is_off() {
            return Event::Off;
        }
        if self.events.fetch_add(1, Ordering::SeqCst) + 1 == self.cut_at.load(Ordering::SeqCst) {
            self.turn_off();
            return Event::Last;
        }
        Event::On
    }
}
