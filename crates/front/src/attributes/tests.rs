use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use rustix::fs::{OFlags, RenameFlags, XattrFlags};

use super::*;
use crate::contents::{Plain, Writing};
use crate::descriptors::Descriptors;
use crate::handles::Handles;
use crate::nodes::{Nodes, ROOT};
use crate::owners::Owners;

/// The directory as it is, whose attributes cannot be made durable so many times.
#[derive(Debug, Default)]
struct Failing(AtomicU32);

impl Contents for Failing {
    type File = File;

    const NAME_VALID: std::time::Duration = Plain::NAME_VALID;

    fn settle(&self, _: &Path) -> Reply<()> {
        let fails = |left: u32| left.checked_sub(1);
        let failed = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fails);
        if failed.is_ok() { Err(Errno::IO) } else { Ok(()) }
    }

    fn open(&self, path: &Path, flags: OFlags) -> Reply<File> {
        Plain.open(path, flags)
    }

    fn read(&self, file: &File, offset: u64, buffer: &mut [u8]) -> Reply<usize> {
        Plain.read(file, offset, buffer)
    }

    fn write(&self, file: &File, offset: u64, data: &[u8], how: Writing) -> Reply<usize> {
        Plain.write(file, offset, data, how)
    }

    fn truncate(&self, path: &Path, size_bytes: u64) -> Reply<()> {
        Plain.truncate(path, size_bytes)
    }

    fn current(&self, stat: Stat, again: impl Fn() -> io::Result<Stat>) -> Stat {
        Plain.current(stat, again)
    }

    fn change<T>(&self, file: fastness_responder::FileId, act: impl FnOnce() -> io::Result<T>) -> Reply<T> {
        Plain.change(file, act)
    }

    fn make(&self, path: &Path, act: impl Fn() -> Reply<bool>) -> Reply<()> {
        Plain.make(path, act)
    }

    fn link(&self, file: &Path, to: &Path, act: impl FnOnce() -> Reply<()>) -> Reply<()> {
        Plain.link(file, to, act)
    }

    fn remove_directory(&self, path: &Path) -> Reply<()> {
        Plain.remove_directory(path)
    }

    fn unlink(&self, path: &Path) -> Reply<()> {
        Plain.unlink(path)
    }

    fn rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> Reply<()> {
        Plain.rename(from, to, flags)
    }

    fn flush(&self, file: &File) -> Reply<()> {
        Plain.flush(file)
    }

    fn flush_all(&self) -> Reply<()> {
        Plain.flush_all()
    }
}

/// One that may be set by root: version 2, without any.
const NONE: [u8; 20] = [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Removed, but perhaps not for good: the next write removes what may have come back.
#[test]
#[allow(clippy::print_stdout, reason = "a test that is skipped says why")]
fn capabilities_are_removed_again_after_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    fs::write(&path, "").unwrap();
    let set = || rustix::fs::setxattr(&path, CAPABILITIES, &NONE, XattrFlags::empty());
    if let Err(error) = set() {
        println!("SKIPPED: no capabilities can be set: {error}");
        return;
    }
    let has = || rustix::fs::getxattr_query(&path, CAPABILITIES).is_ok();
    let descriptors = Arc::new(Descriptors::of(128));
    let nodes = Nodes::new(File::open(dir.path()).unwrap(), descriptors.clone()).unwrap();
    let (files, directories, owners) = (Handles::default(), Handles::default(), Owners::new());
    let contents = Failing(AtomicU32::new(1));
    let server = PassThrough { contents, nodes, files, directories, owners, descriptors };
    let root = server.nodes.get(ROOT).unwrap();
    let node = server.nodes.find(ROOT, &root, "program".as_ref()).unwrap().0;
    server.note_capabilities(&node);
    assert_eq!(server.clear_capabilities(&node), Err(Errno::IO));
    assert!(!has());
    // A crash has brought them back.
    set().unwrap();
    assert_eq!(server.clear_capabilities(&node), Ok(()));
    assert!(!has());
    // Once they are gone for good, no write looks for them.
    set().unwrap();
    assert_eq!(server.clear_capabilities(&node), Ok(()));
    assert!(has());
}
