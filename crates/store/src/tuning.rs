//! How a log is used on this machine.

use fastness_prb::Config;

/// Default of [`Tuning::indirect_bytes_min`]: below it, two flushes in a row cost more than writing the data
/// twice, at least with several threads.
const INDIRECT_BYTES_MIN: u64 = 1 << 20;

/// Settings of a log that depend on the machine and not on what is in the log; none of them is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Kind pmem: threads that may write to the medium at one time, at most 32; `None`: as many as there are
    /// CPUs. On Optane, two to four for each module. Each has an open chunk, so at most half of the chunks.
    pub ncommitters: Option<u32>,
    /// Writers are not slowed down while the log is short of space: one that finds none waits for a whole
    /// txg.
    pub lets_log_fill: bool,
    /// How many logs are suspended at a time when their devices change, by a thread each; 64 by default. With
    /// 1 the order of all I/O is that of the caller's calls.
    pub suspended_at_once: Option<usize>,
    /// Kind lwb on a pool without vdevs for logs: a commit with at least this much to read back, in whole
    /// blocks, writes that to its final place at once, and only its address into the log. `None`: no commit
    /// does.
    pub indirect_bytes_min: Option<u64>,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            ncommitters: None,
            lets_log_fill: false,
            suspended_at_once: None,
            indirect_bytes_min: Some(INDIRECT_BYTES_MIN),
        }
    }
}

impl Tuning {
    pub(crate) fn config(self, chunks: usize) -> Config {
        let cpus = || std::thread::available_parallelism().map_or(4, std::num::NonZero::get);
        let wanted = self.ncommitters.map_or_else(cpus, |count| count as usize);
        Config { ncommitters: wanted.clamp(1, (chunks / 2).clamp(1, 32)) as u32, ..Config::default() }
    }
}
