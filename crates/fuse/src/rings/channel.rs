//! Requests that come to the place of one thread.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::ring::Ring;
use crate::answer::Answer;
use crate::channel::{Channel, Held};
use crate::files::Reply;
use crate::slot::Slot;
use crate::wire::{Head, Input};

/// One thread's ring, and the place in it.
pub(crate) struct RingChannel<'a> {
    device: &'a OwnedFd,
    queue: u16,
    /// Before the place: it ends first.
    ring: Ring,
    /// None: there was none yet, or its request was put off.
    slot: Option<Slot>,
    has_answer: bool,
}

impl<'a> RingChannel<'a> {
    /// A channel without a place yet.
    ///
    /// # Errors
    /// The kernel gives no ring.
    pub(crate) fn new(device: &'a OwnedFd, queue: u16) -> io::Result<RingChannel<'a>> {
        Ok(RingChannel { device, queue, ring: Ring::new()?, slot: None, has_answer: false })
    }

    /// A channel with a place that has an answer, which the kernel takes with the first wait.
    pub(crate) fn with_answer(device: &'a OwnedFd, ring: Ring, slot: Slot) -> RingChannel<'a> {
        RingChannel { device, queue: slot.queue, ring, slot: Some(slot), has_answer: true }
    }
}

impl Channel for RingChannel<'_> {
    fn prepare(&mut self) -> io::Result<bool> {
        if self.slot.is_some() {
            return Ok(false);
        }
        let mut slot = Slot::new(self.queue);
        self.ring.register(self.device, &mut slot)?;
        self.slot = Some(slot);
        Ok(true)
    }

    fn receive(&mut self) -> Result<bool, Errno> {
        if std::mem::take(&mut self.has_answer) {
            let slot = self.slot.as_ref().expect("it has the answer");
            self.ring.commit(self.device, slot);
        }
        // Whatever the error: no request comes to this place any more.
        Ok(self.ring.wait().is_ok())
    }

    fn request(&self) -> Option<(Head, Input<'_>)> {
        self.slot.as_ref()?.request()
    }

    fn refuse(&mut self, answer: &mut Answer) {
        let unique = self.slot.as_ref().map_or(0, Slot::unique);
        let _ = self.send(answer.start(), unique, Err(Errno::INVAL));
    }

    fn send(&mut self, answer: &mut Answer, unique: u64, result: Reply<()>) -> Result<(), Errno> {
        if let Some(slot) = &mut self.slot {
            slot.put(answer, unique, result);
            self.has_answer = true;
        }
        Ok(())
    }

    fn lend(&mut self, answer: &mut Answer) {
        if let Some(slot) = &mut self.slot {
            slot.lend(answer);
        }
    }

    fn hold(&mut self, answer: &mut Answer) -> Held {
        let Some(mut slot) = self.slot.take() else { return Held::Nothing };
        slot.end_loan(answer);
        Held::Slot(slot)
    }

    fn take_back(&mut self, held: Held) {
        if let Held::Slot(slot) = held {
            self.slot = Some(slot);
        }
    }

    fn may_end(&self) -> bool {
        self.slot.is_none()
    }
}
