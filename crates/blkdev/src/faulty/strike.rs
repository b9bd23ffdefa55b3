//! One operation on the wrapped device, done correctly or with a fault.

use std::io;
use std::time::Instant;

use crate::check::len64;
use crate::device::BlockDevice;
use crate::error::{BlockError, Cause, Operation};
use crate::faulty::plan::Fault;
use crate::faulty::rng::Rng;
use crate::faulty::{Faulty, Link, State};

/// The data of an operation.
pub(super) enum Act<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
    Flush,
    Discard,
    Zeroes,
}

fn errno(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

fn gone() -> Cause {
    Cause::Gone(errno(libc::ENODEV))
}

/// Where a fault stopped an operation.
struct Stop {
    done: u64,
    cause: Cause,
}

impl Stop {
    fn at_start(cause: Cause) -> Stop {
        Stop { done: 0, cause }
    }

    /// An error of the device below, in an operation on `len_bytes`.
    fn of(error: BlockError, len_bytes: u64) -> Stop {
        Stop { done: len_bytes.saturating_sub(error.len_bytes), cause: error.cause }
    }
}

impl<D: BlockDevice> Faulty<D> {
    /// Runs one operation: checks it, counts it, and applies a fault if one strikes.
    pub(super) fn run(
        &self,
        operation: Operation,
        offset: u64,
        len_bytes: u64,
        act: Act<'_>,
    ) -> Result<(), BlockError> {
        self.info.check(operation, offset, len_bytes)?;
        let mut state = self.state();
        let since = Instant::now();
        let outcome = self.run_locked(&mut state, operation, offset, len_bytes, act);
        let is_sync = matches!(operation, Operation::Flush | Operation::WriteFua);
        if is_sync && outcome.is_err() {
            state.is_poisoned = true;
        }
        self.stats.note(operation, len_bytes, since, outcome.is_err());
        outcome.map_err(|Stop { done, cause }| {
            self.info.error(operation, offset + done, len_bytes - done, cause)
        })
    }

    fn run_locked(
        &self,
        state: &mut State,
        operation: Operation,
        offset: u64,
        len_bytes: u64,
        act: Act<'_>,
    ) -> Result<(), Stop> {
        if state.link != Link::Up {
            return Err(Stop::at_start(gone()));
        }
        if state.is_poisoned && operation != Operation::Read {
            return Err(Stop::at_start(Cause::Poisoned));
        }
        state.ops += 1;
        let Some(fault) = state.plan.next_fault(operation, offset, len_bytes) else {
            return self.act(state, operation, offset, len_bytes, act);
        };
        match fault {
            Fault::Errno(number) => Err(Stop::at_start(Cause::from_io(errno(number)))),
            Fault::Dropped => Ok(()),
            Fault::Vanish => {
                state.link = Link::Vanished;
                Err(Stop::at_start(gone()))
            }
            Fault::PowerCut => {
                if operation.is_change() {
                    // In flight: not durable, even if it was a FUA write.
                    let operation =
                        if operation == Operation::WriteFua { Operation::Write } else { operation };
                    self.act(state, operation, offset, len_bytes, act)?;
                }
                state.link = Link::PowerCut;
                Err(Stop::at_start(gone()))
            }
            Fault::Misdirected { to } => {
                let to = to.min(self.info.len_bytes - len_bytes);
                self.act(state, operation, to, len_bytes, act)
            }
            Fault::Short { units } => {
                let done = (u64::from(units) * state.pending.tear_bytes()).min(len_bytes);
                self.act_in_part(state, offset, act, |at| at < done)
                    .map_err(|error| Stop::of(error, len_bytes))?;
                Err(Stop { done, cause: Cause::Media(errno(libc::EIO)) })
            }
            Fault::Torn => {
                let mut rng = Rng::of(state.plan.seed(), 0x7012, state.ops);
                let mut done = None;
                self.act_in_part(state, offset, act, |at| {
                    let is_applied = rng.coin();
                    if !is_applied {
                        done.get_or_insert(at);
                    }
                    is_applied
                })
                .map_err(|error| Stop::of(error, len_bytes))?;
                Err(Stop { done: done.unwrap_or(len_bytes), cause: Cause::Media(errno(libc::EIO)) })
            }
            Fault::BitFlip => self.act_with_flip(state, operation, offset, len_bytes, act),
        }
    }

    /// Runs the operation without a fault.
    fn act(
        &self,
        state: &mut State,
        operation: Operation,
        offset: u64,
        len_bytes: u64,
        act: Act<'_>,
    ) -> Result<(), Stop> {
        let stop = |error: BlockError| Stop::of(error, len_bytes);
        match act {
            Act::Read(buf) => self.inner.read_at(offset, buf).map_err(stop)?,
            Act::Flush => {
                self.inner.flush().map_err(stop)?;
                state.pending.clear();
            }
            Act::Write(data) => {
                self.change(state, offset, len_bytes, || self.inner.write_at(offset, data)).map_err(stop)?;
                if operation == Operation::WriteFua {
                    state.pending.settle(offset, data);
                }
            }
            Act::Discard => {
                self.change(state, offset, len_bytes, || self.inner.discard(offset, len_bytes))
                    .map_err(stop)?;
            }
            Act::Zeroes => {
                self.change(state, offset, len_bytes, || self.inner.write_zeroes(offset, len_bytes))
                    .map_err(stop)?;
            }
        }
        Ok(())
    }

    /// Changes the device below and records the old and new contents.
    fn change(
        &self,
        state: &mut State,
        offset: u64,
        len_bytes: u64,
        change: impl FnOnce() -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let unit_bytes = state.pending.tear_bytes().max(self.info.logical_block_bytes.into());
        let span = self.span(offset, len_bytes, unit_bytes);
        let old = self.read_inner(&span)?;
        let outcome = change();
        // After an error, too: record what the device holds now.
        let new = self.read_inner(&span)?;
        state.pending.record(span.start, &old, &new);
        outcome
    }

    /// Transfers those tear units of a read or write that `is_applied` selects by their index in the request.
    fn act_in_part(
        &self,
        state: &mut State,
        offset: u64,
        act: Act<'_>,
        mut is_applied: impl FnMut(u64) -> bool,
    ) -> Result<(), BlockError> {
        let step = usize::try_from(state.pending.tear_bytes()).expect("a power of two of 32 bits");
        match act {
            Act::Read(buf) => {
                let bytes = self.read_inner(&(offset..offset + len64(buf.len())))?;
                for (index, (to, from)) in buf.chunks_mut(step).zip(bytes.chunks(step)).enumerate() {
                    if is_applied(len64(index * step)) {
                        to.copy_from_slice(from);
                    }
                }
                Ok(())
            }
            Act::Write(data) => {
                let mut mixed = self.read_inner(&(offset..offset + len64(data.len())))?;
                for (index, (to, from)) in mixed.chunks_mut(step).zip(data.chunks(step)).enumerate() {
                    if is_applied(len64(index * step)) {
                        to.copy_from_slice(from);
                    }
                }
                self.change(state, offset, len64(data.len()), || self.inner.write_at(offset, &mixed))
            }
            // Nothing is transferred, so there are no parts.
            Act::Flush | Act::Discard | Act::Zeroes => Ok(()),
        }
    }

    fn act_with_flip(
        &self,
        state: &mut State,
        operation: Operation,
        offset: u64,
        len_bytes: u64,
        act: Act<'_>,
    ) -> Result<(), Stop> {
        let mut rng = Rng::of(state.plan.seed(), 0xf11b, state.ops);
        let mut flip = |bytes: &mut [u8]| {
            if !bytes.is_empty() {
                bytes[rng.below(bytes.len())] ^= 1 << rng.below(8);
            }
        };
        match act {
            Act::Read(buf) => {
                self.inner.read_at(offset, buf).map_err(|error| Stop::of(error, len_bytes))?;
                flip(buf);
                Ok(())
            }
            Act::Write(data) => {
                let mut flipped = data.to_vec();
                flip(&mut flipped);
                self.act(state, operation, offset, len_bytes, Act::Write(&flipped))
            }
            other => self.act(state, operation, offset, len_bytes, other),
        }
    }
}
