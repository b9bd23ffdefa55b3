//! Reads and writes with a lease.
//!
//! All functions return what the system call would, or `None`: the call goes to the kernel.

use std::ffi::c_int;

use fastness_responder::{Denied, LeasedFile, Position, Written};
use libc::{off_t, ssize_t};

use crate::buffers::Buffers;
use crate::process::{self, Process};
use crate::real;
use crate::signals::Calm;
use crate::table::{self, Entry, READS, WRITES};

/// Where a call begins in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// Where the descriptor is, which then moves.
    Current,
    /// There.
    At(off_t),
}

pub(crate) fn fail(errno: c_int) -> ssize_t {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// The position of a descriptor, moved for a transfer; other threads and processes that share it go on
/// after that.
struct Reserved {
    fd: c_int,
    offset: u64,
    len: usize,
}

impl Reserved {
    fn new(fd: c_int, len: usize) -> Option<Reserved> {
        // SAFETY: of the caller's descriptor; the kernel checks it.
        let end = unsafe { real::lseek(fd, len as off_t, libc::SEEK_CUR) };
        let offset = u64::try_from(end).ok()?.checked_sub(len as u64)?;
        Some(Reserved { fd, offset, len })
    }

    /// Only so many bytes were transferred.
    fn use_only(self, done: usize) {
        if done < self.len {
            let back = (self.len - done) as off_t;
            // SAFETY: as above.
            unsafe { real::lseek(self.fd, -back, libc::SEEK_CUR) };
        }
    }
}

/// Reads.
///
/// # Safety
/// The buffers can be written.
pub(crate) unsafe fn read(fd: c_int, buffers: Buffers<'_>, start: Start) -> Option<ssize_t> {
    let entry = process::find(fd).filter(|entry| entry.may(READS))?;
    let len = buffers.len()?;
    if matches!(start, Start::At(..0)) {
        return None;
    }
    let process = process_of(fd)?;
    // SAFETY: the caller's.
    let mut piece = unsafe { buffers.space(len)? };
    let calm = Calm::new();
    let (offset, reserved) = begin(fd, len, start)?;
    let done =
        table::with(fd, entry, &process.member, |file| process.member.client.read(file, offset, &mut piece));
    let done = match done {
        Some(Ok(done)) => Some(Ok(done)),
        None | Some(Err(Denied::Ended | Denied::NoRoom)) => None,
        Some(Err(Denied::Failed(error))) => Some(Err(error.errno())),
    };
    end(reserved, done.and_then(Result::ok).unwrap_or(0));
    if done.is_none() {
        table::forget(fd);
    }
    drop(calm);
    match done? {
        Ok(done) => {
            // SAFETY: the caller's.
            unsafe { buffers.scatter(&piece, done) };
            Some(done as ssize_t)
        }
        Err(errno) => Some(fail(errno)),
    }
}

/// Writes.
///
/// # Safety
/// The buffers can be read.
pub(crate) unsafe fn write(fd: c_int, buffers: Buffers<'_>, start: Start) -> Option<ssize_t> {
    let entry = process::find(fd).filter(|entry| entry.may(WRITES))?;
    let len = buffers.len()?;
    if matches!(start, Start::At(..0)) {
        return None;
    }
    let process = process_of(fd)?;
    // SAFETY: the caller's.
    let data = unsafe { buffers.gather(len)? };
    let calm = Calm::new();
    let appends = entry.may(table::APPENDS);
    let (offset, reserved) = if appends { (0, None) } else { begin(fd, len, start)? };
    let position = if appends { Position::End } else { Position::At(offset) };
    let written =
        table::with(fd, entry, &process.member, |file| write_all(process, file, entry, position, &data));
    let written = written.unwrap_or(Written { offset: 0, len: 0, stopped: Some(Denied::Ended) });
    end(reserved, written.len);
    if appends && start == Start::Current && written.len > 0 {
        // As the kernel does: after what was written.
        let end = written.offset + written.len as u64;
        // SAFETY: of the caller's descriptor.
        unsafe { real::lseek(fd, end as off_t, libc::SEEK_SET) };
    }
    if matches!(written.stopped, Some(Denied::Ended | Denied::NoRoom)) {
        table::forget(fd);
    }
    drop(calm);
    match written.stopped {
        _ if written.len > 0 => Some(written.len as ssize_t),
        Some(Denied::Failed(error)) => Some(fail(error.errno())),
        _ => None,
    }
}

/// Writes all, and has room made where that is needed. What cannot be made here is left: with `NoRoom`, the
/// mount can.
fn write_all(process: &Process, file: &LeasedFile, _: Entry, position: Position, data: &[u8]) -> Written {
    let mut all = process.member.client.write(file, position, data);
    while let (Some(Denied::NoRoom), true) = (&all.stopped, all.len < data.len()) {
        let (at, rest) = (all.offset + all.len as u64, &data[all.len..]);
        match process.make_room(file.id(), at, rest.len() as u64) {
            Ok(()) => {}
            Err(0) => return all,
            Err(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                let error = fastness_responder::Error::Backing { action: "make room", source: error };
                return Written { stopped: Some(Denied::Failed(error)), ..all };
            }
        }
        // What appends has found its place, unless nothing of it was written.
        let position = if all.len > 0 { Position::At(at) } else { position };
        let more = process.member.client.write(file, position, rest);
        let offset = if all.len > 0 { all.offset } else { more.offset };
        all = Written { offset, len: all.len + more.len, stopped: more.stopped };
    }
    all
}

fn process_of(fd: c_int) -> Option<&'static Process> {
    let process = process::process();
    if process.is_none() {
        table::forget(fd);
    }
    process
}

fn begin(fd: c_int, len: usize, start: Start) -> Option<(u64, Option<Reserved>)> {
    match start {
        Start::At(offset) => Some((u64::try_from(offset).ok()?, None)),
        Start::Current => Reserved::new(fd, len).map(|reserved| (reserved.offset, Some(reserved))),
    }
}

fn end(reserved: Option<Reserved>, done: usize) {
    if let Some(reserved) = reserved {
        reserved.use_only(done);
    }
}

/// Length and time of the last write of a file with a lease.
pub(crate) fn current(fd: c_int) -> Option<(u64, u64)> {
    let entry = process::find(fd)?;
    let process = process_of(fd)?;
    let _calm = Calm::new();
    let current = table::with(fd, entry, &process.member, |file| process.member.client.current(file))?;
    match current {
        Ok(current) => Some(current),
        Err(_) => {
            table::forget(fd);
            None
        }
    }
}

/// Whether everything that was written to the file is durable.
pub(crate) fn is_durable(fd: c_int) -> bool {
    let Some((entry, process)) = process::find(fd).zip(process_of(fd)) else { return false };
    process.member.client.has_lease(entry.slot(), entry.lease()) || current(fd).is_some()
}
