//! What processes have used of the machine, as the kernel counts it for each of their threads.

use std::fs;

use crate::error::{Context, Result, wrong};

/// CPU time and context switches.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) cpu_ns: f64,
    pub(crate) switches: f64,
}

impl Usage {
    /// Of the threads that these processes have now.
    pub(crate) fn of(processes: &[u32]) -> Result<Usage> {
        let mut sum = Usage::default();
        for process in processes {
            let tasks = format!("/proc/{process}/task");
            for task in fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}"))? {
                let path = task?.path();
                let read = |file| fs::read_to_string(path.join(file));
                // A thread that has just ended has no files.
                let (Ok(times), Ok(status)) = (read("schedstat"), read("status")) else { continue };
                sum.cpu_ns += times.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0);
                sum.switches += switches(&status);
            }
        }
        if sum.cpu_ns == 0.0 {
            return Err(wrong("this kernel does not count the CPU time of threads (/proc/self/schedstat)"));
        }
        Ok(sum)
    }

    /// What was added since `before`.
    pub(crate) fn since(self, before: Usage) -> Usage {
        Usage { cpu_ns: self.cpu_ns - before.cpu_ns, switches: self.switches - before.switches }
    }

    pub(crate) fn add(&mut self, other: Usage) {
        self.cpu_ns += other.cpu_ns;
        self.switches += other.switches;
    }
}

/// Both kinds of context switches of a thread.
fn switches(status: &str) -> f64 {
    let counts = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
    counts.filter_map(|(_, count)| count.trim().parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn work_and_waits_are_counted() {
        let own = [std::process::id()];
        let before = Usage::of(&own).unwrap();
        let begun = Instant::now();
        while Usage::of(&own).unwrap().since(before).cpu_ns < 5e6 {
            assert!(begun.elapsed() < Duration::from_secs(20), "20 s of work are not 5 ms of CPU time");
        }
        // Another process: what threads of other tests have waited goes with them when they end.
        let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 0.001; done; echo; read line";
        let mut waits = Command::new("sh");
        let waits = waits.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut waits = waits.spawn().unwrap();
        waits.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        assert!(Usage::of(&[waits.id()]).unwrap().switches >= 20.0);
        drop(waits.stdin.take());
        waits.wait().unwrap();
    }
}
