//! Sends replies to the client: one sender at a time, and only a thread that may wait does.
//!
//! A thread with replies queues them and becomes the sender, unless there is one; the sender empties the
//! queue, with one system call for many replies. A sender that must not wait (a worker, which serves all
//! clients) leaves what the socket does not accept to the connection's writer thread.

use std::collections::VecDeque;
use std::io::IoSlice;

use fastness_sync::{Condvar, Mutex, MutexGuard, lock};
use rustix::io::Errno;

use crate::error::ConnectionError;
use crate::reply::Frame;
use crate::socket::Socket;

/// Maximum number of frames in one system call.
const BATCH_MAX: usize = 32;

#[derive(Default)]
pub(crate) struct Output {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Frame>,
    /// Bytes of the first frame that were sent.
    sent: usize,
    sender: Sender,
    /// The socket failed, or the client read nothing for too long; replies are dropped.
    broken: Option<Errno>,
    /// The writer thread has to end.
    is_finished: bool,
    /// Kept for its capacity.
    spare: VecDeque<Frame>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Sender {
    #[default]
    None,
    /// A thread that had replies.
    Passing,
    /// The writer thread, which may wait.
    Writer,
}

impl Output {
    /// Queues `frames`; they are sent by the next [`Output::flush`].
    pub(crate) fn push(&self, frames: &mut Vec<Frame>) {
        let mut state = lock(&self.state);
        if state.broken.is_some() {
            drop(state);
            frames.clear();
        } else {
            state.queue.extend(frames.drain(..));
        }
    }

    /// Sends what is queued, or makes sure that another thread does.
    pub(crate) fn flush(&self, socket: &Socket, may_wait: bool) {
        let mut state = lock(&self.state);
        if state.sender == Sender::None && !state.queue.is_empty() {
            state.sender = Sender::Passing;
            state = self.drain(state, socket, may_wait);
            if state.sender == Sender::Writer {
                self.changed.notify_all();
            }
        }
    }

    /// The writer thread of a connection.
    pub(crate) fn write(&self, socket: &Socket) {
        let mut state = lock(&self.state);
        loop {
            if state.sender == Sender::Writer {
                state = self.drain(state, socket, true);
            } else if state.is_finished {
                return;
            } else {
                state = fastness_sync::wait(&self.changed, state);
            }
        }
    }

    /// Why replies were dropped, if they were.
    pub(crate) fn check(&self) -> Result<(), ConnectionError> {
        match lock(&self.state).broken {
            None => Ok(()),
            Some(Errno::AGAIN) => Err(ConnectionError::TimedOut { what: "take its replies" }),
            Some(errno) => Err(errno.into()),
        }
    }

    /// Lets the writer thread end once all is sent.
    pub(crate) fn finish(&self) {
        lock(&self.state).is_finished = true;
        self.changed.notify_all();
    }

    /// As the sender, empties the queue. Afterwards there is no sender, or it is the writer thread.
    fn drain<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        socket: &Socket,
        may_wait: bool,
    ) -> MutexGuard<'a, State> {
        while !state.queue.is_empty() {
            let spare = std::mem::take(&mut state.spare);
            let mut batch = std::mem::replace(&mut state.queue, spare);
            let mut sent = std::mem::take(&mut state.sent);
            drop(state);
            let outcome = send(socket, &mut batch, &mut sent, may_wait);
            state = lock(&self.state);
            match outcome {
                Ok(()) => state.spare = batch,
                Err(Errno::AGAIN) if !may_wait => {
                    // Put the rest back in front of the frames queued in the meantime.
                    batch.append(&mut state.queue);
                    state.queue = batch;
                    state.sent = sent;
                    state.sender = Sender::Writer;
                    return state;
                }
                Err(errno) => {
                    // The client would take a later reply for the rest of this one: nothing can follow.
                    state.broken = Some(errno);
                    let rest = std::mem::take(&mut state.queue);
                    drop(state);
                    socket.close();
                    drop((batch, rest));
                    state = lock(&self.state);
                }
            }
        }
        state.sender = Sender::None;
        state
    }
}

/// Sends frames from the front, dropping each that is sent.
fn send(socket: &Socket, batch: &mut VecDeque<Frame>, sent: &mut usize, may_wait: bool) -> Result<(), Errno> {
    while !batch.is_empty() {
        let mut slices = [IoSlice::new(&[]); 2 * BATCH_MAX];
        let mut used = 0;
        let mut skip = *sent;
        for part in batch.iter().take(BATCH_MAX).flat_map(Frame::parts) {
            let skipped = skip.min(part.len());
            skip -= skipped;
            if skipped < part.len() {
                slices[used] = IoSlice::new(&part[skipped..]);
                used += 1;
            }
        }
        *sent += socket.send(&slices[..used], may_wait)?;
        while let Some(first) = batch.front().map(Frame::bytes).filter(|bytes| bytes <= sent) {
            *sent -= first;
            batch.pop_front();
        }
    }
    Ok(())
}
