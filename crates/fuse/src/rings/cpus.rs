//! CPUs, and which of them a thread may run on.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// CPUs that there could be.
pub(crate) fn possible() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count(text.trim()).ok_or_else(|| io::Error::other(format!("possible CPUs are {text:?}")))
}

/// Counts a list like `0-3,8`, which must begin at 0 and leave none out: queues have the numbers of CPUs.
fn count(list: &str) -> Option<usize> {
    let mut next = 0;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first != next || last < first {
            return None;
        }
        next = last.checked_add(1)?;
    }
    Some(next)
}

/// The CPUs that this process was given.
#[derive(Debug)]
pub(crate) struct Affinity(Option<CpuSet>);

impl Affinity {
    /// Those of the calling thread.
    pub(crate) fn of_caller() -> Affinity {
        Affinity(sched_getaffinity(None).ok())
    }

    /// Keeps the calling thread on one CPU, if it may run there: a request begins and ends on the CPU of its
    /// program, which no other has to be woken for.
    pub(crate) fn pin(&self, cpu: usize) {
        let Affinity(Some(all)) = self else { return };
        if cpu < CpuSet::MAX_CPU && all.is_set(cpu) {
            let mut one = CpuSet::new();
            one.set(cpu);
            // A CPU that is gone: then anywhere.
            let _ = sched_setaffinity(None, &one);
        }
    }

    /// Lets the calling thread run on all of them again.
    pub(crate) fn unpin(&self) {
        if let Affinity(Some(all)) = self {
            let _ = sched_setaffinity(None, all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        for (list, expected) in [
            ("0", Some(1)),
            ("0-1", Some(2)),
            ("0-3,4-7,8", Some(9)),
            ("", None),
            ("1-2", None),
            ("0-1,3", None),
            ("0-1,1", None),
            ("3-0", None),
            ("0-18446744073709551615", None),
        ] {
            assert_eq!(count(list), expected, "{list}");
        }
        assert!(possible().unwrap() >= 1);
    }

    #[test]
    fn a_thread_stays_on_one_cpu_and_is_let_go() {
        let affinity = Affinity::of_caller();
        let cpu = (0..CpuSet::MAX_CPU).find(|cpu| affinity.0.as_ref().unwrap().is_set(*cpu)).unwrap();
        affinity.pin(cpu);
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        affinity.unpin();
        assert_eq!(sched_getaffinity(None).unwrap(), *affinity.0.as_ref().unwrap());
        // One that is not there, or not ours.
        affinity.pin(CpuSet::MAX_CPU);
        assert_eq!(sched_getaffinity(None).unwrap(), *affinity.0.as_ref().unwrap());
    }
}
