//! Batches with one system call for many requests.
//!
//! A ring belongs to one batch at a time; a device keeps a few, so that several threads can run batches.
//! Single requests do not use one: a ring saves nothing for one request.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Condvar, Mutex, PoisonError};

use io_uring::{IoUring, opcode, squeue, types};

use crate::aligned::{AlignedBuf, is_aligned};
use crate::device::Request;
use crate::error::Cause;
use crate::file::psync::{Stopped, whole_granules};

/// Maximum number of rings per device; a further batch waits for one.
const RINGS_MAX: usize = 4;
/// Longest transfer of one submission; a longer request takes several.
const SUBMISSION_BYTES_MAX: usize = 1 << 30;
/// How often a request is resubmitted because the kernel was short of a resource.
const BUSY_MAX: u32 = 64;

#[derive(Debug)]
struct Spare {
    rings: Vec<Ring>,
    existing: usize,
}

/// The rings of one device.
#[derive(Debug)]
pub(crate) struct Rings {
    spare: Mutex<Spare>,
    returned: Condvar,
    fd: RawFd,
    depth: u32,
}

struct Ring(IoUring);

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} entries)", self.0.params().sq_entries())
    }
}

impl Ring {
    fn new(depth: u32) -> io::Result<Ring> {
        // No interruption is needed: the submitting thread also waits. Unknown to kernels before 5.19.
        let ring = IoUring::builder()
            .dontfork()
            .setup_coop_taskrun()
            .build(depth)
            .or_else(|_| IoUring::builder().dontfork().build(depth))?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) || !probe.is_supported(opcode::Write::CODE) {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        Ok(Ring(ring))
    }
}

impl Rings {
    /// Creates the first ring, which shows whether the kernel allows io_uring.
    ///
    /// The descriptor must stay open while the rings live. It is not registered with them: the kernel tears
    /// down a ring some time after it is closed, and would keep the file, and its lock, until then.
    pub(crate) fn new(fd: RawFd, depth: u32) -> io::Result<Rings> {
        let first = Ring::new(depth)?;
        let spare = Spare { rings: vec![first], existing: 1 };
        Ok(Rings { spare: Mutex::new(spare), returned: Condvar::new(), fd, depth })
    }

    fn take(&self) -> Ring {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(ring) = spare.rings.pop() {
                return ring;
            }
            if spare.existing < RINGS_MAX
                && let Ok(ring) = Ring::new(self.depth)
            {
                spare.existing += 1;
                return ring;
            }
            spare = self.returned.wait(spare).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn put(&self, ring: Ring) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).rings.push(ring);
        self.returned.notify_one();
    }

    /// Runs all requests and returns when all have completed. Calls `note` for each, with its index, when it
    /// completes.
    pub(crate) fn run(
        &self,
        requests: Vec<&mut Request<'_>>,
        granule_bytes: usize,
        align_bytes: usize,
        note: impl FnMut(usize, bool),
    ) -> Vec<Result<(), Stopped>> {
        let mut bounced = bounce(&requests, align_bytes);
        let mut requests = requests;
        let transfers = requests
            .iter_mut()
            .zip(&mut bounced)
            .map(|(request, bounce)| Transfer::new(request, bounce.as_deref_mut()))
            .collect();
        let mut ring = self.take();
        let flight = Flight {
            ring: &mut ring.0,
            fd: self.fd,
            pending: (0..requests.len()).collect(),
            in_flight: 0,
            transfers,
            granule_bytes,
            note,
        };
        let outcomes = flight.run();
        self.put(ring);
        for (request, bounce) in requests.into_iter().zip(&bounced) {
            if let (Request::Read { buf, .. }, Some(bounce)) = (request, bounce) {
                buf.copy_from_slice(bounce);
            }
        }
        outcomes
    }
}

/// Aligned replacements for the buffers that direct I/O cannot use.
fn bounce(requests: &[&mut Request<'_>], align_bytes: usize) -> Vec<Option<AlignedBuf>> {
    let stand_in = |request: &&mut Request<'_>| match &**request {
        Request::Read { buf, .. } if !is_aligned(buf, align_bytes) => {
            Some(AlignedBuf::zeroed(buf.len(), align_bytes))
        }
        Request::Write { data, .. } if !is_aligned(data, align_bytes) => {
            Some(AlignedBuf::copy_of(data, align_bytes))
        }
        _ => None,
    };
    requests.iter().map(stand_in).collect()
}

/// The memory of a transfer. Pointers, because no reference may exist while the kernel uses the memory.
#[derive(Clone, Copy)]
enum Memory {
    Read(*mut u8),
    Write(*const u8),
}

/// One request in progress.
struct Transfer {
    offset: u64,
    memory: Memory,
    len: usize,
    done: usize,
    is_fua: bool,
    busy: u32,
    outcome: Option<Result<(), Stopped>>,
}

/// What follows a completion.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Ended,
    Again,
}

impl Transfer {
    fn new(request: &mut Request<'_>, bounce: Option<&mut [u8]>) -> Transfer {
        let (offset, memory, len, is_fua) = match (request, bounce) {
            (Request::Read { offset, buf }, None) => {
                (*offset, Memory::Read(buf.as_mut_ptr()), buf.len(), false)
            }
            (Request::Read { offset, .. }, Some(bounce)) => {
                (*offset, Memory::Read(bounce.as_mut_ptr()), bounce.len(), false)
            }
            (Request::Write { offset, data, fua }, None) => {
                (*offset, Memory::Write(data.as_ptr()), data.len(), *fua)
            }
            (Request::Write { offset, fua, .. }, Some(bounce)) => {
                (*offset, Memory::Write(bounce.as_ptr()), bounce.len(), *fua)
            }
        };
        let outcome = (len == 0).then_some(Ok(()));
        Transfer { offset, memory, len, done: 0, is_fua, busy: 0, outcome }
    }

    /// The submission entry for the rest.
    fn entry(&self, fd: RawFd, index: usize) -> squeue::Entry {
        let len = (self.len - self.done).min(SUBMISSION_BYTES_MAX);
        let len32 = u32::try_from(len).expect("at most 1 GiB");
        let (fd, offset) = (types::Fd(fd), self.offset + self.done as u64);
        let entry = match self.memory {
            Memory::Read(start) => {
                opcode::Read::new(fd, start.wrapping_add(self.done), len32).offset(offset).build()
            }
            Memory::Write(start) => opcode::Write::new(fd, start.wrapping_add(self.done), len32)
                .offset(offset)
                .rw_flags(if self.is_fua { libc::RWF_DSYNC } else { 0 })
                .build(),
        };
        entry.user_data(index as u64)
    }

    /// Takes the result of a completion: bytes, or a negative errno.
    fn complete(&mut self, result: i32, granule_bytes: usize) -> Next {
        let outcome = match usize::try_from(result) {
            Ok(transferred) => match whole_granules(transferred, self.len - self.done, granule_bytes) {
                Some(whole) => {
                    self.done += whole;
                    if self.done < self.len {
                        return Next::Again;
                    }
                    Ok(())
                }
                None => Err(Stopped { done: self.done, cause: Cause::Ended }),
            },
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) && self.busy < BUSY_MAX => {
                self.busy += 1;
                return Next::Again;
            }
            Err(_) => {
                let cause = Cause::from_io(io::Error::from_raw_os_error(-result));
                Err(Stopped { done: self.done, cause })
            }
        };
        self.outcome = Some(outcome);
        Next::Ended
    }
}

/// A batch in a ring. Must not be dropped while the kernel owns any of its memory.
struct Flight<'a, N: FnMut(usize, bool)> {
    ring: &'a mut IoUring,
    fd: RawFd,
    pending: VecDeque<usize>,
    in_flight: usize,
    transfers: Vec<Transfer>,
    granule_bytes: usize,
    note: N,
}

impl<N: FnMut(usize, bool)> Flight<'_, N> {
    fn run(mut self) -> Vec<Result<(), Stopped>> {
        self.end_empty_ones();
        while !self.pending.is_empty() || self.in_flight > 0 {
            self.fill();
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {
                    // Out of memory or of completion slots: completions free some. If nothing is in flight
                    // yet, this is a busy wait for memory.
                    std::thread::yield_now();
                }
                // Whether the kernel still owns buffers is unknown; after a return it could write to memory
                // that is reused by then.
                Err(error) => abort(&error),
            }
            self.reap();
        }
        std::mem::take(&mut self.transfers)
            .into_iter()
            .map(|transfer| transfer.outcome.expect("the loop ends when every transfer has ended"))
            .collect()
    }

    /// Completes empty requests at once.
    fn end_empty_ones(&mut self) {
        let transfers = &self.transfers;
        self.pending.retain(|&index| transfers[index].outcome.is_none());
        for (index, _) in self.transfers.iter().enumerate().filter(|(_, transfer)| transfer.outcome.is_some())
        {
            (self.note)(index, true);
        }
    }

    fn fill(&mut self) {
        let mut queue = self.ring.submission();
        let room_in_flight = queue.capacity().saturating_sub(self.in_flight);
        for _ in 0..room_in_flight {
            let Some(&index) = self.pending.front() else { break };
            let entry = self.transfers[index].entry(self.fd, index);
            // SAFETY: the entry names memory of a buffer that is borrowed by `Rings::run`'s caller, or of a
            // bounce buffer owned by `Rings::run`, at `done..len` of it. Both live until `run` of this flight
            // returns, which it does only when nothing is in flight, or not at all: `Drop` aborts on a panic,
            // `run` aborts on an error of the ring. Nothing else reads or writes the memory in between,
            // because `Transfer` holds bare pointers and the borrows are held by `Rings::run`. The descriptor
            // is open: the device that owns it is borrowed during the call.
            if unsafe { queue.push(&entry) }.is_err() {
                break;
            }
            self.pending.pop_front();
            self.in_flight += 1;
        }
    }

    fn reap(&mut self) {
        for completion in self.ring.completion() {
            self.in_flight -= 1;
            let index = usize::try_from(completion.user_data()).expect("made from a usize");
            let transfer = &mut self.transfers[index];
            match transfer.complete(completion.result(), self.granule_bytes) {
                Next::Again => self.pending.push_back(index),
                Next::Ended => {
                    let is_ok = matches!(transfer.outcome, Some(Ok(())));
                    (self.note)(index, is_ok);
                }
            }
        }
    }
}

impl<N: FnMut(usize, bool)> Drop for Flight<'_, N> {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            abort(&io::Error::other("panic with requests in flight"));
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM))
}

/// Ends the process: the kernel may still use memory that a return would release.
fn abort(error: &io::Error) -> ! {
    // The message is for the operator's log; nothing acknowledged as durable is lost.
    #[allow(clippy::print_stderr)]
    {
        eprintln!("fastness-blkdev: io_uring failed with requests in flight: {error}");
    }
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(len: usize) -> Transfer {
        let memory = Memory::Write(std::ptr::null());
        Transfer { offset: 4096, memory, len, done: 0, is_fua: false, busy: 0, outcome: None }
    }

    #[test]
    fn a_completion_ends_continues_or_stops_a_transfer() {
        let mut whole = transfer(4096);
        assert_eq!(whole.complete(4096, 512), Next::Ended);
        assert!(matches!(whole.outcome, Some(Ok(()))));

        let mut short = transfer(4096);
        assert_eq!(short.complete(1100, 512), Next::Again);
        assert_eq!(short.done, 1024, "direct I/O continues at a block");
        assert_eq!(short.complete(-libc::EINTR, 512), Next::Again);
        assert_eq!(short.complete(-libc::EIO, 512), Next::Ended);
        let Some(Err(Stopped { done: 1024, cause: Cause::Media(_) })) = short.outcome else { panic!() };

        let mut ended = transfer(4096);
        assert_eq!(ended.complete(0, 1), Next::Ended);
        assert!(matches!(ended.outcome, Some(Err(Stopped { done: 0, cause: Cause::Ended }))));
    }

    #[test]
    fn a_kernel_that_stays_busy_is_reported() {
        let mut busy = transfer(512);
        for _ in 0..BUSY_MAX {
            assert_eq!(busy.complete(-libc::EAGAIN, 1), Next::Again);
        }
        assert_eq!(busy.complete(-libc::EAGAIN, 1), Next::Ended);
        assert!(matches!(busy.outcome, Some(Err(Stopped { cause: Cause::Busy(_), .. }))));
    }
}
