//! CPU time of all CPUs together, from `/proc/stat`.
//!
//! The kernel counts in ticks. Without `CONFIG_VIRT_CPU_ACCOUNTING_GEN` it looks at each tick what a CPU does
//! and counts all of the tick for that: exact over seconds, not over single ticks.
//!
//! Source: `Documentation/filesystems/proc.rst`, 1.7; dissertation (2025), 4.2.1.

use std::ops::Sub;

use crate::error::CostError;
use crate::machine::{Machine, read};

/// CPU time of all CPUs since the machine started, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTimes {
    /// Programs, those with a lower priority too (`nice` of `/proc/stat`), and guests.
    pub user: u64,
    /// The kernel.
    pub system: u64,
    /// Handlers of interrupts.
    pub irq: u64,
    /// What handlers have put off.
    pub softirq: u64,
    /// Nothing to do, or nothing but I/O to wait for.
    pub idle: u64,
    /// The hypervisor ran something else; not counted as ours.
    pub steal: u64,
}

impl CpuTimes {
    /// Reads the counters.
    ///
    /// # Errors
    /// [`CostError::Read`], [`CostError::Malformed`].
    pub fn read(machine: &Machine) -> Result<CpuTimes, CostError> {
        let path = machine.proc.join("stat");
        let text = read(&path)?;
        CpuTimes::parse(&text)
            .ok_or(CostError::Malformed { path, what: "does not begin with the time of all CPUs" })
    }

    /// Of the line `cpu  USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ...`.
    pub(crate) fn parse(text: &str) -> Option<CpuTimes> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let numbers: Option<Vec<u64>> =
            line.split_ascii_whitespace().map(|number| number.parse().ok()).collect();
        let numbers = numbers?;
        let [user, nice, system, idle, iowait, irq, softirq, steal] = *numbers.first_chunk()?;
        Some(CpuTimes {
            user: user.checked_add(nice)?,
            system,
            irq,
            softirq,
            idle: idle.checked_add(iowait)?,
            steal,
        })
    }

    /// Time in which CPUs did something.
    pub fn busy(&self) -> u64 {
        self.user.saturating_add(self.system).saturating_add(self.irq).saturating_add(self.softirq)
    }

    /// All of the time, in use or not.
    pub fn total(&self) -> u64 {
        self.busy().saturating_add(self.idle).saturating_add(self.steal)
    }
}

/// What was used between two readings. `iowait` may fall, says the kernel's documentation.
impl Sub for CpuTimes {
    type Output = CpuTimes;

    fn sub(self, earlier: CpuTimes) -> CpuTimes {
        CpuTimes {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            irq: self.irq.saturating_sub(earlier.irq),
            softirq: self.softirq.saturating_sub(earlier.softirq),
            idle: self.idle.saturating_sub(earlier.idle),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }
}

/// Ticks of [`CpuTimes`] in a second.
pub fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_cpus_do_is_counted_and_what_others_get_is_not() {
        let times =
            CpuTimes::parse("cpu  100 20 30 4000 500 6 7 8 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n").unwrap();
        let expected = CpuTimes { user: 120, system: 30, irq: 6, softirq: 7, idle: 4500, steal: 8 };
        assert_eq!(times, expected);
        assert_eq!((times.busy(), times.total()), (163, 4671));
        let later = CpuTimes { system: 130, idle: 4400, ..times };
        let used = later - times;
        assert_eq!((used.system, used.idle, used.busy()), (100, 0, 100), "what falls counts as nothing");
    }

    #[test]
    fn what_is_no_counter_is_refused() {
        for text in [
            "",
            "cpu",
            "cpu0 1 2 3 4 5 6 7 8",
            "cpu  1 2 3",
            "cpu  1 2 3 4 5 6 seven 8",
            "cpu  -1 2 3 4 5 6 7 8",
        ] {
            assert_eq!(CpuTimes::parse(text), None, "{text}");
        }
        assert_eq!(CpuTimes::parse(&format!("cpu  {0} {0} 1 1 1 1 1 1", u64::MAX)), None, "no overflow");
    }

    #[test]
    fn this_machine_counts() {
        let times = CpuTimes::read(&Machine::default()).unwrap();
        assert!(times.total() > 0 && ticks_per_second() > 0.0);
        let error = CpuTimes::read(&Machine::testing("/nowhere", "/nowhere")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/stat"), "{error}");
    }
}
