//! What a program of `fastness run` has started and left running: the other processes of our mount namespace.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// Sends a signal to all of them.
pub(crate) fn signal_leftovers(signal: Signal) {
    let Some(ours) = namespace("self") else { return };
    let Ok(processes) = fs::read_dir("/proc") else { return };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let others = numbers.filter_map(Pid::from_raw).filter(|pid| *pid != getpid());
    others.for_each(|pid| signal_if_in(&ours, pid, signal));
}

fn signal_if_in(ours: &Path, pid: Pid, signal: Signal) {
    // First the process, then the look at it: its number may be another's by then, and this is not.
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if namespace(&pid.as_raw_nonzero().to_string()).as_deref() == Some(ours) {
        // It may have ended just now.
        let _ = pidfd_send_signal(&process, signal);
    }
}

/// The mount namespace of a process, as the kernel names it; `None`: the process is gone, or a zombie.
fn namespace(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}
