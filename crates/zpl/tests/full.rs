//! Full pools, quotas, read-only datasets: what is refused has done nothing, and what frees space goes
//! through.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};

use fastness_pool::Property;
use fastness_zpl::{
    Allocate, Errno, FileSystem, FsError, Ino, NewFile, RenameHow, SetAttributes, WriteHow, XattrHow, mode,
};
use support::{World, directory, file, names, tree};

/// Bytes that do not get shorter.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Writes until the pool is full; returns the file.
fn fill(fs: &FileSystem) -> Ino {
    let ino = fs.make(Ino::ROOT, b"big", &file(0o644)).unwrap().ino;
    let data = noise(128 << 10);
    let mut at = 0;
    for len in [data.len(), 4096] {
        while fs.write(ino, at, &data[..len], WriteHow::default()).is_ok() {
            at += len as u64;
        }
    }
    ino
}

fn refuse_all(fs: &FileSystem, wanted: Errno) {
    let errno = |error: FsError| error.errno();
    let a = fs.find(Ino::ROOT, b"a").unwrap();
    let symlink = NewFile { mode: mode::SYMLINK | 0o777, target: b"x", ..NewFile::default() };
    let before = tree(fs);
    for new in [&file(0o644), &directory(0o755), &symlink] {
        assert_eq!(fs.make(Ino::ROOT, b"new", new).map_err(errno), Err(wanted));
    }
    assert_eq!(fs.make_unnamed(Ino::ROOT, &file(0o600), true).map_err(errno), Err(wanted));
    assert_eq!(fs.link(a, Ino::ROOT, b"new").map_err(errno), Err(wanted));
    let moved = fs.rename((Ino::ROOT, b"a"), (Ino::ROOT, b"new"), RenameHow::Replace);
    assert_eq!(moved.map_err(errno), Err(wanted));
    let white = RenameHow::Whiteout { uid: 0, gid: 0 };
    assert_eq!(fs.rename((Ino::ROOT, b"a"), (Ino::ROOT, b"new"), white).map_err(errno), Err(wanted));
    let set = fs.set_xattr(a, b"user.new", &[1; 3000], XattrHow::Set, false);
    assert_eq!(set.map_err(errno), Err(wanted));
    assert_eq!(fs.write(a, 1 << 20, &[1; 100_000], WriteHow::default()).map_err(errno), Err(wanted));
    let grown = Allocate::Reserve { keeps_size: false };
    assert_eq!(fs.allocate(a, 0, 1 << 40, grown).map_err(errno), Err(wanted));
    let mut after = tree(fs);
    // A write that is refused may have changed the times.
    let was = before[&b"/a"[..]].0;
    after.get_mut(&b"/a"[..]).unwrap().0 = was;
    assert_eq!(before, after);
}

#[test]
fn a_full_pool_refuses_what_takes_space_and_lets_go_of_what_frees_some() {
    let world = World::with_txgs(48 << 20);
    let fs = world.fs();
    let a = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
    fs.write(a, 0, b"bytes", WriteHow::default()).unwrap();
    fs.make(Ino::ROOT, b"d", &directory(0o755)).unwrap();
    let spare = (0..40).map(|number| format!("spare-{number}").into_bytes()).collect::<Vec<_>>();
    for name in &spare {
        fs.make(Ino::ROOT, name, &file(0o644)).unwrap();
    }
    let big = fill(&fs);
    // Small rows may still fit after a txg; fill that room too.
    let mut count = 0;
    while fs.make(Ino::ROOT, format!("small-{count}").as_bytes(), &file(0o644)).is_ok() {
        count += 1;
        assert!(count < 100_000, "the pool is never full");
    }
    // What takes least.
    let mut unnamed = Vec::new();
    while let Ok(made) = fs.make_unnamed(Ino::ROOT, &file(0o600), true) {
        unnamed.push(made.ino);
    }
    refuse_all(&fs, Errno::NOSPC);
    // What was taken can be made durable, also when removals have taken from what is kept for them.
    let gone: Vec<_> = spare.iter().map(|name| fs.unlink(Ino::ROOT, name).unwrap().unwrap()).collect();
    for ino in [big, a] {
        fs.sync_file(ino, false).unwrap();
    }
    fs.sync_all().unwrap();
    gone.into_iter().for_each(|ino| fs.reap(ino).unwrap());
    unnamed.into_iter().for_each(|ino| fs.reap(ino).unwrap());
    assert_eq!(fs.remove_directory(Ino::ROOT, b"d").unwrap().map(|ino| fs.reap(ino).unwrap()), Some(()));
    let cut = SetAttributes { size_bytes: Some(0), ..SetAttributes::default() };
    fs.set_attributes(big, &cut).unwrap();
    assert_eq!(fs.unlink(Ino::ROOT, b"big").unwrap(), Some(big));
    fs.reap(big).unwrap();
    for number in 0..count {
        let gone = fs.unlink(Ino::ROOT, format!("small-{number}").as_bytes()).unwrap().unwrap();
        fs.reap(gone).unwrap();
    }
    for _ in 0..5 {
        world.store.pool().sync().unwrap();
    }
    fs.write(a, 0, &[7; 1 << 20], WriteHow::default()).unwrap();
    assert_eq!(names(&fs, Ino::ROOT).len(), 1);
    drop(fs);
    world.check();
}

/// A long write for which there is room when it begins, and not for what comes with its bytes: what is there
/// is what it says.
#[test]
fn a_write_that_is_cut_short_says_how_much_it_has_written() {
    let (mut whole, mut short) = (0, 0);
    for spare_bytes in (0..=1 << 20).step_by(64 << 10) {
        let world = World::new(24 << 20);
        let fs = world.fs();
        fs.make(Ino::ROOT, b"big", &file(0o644)).unwrap();
        let ino = fs.find(Ino::ROOT, b"big").unwrap();
        let len = fs.space().free_bytes.saturating_sub(spare_bytes) as usize;
        let data = noise(len);
        let how = WriteHow { is_sync: true, ..WriteHow::default() };
        match fs.write(ino, 0, &data, how) {
            Ok(written) => {
                assert_eq!(fs.attributes(ino).unwrap().size_bytes, written as u64);
                let (is_whole, mut found) = (written == len, vec![0; written]);
                (whole, short) = (whole + usize::from(is_whole), short + usize::from(!is_whole));
                fs.read(ino, 0, &mut found).unwrap();
                assert!(found == data[..written], "other bytes were written");
                // Durable, as far as it says.
                drop(fs);
                let (world, _) = world.crash();
                assert_eq!(world.fs().attributes(ino).unwrap().size_bytes, written as u64);
            }
            Err(error) => {
                assert_eq!(error.errno(), Errno::NOSPC);
                assert_eq!(fs.attributes(ino).unwrap().size_bytes, 0, "nothing is half done");
            }
        }
    }
    assert!(short > 0, "none of {whole} whole writes was cut short");
}

#[test]
fn a_quota_is_an_end() {
    let world = World::with_txgs(256 << 20);
    let fs = world.fs();
    fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap();
    let pool = world.store.pool();
    pool.transact(|tx| fs.dataset().set(tx, Property::Quota, Some(8 << 20))).unwrap();
    assert_eq!(fs.space().total_bytes, 8 << 20);
    let big = fill(&fs);
    let size_bytes = fs.attributes(big).unwrap().size_bytes;
    assert!((4 << 20..16 << 20).contains(&size_bytes), "{size_bytes}");
    let refused = |result: fastness_zpl::Result<()>| result.map_err(|error| error.errno());
    let written = fs.write(big, size_bytes, &[1; 200 << 10], WriteHow::default());
    assert_eq!(refused(written.map(drop)), Err(Errno::DQUOT));
    let reserved = fs.allocate(big, size_bytes, 8 << 20, Allocate::Reserve { keeps_size: true });
    assert_eq!(refused(reserved), Err(Errno::DQUOT));
    assert_eq!(fs.attributes(big).unwrap().size_bytes, size_bytes, "nothing is half done");
    pool.sync().unwrap();
    let space = fs.space();
    assert!(space.total_bytes <= 8 << 20 && space.free_bytes < 1 << 20, "{space:?}");
    fs.unlink(Ino::ROOT, b"big").unwrap();
    fs.reap(big).unwrap();
    world.check();
}

#[test]
fn a_read_only_file_system_refuses_all_changes() {
    let world = World::with_txgs(64 << 20);
    let fs = world.fs();
    let a = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
    let pool = world.store.pool();
    pool.transact(|tx| fs.dataset().set(tx, Property::ReadOnly, Some(1))).unwrap();
    refuse_all(&fs, Errno::ROFS);
    assert!(matches!(fs.unlink(Ino::ROOT, b"a"), Err(error) if error.errno() == Errno::ROFS));
    let set = SetAttributes { mode: Some(0), ..SetAttributes::default() };
    assert!(matches!(fs.set_attributes(a, &set), Err(error) if error.errno() == Errno::ROFS));
    fs.touch(a).unwrap();
}

/// Directories that move into each other, names that come and go: nothing contradicts anything in the end.
#[test]
fn threads_change_one_tree() {
    let world = World::with_txgs(256 << 20);
    let fs = world.fs();
    let directories: Vec<Ino> = (0..4)
        .map(|number| fs.make(Ino::ROOT, format!("d{number}").as_bytes(), &directory(0o755)).unwrap().ino)
        .collect();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (fs, directories) = (&fs, &directories);
            scope.spawn(move || {
                let mut rng = fastness_testkit::Rng(thread);
                for _ in 0..3000 {
                    let mut directory_of = || directories[rng.index(4)];
                    let (from, to) = (directory_of(), directory_of());
                    let name = |number: u64| format!("n{number}").into_bytes();
                    let (one, two) = (name(rng.below(6)), name(rng.below(6)));
                    let gone = match rng.below(8) {
                        0..=1 => fs.make(from, &one, &file(0o644)).map(|_| None),
                        2 => fs.make(from, &one, &directory(0o755)).map(|_| None),
                        3 => fs.unlink(from, &one),
                        4 => fs.remove_directory(from, &one),
                        5 => fs.rename((from, &one), (to, &two), RenameHow::Replace),
                        6 => fs.rename((from, &one), (to, &two), RenameHow::Exchange),
                        _ => match fs.find(from, &one) {
                            Ok(ino) => fs
                                .write(
                                    ino,
                                    rng.below(9000),
                                    &[1; 300],
                                    WriteHow { is_sync: true, ..WriteHow::default() },
                                )
                                .and_then(|_| fs.link(ino, to, &two))
                                .map(|_| None),
                            Err(error) => Err(error),
                        },
                    };
                    if let Ok(Some(ino)) = gone {
                        fs.reap(ino).unwrap();
                    }
                }
            });
        }
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                world.store.pool().sync().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        // The writers are the first four; this one ends when they have.
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(500));
            is_done.store(true, Ordering::Relaxed);
        });
    });
    drop(fs);
    world.check();
}
