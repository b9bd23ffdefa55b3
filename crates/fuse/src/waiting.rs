//! Requests that wait for something that may take for ever: a suspended pool.
//!
//! They hold no thread each, or programs that wait could take all threads, and nothing would read what others
//! ask for, or that a program is to be killed. A thread that would have to wait puts its request here; a few
//! threads of their own wait, with one request each, and carry out the others when these are through.

use std::collections::VecDeque;

use crate::channel::Held;
use crate::request::RequestState;
use crate::wire::Head;

/// Threads that wait.
pub(crate) const WAITERS_MAX: usize = 4;

/// A request that was put off.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) head: Head,
    pub(crate) what: Left,
    pub(crate) held: Held,
}

#[derive(Debug)]
pub(crate) enum Left {
    /// Its arguments: all of it is to be carried out again.
    Arguments(Box<[u8]>),
    /// Its answer: it is done but for its end.
    Answer(Box<[u8]>),
}

/// Requests that were put off, and the threads that wait with some of them.
#[derive(Debug, Default)]
pub(crate) struct WaitingRequests {
    queue: VecDeque<Waiting>,
    waiters: usize,
    /// The mount is gone: the kernel expects no answers.
    is_over: bool,
}

impl WaitingRequests {
    /// Takes a request over from the thread that carried it out; returns whether one more waiter is to be
    /// started, or the request, if it was interrupted meanwhile or the mount is gone.
    pub(crate) fn push(&mut self, waiting: Waiting, state: &RequestState) -> Result<bool, Waiting> {
        if self.is_over || state.is_interrupted() {
            return Err(waiting);
        }
        state.end();
        self.queue.push_back(waiting);
        let is_short = self.waiters < WAITERS_MAX;
        self.waiters += usize::from(is_short);
        Ok(is_short)
    }

    /// The next request for a waiter, which is then its; without one the waiter ends.
    pub(crate) fn next(&mut self, state: &RequestState) -> Option<Waiting> {
        let next = self.queue.pop_front();
        match &next {
            Some(waiting) => state.begin(waiting.head.unique, true),
            None => self.waiters -= 1,
        }
        next
    }

    /// Takes out the request that was interrupted.
    pub(crate) fn remove(&mut self, unique: u64) -> Option<Waiting> {
        let at = self.queue.iter().position(|waiting| waiting.head.unique == unique)?;
        self.queue.remove(at)
    }

    pub(crate) fn end(&mut self) {
        self.is_over = true;
        self.queue.clear();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire;

    fn waiting(unique: u64) -> Waiting {
        let head = Head { opcode: wire::WRITE, unique, node: 2, uid: 0, gid: 0, pid: 1 };
        Waiting { head, what: Left::Arguments(Box::default()), held: Held::Nothing }
    }

    #[test]
    fn a_few_threads_wait_and_the_others_take_their_turns() {
        let (mut all, state) = (WaitingRequests::default(), RequestState::default());
        let short: Vec<bool> = (1..=6).map(|unique| all.push(waiting(unique), &state).unwrap()).collect();
        assert_eq!(short, [true, true, true, true, false, false]);
        for unique in 1..=6 {
            assert_eq!(all.next(&state).unwrap().head.unique, unique);
            assert!(state.is(unique) && state.may_wait());
        }
        // Each of them ends when there are no more, and the next request needs one again.
        assert!((0..WAITERS_MAX).all(|_| all.next(&state).is_none()));
        assert!(all.push(waiting(7), &state).unwrap());
    }

    #[test]
    fn an_interrupted_request_is_not_queued_and_a_queued_one_is_taken_out() {
        let (mut all, state) = (WaitingRequests::default(), RequestState::default());
        state.begin(1, false);
        state.interrupt();
        assert_eq!(all.push(waiting(1), &state).unwrap_err().head.unique, 1);
        state.begin(2, false);
        all.push(waiting(2), &state).unwrap();
        assert!(!state.is(2), "an interrupt finds it in the queue alone");
        assert_eq!((all.remove(3).is_none(), all.remove(2).is_some(), all.len()), (true, true, 0));
    }

    #[test]
    fn nothing_waits_when_the_mount_is_gone() {
        let (mut all, state) = (WaitingRequests::default(), RequestState::default());
        all.push(waiting(1), &state).unwrap();
        all.end();
        assert!(all.next(&state).is_none() && all.push(waiting(2), &state).is_err());
    }
}
