//! Directories: names, depth, and positions in listings.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::mounted;

fn names(path: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn names_are_any_bytes_up_to_255_of_them() {
    let Some(files) = mounted("log pm --emulate-pm --pm-size 16M") else { return };
    let mut all: Vec<OsString> = (1..=255_u8)
        .filter(|byte| ![b'/', b'.'].contains(byte))
        .map(|byte| OsString::from_vec(vec![byte]))
        .collect();
    all.extend([vec![b'n'; 255], vec![0xff; 255], "ä".repeat(127).into_bytes()].map(OsString::from_vec));
    // Case and Unicode forms count.
    all.extend(["A b", "a B", "\u{e9}", "e\u{301}", "...", " ", ".a", "a."].map(OsString::from));
    for name in &all {
        fs::write(files.at.join(name), name.as_bytes()).unwrap_or_else(|error| panic!("{name:?}: {error}"));
    }
    for long in [vec![b'n'; 256], vec![b'n'; 4000]] {
        let refused = fs::write(files.at.join(OsStr::from_bytes(&long)), "").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
    }
    File::open(&files.at).unwrap().sync_all().unwrap();
    files.kill();
    files.bench.ok("pool import tank");
    all.sort();
    all.dedup();
    assert_eq!(names(&files.at), all);
    for name in &all {
        assert!(fs::metadata(files.at.join(name)).unwrap().is_file(), "{name:?}");
    }
    assert_eq!(files.check(), 0);
}

#[test]
fn trees_are_deep_and_paths_longer_than_one_call_takes() {
    const DEPTH: usize = 200;
    let Some(files) = mounted("") else { return };
    let name = "d".repeat(100);
    let open = |at: &File, name: &str| {
        File::from(rustix::fs::openat(at, name, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap())
    };
    let mut folders = vec![File::open(&files.at).unwrap()];
    for _ in 0..DEPTH {
        let at = folders.last().unwrap();
        rustix::fs::mkdirat(at, &*name, Mode::RWXU).unwrap();
        folders.push(open(at, &name));
    }
    let bottom = folders.last().unwrap();
    drop(rustix::fs::openat(bottom, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap());
    let long = vec![name.as_str(); DEPTH].join("/");
    let refused = rustix::fs::openat(&folders[0], &*long, OFlags::RDONLY, Mode::empty());
    assert_eq!(refused.unwrap_err(), Errno::NAMETOOLONG);
    // From the bottom up, to the same root.
    let number = |file: &File| rustix::fs::fstat(file).unwrap().st_ino;
    let mut at = open(bottom, ".");
    for above in folders.iter().rev().skip(1) {
        at = open(&at, "..");
        assert_eq!(number(&at), number(above));
    }
    // A directory cannot become a part of itself, however deep.
    let into = rustix::fs::renameat(&folders[0], &*name, bottom, "loop");
    assert_eq!(into, Err(Errno::INVAL));
    // The lower half moves to the top, with what is in it.
    rustix::fs::renameat(&folders[DEPTH / 2], &*name, &folders[0], "moved").unwrap();
    assert_eq!(number(&open(&folders[DEPTH / 2 + 1], "..")), number(&folders[0]));
    drop(folders);
    assert_eq!(files.check(), 0);
    fs::remove_dir_all(files.path("moved")).unwrap();
    fs::remove_dir_all(files.path(&name)).unwrap();
    crate::used::wait_until_erased(&files);
}

#[test]
fn a_position_in_a_listing_stays_where_it_is_while_names_come_and_go() {
    let Some(files) = mounted("") else { return };
    for n in 0..500 {
        File::create(files.path(&format!("file-{n}"))).unwrap();
    }
    let mut listing = Dir::new(File::open(&files.at).unwrap()).unwrap();
    let mut all = Vec::new();
    while let Some(entry) = listing.read() {
        let entry = entry.unwrap();
        all.push((entry.file_name().to_owned(), entry.offset()));
    }
    assert_eq!(all.len(), 502);
    // What comes after each position is what came after it then, without what was removed, with what is new.
    for (n, _) in all.iter().filter(|(name, _)| name.to_bytes().starts_with(b"file-")).step_by(3) {
        fs::remove_file(files.at.join(OsStr::from_bytes(n.to_bytes()))).unwrap();
    }
    for n in 0..200 {
        File::create(files.path(&format!("new-{n}"))).unwrap();
    }
    for at in [0, 1, 2, 100, 250, 251, 499, 500, 501] {
        listing.seek(all[at].1).unwrap();
        let mut after = Vec::new();
        while let Some(entry) = listing.read() {
            after.push(entry.unwrap().file_name().to_owned());
        }
        let old: Vec<_> = after.iter().filter(|name| !name.to_bytes().starts_with(b"new-")).collect();
        let is_there = |name: &&std::ffi::CString| files.at.join(OsStr::from_bytes(name.to_bytes())).exists();
        let expected: Vec<_> = all[at + 1..].iter().map(|(name, _)| name).filter(is_there).collect();
        assert_eq!(old, expected, "after position {at}");
    }
    listing.rewind();
    assert_eq!(listing.count(), 502 - 167 + 200);
}

#[test]
fn dots_are_refused_where_they_mean_nothing() {
    let Some(files) = mounted("") else { return };
    fs::create_dir_all(files.path("a/b")).unwrap();
    let folder = File::open(files.path("a")).unwrap();
    let remove = |name: &str| rustix::fs::unlinkat(&folder, name, AtFlags::REMOVEDIR);
    assert_eq!(
        (remove("."), remove(".."), remove("b/..")),
        (Err(Errno::INVAL), Err(Errno::NOTEMPTY), Err(Errno::NOTEMPTY))
    );
    assert_eq!(rustix::fs::renameat(&folder, ".", &folder, "c"), Err(Errno::BUSY));
    assert_eq!(rustix::fs::mkdirat(&folder, "..", Mode::RWXU), Err(Errno::EXIST));
    // In a directory that is gone nothing is found or made, and it can still be looked at.
    let gone = File::open(files.path("a/b")).unwrap();
    fs::remove_dir(files.path("a/b")).unwrap();
    assert_eq!(rustix::fs::mkdirat(&gone, "c", Mode::RWXU), Err(Errno::NOENT));
    assert_eq!(rustix::fs::fstat(&gone).unwrap().st_nlink, 0);
    assert_eq!(rustix::fs::renameat(&folder, "nothing", CWD, files.path("c")), Err(Errno::NOENT));
    drop(gone);
    crate::used::wait_until_erased(&files);
}
