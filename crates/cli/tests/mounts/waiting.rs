//! Many programs that wait at once: others go on, and each can be killed.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Mounted;
use crate::suspended::{break_disk, pool, program, status, suspend, wait_for_waiting};

/// More than a mount has threads.
const PROGRAMS: usize = 100;

/// Programs that create a file each, in a directory each: the kernel changes one directory at a time.
fn writers(files: &Mounted) -> Vec<Child> {
    (0..PROGRAMS).map(|n| program(files, &format!("exec mkdir {n}/made"))).collect()
}

fn folders(files: &Mounted) {
    (0..PROGRAMS).for_each(|n| fs::create_dir(files.path(&n.to_string())).unwrap());
}

/// Requests that the kernel sends to the server each time.
fn look(files: &Mounted) {
    let begun = Instant::now();
    for _ in 0..20 {
        rustix::fs::statvfs(&files.at).unwrap();
        // O_DIRECT: past the page cache.
        let direct = OpenOptions::new().read(true).custom_flags(0o40_000).open(files.path("read")).unwrap();
        assert_eq!(std::os::unix::fs::FileExt::read_at(&direct, &mut [0; 4096], 0).unwrap(), 4);
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// Names of the server's threads.
fn threads(files: &Mounted) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", status(files)["pid"])).unwrap();
    // One that has ended meanwhile has no name.
    tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok()).collect()
}

#[test]
fn reads_go_on_while_many_writers_wait() {
    let Some(files) = pool("") else { return };
    folders(&files);
    fs::write(files.path("read"), "text").unwrap();
    suspend(&files);
    let mut waiting = writers(&files);
    wait_for_waiting(&files, PROGRAMS as u64);
    look(&files);
    // A few of them wait with a thread. A burst of requests may start more, which end when it is over.
    let begun = Instant::now();
    while threads(&files).iter().filter(|name| name.trim() == "fuse").count() >= 40 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", threads(&files));
        std::thread::sleep(Duration::from_millis(20));
    }
    for child in &mut waiting[..PROGRAMS / 2] {
        kill_process(Pid::from_child(child), Signal::KILL).unwrap();
        assert!(!child.wait().unwrap().success());
    }
    look(&files);
    break_disk(&files, false);
    files.bench.ok("pool clear tank");
    for (n, child) in waiting.iter_mut().enumerate().skip(PROGRAMS / 2) {
        assert!(child.wait().unwrap().success(), "{n}");
    }
    for n in 0..PROGRAMS {
        assert_eq!(files.path(&format!("{n}/made")).exists(), n >= PROGRAMS / 2, "{n}");
    }
    assert_eq!((files.check(), status(&files)["waiting"].as_u64()), (0, Some(0)));
}

/// Each change was made before its commit had to wait; it is made once, and answered when it is durable.
#[test]
fn many_commits_wait_and_none_of_them_is_made_twice() {
    let Some(files) = pool("") else { return };
    files.bench.ok("dataset set sync=always tank/home");
    folders(&files);
    fs::write(files.path("read"), "text").unwrap();
    break_disk(&files, true);
    let mut waiting = writers(&files);
    wait_for_waiting(&files, PROGRAMS as u64);
    look(&files);
    kill_process(Pid::from_child(&waiting[0]), Signal::KILL).unwrap();
    waiting[0].wait().unwrap();
    assert!(waiting[1..].iter_mut().all(|child| child.try_wait().unwrap().is_none()), "nothing is durable");
    break_disk(&files, false);
    files.bench.ok("pool clear tank");
    assert!(waiting[1..].iter_mut().all(|child| child.wait().unwrap().success()));
    // Counted right, for those who were answered and for the one who was killed.
    for n in 0..PROGRAMS {
        fs::remove_dir_all(files.path(&n.to_string())).unwrap();
    }
    crate::used::wait_until_erased(&files);
}

/// The mount goes while programs wait in it: they end, and so does the server.
#[test]
fn many_waiting_programs_end_with_their_mount() {
    let Some(files) = pool("") else { return };
    folders(&files);
    suspend(&files);
    let mut waiting = writers(&files);
    wait_for_waiting(&files, PROGRAMS as u64);
    files.bench.fails("pool export tank --force", 8);
    assert!(waiting.iter_mut().all(|child| !child.wait().unwrap().success()));
    files.bench.ok("pool import tank");
    assert_eq!(files.check(), 0);
}
