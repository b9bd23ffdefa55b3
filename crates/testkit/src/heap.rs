//! A medium on the heap that a test can damage while a PRB uses it.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use fastness_pmem::{Medium, NoSum, PersistError, ReadError, ReadErrorKind, Summer, View};

#[derive(Debug, Default)]
struct Memory {
    bytes: Vec<u8>,
    poison: Vec<Range<usize>>,
}

/// A handle on the memory; the media made of it see every change.
///
/// Persistence: none; everything is as durable as the process, and no fence fails.
/// Concurrency: one lock for each access. It does not keep two media off the same bytes.
#[derive(Debug, Clone)]
pub struct Heap(Arc<Mutex<Memory>>);

impl Heap {
    /// Memory with these contents, all of it readable.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Memory { bytes, poison: Vec::new() })))
    }

    /// Media of `chunk_bytes` each; what is left over after the last is unused.
    pub fn chunks(&self, chunk_bytes: usize) -> Vec<HeapRange> {
        let len = self.bytes().len();
        (0..len / chunk_bytes).map(|i| self.range(i * chunk_bytes..(i + 1) * chunk_bytes)).collect()
    }

    /// A medium of these bytes.
    ///
    /// # Panics
    /// Caller bug only: they are not inside of the memory.
    pub fn range(&self, range: Range<usize>) -> HeapRange {
        assert!(range.end <= self.bytes().len(), "{range:?} is inside of the memory");
        HeapRange { heap: self.clone(), start: range.start, len: range.len() }
    }

    /// A copy of the contents, poisoned or not.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().bytes.clone()
    }

    /// Changes the contents at will; the length must stay.
    pub fn edit(&self, edit: impl FnOnce(&mut [u8])) {
        edit(&mut self.0.lock().unwrap().bytes);
    }

    /// Flips a bit.
    pub fn flip(&self, bit: usize) {
        self.0.lock().unwrap().bytes[bit / 8] ^= 1 << (bit % 8);
    }

    /// Overwrites bytes with one value.
    pub fn fill(&self, range: Range<usize>, byte: u8) {
        self.0.lock().unwrap().bytes[range].fill(byte);
    }

    /// Makes bytes unreadable; writing them does not cure them.
    pub fn poison(&self, range: Range<usize>) {
        self.0.lock().unwrap().poison.push(range);
    }

    /// Makes everything readable again.
    pub fn cure(&self) {
        self.0.lock().unwrap().poison.clear();
    }
}

impl View for Heap {
    fn read(&self, region_offset: u64, dst: &mut [u8]) -> Result<(), ReadError> {
        let wanted = region_offset as usize..region_offset as usize + dst.len();
        let memory = self.0.lock().unwrap();
        let error = |at: usize, kind| Err(ReadError { region_offset: at as u64, kind });
        if wanted.end > memory.bytes.len() {
            return error(wanted.start, ReadErrorKind::OutOfRange);
        }
        let hit = |range: &&Range<usize>| range.start < wanted.end && wanted.start < range.end;
        if let Some(range) = memory.poison.iter().find(hit) {
            return error(range.start.max(wanted.start), ReadErrorKind::Poison);
        }
        dst.copy_from_slice(&memory.bytes[wanted]);
        Ok(())
    }
}

/// A part of a [`Heap`].
#[derive(Debug)]
pub struct HeapRange {
    heap: Heap,
    start: usize,
    len: usize,
}

impl Medium for HeapRange {
    fn len_bytes(&self) -> usize {
        self.len
    }

    fn region_offset(&self) -> u64 {
        self.start as u64
    }

    fn copy<S: Summer>(&mut self, offset: usize, src: &[u8], extent_bytes: usize, summer: &mut S) {
        assert!(offset + extent_bytes <= self.len);
        let mut memory = self.heap.0.lock().unwrap();
        let extent = &mut memory.bytes[self.start + offset..][..extent_bytes];
        extent.fill(0);
        extent[..src.len()].copy_from_slice(src);
        src.chunks(S::BLOCK_BYTES).for_each(|block| summer.update(block));
    }

    fn write_back(&mut self, _offset: usize, _len_bytes: usize) {}

    fn fence(&mut self) -> Result<(), PersistError> {
        Ok(())
    }

    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        if offset + dst.len() > self.len {
            let region_offset = (self.start + offset) as u64;
            return Err(ReadError { region_offset, kind: ReadErrorKind::OutOfRange });
        }
        View::read(&self.heap, (self.start + offset) as u64, dst)
    }

    fn copy_side(&mut self, side: usize, offset: usize, src: &[u8], extent_bytes: usize) {
        assert_eq!(side, 0, "there is one side");
        self.copy(offset, src, extent_bytes, &mut NoSum);
    }
}

#[cfg(feature = "pmlog")]
impl fastness_pmlog::LogMedium for HeapRange {
    fn split(self, mid: usize) -> (Self, Self) {
        assert!(mid.is_multiple_of(fastness_pmem::LINE_BYTES) && mid <= self.len, "cannot split at {mid}");
        let Self { heap, start, len } = self;
        (Self { heap: heap.clone(), start, len: mid }, Self { heap, start: start + mid, len: len - mid })
    }

    fn region_info(&self) -> Option<&fastness_pmem::RegionInfo> {
        None
    }
}
