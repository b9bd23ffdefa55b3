//! What a thread of a session does: takes requests, carries them out, answers; waits with those that were
//! put off.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastness_sync::lock;
use rustix::io::Errno;

use crate::answer::Answer;
use crate::channel::{Channel, Held};
use crate::device::send;
use crate::dispatch::dispatch;
use crate::files::{Caller, Reply};
use crate::request::{PutOff, RequestState};
use crate::rings::is_nudge;
use crate::session::{Queue, Shared};
use crate::waiting::{Left, Waiting};
use crate::wire::{self, Head, Input, OUT_HEADER_BYTES};

impl Shared {
    /// Takes requests and carries them out until the mount is gone, or there are enough threads in this
    /// queue.
    pub(crate) fn take_requests(
        self: &Arc<Shared>,
        state: &RequestState,
        queue: Queue,
        mut channel: impl Channel,
    ) {
        let mut answer = Answer::default();
        while self.begin_idle(queue, channel.may_end()) {
            let received = match channel.prepare() {
                Ok(is_new) => {
                    if is_new {
                        // Without it requests that wait for a place wait until the next answer of this queue.
                        let _ = self.nudges.nudge(&self.device);
                    }
                    channel.receive()
                }
                Err(_) => {
                    // Out of memory, or the mount is gone.
                    self.end_idle(queue);
                    if self.is_over_after_a_pause() {
                        return;
                    }
                    continue;
                }
            };
            let is_last = self.end_idle(queue);
            let Ok(true) = received else { return self.end_waiting() };
            if is_last {
                // Without one more thread requests wait for longer; they are not lost.
                let _ = self.start_thread(queue);
            }
            self.serve(state, &mut channel, &mut answer);
        }
    }

    fn serve(self: &Arc<Shared>, state: &RequestState, channel: &mut impl Channel, answer: &mut Answer) {
        channel.lend(answer);
        let Some((head, mut input)) = channel.request() else { return channel.refuse(answer) };
        if is_nudge(&head) {
            let _ = channel.send(answer.start(), head.unique, Ok(()));
            return;
        }
        if head.opcode == wire::INTERRUPT {
            if let Ok(unique) = input.u64() {
                self.interrupt(unique, answer);
            }
            return;
        }
        self.begin(state, head.unique, false);
        let started = Instant::now();
        answer.start();
        let arguments = input.clone();
        let outcome =
            self.guarded(state, &head, |caller| dispatch(&*self.files, caller, &head, input, answer));
        let left = match (state.put_off_now(), &outcome) {
            (PutOff::Whole, Some(Err(_))) => Some(Left::Arguments(arguments.copied())),
            (PutOff::Rest, Some(Ok(()))) => Some(Left::Answer(answer.so_far().into())),
            _ => None,
        };
        if let Some(what) = left {
            let held = channel.hold(answer);
            if let Err(refused) = self.put_off(state, Waiting { head, what, held }) {
                state.end();
                self.refuse(refused, answer, |answer, held, result| {
                    channel.take_back(held);
                    channel.send(answer, head.unique, result)
                });
            }
            return;
        }
        state.end();
        self.counters.count(head.opcode, outcome.and_then(Result::err));
        self.reply(&head, outcome, answer, |answer, result| channel.send(answer, head.unique, result));
        self.counters.took(head.opcode, started.elapsed());
    }

    /// A thread begins with a request; its interrupt may have been here before.
    fn begin(&self, state: &RequestState, unique: u64, may_wait: bool) {
        state.begin(unique, may_wait);
        if self.early.take(unique) {
            state.interrupt();
        }
    }

    /// Calls the file system; a panic is EIO.
    fn guarded(
        &self,
        state: &RequestState,
        head: &Head,
        call: impl FnOnce(Caller<'_>) -> Option<Reply<()>>,
    ) -> Option<Reply<()>> {
        let Head { uid, gid, pid, .. } = *head;
        let caller = Caller { uid, gid, pid, state };
        catch_unwind(AssertUnwindSafe(|| call(caller))).unwrap_or_else(|_| {
            lock(&self.threads).panics += 1;
            Some(Err(Errno::IO))
        })
    }

    fn reply(
        &self,
        head: &Head,
        outcome: Option<Reply<()>>,
        answer: &mut Answer,
        mut send: impl FnMut(&mut Answer, Reply<()>) -> Result<(), Errno>,
    ) {
        let Some(result) = outcome else { return };
        if let Some(node) = answer.regular_file(head.opcode).filter(|_| result.is_ok()) {
            self.nudges.told(node);
        }
        match send(answer, result) {
            Ok(()) => {}
            // No program waits for it any more, or the mount is gone: the next read tells.
            Err(Errno::NOENT | Errno::NODEV) => self.take_back(head, result, answer),
            // The kernel does not like the answer; the program must not wait for ever.
            Err(_) => {
                self.take_back(head, result, answer);
                let _ = send(answer.start(), Err(Errno::IO));
            }
        }
    }

    /// The kernel was not told of a file after all.
    fn take_back(&self, head: &Head, result: Reply<()>, answer: &Answer) {
        let node = answer.so_far().get(OUT_HEADER_BYTES..).and_then(|body| body.first_chunk());
        if let (Ok(()), true, Some(node)) = (result, wire::tells_of_a_file(head.opcode), node) {
            self.files.forget(u64::from_ne_bytes(*node), 1);
        }
    }

    /// Sets a request aside, for a thread that may wait; returns one that was interrupted meanwhile.
    fn put_off(self: &Arc<Shared>, state: &RequestState, waiting: Waiting) -> Result<(), Waiting> {
        let mut threads = lock(&self.threads);
        let is_short = threads.waiting.push(waiting, state)?;
        if is_short {
            let work = |shared: &Arc<Shared>, state: &RequestState| {
                shared.unpin();
                shared.wait_with_requests(state);
            };
            if self.spawn(&mut threads, work).is_err() {
                // Then this one waits.
                drop(threads);
                self.wait_with_requests(state);
            }
        }
        Ok(())
    }

    /// Carries out requests that were put off, one after the other, and waits with each.
    fn wait_with_requests(self: &Arc<Shared>, state: &RequestState) {
        let mut answer = Answer::default();
        loop {
            let Some(Waiting { head, what, held }) = lock(&self.threads).waiting.next(state) else { return };
            let started = Instant::now();
            let outcome = self.guarded(state, &head, |caller| match &what {
                Left::Arguments(arguments) => {
                    let input = Input::again(arguments);
                    dispatch(&*self.files, caller, &head, input, answer.start())
                }
                Left::Answer(done) => {
                    answer.go_on(done);
                    Some(self.files.complete(caller))
                }
            });
            state.end();
            if let (Left::Answer(_), Some(Err(_))) = (&what, &outcome) {
                self.take_back(&head, Ok(()), &answer);
            }
            self.counters.count(head.opcode, outcome.and_then(Result::err));
            self.send_held(&head, held, outcome, &mut answer);
            self.counters.took(head.opcode, started.elapsed());
        }
    }

    /// Answers a request that had been put off.
    fn send_held(
        self: &Arc<Shared>,
        head: &Head,
        held: Held,
        outcome: Option<Reply<()>>,
        answer: &mut Answer,
    ) {
        match (held, outcome) {
            (Held::Nothing, _) => self.reply(head, outcome, answer, |answer, result| {
                send(&self.device, answer.finish(head.unique, result))
            }),
            (Held::Slot(mut slot), Some(result)) => {
                slot.put(answer, head.unique, result);
                self.commit(slot);
            }
            (Held::Slot(_), None) => {}
        }
    }

    /// Answers a request that was interrupted while it waited.
    fn refuse(
        &self,
        waiting: Waiting,
        answer: &mut Answer,
        mut send: impl FnMut(&mut Answer, Held, Reply<()>) -> Result<(), Errno>,
    ) {
        let Waiting { head, what, held } = waiting;
        if let Left::Answer(done) = &what {
            answer.go_on(done);
            self.take_back(&head, Ok(()), answer);
        }
        self.counters.count(head.opcode, Some(Errno::INTR));
        let _ = send(answer.start(), held, Err(Errno::INTR));
        self.counters.took(head.opcode, Duration::ZERO);
    }

    /// Tells the thread that carries out a request that its program was interrupted; one that waits ends.
    /// What no thread knows of has not begun yet, or is over.
    fn interrupt(self: &Arc<Shared>, unique: u64, answer: &mut Answer) {
        let mut threads = lock(&self.threads);
        if let Some(waiting) = threads.waiting.remove(unique) {
            drop(threads);
            let head = waiting.head;
            return self.refuse(waiting, answer, |answer, held, result| {
                self.send_held(&head, held, Some(result), answer);
                Ok(())
            });
        }
        // First: a thread that begins meanwhile finds it there, or is found here.
        self.early.add(unique);
        if let Some(state) = threads.states.iter().find(|state| state.is(unique)) {
            state.interrupt();
            self.early.take(unique);
        }
    }

    /// The mount is gone: nothing has to wait for it.
    fn end_waiting(&self) {
        let mut threads = lock(&self.threads);
        threads.waiting.end();
        threads.states.iter().for_each(|state| state.interrupt());
    }
}
