//! Synchronous writes of 4 KiB to a block device: writes DEVICE COUNT COMMAND...
//!
//! O_DIRECT and O_DSYNC, all over the device; then the command, which brings everything to the origin. Prints how long a
//! write took, and the command, of the time in which the CPU was not idle.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};
use std::time::Instant;

const O_DIRECT: i32 = 0o40000;
const O_DSYNC: i32 = 0o10000;

#[repr(align(4096))]
struct Block([u8; 4096]);

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

/// Nanoseconds that are not idle.
fn busy(work: impl FnOnce()) -> u128 {
    let (idle_before, begun) = (idle(), Instant::now());
    work();
    let took = begun.elapsed().as_nanos();
    took - (idle() - idle_before).min(took)
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (device, count) = (&arguments[1], arguments[2].parse::<u64>().expect("a number"));
    let file = OpenOptions::new().write(true).custom_flags(O_DIRECT | O_DSYNC).open(device).expect("open");
    let sectors = fs::read_to_string(format!("/sys/class/block/{}/size", arguments[3])).expect("size");
    let blocks = sectors.trim().parse::<u64>().expect("size") / 8;
    let block = Block([0x5a; 4096]);
    let write = |index: u64| {
        let at = index.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) % blocks * 4096;
        file.write_all_at(&block.0, at).expect("write");
    };
    (0..256).for_each(write);
    let writes = busy(|| (256..256 + count).for_each(write));
    let flush = busy(|| {
        let done = Command::new(&arguments[4]).args(&arguments[5..]).stdout(Stdio::null()).status().expect("command");
        assert!(done.success(), "{done}");
    });
    println!("{} {}", writes / u128::from(count), flush / u128::from(count));
}
