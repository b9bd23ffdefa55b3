//! An io_uring of one thread, for one place at a time.
//!
//! Memory: between its registration or commit and the completion of that, the kernel may read and write the
//! memory of a place, but only inside of a system call of this thread on this ring (the ring is of one thread
//! and defers all work to its waits), as it needs the address space of the process. No reference to the
//! memory is used there.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::io::Errno;

use crate::slot::Slot;

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// Where `struct io_uring_sqe` has the number of parts of a memory.
const SQE_LEN: usize = 24;
/// One command at a time.
const ENTRIES: u32 = 1;
/// A queue that no machine has.
const NO_QUEUE: u16 = u16::MAX;

pub(crate) struct Ring(IoUring<Entry128, cqueue::Entry>);

impl Ring {
    /// A ring for the calling thread.
    pub(crate) fn new() -> io::Result<Ring> {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_single_issuer().setup_defer_taskrun();
        Ok(Ring(builder.build(ENTRIES)?))
    }

    fn push(&mut self, device: &OwnedFd, command: u32, unique: u64, queue: u16, parts: Option<u64>) {
        // `struct fuse_uring_cmd_req`: flags (8), number of the request (8), queue (2).
        let mut arguments = [0; 80];
        arguments[8..16].copy_from_slice(&unique.to_ne_bytes());
        arguments[16..18].copy_from_slice(&queue.to_ne_bytes());
        let mut entry = opcode::UringCmd80::new(types::Fd(device.as_raw_fd()), command)
            .cmd(arguments)
            .addr(parts)
            .build();
        if parts.is_some() {
            const { assert!(size_of::<Entry128>() == 128) };
            // SAFETY: an entry is `struct io_uring_sqe` (`repr(C)`, 128 bytes), with four bytes for this
            // number at an offset that is a multiple of four; the crate has no way to set it for this
            // command.
            unsafe { (&raw mut entry).cast::<u8>().add(SQE_LEN).cast::<u32>().write(2) };
        }
        // SAFETY: the descriptor is open while the caller has it borrowed, and the caller submits meanwhile
        // or in the next wait, with the same descriptor still open (`RingChannel` borrows it); the kernel
        // holds the file from then on. `parts`, and the memory that it names, are a slot's. It keeps them in
        // place, and lives until after the end of this ring (`RingChannel`); nothing uses them while the
        // kernel may (see the module's text).
        unsafe { self.0.submission().push(&entry) }.expect("one command at a time");
    }

    /// Gives the kernel a new place for requests.
    ///
    /// # Errors
    /// It takes none.
    pub(super) fn register(&mut self, device: &OwnedFd, slot: &mut Slot) -> io::Result<()> {
        self.push(device, REGISTER, 0, slot.queue, Some(slot.parts()));
        self.submit()
    }

    /// Submits; what fails at once is an error. A request that is there at once stays for [`Ring::wait`].
    fn submit(&mut self) -> io::Result<()> {
        self.0.submit()?;
        let mut completions = self.0.completion();
        if completions.is_empty() {
            return Ok(());
        }
        // A request completes in a wait alone: this is an error.
        let result = completions.next().map_or(0, |completion| completion.result());
        Err(io::Error::from_raw_os_error(-result))
    }

    /// Has the kernel take the answer in a place, with the next wait.
    pub(super) fn commit(&mut self, device: &OwnedFd, slot: &Slot) {
        self.push(device, COMMIT_AND_FETCH, slot.unique(), slot.queue, None);
    }

    /// Waits for the request of the place that was registered or committed.
    ///
    /// # Errors
    /// There will be none: the mount is gone.
    pub(super) fn wait(&mut self) -> Result<(), Errno> {
        loop {
            if let Some(completion) = self.0.completion().next() {
                let result = completion.result();
                return if result < 0 { Err(Errno::from_raw_os_error(-result)) } else { Ok(()) };
            }
            match self.0.submit_and_wait(1) {
                Ok(_) => {}
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        }
    }
}

/// Tells the kernel that no requests are to come over rings, although that was agreed: it waits for places of
/// all queues otherwise.
pub(crate) fn refuse(device: &OwnedFd) -> io::Result<()> {
    let mut ring = Ring::new()?;
    ring.push(device, REGISTER, 0, NO_QUEUE, None);
    match ring.submit() {
        // This is how it takes it.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(io::ErrorKind::Other.into()),
    }
}
