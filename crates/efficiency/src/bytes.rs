//! How many bytes a load has read or written.
//!
//! What counts depends on the load, so the caller says it: bytes that the caller knows, what the processes of
//! a command gave to system calls, what block devices transferred, what the command itself or an external
//! meter reports.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::CostError;
use crate::machine::{Machine, read};

/// Bytes of a sector of `/proc/diskstats`, of whatever device.
const SECTOR_BYTES: u64 = 512;
/// The end of a report that is read.
const REPORT_TAIL_BYTES: u64 = 128;

/// Which bytes of the system calls of processes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Those that were written.
    Written,
    /// Those that were read.
    Read,
    /// Both.
    Both,
}

/// Where the bytes of a load come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ByteSource {
    /// The caller knows them.
    Given(u64),
    /// `read`, `write` and their relatives, of this process's children that have ended and were waited for,
    /// and theirs. What goes past these calls is not in it: `mmap`, io_uring, libaio, other processes.
    Calls(Counted),
    /// What this process itself wrote by such calls, and what those children did.
    OwnCalls,
    /// What block devices read and wrote, by their names in `/proc/diskstats`.
    Devices(Vec<String>),
    /// The last line of a file that the load writes: its bytes so far, in decimal digits.
    Report(PathBuf),
    /// An external meter counts them.
    Meter,
}

impl ByteSource {
    /// As a report says it.
    pub fn describe(&self) -> String {
        match self {
            ByteSource::Given(_) => "as given".to_owned(),
            ByteSource::Calls(Counted::Written) => "written by system calls of the command".to_owned(),
            ByteSource::Calls(Counted::Read) => "read by system calls of the command".to_owned(),
            ByteSource::Calls(Counted::Both) => "read and written by system calls of the command".to_owned(),
            ByteSource::OwnCalls => "written by system calls of this process".to_owned(),
            ByteSource::Devices(names) => format!("read and written by {}", names.join(", ")),
            ByteSource::Report(_) => "as the command reports".to_owned(),
            ByteSource::Meter => "as the meter counts".to_owned(),
        }
    }

    /// Whether the count can be read in the middle of a run; otherwise it is there at its end.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self, ByteSource::Devices(_) | ByteSource::Report(_))
    }

    /// The count now. [`ByteSource::Meter`] is read with the meter, hence none here.
    pub(crate) fn read(&self, machine: &Machine) -> Result<Option<u64>, CostError> {
        match self {
            ByteSource::Given(bytes) => Ok(Some(*bytes)),
            ByteSource::Calls(counted) => of_children(machine, *counted).map(Some),
            ByteSource::OwnCalls => of_calls(&machine.proc.join("self/io"), Counted::Written).map(Some),
            ByteSource::Devices(names) => of_devices(machine, names).map(Some),
            ByteSource::Report(path) => of_report(path).map(Some),
            ByteSource::Meter => Ok(None),
        }
    }
}

/// Of the processes that this one has waited for: the kernel adds a process's count to its parent's when the
/// parent waits for it. What is left after subtracting our own threads also has our threads that have ended.
fn of_children(machine: &Machine, counted: Counted) -> Result<u64, CostError> {
    let own = machine.proc.join("self");
    let all = of_calls(&own.join("io"), counted)?;
    let tasks = own.join("task");
    let listed = std::fs::read_dir(&tasks).map_err(|source| CostError::Read { path: tasks, source })?;
    // A thread that ends meanwhile has nothing to subtract: its count is in neither.
    let threads = listed.flatten().filter_map(|task| of_calls(&task.path().join("io"), counted).ok());
    Ok(all.saturating_sub(threads.fold(0, u64::saturating_add)))
}

/// `rchar` and `wchar` of a file `io`.
fn of_calls(path: &Path, counted: Counted) -> Result<u64, CostError> {
    let text = read(path)?;
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        value.ok_or(CostError::Malformed { path: path.to_owned(), what: "has no count of bytes" })
    };
    match counted {
        Counted::Written => field("wchar:"),
        Counted::Read => field("rchar:"),
        Counted::Both => Ok(field("wchar:")?.saturating_add(field("rchar:")?)),
    }
}

fn of_devices(machine: &Machine, names: &[String]) -> Result<u64, CostError> {
    let path = machine.proc.join("diskstats");
    let text = read(&path)?;
    let mut sectors = 0_u64;
    for name in names {
        // Major, minor, name, reads, merged, sectors read, ms, writes, merged, sectors written.
        let fields = text.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
        let fields = fields.into_iter().find(|fields| fields.get(2) == Some(&&**name));
        let Some(fields) = fields else { return Err(CostError::NoDevice { path, name: name.clone() }) };
        for index in [5, 9] {
            let Some(count) = fields.get(index).and_then(|field| field.parse::<u64>().ok()) else {
                return Err(CostError::Malformed { path, what: "has a line without counts of sectors" });
            };
            sectors = sectors.saturating_add(count);
        }
    }
    Ok(sectors.saturating_mul(SECTOR_BYTES))
}

/// The last whole line; 0 as long as there is none.
fn of_report(path: &Path) -> Result<u64, CostError> {
    let tail = tail_of(path).map_err(|source| CostError::Read { path: path.to_owned(), source })?;
    let Some(end) = tail.iter().rposition(|byte| *byte == b'\n') else { return Ok(0) };
    let begin = tail[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let line = String::from_utf8_lossy(&tail[begin..end]);
    let wrong = CostError::Malformed { path: path.to_owned(), what: "has a last line that is not a number" };
    line.trim().parse().map_err(|_| wrong)
}

fn tail_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(REPORT_TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.take(REPORT_TAIL_BYTES).read_to_end(&mut tail)?;
    Ok(tail)
}

#[cfg(test)]
mod tests;
