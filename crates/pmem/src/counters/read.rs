//! The counters of other processes, from their files.
//!
//! A file is read, not mapped: nobody can take its pages away while it is looked at, and its process is not
//! disturbed. What is in it is not trusted: numbers are what they are, places are checked.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::memory::pid_of;
use super::process::Identity;
use super::table::{
    CELL_WORDS, CELLS, FIRST_CELL, FIRST_ROW, HEADER_WORDS, KIND_OTHERS, KINDS, MAGIC, PATH_BYTES_MAX,
    ROW_WORDS, ROWS, VERSION, WORDS, cell, header, row,
};
use crate::info::RegionKind;

/// Files of a folder that are looked at.
const FILES_MAX: usize = 1 << 16;
/// How often a file is read that changes meanwhile.
const TRIES: usize = 16;

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Bytes, padding included.
    pub bytes: u64,
    /// Copies.
    pub writes: u64,
}

/// What a living thread has written to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadCount {
    /// Its number.
    pub thread: u32,
    /// Since it has first written to the region.
    pub count: Count,
}

/// What a process has written to a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionCounters {
    /// Of other regions than there is room for: none.
    pub kind: Option<RegionKind>,
    /// The file or device; of a path longer than 448 bytes the end. None of anonymous memory.
    pub path: Option<PathBuf>,
    /// Number of the file's device, as `stat` says it; 0 of anonymous memory.
    pub device: u64,
    /// Number of the file.
    pub inode: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// NUMA node of the memory, if it is known.
    pub numa_node: Option<u32>,
    /// Of threads that have ended.
    pub ended: Count,
    /// Of those that live.
    pub threads: Vec<ThreadCount>,
}

impl RegionCounters {
    /// Of all threads.
    pub fn total(&self) -> Count {
        self.threads.iter().fold(self.ended, |sum, thread| Count {
            bytes: sum.bytes.wrapping_add(thread.count.bytes),
            writes: sum.writes.wrapping_add(thread.count.writes),
        })
    }
}

/// A process that lives, and what it has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessCounters {
    /// Its number.
    pub pid: u32,
    /// When it started, in ticks since the machine did.
    pub start_time: u64,
    /// Regions that it has written to.
    pub regions: Vec<RegionCounters>,
}

/// What is published in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Published {
    /// Processes that live, by their numbers.
    pub processes: Vec<ProcessCounters>,
    /// Files that are no counters of this version.
    pub unreadable: Vec<PathBuf>,
}

/// Reads what the processes of a folder have published; those of processes that have ended, or of another PID
/// namespace, are left out.
///
/// # Errors
/// The folder cannot be read; one that does not exist has no files.
pub fn read_all(folder: &Path) -> io::Result<Published> {
    let me = Identity::own();
    let mut found = Published::default();
    for (pid, path) in files(folder)? {
        match snapshot(&path) {
            Ok(words) => {
                let of = identity_in(&words);
                if of.pid == pid && of.lives(me.namespace) {
                    found.processes.push(process(&words, of));
                }
            }
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => found.unreadable.push(path),
        }
    }
    found.processes.sort_by_key(|process| process.pid);
    Ok(found)
}

/// The files of a folder, with the processes that their names say.
pub(super) fn files(folder: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let entries = entries.take(FILES_MAX).filter_map(|entry| entry.ok());
    let of = |name: OsString| pid_of(name.to_str()?);
    Ok(entries.filter_map(|entry| Some((of(entry.file_name())?, entry.path()))).collect())
}

/// Whose a file says that it is.
pub(super) fn identity(path: &Path) -> Option<Identity> {
    let words = words_of(&File::open(path).ok()?, HEADER_WORDS).ok()?;
    Some(identity_in(&words))
}

fn identity_in(words: &[u64]) -> Identity {
    Identity {
        pid: u32::try_from(words[header::PID]).unwrap_or_default(),
        start_time: words[header::START_TIME],
        namespace: words[header::NAMESPACE],
    }
}

/// Words from the start of a file that has the right beginning.
fn words_of(file: &File, count: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count * size_of::<u64>()];
    file.read_exact_at(&mut bytes, 0)?;
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect();
    if words[header::MAGIC] == MAGIC && words[header::VERSION] == VERSION {
        return Ok(words);
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// A file at a moment in which no cell was being added to its row; one that never has such a moment, as it
/// is.
fn snapshot(path: &Path) -> io::Result<Vec<u64>> {
    let file = File::open(path)?;
    let mut words = words_of(&file, WORDS)?;
    for _ in 0..TRIES {
        let before = words[header::CHANGES];
        let after = words_of(&file, HEADER_WORDS)?[header::CHANGES];
        if before == after && before.is_multiple_of(2) {
            break;
        }
        std::thread::yield_now();
        words = words_of(&file, WORDS)?;
    }
    Ok(words)
}

fn process(words: &[u64], of: Identity) -> ProcessCounters {
    let mut regions: Vec<Option<RegionCounters>> =
        (0..ROWS).map(|at| region(&words[FIRST_ROW + at * ROW_WORDS..][..ROW_WORDS])).collect();
    for at in 0..CELLS {
        let words = &words[FIRST_CELL + at * CELL_WORDS..][..CELL_WORDS];
        let (thread, row) = ((words[cell::OWNER] >> 32) as u32, words[cell::OWNER] as u32 as usize);
        let count = Count { bytes: words[cell::BYTES], writes: words[cell::WRITES] };
        if thread != 0
            && let Some(Some(region)) = regions.get_mut(row)
        {
            region.threads.push(ThreadCount { thread, count });
        }
    }
    let regions = regions.into_iter().flatten().collect();
    ProcessCounters { pid: of.pid, start_time: of.start_time, regions }
}

fn region(words: &[u64]) -> Option<RegionCounters> {
    let kind = match words[row::KIND] {
        0 => return None,
        KIND_OTHERS => None,
        kind => Some(*usize::try_from(kind - 1).ok().and_then(|at| KINDS.get(at))?),
    };
    let len = usize::try_from(words[row::PATH_BYTES]).map_or(PATH_BYTES_MAX, |len| len.min(PATH_BYTES_MAX));
    let path: Vec<u8> = words[row::PATH..].iter().flat_map(|word| word.to_ne_bytes()).take(len).collect();
    Some(RegionCounters {
        kind,
        path: (!path.is_empty()).then(|| OsString::from_vec(path).into()),
        device: words[row::DEVICE],
        inode: words[row::INODE],
        len_bytes: words[row::LEN_BYTES],
        numa_node: words[row::NODE].checked_sub(1).and_then(|node| u32::try_from(node).ok()),
        ended: Count { bytes: words[row::ENDED_BYTES], writes: words[row::ENDED_WRITES] },
        threads: Vec::new(),
    })
}
