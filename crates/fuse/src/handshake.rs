//! INIT: what the kernel and this server can do.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::answer::Answer;
use crate::device::{receive, send};
use crate::wire::READ_BYTES_MAX;
use crate::wire::{self, Input, init};

/// Longest write in one request: places in rings have room for as much in either direction.
const WRITE_BYTES_MAX: u32 = READ_BYTES_MAX as u32;
const PAGE_BYTES: u32 = 4096;

/// Why a session could not begin.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The kernel's side cannot be read or written.
    #[error("the kernel's side of the mount failed")]
    Device(#[source] Errno),
    /// The kernel speaks another version.
    #[error("the kernel speaks FUSE {major}.{minor}; {}.{} is needed", wire::MAJOR, wire::MINOR_MIN)]
    Version {
        /// Its version.
        major: u32,
        /// Its revision.
        minor: u32,
    },
    /// No thread could be started.
    #[error("no thread could be started")]
    Thread(#[source] std::io::Error),
}

/// What is wanted of the kernel. Not that `open` truncates: the kernel would send it before it has looked
/// whether the file is being executed, and so must not be written.
fn wanted() -> u64 {
    init::ASYNC_READ
        | init::EXPORT_SUPPORT
        | init::BIG_WRITES
        | init::DONT_MASK
        | init::DO_READDIRPLUS
        | init::READDIRPLUS_AUTO
        | init::ASYNC_DIO
        | init::PARALLEL_DIROPS
        | init::POSIX_ACL
        | init::MAX_PAGES
        | init::CACHE_SYMLINKS
        | init::HANDLE_KILLPRIV_V2
        | init::SETXATTR_EXT
        | init::INIT_EXT
        | init::DIRECT_IO_ALLOW_MMAP
}

/// What was agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// Requests come over rings, once there is a place in the ring of each CPU.
    pub(crate) are_rings_used: bool,
}

/// Answers INIT, the first request; `None`: the kernel asks again, in our version. An older kernel's requests
/// are refused. `offers_rings`: requests may come over rings.
pub(crate) fn handshake(
    device: &OwnedFd,
    buffer: &mut [u8],
    answer: &mut Answer,
    offers_rings: bool,
) -> Result<Option<Agreed>, SessionError> {
    let len = receive(device, buffer).map_err(SessionError::Device)?;
    let len = len.ok_or(SessionError::Device(Errno::NODEV))?;
    let broken = SessionError::Device(Errno::PROTO);
    let Some((head, mut input)) = Input::request(&buffer[..len]) else { return Err(broken) };
    let mut word = || input.u32().map_err(SessionError::Device);
    if head.opcode != wire::INIT {
        return Err(broken);
    }
    let (major, minor, readahead, low) = (word()?, word()?, word()?, word()?);
    answer.start();
    if major > wire::MAJOR {
        answer.u32(wire::MAJOR).u32(wire::MINOR).zeroes(56);
        send(device, answer.finish(head.unique, Ok(()))).map_err(SessionError::Device)?;
        return Ok(None);
    }
    if major < wire::MAJOR || minor < wire::MINOR_MIN {
        let refusal = answer.finish(head.unique, Err(Errno::PROTO));
        send(device, refusal).map_err(SessionError::Device)?;
        return Err(SessionError::Version { major, minor });
    }
    let offered = u64::from(low);
    let high = if offered & init::INIT_EXT != 0 { word().unwrap_or(0) } else { 0 };
    let rings = if offers_rings { init::OVER_IO_URING } else { 0 };
    let flags = (wanted() | rings) & (offered | u64::from(high) << 32);
    answer.u32(wire::MAJOR).u32(minor.min(wire::MINOR)).u32(readahead).u32(flags as u32);
    // Requests in the background, and from how many on the kernel slows writers down.
    answer.u16(64).u16(48);
    let pages = (WRITE_BYTES_MAX / PAGE_BYTES) as u16;
    answer.u32(WRITE_BYTES_MAX).u32(1).u16(pages).u16(0).u32((flags >> 32) as u32).zeroes(28);
    send(device, answer.finish(head.unique, Ok(()))).map_err(SessionError::Device)?;
    Ok(Some(Agreed { are_rings_used: flags & init::OVER_IO_URING != 0 }))
}
