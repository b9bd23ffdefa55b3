//! Requests over io_uring (FUSE_OVER_IO_URING): the kernel puts them into memory of ours, in the ring of the
//! CPU where the program runs, and one system call gives an answer and waits for the next request.
//!
//! A *place* in a ring takes one request at a time, until that is answered; it cannot be given back before
//! the mount ends. Each place for which the kernel may have a request belongs to one thread, and no thread
//! has two: so no request waits for another one that takes long. A request that is put off keeps its place,
//! and the thread gets a new one; for the place of a request that had been put off and is answered, a thread
//! is started.
//!
//! Interrupts, and what the kernel has forgotten, still come over `/dev/fuse`.
//!
//! Source: Linux 6.14 to 6.18, `fs/fuse/dev_uring.c`; `struct fuse_uring_req_header` in
//! `include/uapi/linux/fuse.h`, version 7.42.

mod channel;
mod cpus;
mod nudge;
mod ring;

use std::io;

pub(crate) use channel::RingChannel;
pub(crate) use cpus::{Affinity, possible};
pub(crate) use nudge::{Nudges, is_nudge};
pub(crate) use ring::{Ring, refuse};

/// More CPUs than this, present or not, get no rings: each needs a thread and a place of a MiB, of which
/// little takes memory.
const CPUS_MAX: usize = 256;

/// Why requests do not come over rings.
#[derive(Debug, thiserror::Error)]
pub enum NoRings {
    /// The kernel's FUSE does not offer it.
    #[error("the kernel does not offer it (module parameter `enable_uring` of `fuse`, Linux 6.14 or later)")]
    NotOffered,
    /// The kernel gives no ring.
    #[error("the kernel gives no ring: {0}")]
    NoRing(#[source] io::Error),
    /// A queue for each CPU that there could be is too much.
    #[error("{0} CPUs are possible, more than {CPUS_MAX}")]
    Cpus(usize),
    /// The kernel takes no place for requests.
    #[error("the kernel takes no place for requests: {0}")]
    NoPlace(#[source] io::Error),
}

/// The number of queues that this machine needs, one for each CPU that there could be, if the kernel gives
/// rings: found out before it is told that they are wanted.
pub(crate) fn queues() -> Result<usize, NoRings> {
    let queues = possible().map_err(NoRings::NoRing)?;
    if queues > CPUS_MAX {
        return Err(NoRings::Cpus(queues));
    }
    Ring::new().map_err(NoRings::NoRing)?;
    Ok(queues)
}
