//! The kernel's side of a mount: a descriptor from which requests are read, and to which answers are written.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

/// Reads one request; `None`: the mount is gone.
pub(crate) fn receive(device: &OwnedFd, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
    loop {
        match rustix::io::read(device, &mut *buffer) {
            Ok(0) | Err(Errno::NODEV) => return Ok(None),
            Ok(len) => return Ok(Some(len)),
            // Taken back by the kernel; interrupted; taken by another thread.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes one answer.
pub(crate) fn send(device: &OwnedFd, answer: &[u8]) -> Result<(), Errno> {
    match rustix::io::write(device, answer) {
        Ok(len) if len == answer.len() => Ok(()),
        Ok(_) => Err(Errno::IO),
        Err(error) => Err(error),
    }
}
