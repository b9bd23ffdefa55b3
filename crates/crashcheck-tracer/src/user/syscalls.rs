//! System calls of the program that concern PM.
//!
//! 1. `mmap`, `munmap`, `mremap` say where PM is. What is unmapped is so from the call's begin on, what is
//!    mapped from its end: meanwhile another thread may be given the same addresses.
//! 2. `write` and the like on such a file are non-temporal stores of what is in the file afterwards; with
//!    `O_DSYNC`, or the flag of `pwritev2`, they are durable on return.
//! 3. What truncates, punches or zeroes is non-temporal stores of what it changed.
//! 4. `fsync`, `fdatasync`, `syncfs`, `sync` and `msync` with `MS_SYNC` write back the dirty lines of the
//!    file, the file system or the range (`clwb`), and wait for that and for all non-temporal stores before
//!    (`sfence`).
//! 5. `read` and the like into mapped PM are cached stores.
//! 6. `write`, `writev` and `pwrite` to the file of the log of operations are messages with what was written,
//!    at the call's end.
//! 7. `execve` ends the trace: the next program is not run by QEMU.

use std::cell::RefCell;
use std::ffi::c_uint;
use std::ops::Range;

use fastness_crashcheck_trace::Origin;
use iced_x86::Register;
use rustix::fs::Access;

use super::files::{position_of, state_of};
use super::mappings::Mapping;
use super::numbers::*;
use super::{RANGES, State, User, origin, paths, user};
use crate::api;
use crate::area::{locate, start_of};
use crate::fail::{fail, or_fail, say};

/// A call that is under way in this thread.
#[derive(Debug)]
struct Call {
    number: i64,
    arguments: [u64; 6],
    /// The PM file of its descriptor.
    file: Option<usize>,
    /// It writes to the log of operations.
    is_log: bool,
    /// What it may unmap, and has back if it fails.
    unmapped: Vec<Mapping>,
}

thread_local! {
    static CALL: RefCell<Option<Call>> = const { RefCell::new(None) };
}

pub(super) extern "C" fn begin(
    _: u64,
    _: c_uint,
    number: i64,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
    _: u64,
    _: u64,
) {
    let Some(user) = user() else { return };
    let arguments = [a, b, c, d, e, f];
    let mut unmapped = Vec::new();
    let file = match number {
        MMAP if matches!(d & MAP_TYPE, 1 | 3) && d & MAP_ANONYMOUS == 0 => user.file_of(e),
        MUNMAP if b > 0 && a.is_multiple_of(PAGE_BYTES) => {
            unmapped = user.unmap(a, b);
            None
        }
        MREMAP if d & MREMAP_DONTUNMAP == 0 => {
            unmapped = user.unmap(a, b);
            None
        }
        WRITE | WRITEV | PWRITE64 | PWRITEV | PWRITEV2 | SENDFILE | FSYNC | FDATASYNC | FTRUNCATE
        | FALLOCATE => user.file_of(a),
        SPLICE | COPY_FILE_RANGE => user.file_of(c),
        EXECVE => {
            user.execute(paths::path(a));
            return;
        }
        EXECVEAT => {
            user.execute(None);
            return;
        }
        MMAP | MREMAP | MSYNC | MADVISE | SYNC | SYNCFS | TRUNCATE | OPEN | OPENAT | CREAT | CLONE | FORK
        | VFORK | READ | PREAD64 | READV | PREADV | PREADV2 | RECVFROM | GETRANDOM => None,
        _ => return,
    };
    let is_log = matches!(number, WRITE | WRITEV | PWRITE64) && user.is_log(a);
    CALL.set(Some(Call { number, arguments, file, is_log, unmapped }));
}

pub(super) extern "C" fn end(_: u64, thread: c_uint, number: i64, result: i64) {
    let Some(user) = user() else { return };
    let Some(call) = CALL.take().filter(|call| call.number == number) else { return };
    let Ok(result) = u64::try_from(result) else {
        if !call.unmapped.is_empty() {
            user.map(call.unmapped);
        }
        return;
    };
    if call.is_log && result > 0 {
        return user.logged(thread, &call, result);
    }
    match number {
        MMAP | MREMAP => user.mapped(&call, result),
        CLONE | FORK | VFORK => say_children(number, call.arguments[0]),
        _ if call.file.is_some() || !is_write(number) => user.called(thread, &call, result),
        _ => {}
    }
}

/// Whether it is about the file of a descriptor only.
fn is_write(number: i64) -> bool {
    matches!(
        number,
        MUNMAP
            | WRITE
            | WRITEV
            | PWRITE64
            | PWRITEV
            | PWRITEV2
            | SENDFILE
            | SPLICE
            | COPY_FILE_RANGE
            | FSYNC
            | FDATASYNC
            | FTRUNCATE
            | FALLOCATE
    )
}

/// A thread is traced, a process is not.
fn say_children(number: i64, flags: u64) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    if number != CLONE || flags & CLONE_VM == 0 || flags & CLONE_VFORK != 0 {
        ONCE.call_once(|| say(format_args!("the program has a child process, which is not traced")));
    }
}

impl User {
    /// The PM file that a descriptor is of.
    fn file_of(&self, descriptor: u64) -> Option<usize> {
        let state = state_of(descriptor)?;
        self.files.iter().position(|file| file.is(&state))
    }

    /// Whether a descriptor is of the log of operations.
    fn is_log(&self, descriptor: u64) -> bool {
        let is_it = |log| state_of(descriptor).is_some_and(|state| (state.st_dev, state.st_ino) == log);
        self.log.is_some_and(is_it)
    }

    /// A call has written to the log of operations.
    fn logged(&self, thread: u32, call: &Call, result: u64) {
        let [_, b, c, ..] = call.arguments;
        let parts = if call.number == WRITEV { paths::parts(b, c, result) } else { vec![(b, result)] };
        let pc = api::read_register(Register::RIP).map_or(0, |next| next.wrapping_sub(2));
        self.log(thread, pc, &parts);
    }

    /// Nothing of PM is in these pages any more; what was is returned.
    fn unmap(&self, start: u64, len: u64) -> Vec<Mapping> {
        let end = end_of(start, len);
        let mut state = self.lock();
        let unmapped = state.mappings.remove(start, end);
        if !unmapped.is_empty() {
            RANGES.set(&state.mappings.ranges());
        }
        unmapped
    }

    fn map(&self, mappings: Vec<Mapping>) {
        let mut state = self.lock();
        mappings.into_iter().for_each(|mapping| state.mappings.insert(mapping));
        RANGES.set(&state.mappings.ranges());
    }

    /// Something is at `start` now: PM, or something else instead.
    fn mapped(&self, call: &Call, start: u64) {
        let [old, len, new_len, ..] = call.arguments;
        let now = if call.number == MREMAP { new_len } else { len };
        self.unmap(start, now);
        let end = end_of(start, now);
        match (call.number, call.file) {
            (MMAP, Some(file)) => {
                let address = start_of(file) + call.arguments[5];
                self.map(vec![Mapping { start, end, address }]);
            }
            (MREMAP, _) => {
                let moved = call.unmapped.iter().map(|mapping| shifted(mapping, old, start));
                let mut moved: Vec<_> = moved.filter(|mapping| mapping.start < end).collect();
                if let Some(last) = moved.last_mut() {
                    // Shorter, or longer: then it goes on in the file.
                    let reaches_end = last.end == end_of(start, len);
                    last.end = if reaches_end { end } else { last.end.min(end) };
                    self.map(moved);
                }
            }
            _ => {}
        }
    }

    /// A call other than those about mappings and processes has succeeded.
    fn called(&self, thread: u32, call: &Call, result: u64) {
        let [a, b, c, d, _, flags] = call.arguments;
        let stack = self.stack();
        // The instruction has two bytes, and has been executed.
        let pc = api::read_register(Register::RIP).map(|next| next.wrapping_sub(2));
        let origin = origin(thread, pc, stack.as_ref());
        let file = call.file.unwrap_or(0);
        let here = |descriptor| position_of(descriptor).unwrap_or(result).saturating_sub(result);
        let given = |pointer| match pointer {
            0 => None,
            _ => paths::number(pointer).map(|end| end.wrapping_sub(result)),
        };
        let write = |descriptor, offset| {
            self.written(&origin, file, offset, result);
            if call.number == PWRITEV2 && flags & RWF_SYNCS != 0 || is_synchronous(descriptor) {
                let first = start_of(file) + offset;
                self.make_durable(&origin, std::iter::once(first..first + result));
            }
        };
        match call.number {
            WRITE | WRITEV | SENDFILE => write(a, here(a)),
            PWRITE64 | PWRITEV => write(a, d),
            PWRITEV2 if d == u64::MAX => write(a, here(a)),
            PWRITEV2 => write(a, d),
            SPLICE | COPY_FILE_RANGE => write(c, given(d).unwrap_or_else(|| here(c))),
            FTRUNCATE | FALLOCATE => self.changed(&origin, file),
            TRUNCATE | CREAT | OPEN | OPENAT => self.opened(&origin, call, result),
            MADVISE if c == MADV_REMOVE => (0..self.files.len()).for_each(|file| self.changed(&origin, file)),
            FSYNC | FDATASYNC => self.make_durable(&origin, std::iter::once(self.region(file))),
            SYNC | SYNCFS => self.synced(&origin, (call.number == SYNCFS).then_some(a)),
            MSYNC if c & MS_SYNC != 0 => {
                let pieces =
                    |state: &State| state.mappings.pieces(a, a.saturating_add(b)).collect::<Vec<_>>();
                let pieces = pieces(&self.lock());
                let ranges =
                    pieces.iter().map(|piece| piece.address..piece.address + (piece.end - piece.start));
                let ranges: Vec<_> = ranges.collect();
                if !ranges.is_empty() {
                    self.make_durable(&origin, ranges);
                }
            }
            READ | PREAD64 | RECVFROM => self.filled(&origin, b, result),
            GETRANDOM => self.filled(&origin, a, result),
            READV | PREADV | PREADV2 => {
                for (address, len) in paths::parts(b, c, result) {
                    self.filled(&origin, address, len);
                }
            }
            _ => {}
        }
    }

    fn region(&self, file: usize) -> Range<u64> {
        start_of(file)..start_of(file) + self.files[file].len_bytes
    }

    fn make_durable(&self, origin: &Origin<'_>, ranges: impl IntoIterator<Item = Range<u64>>) {
        or_fail(self.lock().recorder.make_durable(origin, ranges), "a system call that makes PM durable");
    }

    /// These bytes of a file were written.
    fn written(&self, origin: &Origin<'_>, file: usize, offset: u64, len: u64) {
        let mut state = self.lock();
        let mut buffer = vec![0; len.min(1 << 20) as usize];
        let mut done = 0;
        while done < len {
            let part = buffer.len().min((len - done) as usize);
            or_fail(
                self.files[file].read(offset + done, &mut buffer[..part]),
                "cannot read what was written",
            );
            let address = start_of(file).saturating_add(offset + done);
            // After the region, and in no other one.
            let address = if locate(address).0 == file { address } else { u64::MAX };
            or_fail(state.recorder.store(origin, address, &buffer[..part], true), "write to PM");
            done += part as u64;
        }
    }

    /// Anything in a file may have changed.
    fn changed(&self, origin: &Origin<'_>, file: usize) {
        const PIECE_BYTES: usize = 4096;
        let mut state = self.lock();
        let mut buffer = vec![0; 1 << 20];
        let len = state.recorder.len_bytes(file) as usize;
        for first in (0..len).step_by(buffer.len()) {
            let part = buffer.len().min(len - first);
            or_fail(self.files[file].read(first as u64, &mut buffer[..part]), "cannot read a changed file");
            for at in (0..part).step_by(PIECE_BYTES) {
                let now = &buffer[at..part.min(at + PIECE_BYTES)];
                if state.recorder.contents(file)[first + at..][..now.len()] != *now {
                    let address = start_of(file) + (first + at) as u64;
                    or_fail(state.recorder.store(origin, address, now, true), "change of PM");
                }
            }
        }
    }

    /// A file was opened, or cut by its path: it may be PM that is empty now.
    fn opened(&self, origin: &Origin<'_>, call: &Call, descriptor: u64) {
        let is_cut = match call.number {
            OPEN => call.arguments[1] & O_TRUNC != 0,
            OPENAT => call.arguments[2] & O_TRUNC != 0,
            _ => true,
        };
        if !is_cut {
            return;
        }
        let file = match call.number {
            TRUNCATE => {
                let stat = paths::path(call.arguments[0]).and_then(|path| rustix::fs::stat(path).ok());
                stat.and_then(|stat| self.files.iter().position(|file| file.is(&stat)))
            }
            _ => self.file_of(descriptor),
        };
        if let Some(file) = file {
            self.changed(origin, file);
        }
    }

    /// The file system of a descriptor, or all of them.
    fn synced(&self, origin: &Origin<'_>, descriptor: Option<u64>) {
        let device = descriptor.map(|descriptor| state_of(descriptor).map(|state| state.st_dev));
        let is_meant = |file: &usize| device.is_none_or(|device| device == Some(self.files[*file].device()));
        let ranges: Vec<_> = (0..self.files.len()).filter(is_meant).map(|file| self.region(file)).collect();
        if !ranges.is_empty() {
            self.make_durable(origin, ranges);
        }
    }

    /// The kernel has filled a buffer of the program.
    fn filled(&self, origin: &Origin<'_>, start: u64, len: u64) {
        let mut state = self.lock();
        let State { recorder, mappings } = &mut *state;
        for piece in mappings.pieces(start, start.saturating_add(len)) {
            let mut data = vec![0; (piece.end - piece.start) as usize];
            if !api::read_memory(piece.start, &mut data) {
                fail(format_args!("cannot read {:#x}, which was just filled", piece.start));
            }
            or_fail(recorder.store(origin, piece.address, &data, false), "system call into PM");
        }
    }

    /// Another program takes the place of this one, if it is there.
    fn execute(&self, path: Option<std::path::PathBuf>) {
        let is_there = |path: &std::path::PathBuf| rustix::fs::access(path, Access::EXEC_OK).is_ok();
        if path.as_ref().is_some_and(|path| !is_there(path)) || !self.lock().recorder.is_open() {
            return;
        }
        let path = path.map_or_else(|| "another program".to_owned(), |path| path.display().to_string());
        say(format_args!("the program executes {path}, which is not traced: the trace ends here"));
        self.finish();
    }
}

/// The mapping, moved along with what it is part of.
fn shifted(mapping: &Mapping, from: u64, to: u64) -> Mapping {
    let start = mapping.start - from + to;
    Mapping { start, end: start + (mapping.end - mapping.start), address: mapping.address }
}

/// End of the last page of a range.
fn end_of(start: u64, len: u64) -> u64 {
    start.saturating_add(len.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX))
}

fn is_synchronous(descriptor: u64) -> bool {
    // `O_SYNC` has this bit, too.
    super::files::flags_of(descriptor).is_some_and(|flags| flags.bits() & libc::O_DSYNC.cast_unsigned() != 0)
}
