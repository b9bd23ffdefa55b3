//! Synchronous writes of 4 KiB to a block device: writes DEVICE COUNT NAME COMMAND...
//!
//! NAME is that of the device in /sys/class/block. O_DIRECT and O_DSYNC, all over the device; then the command,
//! which brings everything to the origin. Prints how long a write took, and the command, of the time in which the
//! CPU was not idle.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};

mod busy;

use busy::{busy, place};

const O_DIRECT: i32 = 0o40000;
const O_DSYNC: i32 = 0o10000;

#[repr(align(4096))]
struct Block([u8; 4096]);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (device, count) = (&arguments[1], arguments[2].parse::<u64>().expect("a number"));
    let file = OpenOptions::new().write(true).custom_flags(O_DIRECT | O_DSYNC).open(device).expect("open");
    let sectors = fs::read_to_string(format!("/sys/class/block/{}/size", arguments[3])).expect("size");
    let blocks = sectors.trim().parse::<u64>().expect("size") / 8;
    let block = Block([0x5a; 4096]);
    let write = |index: u64| {
        file.write_all_at(&block.0, place(index, blocks)).expect("write");
    };
    (0..256).for_each(write);
    let ((), writes) = busy(|| (256..256 + count).for_each(write));
    let ((), flush) = busy(|| {
        let done = Command::new(&arguments[4]).args(&arguments[5..]).stdout(Stdio::null()).status().expect("command");
        assert!(done.success(), "{done}");
    });
    println!("{} {}", writes / u128::from(count), flush / u128::from(count));
}
