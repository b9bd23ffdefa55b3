//! Snapshots of file systems: they have everything that had returned before, whether it was in a txg or in
//! the log alone, and never change.

mod support;

use fastness_zpl::{
    Allocate, Errno, FileSystem, FsError, Ino, NewFile, RenameHow, SetAttributes, WriteHow, XattrHow, mode,
};
use support::{FS, Log, World, archive, directory, file};

const SYNC: WriteHow = WriteHow { is_sync: true, keeps_times: false, clears_set_id: false };

fn at(world: &World, name: &str) -> FileSystem {
    FileSystem::open(&world.store, &format!("{FS}@{name}")).unwrap()
}

fn resize(fs: &FileSystem, ino: Ino, size_bytes: u64) {
    let set = SetAttributes { size_bytes: Some(size_bytes), ..SetAttributes::default() };
    fs.set_attributes(ino, &set).unwrap();
}

/// A tree with files of all kinds.
fn fill(fs: &FileSystem) {
    let d = fs.make(Ino::ROOT, b"d", &directory(0o755)).unwrap().ino;
    for (name, len) in [(b"small".as_slice(), 10), (b"large", 700_000)] {
        let ino = fs.make(d, name, &file(0o644)).unwrap().ino;
        fs.write(ino, 0, &vec![7; len], WriteHow::default()).unwrap();
        fs.set_xattr(ino, b"user.a", &vec![1; 3000], XattrHow::Set, false).unwrap();
    }
    let link = NewFile { mode: mode::SYMLINK | 0o777, target: &[b't'; 2000], ..NewFile::default() };
    fs.make(d, b"link", &link).unwrap();
}

/// Changes all of it, and more.
fn change(fs: &FileSystem, byte: u8) {
    let d = fs.find(Ino::ROOT, b"d").unwrap();
    let large = fs.find(d, b"large").unwrap();
    fs.write(large, 5000, &vec![byte; 300_000], WriteHow::default()).unwrap();
    resize(fs, large, 400_000);
    fs.allocate(large, 0, 200_000, Allocate::Punch).unwrap();
    fs.set_xattr(large, b"user.a", b"short", XattrHow::Set, false).unwrap();
    for name in [&b"small"[..], b"link"] {
        if let Ok(Some(gone)) = fs.unlink(d, name) {
            fs.reap(gone).unwrap();
        }
    }
    let new = fs.make(Ino::ROOT, &[b'n', byte], &file(0o600)).unwrap().ino;
    fs.write(new, 0, &vec![byte; 200_000], WriteHow::default()).unwrap();
    fs.rename((Ino::ROOT, b"d"), (Ino::ROOT, b"e"), RenameHow::Replace).unwrap();
    fs.rename((Ino::ROOT, b"e"), (Ino::ROOT, b"d"), RenameHow::Replace).unwrap();
}

#[test]
fn a_snapshot_has_what_was_in_the_log_alone() {
    for log in Log::ALL {
        let world = World::logged(log, &[]);
        let fs = world.fs();
        fill(&fs);
        // Logged, and in no txg; then not even logged.
        fs.sync_all().unwrap();
        let d = fs.find(Ino::ROOT, b"d").unwrap();
        let small = fs.find(d, b"small").unwrap();
        fs.write(small, 3, b"logged", SYNC).unwrap();
        fs.write(small, 100_000, b"not logged", WriteHow::default()).unwrap();
        fs.settle_all().unwrap();
        let then = archive(&fs);
        world.store.snapshot(&format!("{FS}@a")).unwrap();
        change(&fs, 9);
        fs.sync_all().unwrap();
        let now = archive(&fs);
        assert_ne!(then, now);
        let look = |world: &World| {
            let snapshot = at(world, "a");
            assert!(archive(&snapshot) == then, "{log:?}");
            assert!(fastness_zpl::check(snapshot.dataset()).unwrap().is_clean());
        };
        look(&world);
        drop(fs);
        // The records of after the snapshot are replayed, and those of before are not.
        let (world, report) = world.crash();
        assert!(report.records > 0, "{log:?}");
        look(&world);
        world.check();
        change(&world.fs(), 10);
        world.check();
        look(&world);
        let world = world.lose_power();
        look(&world);
        world.store.destroy_datasets(vec![format!("{FS}@a")]).unwrap();
        while world.store.pool().is_freeing() {
            world.store.pool().sync().unwrap();
        }
        world.check();
    }
}

/// A file that is open and has no name, and one that is cut in steps.
#[test]
fn files_on_their_way_are_in_it_as_they_were() {
    let world = World::logged(Log::Lwb, &[]);
    let fs = world.fs();
    let unnamed = fs.make_unnamed(Ino::ROOT, &file(0o600), true).unwrap().ino;
    let unlinked = fs.make(Ino::ROOT, b"gone", &file(0o600)).unwrap().ino;
    let cut = fs.make(Ino::ROOT, b"cut", &file(0o600)).unwrap().ino;
    let reaped = fs.make(Ino::ROOT, b"reaped", &file(0o600)).unwrap().ino;
    for ino in [unnamed, unlinked, reaped] {
        fs.write(ino, 0, &[3; 5000], WriteHow::default()).unwrap();
    }
    // More than a txg frees at once.
    fs.write(cut, 0, &vec![4; 20 << 20], WriteHow::default()).unwrap();
    world.store.pool().sync().unwrap();
    assert_eq!(fs.unlink(Ino::ROOT, b"gone").unwrap(), Some(unlinked));
    fs.unlink(Ino::ROOT, b"reaped").unwrap();
    fs.reap(reaped).unwrap();
    resize(&fs, cut, 1000);
    world.store.snapshot(&format!("{FS}@a")).unwrap();
    fs.reap(unnamed).unwrap();
    fs.reap(unlinked).unwrap();
    resize(&fs, cut, 30 << 20);
    world.check();
    drop(fs);
    let (world, _) = world.crash();
    let snapshot = at(&world, "a");
    let report = fastness_zpl::check(snapshot.dataset()).unwrap();
    assert!(report.is_clean() && report.orphans == 2, "{report:?}");
    for ino in [unnamed, unlinked] {
        let mut bytes = [0; 6000];
        assert_eq!(snapshot.read(ino, 0, &mut bytes).unwrap(), 5000);
        assert!(bytes[..5000] == [3; 5000]);
        assert_eq!(snapshot.attributes(ino).unwrap().links, 0);
        assert!(matches!(world.fs().attributes(ino), Err(FsError::Stale(_))));
    }
    assert!(matches!(snapshot.attributes(reaped), Err(FsError::Stale(_))));
    let mut bytes = vec![0; 2000];
    assert_eq!(snapshot.read(cut, 0, &mut bytes).unwrap(), 1000);
    assert_eq!(world.fs().attributes(cut).unwrap().size_bytes, 30 << 20);
    world.check();
}

#[test]
fn a_snapshot_refuses_every_change() {
    let world = World::new(64 << 20);
    let fs = world.fs();
    fill(&fs);
    world.store.snapshot(&format!("{FS}@a")).unwrap();
    let snapshot = at(&world, "a");
    let d = snapshot.find(Ino::ROOT, b"d").unwrap();
    let small = snapshot.find(d, b"small").unwrap();
    let before = archive(&snapshot);
    let name = (d, &b"small"[..]);
    let set = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
    let refused = [
        snapshot.make(d, b"new", &file(0o644)).map(drop),
        snapshot.make_unnamed(d, &file(0o644), true).map(drop),
        snapshot.link(small, d, b"new").map(drop),
        snapshot.unlink(d, b"small").map(drop),
        snapshot.rename(name, (d, b"new"), RenameHow::Replace).map(drop),
        snapshot.write(small, 0, b"x", WriteHow::default()).map(drop),
        snapshot.set_attributes(small, &set).map(drop),
        snapshot.allocate(small, 0, 10, Allocate::Punch),
        snapshot.set_xattr(small, b"user.b", b"x", XattrHow::Set, false),
        snapshot.remove_xattr(small, b"user.a"),
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        assert_eq!(refused.map_err(|error| error.errno()), Err(Errno::ROFS), "{number}");
    }
    snapshot.touch(small).unwrap();
    snapshot.sync_all().unwrap();
    assert!(archive(&snapshot) == before);
    assert_eq!(snapshot.space().free_bytes, 0);
    assert!(snapshot.space().total_bytes > 700_000 / 4096);
    let busy = world.store.destroy_datasets(vec![format!("{FS}@a")]);
    assert!(busy.is_err(), "it is open");
    drop(snapshot);
    world.store.destroy_datasets(vec![format!("{FS}@a")]).unwrap();
    world.check();
}
