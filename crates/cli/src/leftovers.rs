//! What a program of `fastness run` has started and left running: the other processes of our mount namespace.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// Sends a signal to all of them; to how many.
pub(crate) fn signal_leftovers(signal: Signal) -> usize {
    let Some(ours) = namespace("self") else { return 0 };
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|&number: &i32| signal_one(number, signal, &ours)).count()
}

fn signal_one(number: i32, signal: Signal, ours: &PathBuf) -> bool {
    let Some(pid) = Pid::from_raw(number).filter(|pid| *pid != getpid()) else { return false };
    // First the process, then the look at it: its number may be another's by then, and this is not.
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    namespace(&number.to_string()).as_ref() == Some(ours) && pidfd_send_signal(&process, signal).is_ok()
}

/// The mount namespace of a process, as the kernel names it; `None`: the process is gone, or a zombie.
fn namespace(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}
