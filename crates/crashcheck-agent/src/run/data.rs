//! Data of writes: aligned for O_DIRECT, and stores through a mapping.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, Result, pwrite};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// Alignment of buffers for O_DIRECT, and of mappings. Bytes.
const ALIGNMENT: usize = 4096;

/// One `pwrite` of `len` times the same byte, from an aligned buffer.
///
/// # Errors
/// Those of `pwrite`, and EIO if it wrote less.
pub(super) fn write(fd: impl AsFd, offset: u64, len: u64, byte: u8) -> Result<()> {
    let len = usize::try_from(len).map_err(|_| Errno::INVAL)?;
    let buffer = vec![byte; len + ALIGNMENT];
    let start = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    let written = pwrite(fd, &buffer[start..start + len], offset)?;
    if written == len { Ok(()) } else { Err(Errno::IO) }
}

/// Stores through a shared mapping, then `msync`.
///
/// # Errors
/// EINVAL beyond the end of the file; those of `mmap` and `msync`.
#[expect(unsafe_code, reason = "a mapping")]
pub(super) fn write_mapped(fd: &OwnedFd, offset: u64, len: u64, byte: u8) -> Result<()> {
    let size = File::from(fd.try_clone().map_err(|_| Errno::MFILE)?).metadata().map_err(|_| Errno::IO)?.len();
    let end = offset.checked_add(len).filter(|end| *end <= size).ok_or(Errno::INVAL)?;
    let start = offset - offset % ALIGNMENT as u64;
    let skip = (offset - start) as usize;
    let bytes = usize::try_from(end - start).map_err(|_| Errno::INVAL)?;
    if len == 0 {
        return Ok(());
    }
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at a place of the kernel's choice, aligned; it is not shared with other code of
    // this process, and is gone before this returns. The stores are inside: `skip + len == bytes`, and the
    // file is at least that long, so they do not fault unless its medium does (then the process dies, which a
    // tester sees).
    unsafe {
        let mapped = mmap(std::ptr::null_mut(), bytes, flags, MapFlags::SHARED, fd, start)?;
        std::ptr::write_bytes(mapped.cast::<u8>().add(skip), byte, bytes - skip);
        let synced = msync(mapped, bytes, MsyncFlags::SYNC);
        munmap(mapped, bytes)?;
        synced
    }
}
