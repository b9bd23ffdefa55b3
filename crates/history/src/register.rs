//! One sector as an atomic register that a crash may set back.
//!
//! A *cluster* is a change with the reads that saw it. In any order of a register the requests of a cluster
//! stand together; so cluster `a` is before cluster `b` as soon as one request of `a` had its reply before
//! one of `b` was called. With `first_reply(a)` and `last_call(b)`, the *zone* of each, that is
//! `first_reply(a) < last_call(b)`, and there is an order if and only if no two clusters are before each
//! other. (Gibbons and Korach state it in terms of zones that overlap. A longer circle has one of two: the
//! cluster with the first of all first replies is before all others of the circle, and one of them is before
//! it.)
//!
//! What a crash leaves is from a cluster `c` that may stand after all durable ones: no durable `d` has to be
//! after it, neither by itself nor by others in between. One in between suffices: if its zone is backward
//! (`last_call <= first_reply`), it can be left out, and of two that are forward the first can.

use crate::operation::Tick;
use crate::stamp::Content;

/// A change of the sector.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effect {
    pub(crate) content: Content,
    pub(crate) call: Tick,
    /// When it was over; [`Tick::MAX`] if it may still happen.
    pub(crate) end: Tick,
    /// It has happened; else it may not have.
    pub(crate) is_certain: bool,
    pub(crate) is_durable: bool,
}

impl Effect {
    /// What was there before all others.
    pub(crate) fn base(content: Content) -> Effect {
        Effect { content, call: 0, end: 0, is_certain: true, is_durable: true }
    }
}

/// A read of the sector.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) content: Content,
    pub(crate) call: Tick,
    pub(crate) reply: Tick,
}

/// Why contents cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No change left them that was called by then.
    NoChange,
    /// The change that left them is before this one, which is durable.
    Lost { seen: usize, durable: usize },
    /// No order has both of these changes, with what was read.
    NoOrder { one: usize, other: usize },
    /// No order has this read.
    NoPlace,
}

#[derive(Debug, Clone, Copy)]
struct Zone {
    first_reply: Tick,
    last_call: Tick,
    is_certain: bool,
}

impl Zone {
    fn is_before(self, other: Zone) -> bool {
        self.first_reply < other.last_call
    }

    fn contradicts(self, other: Zone) -> bool {
        self.is_before(other) && other.is_before(self)
    }

    fn is_forward(self) -> bool {
        self.first_reply < self.last_call
    }

    fn with(self, read: &Seen) -> Zone {
        Zone {
            first_reply: self.first_reply.min(read.reply),
            last_call: self.last_call.max(read.call),
            is_certain: true,
        }
    }
}

/// The changes of a sector with the reads that saw them.
#[derive(Debug)]
pub(crate) struct Register<'a> {
    effects: &'a [Effect],
    zones: Vec<Zone>,
}

impl<'a> Register<'a> {
    /// Puts reads down to changes.
    ///
    /// # Errors
    /// The read that cannot be (or one of several), and why.
    pub(crate) fn of(
        effects: &'a [Effect],
        reads: &[Seen],
    ) -> Result<Register<'a>, (Option<usize>, Refusal)> {
        let zone = |effect: &Effect| Zone {
            first_reply: effect.end,
            last_call: effect.call,
            is_certain: effect.is_certain,
        };
        let mut register = Register { effects, zones: effects.iter().map(zone).collect() };
        let mut open = Vec::new();
        for (index, read) in reads.iter().enumerate() {
            let mut possible = register.of_content(read.content).filter(|at| effects[*at].call < read.reply);
            match (possible.next(), possible.next()) {
                (None, _) => return Err((Some(index), Refusal::NoChange)),
                (Some(at), None) => {
                    drop(possible);
                    register.zones[at] = register.zones[at].with(read);
                }
                _ => open.push(index),
            }
        }
        register.check().map_err(|refusal| (None, refusal))?;
        register.settle(reads, open)?;
        Ok(register)
    }

    fn of_content(&self, content: Content) -> impl Iterator<Item = usize> + use<'a> {
        let effects = self.effects;
        (0..effects.len()).filter(move |at| effects[*at].content == content)
    }

    /// Whether the changes that have happened have an order.
    fn check(&self) -> Result<(), Refusal> {
        for (one, zone) in self.zones.iter().enumerate() {
            // Of two that contradict each other, one is forward.
            if !zone.is_certain || !zone.is_forward() {
                continue;
            }
            if let Some(other) = self.contradicted(one, *zone) {
                return Err(Refusal::NoOrder { one, other });
            }
        }
        Ok(())
    }

    /// A change that has happened and has no order with change `at`, if that has this zone.
    fn contradicted(&self, at: usize, zone: Zone) -> Option<usize> {
        (0..self.zones.len()).find(|other| {
            *other != at && self.zones[*other].is_certain && zone.contradicts(self.zones[*other])
        })
    }

    /// Reads of zeroes that several changes could have left, `open`: those that only one can have left are
    /// put down to it, until there are no more of them.
    fn settle(&mut self, reads: &[Seen], mut open: Vec<usize>) -> Result<(), (Option<usize>, Refusal)> {
        loop {
            let mut left = Vec::new();
            let before = open.len();
            for index in open {
                let read = &reads[index];
                let is_possible = |at: &usize| {
                    let zone = self.zones[*at].with(read);
                    self.effects[*at].call < read.reply && self.contradicted(*at, zone).is_none()
                };
                let possible: Vec<_> = self.of_content(read.content).filter(is_possible).take(2).collect();
                match possible[..] {
                    [] => return Err((Some(index), Refusal::NoPlace)),
                    [at] => self.zones[at] = self.zones[at].with(read),
                    _ => left.push(index),
                }
            }
            if left.len() == before || left.is_empty() {
                return Ok(());
            }
            open = left;
        }
    }

    /// Whether a crash can have left `content`.
    pub(crate) fn allows(&self, content: Content) -> Result<(), Refusal> {
        let mut refusal = Refusal::NoChange;
        for at in self.of_content(content) {
            match self.refuses(at) {
                None => return Ok(()),
                Some(found) => refusal = found,
            }
        }
        Err(refusal)
    }

    /// Why a crash cannot have left what change `at` did.
    fn refuses(&self, at: usize) -> Option<Refusal> {
        let zone = self.zones[at];
        if let Some(other) = self.contradicted(at, zone) {
            return Some(Refusal::NoOrder { one: at, other });
        }
        let is_between =
            |between: &Zone| between.is_certain && between.is_forward() && zone.is_before(*between);
        let between: Vec<_> = self.zones.iter().filter(|zone| is_between(zone)).collect();
        let is_after = |later: usize| {
            let later = self.zones[later];
            zone.is_before(later) || between.iter().any(|between| between.is_before(later))
        };
        let durable = (0..self.zones.len())
            .rev()
            .find(|durable| *durable != at && self.effects[*durable].is_durable && is_after(*durable))?;
        Some(Refusal::Lost { seen: at, durable })
    }
}

#[cfg(test)]
mod tests;
