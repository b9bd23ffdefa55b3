//! Advisory locks between processes: whole files, ranges of bytes, and those of open files.
//!
//! The kernel keeps them; a wait for one never reaches the server, and ends by a signal.
#![expect(unsafe_code, reason = "locks of ranges are in no safe interface")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::watch::operations;
use crate::{Mounted, mounted};

fn range(kind: i32, start: i64, len: i64) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: 0, l_start: start, l_len: len, l_pid: 0 }
}

fn lock(file: &File, command: i32, kind: i32, start: i64, len: i64) -> Result<libc::flock, Errno> {
    let mut range = range(kind, start, len);
    // SAFETY: the descriptor is open, and `range` is what these commands read and write.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut range) };
    match done {
        0 => Ok(range),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()),
    }
}

/// Another process that takes a lock, and keeps it while it lives. Perl belongs to the base system.
fn other(files: &Mounted, wait: bool, kind: i32, start: i64, len: i64) -> Option<Child> {
    let command = if wait { "F_SETLKW" } else { "F_SETLK" };
    let line = format!(
        "use Fcntl; open(F, '+<', 'a') or die; $range = pack('s s x4 q q l x4', {kind}, 0, {start}, {len}, 0); \
         fcntl(F, {command}, $range) or exit 7; open(D, '>', 'locked') or die; close D; sleep 60"
    );
    match Command::new("perl").args(["-e", &line]).current_dir(&files.at).spawn() {
        Ok(child) => Some(child),
        Err(error) => {
            println!("SKIPPED: perl: {error}");
            None
        }
    }
}

fn wait_for(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn end(mut child: Child) {
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
}

#[test]
fn ranges_of_bytes_are_locked_between_processes() {
    let Some(files) = mounted("") else { return };
    let file = File::create(files.path("a")).unwrap();
    let Some(held) = other(&files, false, libc::F_WRLCK, 100, 50) else { return };
    wait_for(|| files.path("locked").exists());
    assert_eq!(lock(&file, libc::F_SETLK, libc::F_WRLCK, 149, 10).unwrap_err(), Errno::AGAIN);
    let found = lock(&file, libc::F_GETLK, libc::F_WRLCK, 0, 0).unwrap();
    assert_eq!((found.l_pid, found.l_start, found.l_len), (held.id() as i32, 100, 50));
    lock(&file, libc::F_SETLK, libc::F_WRLCK, 150, 10).unwrap();
    lock(&file, libc::F_SETLK, libc::F_WRLCK, 0, 100).unwrap();
    // What a process held goes with it.
    end(held);
    lock(&file, libc::F_SETLK, libc::F_WRLCK, 0, 0).unwrap();
}

#[test]
fn locks_of_an_open_file_are_between_descriptors_and_not_between_processes() {
    let Some(files) = mounted("") else { return };
    let (one, two) = (File::create(files.path("a")).unwrap(), File::create(files.path("a")).unwrap());
    lock(&one, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 10).unwrap();
    assert_eq!(lock(&two, libc::F_OFD_SETLK, libc::F_WRLCK, 5, 10).unwrap_err(), Errno::AGAIN);
    lock(&two, libc::F_OFD_SETLK, libc::F_WRLCK, 10, 10).unwrap();
    drop(one);
    // A process that another test starts just now has the descriptor, too, until it runs its program.
    wait_for(|| lock(&two, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 10).is_ok());
}

#[test]
fn a_process_that_waits_for_a_lock_gets_it_or_can_be_killed() {
    let Some(files) = mounted("") else { return };
    let file = File::create(files.path("a")).unwrap();
    lock(&file, libc::F_SETLK, libc::F_WRLCK, 0, 10).unwrap();
    let Some(mut waits) = other(&files, true, libc::F_WRLCK, 5, 10) else { return };
    std::thread::sleep(Duration::from_millis(300));
    assert!(waits.try_wait().unwrap().is_none() && !files.path("locked").exists());
    end(waits);
    let Some(waits) = other(&files, true, libc::F_WRLCK, 5, 10) else { return };
    std::thread::sleep(Duration::from_millis(300));
    lock(&file, libc::F_SETLK, libc::F_UNLCK, 0, 10).unwrap();
    wait_for(|| files.path("locked").exists());
    end(waits);
}

/// The kernel asks the server once whether it wants to know of closed descriptors; locks go with them all the
/// same.
#[test]
fn ranges_go_with_any_descriptor_that_is_closed_and_the_server_is_asked_once() {
    let Some(files) = mounted("") else { return };
    let file = File::create(files.path("a")).unwrap();
    for _ in 0..3 {
        lock(&file, libc::F_SETLK, libc::F_WRLCK, 0, 10).unwrap();
        // Another descriptor of the same file: POSIX has its close end all locks of the process.
        drop(File::open(files.path("a")).unwrap());
        let Some(other) = other(&files, false, libc::F_WRLCK, 0, 10) else { return };
        wait_for(|| files.path("locked").exists());
        end(other);
        std::fs::remove_file(files.path("locked")).unwrap();
    }
    // Or two asked before either was answered: what other tests start inherits descriptors.
    let asked = operations(&files, "flush");
    assert!([1, 2].contains(&asked), "{asked}");
}
