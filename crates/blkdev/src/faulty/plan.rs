//! Which faults happen when.

use std::ops::Range;

use crate::error::Operation;
use crate::faulty::rng::Rng;

/// The operations that a rule applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Every operation.
    Any,
    /// Writes, FUA writes, discards and writes of zeroes.
    Changes,
    /// Writes, FUA or not.
    Writes,
    /// One kind of operation.
    Only(Operation),
}

impl On {
    fn matches(self, operation: Operation) -> bool {
        match self {
            On::Any => true,
            On::Changes => operation.is_change(),
            On::Writes => matches!(operation, Operation::Write | Operation::WriteFua),
            On::Only(only) => only == operation,
        }
    }
}

/// When a rule strikes, counted over the operations that it applies to, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The n-th, once.
    Nth(u64),
    /// The n-th and all later.
    From(u64),
    /// Every n-th.
    Every(u64),
    /// Each with a probability of this many in a million, drawn from the seed.
    PerMillion(u32),
}

/// What happens to the operation struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Fails with this `errno`; nothing is transferred. A flush or FUA write poisons the device.
    Errno(i32),
    /// The first `units` tear units are transferred, then the medium fails (`EIO`).
    Short {
        /// Units of [`FaultPlan::tear_bytes`].
        units: u32,
    },
    /// A random selection of a write's tear units is transferred, then the medium fails (`EIO`).
    Torn,
    /// Succeeds without doing anything: a lost write, a flush that lies; a read leaves its buffer unchanged.
    Dropped,
    /// Succeeds at another place: `to`, or an earlier offset if the transfer would otherwise pass the end.
    Misdirected {
        /// Offset in bytes, a multiple of the block size.
        to: u64,
    },
    /// Succeeds, with one random bit of the bytes flipped: for a read in transit, for a write on the medium.
    BitFlip,
    /// The device is gone from now on; see [`Faulty::come_back`](crate::Faulty::come_back).
    Vanish,
    /// The power fails during the operation: what it changes may be present completely, partly or not at all.
    PowerCut,
}

#[derive(Debug, Clone)]
struct Rule {
    on: On,
    range: Option<Range<u64>>,
    when: When,
    fault: Fault,
    seen: u64,
}

/// A schedule of faults: rules, and a seed for what they leave open. The first matching rule counts.
#[derive(Debug, Clone)]
pub struct FaultPlan {
    seed: u64,
    tear_bytes: u32,
    rules: Vec<Rule>,
    points: Vec<(&'static str, u64)>,
}

impl FaultPlan {
    /// No faults yet.
    pub fn new(seed: u64) -> FaultPlan {
        FaultPlan { seed, tear_bytes: 512, rules: Vec::new(), points: Vec::new() }
    }

    /// Unit that a crash leaves old or new but never mixed: a power of two, 512 (default) or more. Few
    /// devices promise more.
    ///
    /// # Panics
    /// On any other number.
    #[must_use]
    pub fn tear_bytes(mut self, tear_bytes: u32) -> FaultPlan {
        assert!(tear_bytes.is_power_of_two() && tear_bytes >= 512, "a sector has 512 bytes or more");
        self.tear_bytes = tear_bytes;
        self
    }

    /// Adds a rule for the whole device.
    #[must_use]
    pub fn rule(mut self, on: On, when: When, fault: Fault) -> FaultPlan {
        self.rules.push(Rule { on, range: None, when, fault, seen: 0 });
        self
    }

    /// Adds a rule for operations that touch a range of bytes.
    #[must_use]
    pub fn rule_in(mut self, range: Range<u64>, on: On, when: When, fault: Fault) -> FaultPlan {
        self.rules.push(Rule { on, range: Some(range), when, fault, seen: 0 });
        self
    }

    /// Cuts the power when a crash point is passed for the n-th time, from 1.
    #[must_use]
    pub fn power_cut_at(mut self, point: &'static str, nth: u64) -> FaultPlan {
        self.points.push((point, nth));
        self
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn tear(&self) -> u64 {
        u64::from(self.tear_bytes)
    }

    /// Whether the power fails when a crash point is passed for the `nth` time.
    pub(crate) fn cuts_at(&self, point: &str, nth: u64) -> bool {
        self.points.iter().any(|&(name, at)| name == point && at == nth)
    }

    /// Counts an operation in all rules; returns the fault that strikes it.
    pub(crate) fn next_fault(&mut self, operation: Operation, offset: u64, len_bytes: u64) -> Option<Fault> {
        let mut struck = None;
        for (index, rule) in self.rules.iter_mut().enumerate() {
            let touches = |range: &Range<u64>| range.start < offset + len_bytes && offset < range.end;
            if !rule.on.matches(operation) || !rule.range.as_ref().is_none_or(touches) {
                continue;
            }
            rule.seen += 1;
            let strikes = match rule.when {
                When::Nth(nth) => rule.seen == nth,
                When::From(nth) => rule.seen >= nth,
                When::Every(nth) => rule.seen.is_multiple_of(nth),
                When::PerMillion(chances) => {
                    Rng::of(self.seed, index as u64 + 1, rule.seen).below(1_000_000) < chances as usize
                }
            };
            if strikes && struck.is_none() {
                struck = Some(rule.fault);
            }
        }
        struck
    }
}
