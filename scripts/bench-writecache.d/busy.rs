//! Time in which the CPUs were not idle: in a guest whose clock counts instructions, these.

use std::fs;
use std::time::Instant;

/// What a line says of how long a CPU was idle, or waited for a disk.
fn of_idleness(line: &str) -> Option<&str> {
    let line = line.trim();
    line.strip_prefix(".idle_sleeptime").or_else(|| line.strip_prefix(".iowait_sleeptime"))
}

/// Nanoseconds for which the CPUs have been idle.
fn idle() -> u128 {
    let text = fs::read_to_string("/proc/timer_list").expect("/proc/timer_list");
    let of = |line: &str| of_idleness(line)?.split_whitespace().nth(1)?.parse::<u128>().ok();
    let all: Vec<_> = text.lines().filter_map(of).collect();
    assert!(!all.is_empty(), "this kernel does not count idle time");
    all.into_iter().sum()
}

/// What `work` returns, and its nanoseconds that were not idle.
pub(crate) fn busy<T>(work: impl FnOnce() -> T) -> (T, u128) {
    let (idle_before, begun) = (idle(), Instant::now());
    let done = work();
    let took = begun.elapsed().as_nanos();
    (done, took - (idle() - idle_before).min(took))
}

/// Where write number `index` goes, in bytes, on a device of so many blocks of 4 KiB.
pub(crate) fn place(index: u64, blocks: u64) -> u64 {
    index.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) % blocks * 4096
}
