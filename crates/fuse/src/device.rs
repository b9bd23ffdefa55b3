//! The kernel's side of a mount: a descriptor from which requests are read, and to which answers are written.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::answer::Answer;
use crate::channel::Channel;
use crate::files::Reply;
use crate::wire::{Head, Input, REQUEST_BYTES_MAX};

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

/// Requests that are read.
pub(crate) struct DeviceChannel<'a> {
    device: &'a OwnedFd,
    buffer: Vec<u8>,
    len: usize,
}

impl DeviceChannel<'_> {
    pub(crate) fn new(device: &OwnedFd) -> DeviceChannel<'_> {
        DeviceChannel { device, buffer: vec![0; REQUEST_BYTES_MAX], len: 0 }
    }
}

impl Channel for DeviceChannel<'_> {
    fn receive(&mut self) -> Result<bool, Errno> {
        let len = receive(self.device, &mut self.buffer)?;
        self.len = len.unwrap_or(0);
        Ok(len.is_some())
    }

    fn request(&self) -> Option<(Head, Input<'_>)> {
        Input::request(&self.buffer[..self.len])
    }

    fn send(&mut self, answer: &mut Answer, unique: u64, result: Reply<()>) -> Result<(), Errno> {
        send(self.device, answer.finish(unique, result))
    }
}
