//! Answers to the kernel.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use rustix::io::Errno;

use crate::files::{Attr, Entry, Listed, Listing, Opened, Reply, Space, Time};
use crate::wire::{self, OUT_HEADER_BYTES, READ_BYTES_MAX};

const ENTRY_BYTES: usize = 128;
/// Where an entry has the type of its file.
const ENTRY_MODE: usize = 100;
const DIRENT_BYTES: usize = 24;
const FOPEN_DIRECT_IO: u32 = 1;
const FOPEN_KEEP_CACHE: u32 = 2;
/// Attributes that STATX answers: those of `stat`, and the time of creation.
const STATX_MASK: u32 = 0x7ff | 0x800;

/// Longest answer: its head, and what a read or a listing returns.
pub(crate) const ANSWER_BYTES_MAX: usize = OUT_HEADER_BYTES + READ_BYTES_MAX;

/// Bytes that stay where they are. Pages of it take no memory before they are used.
#[derive(Debug)]
pub(crate) struct Memory(Vec<u8>);

impl Memory {
    pub(crate) fn new(len: usize) -> Memory {
        Memory(vec![0; len])
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// An answer being built, in memory of the worker's or of the request's.
#[derive(Debug)]
pub(crate) struct Answer {
    memory: Memory,
    len: usize,
    /// It would have been longer than any may be.
    is_too_long: bool,
}

impl Default for Answer {
    fn default() -> Answer {
        Answer { memory: Memory::new(ANSWER_BYTES_MAX), len: OUT_HEADER_BYTES, is_too_long: false }
    }
}

impl Answer {
    pub(crate) fn start(&mut self) -> &mut Answer {
        (self.len, self.is_too_long) = (OUT_HEADER_BYTES, false);
        self
    }

    /// The whole answer.
    ///
    /// Shape: length (4), negative error (4), unique (8), then what the operation has.
    pub(crate) fn finish(&mut self, unique: u64, result: Reply<()>) -> &[u8] {
        let result = if self.is_too_long { result.and(Err(Errno::IO)) } else { result };
        if result.is_err() {
            self.len = OUT_HEADER_BYTES;
        }
        let error = result.map_or_else(|error| -error.raw_os_error(), |()| 0);
        let len = self.len as u32;
        self.memory[..4].copy_from_slice(&len.to_ne_bytes());
        self.memory[4..8].copy_from_slice(&error.to_ne_bytes());
        self.memory[8..16].copy_from_slice(&unique.to_ne_bytes());
        self.so_far()
    }

    /// The answer so far, with room for its head.
    pub(crate) fn so_far(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    /// The regular file of which the kernel is told with this answer.
    pub(crate) fn regular_file(&self, opcode: u32) -> Option<u64> {
        let entry = self.so_far().get(OUT_HEADER_BYTES..).filter(|_| wire::tells_of_a_file(opcode))?;
        let mode = u32::from_ne_bytes(*entry.get(ENTRY_MODE..)?.first_chunk()?);
        (mode & 0o170_000 == 0o100_000).then(|| u64::from_ne_bytes(*entry.first_chunk().expect("before it")))
    }

    /// Goes on with an answer that was set aside.
    pub(crate) fn go_on(&mut self, so_far: &[u8]) {
        (self.len, self.is_too_long) = (0, false);
        self.bytes(so_far);
    }

    /// Exchanges the memory in which the next answer is built.
    pub(crate) fn swap_memory(&mut self, memory: &mut Memory) {
        std::mem::swap(&mut self.memory, memory);
    }

    /// The next `len` bytes; `None`: there is no more room.
    fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        let room = self.memory.get_mut(self.len..)?.get_mut(..len);
        match room {
            Some(_) => self.len += len,
            None => self.is_too_long = true,
        }
        room
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Answer {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Answer {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Answer {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut Answer {
        if let Some(room) = self.room(value.len()) {
            room.copy_from_slice(value);
        }
        self
    }

    pub(crate) fn zeroes(&mut self, len: usize) -> &mut Answer {
        if let Some(room) = self.room(len) {
            room.fill(0);
        }
        self
    }

    /// Room for up to `len` bytes, of which `fill` returns how many there are.
    pub(crate) fn fill(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> Reply<usize>) -> Reply<()> {
        let room = self.room(len).ok_or(Errno::IO)?;
        // What is not filled must not be told, and what it would tell is of other files.
        room.fill(0);
        let filled = fill(room)?;
        self.len -= len - filled.min(len);
        Ok(())
    }

    fn times(&mut self, times: [Time; 3]) -> &mut Answer {
        for time in times {
            self.u64(time.seconds as u64);
        }
        for time in times {
            self.u32(time.nanoseconds);
        }
        self
    }

    fn attr(&mut self, attr: &Attr) -> &mut Answer {
        self.u64(attr.node).u64(attr.size_bytes).u64(attr.blocks);
        self.times([attr.atime, attr.mtime, attr.ctime]);
        let Attr { mode, links, uid, gid, rdev, block_bytes, .. } = *attr;
        for word in [mode, links, uid, gid, rdev, block_bytes, 0] {
            self.u32(word);
        }
        self
    }

    pub(crate) fn attributes(&mut self, (attr, valid): &(Attr, Duration)) -> &mut Answer {
        let valid = lasting(attr, *valid);
        self.u64(valid.as_secs()).u32(valid.subsec_nanos()).u32(0).attr(attr)
    }

    /// STATX: what GETATTR says, and the time of creation.
    pub(crate) fn statx(&mut self, (attr, valid): &(Attr, Duration)) -> &mut Answer {
        let mask = if attr.btime.is_some() { STATX_MASK } else { STATX_MASK & !0x800 };
        let valid = lasting(attr, *valid);
        self.u64(valid.as_secs()).u32(valid.subsec_nanos()).u32(0).zeroes(16);
        self.u32(mask).u32(attr.block_bytes).u64(0).u32(attr.links).u32(attr.uid).u32(attr.gid);
        self.u16(attr.mode as u16).u16(0).u64(attr.node).u64(attr.size_bytes).u64(attr.blocks).u64(0);
        for time in [attr.atime, attr.btime.unwrap_or_default(), attr.ctime, attr.mtime] {
            self.u64(time.seconds as u64).u32(time.nanoseconds).u32(0);
        }
        let (major, minor) = device_numbers(attr.rdev);
        self.u32(major).u32(minor).u64(0).zeroes(14 * 8)
    }

    pub(crate) fn entry(&mut self, entry: &Entry) -> &mut Answer {
        let Entry { attr, generation, name_valid, .. } = entry;
        let attr_valid = lasting(attr, entry.attr_valid);
        self.u64(attr.node).u64(*generation).u64(name_valid.as_secs()).u64(attr_valid.as_secs());
        self.u32(name_valid.subsec_nanos()).u32(attr_valid.subsec_nanos()).attr(attr)
    }

    pub(crate) fn opened(&mut self, opened: &Opened) -> &mut Answer {
        let keeps = if opened.keeps_cache { FOPEN_KEEP_CACHE } else { 0 };
        let direct = if opened.is_direct { FOPEN_DIRECT_IO } else { 0 };
        self.u64(opened.handle).u32(keeps | direct).u32(0)
    }

    pub(crate) fn space(&mut self, space: &Space) -> &mut Answer {
        self.u64(space.blocks).u64(space.free_blocks).u64(space.available_blocks);
        self.u64(space.files).u64(space.free_files);
        self.u32(space.block_bytes).u32(255).u32(space.block_bytes).zeroes(28)
    }

    /// The value of an attribute, or a list of names: with `size` 0 its length is asked for.
    pub(crate) fn sized(&mut self, value: &[u8], size: u32) -> Reply<()> {
        match size as usize {
            0 => self.u32(value.len() as u32).u32(0),
            size if value.len() > size => return Err(Errno::RANGE),
            _ => self.bytes(value),
        };
        Ok(())
    }

    /// Takes the names of a directory, up to `len` bytes.
    pub(crate) fn listing(&mut self, len: usize, is_plus: bool) -> Names<'_> {
        let end = self.len + len;
        Names { answer: self, end, is_plus }
    }
}

/// How long the kernel may keep attributes. It does not look at the mode again after a write that has cleared
/// bits of it, and would run the program with them.
fn lasting(attr: &Attr, valid: Duration) -> Duration {
    const FILE: u32 = 0o100_000;
    let lends_identity = attr.mode & 0o170_000 == FILE && attr.mode & 0o6000 != 0;
    if lends_identity { Duration::ZERO } else { valid }
}

/// Major and minor number of a device, as the protocol has both in one word.
pub fn device_numbers(rdev: u32) -> (u32, u32) {
    ((rdev & 0xf_ff00) >> 8, rdev & 0xff | (rdev >> 12) & 0xf_ff00)
}

/// Names of a directory in an answer.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    answer: &'a mut Answer,
    end: usize,
    is_plus: bool,
}

impl Listing for Names<'_> {
    fn add(&mut self, listed: &Listed<'_>, attributes: Option<&Entry>) -> bool {
        let plus_bytes = if self.is_plus { ENTRY_BYTES } else { 0 };
        let len = plus_bytes + (DIRENT_BYTES + listed.name.len()).next_multiple_of(8);
        if self.answer.len + len > self.end {
            return false;
        }
        if self.is_plus {
            match attributes {
                Some(entry) => self.answer.entry(entry),
                // A node of 0: the kernel looks the name up when it needs it.
                None => self.answer.zeroes(ENTRY_BYTES),
            };
        }
        self.answer.u64(listed.node).u64(listed.cookie).u32(listed.name.len() as u32);
        self.answer.u32(listed.file_type >> 12).bytes(listed.name);
        let padding = listed.name.len().next_multiple_of(8) - listed.name.len();
        self.answer.zeroes(padding);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr() -> Attr {
        let time = |seconds| Time { seconds, nanoseconds: 5 };
        let (atime, mtime, ctime, btime) = (time(1), time(2), time(3), Some(time(4)));
        Attr { node: 9, size_bytes: 10, mode: 0o100_644, atime, mtime, ctime, btime, ..Attr::default() }
    }

    /// Lengths as the kernel checks them.
    #[test]
    fn answers_have_the_lengths_that_the_kernel_expects() {
        let mut answer = Answer::default();
        let valid = Duration::from_millis(1500);
        let entry = Entry { attr: attr(), generation: 1, name_valid: valid, attr_valid: valid };
        assert_eq!(answer.start().entry(&entry).len - OUT_HEADER_BYTES, 128);
        assert_eq!((answer.regular_file(wire::LOOKUP), answer.regular_file(wire::OPEN)), (Some(9), None));
        let folder = Entry { attr: Attr { mode: 0o040_755, ..attr() }, ..entry };
        assert_eq!(answer.start().entry(&folder).regular_file(wire::LOOKUP), None);
        assert_eq!(answer.start().attributes(&(attr(), valid)).len - OUT_HEADER_BYTES, 104);
        assert_eq!(answer.start().statx(&(attr(), valid)).len - OUT_HEADER_BYTES, 288);
        assert_eq!(answer.start().opened(&Opened::default()).len - OUT_HEADER_BYTES, 16);
        assert_eq!(answer.start().space(&Space::default()).len - OUT_HEADER_BYTES, 80);
    }

    #[test]
    fn an_error_is_negative_and_has_no_body() {
        let mut answer = Answer::default();
        answer.start().u64(1);
        let bytes = answer.finish(7, Err(Errno::NOENT));
        assert_eq!((&bytes[..4], &bytes[4..8]), (&16_u32.to_ne_bytes()[..], &(-2_i32).to_ne_bytes()[..]));
        assert_eq!(bytes.len(), OUT_HEADER_BYTES);
    }

    #[test]
    fn names_are_padded_and_end_where_the_kernel_says() {
        let mut answer = Answer::default();
        answer.start();
        let mut listing = answer.listing(70, false);
        let listed = |name| Listed { node: 2, cookie: 3, file_type: 0o040_000, name };
        assert!(listing.add(&listed(b"a"), None) && listing.add(&listed(b"12345678"), None));
        assert!(!listing.add(&listed(b"c"), None));
        assert_eq!(answer.len, OUT_HEADER_BYTES + 64);
        assert_eq!(answer.so_far()[OUT_HEADER_BYTES + 20..][..4], 4_u32.to_ne_bytes());
    }

    #[test]
    fn an_attribute_that_is_too_long_is_refused_and_its_size_is_told() {
        let mut answer = Answer::default();
        assert_eq!(answer.start().sized(b"value", 4), Err(Errno::RANGE));
        answer.start().sized(b"value", 0).unwrap();
        assert_eq!(answer.so_far()[OUT_HEADER_BYTES..][..4], 5_u32.to_ne_bytes());
        answer.start().sized(b"value", 5).unwrap();
        assert_eq!(answer.so_far()[OUT_HEADER_BYTES..], *b"value");
    }

    #[test]
    fn an_answer_that_is_too_long_is_an_error() {
        let mut answer = Answer::default();
        answer.start().bytes(&vec![1; READ_BYTES_MAX]);
        assert_eq!(answer.finish(7, Ok(())).len(), ANSWER_BYTES_MAX);
        answer.start().bytes(&vec![1; READ_BYTES_MAX]).u16(1);
        assert_eq!(answer.finish(7, Ok(()))[4..8], (-Errno::IO.raw_os_error()).to_ne_bytes());
        assert_eq!(answer.start().fill(READ_BYTES_MAX + 1, |_| Ok(0)), Err(Errno::IO));
        answer.start().u16(1).fill(5, |room| Ok(room.len() - 2)).unwrap();
        assert_eq!(answer.finish(7, Ok(())).len(), OUT_HEADER_BYTES + 5);
    }

    #[test]
    fn device_numbers() {
        let rdev = (259 << 8) | 7;
        assert_eq!(super::device_numbers(rdev), (259, 7));
        assert_eq!(super::device_numbers(0x1234_05ab), (0x405, 0x123ab));
    }
}
