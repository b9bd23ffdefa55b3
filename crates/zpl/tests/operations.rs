//! Operations one by one: what they do, what they refuse, and that a refusal has done nothing.

mod support;

use fastness_zpl::{
    Allocate, FsError, Ino, NewFile, RenameHow, Seek, SetAttributes, WriteHow, XattrHow, mode,
};
use support::{World, directory, file, names, tree};

#[test]
fn files_are_made_found_listed_and_removed() {
    let world = World::new(64 << 20);
    let fs = world.fs();
    let a = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap();
    let d = fs.make(Ino::ROOT, b"d", &directory(0o755)).unwrap();
    let b = fs.make(d.ino, b"b", &file(0o600)).unwrap();
    assert_eq!(fs.lookup(Ino::ROOT, b"a").unwrap(), a);
    assert_eq!(fs.lookup(d.ino, b"b").unwrap(), b);
    assert_eq!(fs.lookup(d.ino, b"..").unwrap().ino, Ino::ROOT);
    assert!(matches!(fs.make(Ino::ROOT, b"a", &file(0o644)), Err(FsError::Exists)));
    assert!(matches!(fs.lookup(a.ino, b"x"), Err(FsError::NotADirectory)));
    assert!(matches!(fs.remove_directory(Ino::ROOT, b"d"), Err(FsError::NotEmpty)));
    assert!(matches!(fs.unlink(Ino::ROOT, b"d"), Err(FsError::IsADirectory)));
    assert!(matches!(fs.remove_directory(Ino::ROOT, b"a"), Err(FsError::NotADirectory)));
    assert_eq!(fs.attributes(Ino::ROOT).unwrap().links, 3);
    assert_eq!(names(&fs, Ino::ROOT).len(), 2);
    assert_eq!(fs.unlink(d.ino, b"b").unwrap(), Some(b.ino));
    assert_eq!(fs.remove_directory(Ino::ROOT, b"d").unwrap(), Some(d.ino));
    assert_eq!(fs.attributes(b.ino).unwrap().links, 0);
    assert!(matches!(fs.make(d.ino, b"x", &file(0)), Err(FsError::NotFound)));
    fs.reap(b.ino).unwrap();
    fs.reap(d.ino).unwrap();
    assert!(matches!(fs.attributes(b.ino), Err(FsError::Stale(_))));
    world.check();
}

#[test]
fn bytes_are_written_read_cut_and_punched() {
    let world = World::new(64 << 20);
    let fs = world.fs();
    let ino = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
    let data: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    fs.write(ino, 1000, &data, WriteHow::default()).unwrap();
    let mut back = vec![1; 301_000];
    assert_eq!(fs.read(ino, 0, &mut back).unwrap(), 301_000);
    assert!(back[..1000].iter().all(|byte| *byte == 0) && back[1000..] == data[..]);
    fs.allocate(ino, 131_072, 131_072, Allocate::Punch).unwrap();
    assert_eq!(fs.seek(ino, 0, Seek::Hole).unwrap(), 131_072);
    assert_eq!(fs.seek(ino, 131_072, Seek::Data).unwrap(), 262_144);
    let set = SetAttributes { size_bytes: Some(10), ..SetAttributes::default() };
    assert_eq!(fs.set_attributes(ino, &set).unwrap().size_bytes, 10);
    let set = SetAttributes { size_bytes: Some(100), ..SetAttributes::default() };
    fs.set_attributes(ino, &set).unwrap();
    assert_eq!(fs.read(ino, 0, &mut back).unwrap(), 100);
    assert_eq!(fs.append(ino, b"end", WriteHow::default()).unwrap(), 100);
    world.check();
}

#[test]
fn renames_of_all_kinds() {
    let world = World::new(64 << 20);
    let fs = world.fs();
    let make = |parent, name: &[u8], new: &NewFile<'_>| fs.make(parent, name, new).unwrap().ino;
    let (d, e) = (make(Ino::ROOT, b"d", &directory(0o755)), make(Ino::ROOT, b"e", &directory(0o755)));
    let (a, b) = (make(d, b"a", &file(0o644)), make(e, b"b", &file(0o644)));
    let inner = make(d, b"inner", &directory(0o755));
    let refused = fs.rename((Ino::ROOT, b"d"), (inner, b"x"), RenameHow::Replace);
    assert!(matches!(refused, Err(FsError::Invalid(_))));
    let refused = fs.rename((d, b"a"), (e, b"b"), RenameHow::NoReplace);
    assert!(matches!(refused, Err(FsError::Exists)));
    assert_eq!(fs.rename((d, b"inner"), (e, b"moved"), RenameHow::Replace).unwrap(), None);
    assert_eq!((fs.attributes(d).unwrap().links, fs.attributes(e).unwrap().links), (2, 3));
    assert_eq!(fs.lookup(inner, b"..").unwrap().ino, e);
    fs.rename((d, b"a"), (e, b"b"), RenameHow::Exchange).unwrap();
    assert_eq!((fs.lookup(e, b"b").unwrap().ino, fs.lookup(d, b"a").unwrap().ino), (a, b));
    assert_eq!(fs.rename((d, b"a"), (e, b"b"), RenameHow::Replace).unwrap(), Some(a));
    fs.reap(a).unwrap();
    fs.rename((e, b"b"), (e, b"c"), RenameHow::Whiteout { uid: 0, gid: 0 }).unwrap();
    let white = fs.lookup(e, b"b").unwrap();
    assert_eq!((white.mode, white.rdev), (mode::CHAR_DEVICE, 0));
    world.check();
}

#[test]
fn what_was_synced_is_there_after_a_crash_with_all_that_belongs_to_it() {
    let world = World::new(64 << 20);
    let fs = world.fs();
    let d = fs.make(Ino::ROOT, b"d", &directory(0o2755)).unwrap().ino;
    let a = fs.make(d, b"a", &NewFile { uid: 7, gid: 8, ..file(0o640) }).unwrap().ino;
    fs.write(a, 4096, &[1; 10_000], WriteHow::default()).unwrap();
    fs.set_xattr(a, b"user.x", b"", XattrHow::Create, false).unwrap();
    fs.set_xattr(a, b"user.y", &[2; 5000], XattrHow::Set, false).unwrap();
    let link = NewFile { mode: mode::SYMLINK | 0o777, target: b"somewhere", ..NewFile::default() };
    fs.make(d, b"s", &link).unwrap();
    fs.make(d, b"p", &NewFile { mode: mode::FIFO | 0o600, ..NewFile::default() }).unwrap();
    fs.link(a, Ino::ROOT, b"second").unwrap();
    let gone = fs.make(d, b"gone", &file(0o644)).unwrap().ino;
    fs.write(gone, 0, b"bytes", WriteHow { is_sync: true, ..WriteHow::default() }).unwrap();
    fs.unlink(d, b"gone").unwrap();
    fs.rename((d, b"s"), (Ino::ROOT, b"t"), RenameHow::Replace).unwrap();
    let set = SetAttributes { mode: Some(0o4711), uid: Some(1), ..SetAttributes::default() };
    fs.set_attributes(a, &set).unwrap();
    let temporary = fs.make_unnamed(d, &file(0o600), true).unwrap().ino;
    fs.write(temporary, 100_000, &[3; 5000], WriteHow::default()).unwrap();
    fs.set_xattr(temporary, b"user.t", b"t", XattrHow::Set, false).unwrap();
    fs.link(temporary, d, b"named").unwrap();
    fs.sync_all().unwrap();
    let before = tree(&fs);
    assert_eq!(before.len(), 7);
    drop(fs);
    let (world, report) = world.crash();
    assert!(report.records > 10, "{report:?}");
    let fs = world.fs();
    fs.reap_all(|_| false).unwrap();
    let after = tree(&fs);
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    for (path, (attributes, contents, xattrs)) in &before {
        let mut found = after[path].clone();
        // How much a file takes depends on when it was written.
        found.0.blocks = attributes.blocks;
        assert_eq!(&found, &(*attributes, contents.clone(), xattrs.clone()), "{}", path.escape_ascii());
    }
    drop(fs);
    world.check();
}

/// Names that were made while `sync=disabled` are in no log; what is synced afterwards must not come without
/// them.
#[test]
fn a_commit_covers_what_happened_while_sync_was_disabled() {
    use fastness_pool::Property;

    let world = World::with_txgs(64 << 20);
    let fs = world.fs();
    let pool = world.store.pool();
    let set = |text: &str| {
        let value = Property::Sync.parse(text).unwrap();
        pool.transact(|tx| fs.dataset().set(tx, Property::Sync, Some(value))).unwrap();
    };
    set("disabled");
    let a = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
    set("standard");
    fs.write(a, 0, b"bytes", WriteHow::default()).unwrap();
    fs.sync_file(a, false).unwrap();
    drop(fs);
    drop(pool);
    let (world, _) = world.crash();
    let fs = world.fs();
    let mut buffer = [0; 10];
    assert_eq!(fs.read(fs.find(Ino::ROOT, b"a").unwrap(), 0, &mut buffer).unwrap(), 5);
    assert_eq!(&buffer[..5], b"bytes");
}
