//! What this process leaves when it is killed: process groups, and folders.
//!
//! Motivation: a group of its own gets no Ctrl-C from the terminal, so a recovery that hangs would outlive a
//! tester that was interrupted; and folders in memory would stay.
//!
//! Design: a second process, the *guard*, is told of everything that begins and ends, through a pipe whose
//! other end this process alone has. When that end is closed, for whatever reason (SIGKILL as well), the
//! guard kills the groups that are left, and removes the folders. It is in a group of its own, so that what
//! ends this one's group does not end it.
//!
//! Limits: a tester that is killed between the start of a program and telling of it leaves that program. A
//! guard that is killed, too, removes nothing; the next tester sweeps the folders.
//!
//! Messages: a line each: `+` or `-`, and the number of a group; `/` and the rest of a folder's path.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

/// To the guard, once there is one.
static GUARD: Mutex<Option<ChildStdin>> = Mutex::new(None);
/// A process that was killed may make files for a moment.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// What the guard looks after.
pub(super) enum Charge {
    /// A process group has begun.
    Group(Pid),
    /// It has been killed.
    Gone(Pid),
    /// A folder: an absolute path.
    Folder(PathBuf),
}

/// Starts the guard of this process: `command` calls [`serve_guard`] with its standard input.
///
/// # Errors
/// Those of starting it.
pub fn begin_guard(mut command: Command) -> io::Result<()> {
    let command = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn()?;
    *GUARD.lock().unwrap_or_else(PoisonError::into_inner) = child.stdin.take();
    Ok(())
}

pub(super) fn tell(charge: &Charge) {
    let mut line = match charge {
        Charge::Group(pid) => format!("+{}", pid.as_raw_nonzero()).into_bytes(),
        Charge::Gone(pid) => format!("-{}", pid.as_raw_nonzero()).into_bytes(),
        Charge::Folder(path) if path.is_absolute() => path.as_os_str().as_bytes().to_vec(),
        Charge::Folder(_) => return,
    };
    if line.contains(&b'\n') {
        return;
    }
    line.push(b'\n');
    if let Some(guard) = &mut *GUARD.lock().unwrap_or_else(PoisonError::into_inner) {
        // Without a guard everything works, and more is left.
        let _ = guard.write_all(&line);
    }
}

/// The guard: reads what there is until its owner has ended, and then ends that.
///
/// # Errors
/// Those of reading; what was read until then is ended all the same.
pub fn serve_guard(input: impl BufRead) -> io::Result<()> {
    let (mut groups, mut folders) = (BTreeSet::new(), Vec::new());
    let mut read = Ok(());
    for line in input.split(b'\n') {
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                read = Err(error);
                break;
            }
        };
        let number = || std::str::from_utf8(line.get(1..)?).ok()?.parse().ok();
        let pid = || number().filter(|number| *number > 0).and_then(Pid::from_raw);
        match line.first() {
            Some(b'+') => drop(pid().map(|pid| groups.insert(pid.as_raw_nonzero()))),
            Some(b'-') => drop(pid().map(|pid| groups.remove(&pid.as_raw_nonzero()))),
            Some(b'/') => folders.push(PathBuf::from(OsStr::from_bytes(&line))),
            _ => {}
        }
    }
    for pid in groups {
        let _ = kill_process_group(Pid::from_raw(pid.get()).expect("it is not zero"), Signal::KILL);
    }
    for _ in 0..ATTEMPTS {
        folders.retain(|folder| {
            fs::remove_dir_all(folder).is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
        });
        if folders.is_empty() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a process runs; one that nobody has waited for yet does not.
    fn runs(pid: u32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z"))
    }

    #[test]
    fn what_is_left_is_ended_and_nothing_else() {
        let sleeper = || Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let (mut left, mut ended) = (sleeper(), sleeper());
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("left");
        fs::create_dir_all(folder.join("below")).unwrap();
        let text = format!(
            "+{}\n+{}\n-{}\n{}\n+x\n\n+-1\n-\nfrob\n{}\n",
            left.id(),
            ended.id(),
            ended.id(),
            folder.display(),
            parent.path().join("never-made").display()
        );
        serve_guard(text.as_bytes()).unwrap();
        // Its own child: gone when it has been waited for.
        left.wait().unwrap();
        assert!(!folder.exists() && parent.path().exists());
        // One that was killed would be gone by then.
        std::thread::sleep(Duration::from_millis(300));
        assert!(runs(ended.id()));
        ended.kill().unwrap();
        ended.wait().unwrap();
    }
}
