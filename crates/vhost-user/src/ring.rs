//! A split queue, seen from the device. Source: VIRTIO 1.2, 2.7.
//!
//! Layout, in bytes: descriptors of 16; the available ring: flags, index, an entry of 2 for each place, and
//! the index at which the driver wants to be called; the used ring: flags, index, an entry of 8 for each
//! place, and the index at which the device wants to be kicked.
//!
//! Why not the crate `virtio-queue`: it cannot carry out a chain again by its number, which is how requests
//! of a dead process are found.

use std::num::Wrapping;
use std::sync::atomic::{Ordering, fence};

use fastness_pmem::OutOfRange;

use crate::memory::{Memory, Place};

/// Most entries of a queue.
pub(crate) const SIZE_MAX: u16 = 1024;

/// The driver's flag: it does not sleep.
pub(crate) const NO_INTERRUPT: u16 = 1;
/// The device's flag: it does not sleep.
pub(crate) const NO_NOTIFY: u16 = 1;

/// Where the three parts are, as addresses of the front end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Addresses {
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
}

/// A queue that breaks the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RingError {
    #[error("the queue or a buffer is outside of the memory, or not aligned")]
    OutOfRange,
    #[error("the available index {available} is further from {next} than the queue is long")]
    Index { available: u16, next: u16 },
    #[error("descriptor {0} is none of the queue")]
    Descriptor(u16),
    #[error("a chain that has no end, or mixes what is read and what is written")]
    Chain,
    #[error("a table of descriptors in another one, or of a length that is none")]
    Indirect,
    #[error("the memory was cut short")]
    Lost,
}

impl From<OutOfRange> for RingError {
    fn from(_: OutOfRange) -> RingError {
        RingError::OutOfRange
    }
}

/// The queue, and how far it was taken.
#[derive(Debug)]
pub(crate) struct Ring {
    size: u16,
    descriptors: Place,
    available: Place,
    used: Place,
    /// Number of the next available entry.
    next: Wrapping<u16>,
    /// Number of the next used entry.
    next_used: Wrapping<u16>,
    /// `next_used` when the driver was last asked whether it wants a call.
    asked: Wrapping<u16>,
    has_event_index: bool,
    /// Nothing is known of what a process before this one has told the driver.
    must_call: bool,
}

impl Ring {
    /// The queue at these addresses, after `next` available entries.
    pub(crate) fn new(
        memory: &Memory,
        addresses: &Addresses,
        size: u16,
        next: u16,
        has_event_index: bool,
    ) -> Result<Ring, RingError> {
        let entries = u64::from(size);
        let mut ring = Ring {
            size,
            descriptors: memory.of_user(addresses.descriptors, 16 * entries)?,
            available: memory.of_user(addresses.available, 6 + 2 * entries)?,
            used: memory.of_user(addresses.used, 6 + 8 * entries)?,
            next: Wrapping(next),
            next_used: Wrapping(0),
            asked: Wrapping(0),
            has_event_index,
            must_call: true,
        };
        ring.next_used = Wrapping(ring.used_index()?);
        ring.asked = ring.next_used;
        Ok(ring)
    }

    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    pub(crate) fn next(&self) -> u16 {
        self.next.0
    }

    pub(crate) fn set_next(&mut self, next: u16) {
        self.next = Wrapping(next);
    }

    pub(crate) fn descriptors(&self) -> &Place {
        &self.descriptors
    }

    fn half(place: &Place, offset: u64) -> Result<u16, RingError> {
        Ok(u16::from_le(place.region.memory.load_half(place.offset + offset)?))
    }

    fn set_half(place: &Place, offset: u64, value: u16) -> Result<(), RingError> {
        let half = place.region.memory.half(place.offset + offset)?;
        // Whoever sees it sees what was stored before it.
        half.store(value.to_le(), Ordering::Release);
        Ok(())
    }

    /// How many entries were ever used, modulo 65536.
    pub(crate) fn used_index(&self) -> Result<u16, RingError> {
        Ring::half(&self.used, 2)
    }

    /// Whether there is an available entry that was not taken.
    pub(crate) fn has_next(&self) -> Result<bool, RingError> {
        Ok(Ring::half(&self.available, 2)? != self.next.0)
    }

    /// The head of the next available chain, which is not taken yet.
    pub(crate) fn peek(&self) -> Result<Option<u16>, RingError> {
        let available = Ring::half(&self.available, 2)?;
        let waiting = (Wrapping(available) - self.next).0;
        if waiting == 0 {
            return Ok(None);
        }
        if waiting > self.size {
            return Err(RingError::Index { available, next: self.next.0 });
        }
        let place = u64::from(self.next.0 % self.size);
        let head = Ring::half(&self.available, 4 + 2 * place)?;
        if head >= self.size {
            return Err(RingError::Descriptor(head));
        }
        Ok(Some(head))
    }

    /// Takes what [`peek`](Self::peek) has shown.
    pub(crate) fn take(&mut self) {
        self.next += 1;
    }

    /// Hands a chain back, with the number of bytes that were written to it.
    pub(crate) fn put(&mut self, head: u16, len: u32) -> Result<(), RingError> {
        let place = u64::from(self.next_used.0 % self.size);
        let mut entry = [0; 8];
        entry[..4].copy_from_slice(&u32::from(head).to_le_bytes());
        entry[4..].copy_from_slice(&len.to_le_bytes());
        self.used.region.memory.write(self.used.offset + 4 + 8 * place, &entry)?;
        self.next_used += 1;
        Ring::set_half(&self.used, 2, self.next_used.0)
    }

    /// Whether the driver wants to be called for what was put since this was last asked. Source: 2.7.7.
    pub(crate) fn wants_call(&mut self) -> Result<bool, RingError> {
        let (before, now) = (self.asked, self.next_used);
        self.asked = now;
        if std::mem::take(&mut self.must_call) {
            return Ok(true);
        }
        if before == now {
            return Ok(false);
        }
        // Our index before the driver's wish: it stores its wish, then looks at our index.
        fence(Ordering::SeqCst);
        if self.has_event_index {
            let event = Wrapping(Ring::half(&self.available, 4 + 2 * u64::from(self.size))?);
            Ok(now - event - Wrapping(1) < now - before)
        } else {
            Ok(Ring::half(&self.available, 0)? & NO_INTERRUPT == 0)
        }
    }

    /// Says whether the driver has to kick for a new entry. After `true`, [`has_next`](Self::has_next) finds
    /// what came before the driver could know. Source: 2.7.10.
    pub(crate) fn want_kick(&mut self, is_wanted: bool) -> Result<(), RingError> {
        if self.has_event_index {
            if is_wanted {
                Ring::set_half(&self.used, 4 + 8 * u64::from(self.size), self.next.0)?;
            }
        } else {
            Ring::set_half(&self.used, 0, if is_wanted { 0 } else { NO_NOTIFY })?;
        }
        if is_wanted {
            // Our wish before the driver's index, as in `wants_call`.
            fence(Ordering::SeqCst);
        }
        Ok(())
    }
}
