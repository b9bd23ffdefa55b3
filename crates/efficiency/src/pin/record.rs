//! What is pinned, in a file, for the case that whoever pinned it is killed.
//!
//! A line is there before a thread is pinned, and another one once it has its CPUs back. The file's lock says
//! whether the process that writes it lives. The next one that pins reads the files of those that do not.
//!
//! ```text
//! + THREAD START_TIME BEFORE SET      CPUs as in 0,1,2
//! - THREAD START_TIME
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fastness_pmem::cpu_list;
use rustix::fs::{FlockOperation, flock};
use rustix::thread::CpuSet;

use super::affinity::Pinned;
use super::policy::ThreadId;

const PREFIX: &str = "pins.";
/// Longest file that is read: with two CPU lists of a large machine in each line, thousands of lines.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The file of this process. It is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Record {
    file: File,
    path: PathBuf,
}

fn list_of(set: &CpuSet) -> String {
    let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    cpus.map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",")
}

fn set_of(list: &str) -> Option<CpuSet> {
    let cpus = cpu_list(list).filter(|cpus| !cpus.is_empty())?;
    let mut set = CpuSet::new();
    for cpu in cpus {
        (cpu < CpuSet::MAX_CPU).then(|| set.set(cpu))?;
    }
    Some(set)
}

impl Record {
    /// Begins the file of this process; makes the folder if it is not there.
    pub(super) fn begin(folder: &Path) -> io::Result<Record> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let path = folder.join(format!("{PREFIX}{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Record { file, path })
    }

    /// A thread is about to be pinned.
    pub(super) fn add(&mut self, thread: ThreadId, pinned: &Pinned) -> io::Result<()> {
        let (number, start) = (thread.thread, thread.start_time);
        let line = format!("+ {number} {start} {} {}\n", list_of(&pinned.before), list_of(&pinned.set));
        self.file.write_all(line.as_bytes())
    }

    /// A thread is pinned no more; `is_last`: none is.
    pub(super) fn remove(&mut self, thread: ThreadId, is_last: bool) -> io::Result<()> {
        if is_last {
            // It would grow for as long as the process lives.
            self.file.set_len(0)?;
            return io::Seek::rewind(&mut self.file);
        }
        self.file.write_all(format!("- {} {}\n", thread.thread, thread.start_time).as_bytes())
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// What a file says is pinned. A line that makes no sense, as one that was cut off, says nothing.
fn parse(text: &str) -> BTreeMap<ThreadId, Pinned> {
    let mut pinned = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let thread = |number: &str, start: &str| {
            Some(ThreadId { thread: number.parse().ok()?, start_time: start.parse().ok()? })
        };
        match words[..] {
            ["+", number, start, before, set] => {
                if let (Some(thread), Some(before), Some(set)) =
                    (thread(number, start), set_of(before), set_of(set))
                {
                    pinned.insert(thread, Pinned { before, set });
                }
            }
            ["-", number, start] => {
                thread(number, start).map(|thread| pinned.remove(&thread));
            }
            _ => {}
        }
    }
    pinned
}

/// What processes that were killed have left pinned, by their files in `folder`, which are removed.
pub(super) fn left(folder: &Path) -> io::Result<BTreeMap<ThreadId, Pinned>> {
    let mut found = BTreeMap::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let is_record = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if !is_record {
            continue;
        }
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let Ok(file) = options.open(entry.path()) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let mut bytes = Vec::new();
        if file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).is_ok() {
            found.extend(parse(&String::from_utf8_lossy(&bytes)));
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_is_pinned_and_others_say_nothing() {
        let thread = |number| ThreadId { thread: number, start_time: 70 };
        let text = "+ 5 70 0,1,2 2\n+ 6 70 0-3 1\n- 5 70\n- 9 70\n+ 7 70 0,1 1\n- 7 71\n\
                    + 8 70 0,1\n+ 9 70 x 1\n+ 10 70 0,1 \n+ 11 70 0,99999999 1\nnonsense\n+ 12 7";
        let pinned = parse(text);
        assert_eq!(pinned.keys().copied().collect::<Vec<_>>(), [thread(6), thread(7)]);
        assert_eq!(list_of(&pinned[&thread(6)].before), "0,1,2,3");
        assert_eq!(list_of(&pinned[&thread(6)].set), "1");
    }

    #[test]
    fn the_file_of_a_process_that_lives_is_its_own() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("new");
        assert!(left(&folder).unwrap().is_empty(), "there is no such folder");
        let mut record = Record::begin(&folder).unwrap();
        let thread = ThreadId { thread: 5, start_time: 70 };
        let pinned = Pinned { before: set_of("0-1").unwrap(), set: set_of("1").unwrap() };
        record.add(thread, &pinned).unwrap();
        record.add(ThreadId { thread: 6, ..thread }, &pinned).unwrap();
        assert!(left(&folder).unwrap().is_empty(), "it lives");
        record.remove(thread, false).unwrap();
        // Killed: its lock goes, and its file stays.
        let path = record.path.clone();
        fs::copy(&path, folder.join("pins.1")).unwrap();
        let found = left(&folder).unwrap();
        assert_eq!(found.keys().map(|thread| thread.thread).collect::<Vec<_>>(), [6]);
        assert!(!folder.join("pins.1").exists() && path.exists());
        record.remove(ThreadId { thread: 6, ..thread }, true).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        record.add(thread, &pinned).unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with("+ 5 70 0,1 1"));
        drop(record);
        assert!(!path.exists());
    }
}
