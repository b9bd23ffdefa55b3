//! How a thread gets requests and answers them: the same for each way from the kernel.

use std::io;

use rustix::io::Errno;

use crate::answer::Answer;
use crate::files::Reply;
use crate::slot::Slot;
use crate::wire::{Head, Input};

/// One thread's way to the kernel, with at most one request at a time.
pub(crate) trait Channel {
    /// Makes ready for [`receive`](Channel::receive); `true`: there is a new place for requests, and others
    /// may wait for one.
    ///
    /// # Errors
    /// The kernel takes no new place.
    fn prepare(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    /// Waits for a request; `false`: the mount is gone.
    fn receive(&mut self) -> Result<bool, Errno>;

    /// The request that was received; `None`: it is none.
    fn request(&self) -> Option<(Head, Input<'_>)>;

    /// Answers what is no request, if that can be answered.
    fn refuse(&mut self, _answer: &mut Answer) {}

    /// Takes the answer of the request that was received; `answer` was lent to this channel, or not. It may
    /// reach the kernel with the next [`receive`](Channel::receive).
    ///
    /// # Errors
    /// What the kernel says, if it says it now.
    fn send(&mut self, answer: &mut Answer, unique: u64, result: Reply<()>) -> Result<(), Errno>;

    /// Gives an answer the memory in which it reaches the kernel without being copied, if there is some.
    fn lend(&mut self, _answer: &mut Answer) {}

    /// What the request needs for its answer when this thread goes on with others. What was lent is so no
    /// more.
    fn hold(&mut self, _answer: &mut Answer) -> Held {
        Held::Nothing
    }

    /// Takes it back: this thread answers after all.
    fn take_back(&mut self, _held: Held) {}

    /// Whether the thread may end now: the kernel counts on no answer, and on no place for a request, of this
    /// channel.
    fn may_end(&self) -> bool {
        true
    }
}

/// What a request that is put off keeps for its answer.
#[derive(Debug)]
pub(crate) enum Held {
    /// The descriptor is enough.
    Nothing,
    /// A place in a ring.
    Slot(Slot),
}
