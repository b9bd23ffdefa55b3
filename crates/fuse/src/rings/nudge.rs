//! Has the kernel look at a queue whose requests wait for a free place.
//!
//! The kernel gives such requests only to a place that gives an answer, not to a new one. If all places hold
//! requests that were put off, the others would wait with them, although there is a new place. So after each
//! place that comes later, its thread has the kernel send a request of its own (FUSE_NOTIFY_RETRIEVE, for no
//! bytes), which takes that place and is answered at once. If another request has taken the place, that one
//! is answered, or is put off, and then there is a new place with a nudge of its own.
//!
//! The kernel takes a regular file for this, and only one that it knows. So the last ones that it was told of
//! are kept here, until it says that it has forgotten them. Without one there is no nudge.
//!
//! Not a request of a thread of ours, such as `statfs`: a server that is killed meanwhile would never die.
//! Its thread waits for an answer, and keeps alive what the kernel would have to see gone before it ends that
//! wait: the rings, through the address space, and through them the mount's descriptor. (Tried, and seen.)

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::device::send;
use crate::wire::{self, Head};

/// FUSE_NOTIFY_RETRIEVE.
const RETRIEVE: u32 = 5;
const MESSAGE_BYTES: usize = 48;
const FILES: usize = 16;
/// No number of a request of the kernel's own: it counts from 0. As those, it is even.
const UNIQUE_MIN: u64 = 1 << 62;

/// Nudges of the queues of one mount.
#[derive(Debug, Default)]
pub(crate) struct Nudges {
    /// Regular files of which the kernel was told; 0: none.
    files: [AtomicU64; FILES],
    count: AtomicU64,
}

impl Nudges {
    /// The kernel is told of a regular file.
    pub(crate) fn told(&self, node: u64) {
        let at = &self.files[node as usize % FILES];
        if at.load(Ordering::Relaxed) != node {
            at.store(node, Ordering::Relaxed);
        }
    }

    /// Nudges the queue of the CPU on which the calling thread is; whether that could be done. The request
    /// comes to a place of this queue, perhaps to the caller's.
    pub(crate) fn nudge(&self, device: &OwnedFd) -> bool {
        self.nudge_with(|message| send(device, message))
    }

    fn nudge_with(&self, mut send: impl FnMut(&[u8]) -> Result<(), Errno>) -> bool {
        self.files.iter().any(|file| {
            let node = file.load(Ordering::Relaxed);
            if node == 0 {
                return false;
            }
            let unique = UNIQUE_MIN + 2 * self.count.fetch_add(1, Ordering::Relaxed);
            let sent = send(&message(unique, node));
            if sent.is_err() {
                // The kernel has forgotten it.
                let _ = file.compare_exchange(node, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
            sent.is_ok()
        })
    }
}

/// Whether a request is a nudge.
pub(crate) fn is_nudge(head: &Head) -> bool {
    head.opcode == wire::NOTIFY_REPLY
}

/// Shape: head of an answer (length, code, 0), number of the request (8), file (8), offset (8), length (4),
/// padding (4).
fn message(unique: u64, node: u64) -> [u8; MESSAGE_BYTES] {
    let mut message = [0; MESSAGE_BYTES];
    message[..4].copy_from_slice(&(MESSAGE_BYTES as u32).to_ne_bytes());
    message[4..8].copy_from_slice(&RETRIEVE.to_ne_bytes());
    message[16..24].copy_from_slice(&unique.to_ne_bytes());
    message[24..32].copy_from_slice(&node.to_ne_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nudge_takes_a_file_that_the_kernel_still_knows() {
        let (nudges, mut asked) = (Nudges::default(), Vec::new());
        assert!(!nudges.nudge_with(|_| unreachable!("it knows none")));
        [5, 6, 6 + FILES as u64].into_iter().for_each(|node| nudges.told(node));
        let mut nudge = |known| {
            nudges.nudge_with(|message| {
                let node = u64::from_ne_bytes(message[24..32].try_into().unwrap());
                asked.push((u64::from_ne_bytes(message[16..24].try_into().unwrap()) - UNIQUE_MIN, node));
                if node == known { Ok(()) } else { Err(Errno::NOENT) }
            })
        };
        assert!(nudge(22) && nudge(22) && !nudge(0) && !nudge(22));
        assert_eq!(asked, [(0, 5), (2, 22), (4, 22), (6, 22)], "what is forgotten is not tried again");
    }
}
