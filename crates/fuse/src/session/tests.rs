//! Mounts of a small file system, over both ways from the kernel. They need root, and are skipped without.
#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use tempfile::TempDir;

use super::*;
use crate::files::{Attr, Caller, Name, Open, Reply, Space};
use crate::mount::{MountOptions, Unmount, mount, unmount};
use crate::waiting::WAITERS_MAX;
use crate::{Entry, Errno};

const PATIENCE: Duration = Duration::from_secs(20);

/// A directory with one file. Whoever looks for another one waits until it is said that there is none.
#[derive(Default)]
struct Folder {
    is_said: AtomicBool,
    is_slow: AtomicBool,
    /// Threads that have said how much space there is.
    threads: Mutex<HashSet<std::thread::ThreadId>>,
}

const FILE: u64 = 2;

fn attr(node: u64) -> Attr {
    Attr { node, mode: if node == FILE { 0o100_644 } else { 0o040_755 }, links: 1, ..Attr::default() }
}

impl Folder {
    fn wait_until_it_is_said(&self) {
        while !self.is_said.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Files for Folder {
    fn lookup(&self, caller: Caller<'_>, _: u64, name: Name<'_>) -> Reply<Entry> {
        if name == b"file" {
            let attr = attr(FILE);
            return Ok(Entry { attr, generation: 1, name_valid: PATIENCE, attr_valid: PATIENCE });
        }
        if name == b"slow" {
            // Deaf to interrupts.
            self.is_slow.store(true, Ordering::SeqCst);
            self.wait_until_it_is_said();
        }
        while !self.is_said.load(Ordering::SeqCst) {
            if caller.is_interrupted() {
                return Err(Errno::INTR);
            }
            if !caller.may_wait() {
                // Meanwhile others come, and find no place.
                std::thread::sleep(Duration::from_millis(10));
                caller.put_off();
                return Err(Errno::AGAIN);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Errno::NOENT)
    }

    fn attributes(&self, _: Caller<'_>, node: u64, _: Option<u64>) -> Reply<(Attr, Duration)> {
        Ok((attr(node), Duration::ZERO))
    }

    fn space(&self, _: Caller<'_>) -> Reply<Space> {
        lock(&self.threads).insert(std::thread::current().id());
        Ok(Space { files: 7, block_bytes: 512, ..Space::default() })
    }

    fn forget(&self, _: u64, _: u64) {}

    fn release(&self, _: Open) {}
}

/// A session, its mount, and what it serves.
struct Mounted {
    session: Session,
    folder: TempDir,
    files: Arc<Folder>,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // At the end of a test that failed, somebody may be in it.
        let _ = unmount(self.folder.path(), Unmount::Force);
    }
}

impl Mounted {
    /// `None`: nothing can be mounted here.
    fn new(queues: Option<Result<usize, NoRings>>) -> Option<Mounted> {
        if !rustix::process::geteuid().is_root() || File::open("/dev/fuse").is_err() {
            println!("SKIPPED: only root can mount, and needs /dev/fuse");
            return None;
        }
        let (folder, files) = (tempfile::tempdir().unwrap(), Arc::new(Folder::default()));
        let options = MountOptions { source: "test".to_owned(), ..MountOptions::default() };
        let device = mount(folder.path(), &options).unwrap();
        let session = Session::start_over(queues, device, files.clone(), SessionOptions::default()).unwrap();
        Some(Mounted { session, folder, files })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn is_served(&self) {
        let path = self.path().to_owned();
        let (said, hear) = channel();
        std::thread::spawn(move || said.send(rustix::fs::statvfs(&path).unwrap().f_files));
        assert_eq!(hear.recv_timeout(PATIENCE), Ok(7));
    }

    fn end(self) {
        assert!(!self.session.has_ended());
        unmount(self.path(), Unmount::Clean).unwrap();
        assert!(self.session.has_ended(), "as soon as the kernel has unmounted it");
        assert!(self.session.wait(Some(PATIENCE)));
    }
}

/// Rings, if this kernel has them; otherwise why it has not.
fn over_rings() -> Option<Mounted> {
    let mounted = Mounted::new(Some(rings::queues()))?;
    match mounted.session.no_rings() {
        None => Some(mounted),
        Some(why) => {
            mounted.is_served();
            println!("SKIPPED: {why}");
            None
        }
    }
}

#[test]
fn a_mount_is_served_over_either_way_and_its_end_is_known_at_once() {
    for mounted in [Mounted::new(None), over_rings()].into_iter().flatten() {
        mounted.is_served();
        mounted.end();
    }
}

#[test]
fn the_end_of_a_mount_is_known_while_a_request_is_carried_out() {
    for mounted in [Mounted::new(None), over_rings()].into_iter().flatten() {
        let path = mounted.path().join("slow");
        let program = std::thread::spawn(move || std::fs::metadata(path).is_err());
        while !mounted.files.is_slow.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        unmount(mounted.path(), Unmount::Force).unwrap();
        assert!(mounted.session.has_ended() && !mounted.session.wait(Some(Duration::ZERO)));
        mounted.files.is_said.store(true, Ordering::SeqCst);
        assert!(program.join().unwrap() && mounted.session.wait(Some(PATIENCE)));
    }
}

#[test]
fn without_rings_requests_come_over_the_device() {
    let Some(mounted) = Mounted::new(Some(Err(NoRings::Cpus(1000)))) else { return };
    assert!(matches!(mounted.session.no_rings(), Some(NoRings::Cpus(1000))));
    mounted.is_served();
    mounted.end();
}

/// The kernel was told that rings would be used, and takes no place for one of the queues.
#[test]
fn requests_come_over_the_device_when_rings_fail_half_way() {
    let Some(mounted) = over_rings() else { return };
    mounted.end();
    let mounted = Mounted::new(rings::queues().map(|queues| Ok(queues + 1)).ok()).unwrap();
    assert!(matches!(mounted.session.no_rings(), Some(NoRings::NoPlace(_))));
    mounted.is_served();
    mounted.end();
}

/// More requests at once than there are places, each of which is put off: the kernel has to look at those
/// that found no place.
#[test]
fn no_request_is_left_behind_those_that_are_put_off() {
    const PROGRAMS: usize = 60;
    for mounted in [Mounted::new(None), over_rings()].into_iter().flatten() {
        assert!(std::fs::metadata(mounted.path().join("file")).unwrap().is_file());
        let together = Arc::new(std::sync::Barrier::new(PROGRAMS));
        let look = |n: usize| {
            let (together, path) = (together.clone(), mounted.path().join(n.to_string()));
            std::thread::spawn(move || {
                together.wait();
                std::fs::metadata(path).unwrap_err().raw_os_error()
            })
        };
        let programs: Vec<_> = (0..PROGRAMS).map(look).collect();
        let begun = Instant::now();
        while mounted.session.waiting() < PROGRAMS - WAITERS_MAX {
            assert!(begun.elapsed() < PATIENCE, "{} of {PROGRAMS}", mounted.session.waiting());
            std::thread::sleep(Duration::from_millis(5));
        }
        mounted.is_served();
        mounted.files.is_said.store(true, Ordering::SeqCst);
        for program in programs {
            assert_eq!(program.join().unwrap(), Some(Errno::NOENT.raw_os_error()));
        }
        mounted.end();
    }
}

/// Four programs, each with one request at a time.
#[test]
fn few_programs_keep_the_same_threads() {
    let Some(mounted) = Mounted::new(None) else { return };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    rustix::fs::statvfs(mounted.path()).unwrap();
                }
            });
        }
    });
    let threads = lock(&mounted.files.threads).len();
    assert!(threads <= 16, "{threads} threads have answered 2000 requests");
    mounted.end();
}
