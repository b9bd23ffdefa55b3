//! Bytes of files that are gone, for records that a commit may still have to write.
//!
//! A record that keeps its place may say only which bytes were written: they are read back when it is
//! committed. If the file is gone by then, they are nowhere. Leaving the record out would be wrong: the log
//! also has the names that the file had, and a crash in the middle of the commit can leave a name without the
//! record that takes it away. So they are read when the file goes, and kept until their txg has synced.
//!
//! Bounded: beyond [`KEPT_BYTES_MAX`] nothing is kept, and a commit that needs what was not kept waits for
//! its txg.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use fastness_base::{NumberHasher, ObjectId, Txg};

use crate::kind::ReadBack;
use crate::pool::FileEnd;

/// Bytes of all files of a dataset.
const KEPT_BYTES_MAX: u64 = 16 << 20;
/// Bytes of one file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What is kept of a dataset.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    files: HashMap<ObjectId, KeptFile, BuildHasherDefault<NumberHasher>>,
    bytes: u64,
}

/// What is kept of a file.
#[derive(Debug)]
pub(crate) struct KeptFile {
    /// The newest txg of a record that may need it.
    txg: Txg,
    /// Where the file ended.
    end: u64,
    /// Parts by their first byte, in order and without overlaps.
    parts: Vec<(u64, Box<[u8]>)>,
}

impl KeptFile {
    /// Reads these ranges, up to the file's end; `None` if that is more than `room_bytes`, or impossible.
    pub(crate) fn read(
        source: &dyn ReadBack,
        object: ObjectId,
        txg: Txg,
        mut ranges: Vec<(u64, u64)>,
        room_bytes: u64,
    ) -> Option<KeptFile> {
        let FileEnd::At(end) = source.file_end(object).ok()? else { return None };
        ranges.sort_unstable();
        let (mut parts, mut at, mut left_bytes) = (Vec::new(), 0, room_bytes.min(FILE_BYTES_MAX));
        for (offset, len_bytes) in ranges {
            let from = offset.max(at);
            let to = offset.saturating_add(len_bytes).min(end);
            if from >= to {
                continue;
            }
            left_bytes = left_bytes.checked_sub(to - from)?;
            let mut part = vec![0; (to - from) as usize].into_boxed_slice();
            let mut done = 0;
            while done < part.len() {
                match source.read_back(object, from + done as u64, &mut part[done..]) {
                    Ok(len) if len > 0 => done += len,
                    _ => return None,
                }
            }
            parts.push((from, part));
            at = to;
        }
        Some(KeptFile { txg, end, parts })
    }

    fn bytes(&self) -> u64 {
        self.parts.iter().map(|(_, part)| part.len() as u64).sum()
    }
}

impl Kept {
    /// How much more may be kept.
    pub(crate) fn room_bytes(&self) -> u64 {
        KEPT_BYTES_MAX.saturating_sub(self.bytes)
    }

    pub(crate) fn add(&mut self, object: ObjectId, file: KeptFile) {
        self.bytes += file.bytes();
        if let Some(before) = self.files.insert(object, file) {
            self.bytes -= before.bytes();
        }
    }

    /// Where a file ended; `None`: nothing is kept of it.
    pub(crate) fn end(&self, object: ObjectId) -> Option<u64> {
        self.files.get(&object).map(|file| file.end)
    }

    /// Copies what is kept from `offset` on; returns how much that is.
    pub(crate) fn read(&self, object: ObjectId, offset: u64, buffer: &mut [u8]) -> usize {
        let Some(file) = self.files.get(&object) else { return 0 };
        let after = file.parts.partition_point(|(from, _)| *from <= offset);
        let Some((from, part)) = after.checked_sub(1).map(|index| &file.parts[index]) else { return 0 };
        let rest = part.get((offset - from) as usize..).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        len
    }

    /// Removes what no record needs any more, to be dropped outside the lock.
    pub(crate) fn forget_synced(&mut self, synced: Txg) -> Vec<KeptFile> {
        let over: Vec<_> =
            self.files.extract_if(|_, file| file.txg <= synced).map(|(_, file)| file).collect();
        self.bytes -= over.iter().map(KeptFile::bytes).sum::<u64>();
        over
    }
}
