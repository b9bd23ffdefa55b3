//! Pinning threads of other processes, and giving them back what they had.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use fastness_pmem::counters::start_time_of;
use rustix::io::Errno;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use super::policy::ThreadId;
use super::record::{self, Record};

/// Why a thread was not pinned.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It has ended.
    #[error("it has ended")]
    Gone,
    /// It may run on none of the CPUs: somebody has seen to it that it does not.
    #[error("it may run on none of these CPUs")]
    Elsewhere,
    /// The kernel refuses.
    #[error("{0}")]
    System(#[source] io::Error),
}

/// Threads that are pinned. Dropping it gives all of them back what they had.
#[derive(Debug, Default)]
pub struct Pins {
    threads: BTreeMap<ThreadId, Pinned>,
    record: Option<Record>,
}

#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) before: CpuSet,
    pub(super) set: CpuSet,
}

impl Pins {
    /// Pins that are recorded in a file in `folder`, and how many threads got back what they had before they
    /// were pinned by processes that did not live to give it back.
    ///
    /// # Errors
    /// Those of the folder and of the file.
    pub fn recorded(folder: &Path) -> io::Result<(Pins, usize)> {
        let left = record::left(folder)?;
        let given_back = left.iter().filter(|(thread, pinned)| give_back(**thread, pinned)).count();
        let record = Some(Record::begin(folder)?);
        Ok((Pins { threads: BTreeMap::new(), record }, given_back))
    }

    /// Pins a thread to those of these CPUs that it may run on.
    ///
    /// # Errors
    /// [`Refused`]; the thread is as it was.
    pub fn pin(&mut self, thread: ThreadId, cpus: &[usize]) -> Result<(), Refused> {
        let pid = living(thread).ok_or(Refused::Gone)?;
        let before = sched_getaffinity(Some(pid)).map_err(refused)?;
        let mut set = CpuSet::new();
        for &cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU && before.is_set(**cpu)) {
            set.set(cpu);
        }
        if set.count() == 0 {
            return Err(Refused::Elsewhere);
        }
        let pinned = Pinned { before, set };
        if let Some(record) = &mut self.record {
            record.add(thread, &pinned).map_err(Refused::System)?;
        }
        if let Err(errno) = sched_setaffinity(Some(pid), &set) {
            self.forget(thread);
            return Err(refused(errno));
        }
        self.threads.insert(thread, pinned);
        Ok(())
    }

    /// Records that a thread is pinned no more.
    fn forget(&mut self, thread: ThreadId) {
        if let Some(record) = &mut self.record {
            // What stays in the file is looked at once more by the next process, which finds other CPUs.
            let _ = record.remove(thread, self.threads.is_empty());
        }
    }

    /// Gives a thread back what it had; whether it did: not if it has ended, or has changed its CPUs itself
    /// since.
    pub fn release(&mut self, thread: ThreadId) -> bool {
        let Some(pinned) = self.threads.remove(&thread) else { return false };
        let is_given_back = give_back(thread, &pinned);
        self.forget(thread);
        is_given_back
    }

    /// Whether a thread is no longer as it was pinned: it has ended, or changed its CPUs itself.
    pub fn has_left(&self, thread: ThreadId) -> bool {
        let Some(pinned) = self.threads.get(&thread) else { return true };
        let now = living(thread).and_then(|pid| sched_getaffinity(Some(pid)).ok());
        now.is_none_or(|now| now != pinned.set)
    }

    /// Threads that are pinned.
    pub fn threads(&self) -> impl Iterator<Item = ThreadId> {
        self.threads.keys().copied()
    }

    /// Gives all of them back what they had; how many that were.
    pub fn release_all(&mut self) -> usize {
        let threads: Vec<ThreadId> = self.threads().collect();
        threads.into_iter().filter(|thread| self.release(*thread)).count()
    }
}

fn give_back(thread: ThreadId, pinned: &Pinned) -> bool {
    let Some(pid) = living(thread) else { return false };
    // Between the look and the change a thread may still choose others; there is no call that does both.
    sched_getaffinity(Some(pid)).is_ok_and(|now| now == pinned.set)
        && sched_setaffinity(Some(pid), &pinned.before).is_ok()
}

/// Its number, if it is still the same thread.
fn living(thread: ThreadId) -> Option<Pid> {
    let is_same = start_time_of(thread.thread) == Some(thread.start_time);
    is_same.then(|| i32::try_from(thread.thread).ok().and_then(Pid::from_raw)).flatten()
}

fn refused(errno: Errno) -> Refused {
    if errno == Errno::SRCH { Refused::Gone } else { Refused::System(errno.into()) }
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.release_all();
    }
}

#[cfg(test)]
mod tests;
