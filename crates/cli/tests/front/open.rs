//! Files that lose their names while something is about to use them.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;

use crate::{Mounted, mounted};

fn through(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn replace(files: &Mounted, text: &str) {
    fs::write(files.at("new"), text).unwrap();
    fs::rename(files.at("new"), files.at("a")).unwrap();
}

/// The kernel has found it, and opens it only after its name was given to another file.
#[test]
fn a_file_that_was_replaced_before_it_was_opened_is_not_empty() {
    let Some(mut files) = mounted() else { return };
    replace(&files, "old");
    let path = OFlags::PATH.bits() as i32;
    let found = File::options().read(true).custom_flags(path).open(files.at("a")).unwrap();
    replace(&files, "newer");
    assert_eq!(fs::read(through(&found)).unwrap(), b"old");
    fs::write(through(&found), "without a name").unwrap();
    assert_eq!(fs::read(through(&found)).unwrap(), b"without a name");
    assert_eq!(fs::read(files.at("a")).unwrap(), b"newer");
    files.kill_and_recover();
    assert_eq!(fs::read(files.below("a")).unwrap(), b"newer");
    assert_eq!(files.bench.json("responder status pm")["dirty_chunks"], 0);
}

#[test]
fn a_name_that_is_replaced_all_the_time_is_never_empty() {
    let Some(files) = mounted() else { return };
    replace(&files, "0000");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..1500 {
                replace(&files, &format!("{number:04}"));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let mut last = String::new();
        while !is_over.load(Ordering::Relaxed) {
            let text = fs::read_to_string(files.at("a")).unwrap();
            assert!(text.len() == 4 && text >= last, "{text:?} after {last:?}");
            last = text;
        }
    });
}

#[test]
fn what_is_open_without_a_name_keeps_its_bytes() {
    let Some(mut files) = mounted() else { return };
    fs::write(files.at("a"), "text").unwrap();
    fs::write(files.at("b"), "other").unwrap();
    let open = File::options().read(true).write(true).open(files.at("a")).unwrap();
    let mut replaced = File::open(files.at("b")).unwrap();
    fs::remove_file(files.at("a")).unwrap();
    replace(&files, "new");
    fs::rename(files.at("a"), files.at("b")).unwrap();
    open.write_all_at(b"more", 10_000).unwrap();
    open.set_len(10_003).unwrap();
    let mut bytes = vec![1; 4];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((bytes.as_slice(), open.metadata().unwrap().nlink()), (&b"text"[..], 0));
    assert_eq!(open.metadata().unwrap().size(), 10_003);
    let mut text = String::new();
    replaced.read_to_string(&mut text).unwrap();
    assert_eq!(text, "other");
    drop((open, replaced));
    files.kill_and_recover();
    assert_eq!(fs::read_dir(files.bench.path("dir")).unwrap().count(), 2, "`b` and the cache's own");
    assert_eq!(fs::read(files.below("b")).unwrap(), b"new");
    assert_eq!(files.bench.json("responder status pm")["dirty_chunks"], 0);
}

/// A file without a name gets one, and has everything; one that gets none is gone. Whiteouts are refused.
#[test]
fn a_file_that_was_made_without_a_name_can_get_one() {
    use rustix::fs::{AtFlags, CWD, Mode, RenameFlags, linkat, open, renameat_with};
    let Some(mut files) = mounted() else { return };
    let unnamed = || {
        let how = OFlags::TMPFILE | OFlags::RDWR;
        File::from(open(files.bench.path("at"), how, Mode::from_raw_mode(0o640)).unwrap())
    };
    let (file, other) = (unnamed(), unnamed());
    file.write_all_at(b"before", 0).unwrap();
    other.write_all_at(b"gone", 0).unwrap();
    assert_eq!((file.metadata().unwrap().nlink(), file.metadata().unwrap().len()), (0, 6));
    linkat(CWD, through(&file), CWD, files.at("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    file.write_all_at(b"after", 6).unwrap();
    drop((file, other));
    assert_eq!(fs::read(files.at("named")).unwrap(), b"beforeafter");
    let whiteout = renameat_with(CWD, files.at("named"), CWD, files.at("b"), RenameFlags::WHITEOUT);
    assert_eq!(whiteout, Err(rustix::io::Errno::INVAL));
    // The kernel tells of what was closed a little later.
    while files.bench.json("responder status pm")["open_files"] != 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    files.kill_and_recover();
    assert_eq!(fs::read(files.below("named")).unwrap(), b"beforeafter");
    assert_eq!(files.bench.json("responder status pm")["dirty_chunks"], 0);
}
