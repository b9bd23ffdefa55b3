//! Every kind of operation on every kind of file.

use fastness_zpl::{
    Allocate, FileSystem, Ino, NewFile, NewTime, RenameHow, SetAttributes, Time, WriteHow, XattrHow, mode,
};

use crate::support::{directory, file};
use crate::{SYNC, replays};

/// An access control list that names a user, with the permissions of the group's class.
pub(crate) fn list(class: u16) -> Vec<u8> {
    let entries = [(1_u16, 7_u16, 0_u32), (2, 6, 1000), (4, 5, 0), (16, class, 0), (32, 4, 0)];
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

/// A file of each type, and directories that give something to what is made in them.
fn make_all(fs: &FileSystem, at: Ino) {
    let types = [mode::FILE, mode::FIFO, mode::SOCKET, mode::CHAR_DEVICE, mode::BLOCK_DEVICE];
    for of in types {
        let rdev = if matches!(of, mode::CHAR_DEVICE | mode::BLOCK_DEVICE) { 0x1234_5678 } else { 0 };
        let new = NewFile { mode: of | 0o640, uid: 3, gid: u32::MAX - 1, rdev, ..NewFile::default() };
        fs.make(at, format!("{of:o}").as_bytes(), &new).unwrap();
    }
    let target = [b'/'; 4095];
    let new = NewFile { mode: mode::SYMLINK | 0o777, target: &target, ..NewFile::default() };
    fs.make(at, b"symlink", &new).unwrap();
    fs.make(at, &[0xff; 255], &file(0o7777)).unwrap();
    fs.make(at, b"\x01\n*\\", &NewFile { umask: 0o027, ..file(0o666) }).unwrap();
    let group = fs.make(at, b"group", &NewFile { gid: 77, ..directory(0o2775) }).unwrap().ino;
    fs.make(group, b"file", &file(0o644)).unwrap();
    fs.make(group, b"directory", &directory(0o755)).unwrap();
    let lists = fs.make(at, b"lists", &directory(0o755)).unwrap().ino;
    fs.set_xattr(lists, b"system.posix_acl_default", &list(6), XattrHow::Set, false).unwrap();
    fs.make(lists, b"file", &NewFile { umask: 0o777, ..file(0o666) }).unwrap();
    fs.make(lists, b"directory", &directory(0o777)).unwrap();
}

fn change_data(fs: &FileSystem, at: Ino) {
    let make = |name: &[u8]| fs.make(at, name, &file(0o644)).unwrap().ino;
    let (small, long, sparse, cut) = (make(b"small"), make(b"long"), make(b"sparse"), make(b"cut"));
    make(b"empty");
    let pattern: Vec<u8> = (0..700_000_u32).map(|at| (at % 251) as u8 + 1).collect();
    fs.write(small, 0, b"ten bytes.", WriteHow::default()).unwrap();
    fs.append(small, b" more", SYNC).unwrap();
    fs.write(long, 0, &pattern, WriteHow::default()).unwrap();
    fs.write(long, 100_001, &pattern[..50_000], SYNC).unwrap();
    for block in [3_u64, 40, 41, 900] {
        fs.write(sparse, block * 4096, &pattern[..4096], WriteHow::default()).unwrap();
    }
    fs.allocate(sparse, 41 * 4096, 4096, Allocate::Punch).unwrap();
    fs.allocate(sparse, 901 * 4096, 8192, Allocate::Reserve { keeps_size: false }).unwrap();
    fs.allocate(sparse, 905 * 4096, 8192, Allocate::Reserve { keeps_size: true }).unwrap();
    fs.allocate(sparse, 3 * 4096 + 100, 1000, Allocate::Zero { keeps_size: false }).unwrap();
    fs.allocate(sparse, 900 * 4096 + 4000, 16384, Allocate::Zero { keeps_size: false }).unwrap();
    let size = |size_bytes| SetAttributes { size_bytes: Some(size_bytes), ..SetAttributes::default() };
    fs.write(cut, 0, &pattern[..20_000], WriteHow::default()).unwrap();
    fs.set_attributes(cut, &size(5000)).unwrap();
    fs.set_attributes(cut, &size(30_000)).unwrap();
    fs.write(cut, 10_000, b"after", WriteHow::default()).unwrap();
    let copied = make(b"copied");
    fs.copy_range(long, 1000, copied, 8192, 300_000).unwrap();
    fs.touch(copied).unwrap();
    fs.settle(copied).unwrap();
}

fn change_attributes(fs: &FileSystem, at: Ino) {
    let a = fs.make(at, b"a", &NewFile { uid: 1, ..file(0o6755) }).unwrap().ino;
    let time = |seconds| Time { seconds, nanoseconds: 999_999_999 };
    let set = SetAttributes { uid: Some(u32::MAX - 1), gid: Some(9), ..SetAttributes::default() };
    fs.set_attributes(a, &set).unwrap();
    let (atime, mtime) = (Some(NewTime::At(time(-5))), Some(NewTime::At(time(1 << 40))));
    fs.set_attributes(a, &SetAttributes { atime, mtime, ..SetAttributes::default() }).unwrap();
    fs.set_attributes(at, &SetAttributes { mode: Some(0o1711), ..SetAttributes::default() }).unwrap();
    fs.set_xattr(a, b"user.empty", b"", XattrHow::Create, false).unwrap();
    fs.set_xattr(a, b"user.long", &[7; 64 << 10], XattrHow::Set, false).unwrap();
    fs.set_xattr(a, b"user.again", b"one", XattrHow::Set, false).unwrap();
    fs.set_xattr(a, b"user.again", b"another", XattrHow::Replace, false).unwrap();
    fs.set_xattr(at, b"trusted.gone", b"x", XattrHow::Set, false).unwrap();
    fs.remove_xattr(at, b"trusted.gone").unwrap();
    fs.set_xattr(at, b"security.\xff", b"x", XattrHow::Set, false).unwrap();
    fs.set_xattr(a, b"system.posix_acl_access", &list(2), XattrHow::Set, true).unwrap();
    let b = fs.make(at, b"b", &file(0o644)).unwrap().ino;
    fs.set_xattr(b, b"system.posix_acl_access", &list(7), XattrHow::Set, false).unwrap();
    fs.set_attributes(b, &SetAttributes { mode: Some(0o4641), ..SetAttributes::default() }).unwrap();
}

fn change_names(fs: &FileSystem, at: Ino) {
    let make = |directory: Ino, name: &[u8]| {
        let ino = fs.make(directory, name, &file(0o644)).unwrap().ino;
        fs.write(ino, 0, name, WriteHow::default()).unwrap();
        ino
    };
    let d = fs.make(at, b"d", &directory(0o755)).unwrap().ino;
    let e = fs.make(at, b"e", &directory(0o755)).unwrap().ino;
    let replace = RenameHow::Replace;
    let moved = make(d, b"moved");
    fs.rename((d, b"moved"), (e, b"here"), replace).unwrap();
    fs.link(moved, at, b"second").unwrap();
    fs.link(moved, d, b"third").unwrap();
    fs.unlink(at, b"second").unwrap();
    for (how, one, two) in [
        (replace, &b"new"[..], &b"old"[..]),
        (RenameHow::Exchange, b"left", b"right"),
        (RenameHow::Whiteout { uid: 4, gid: 5 }, b"low", b"high"),
    ] {
        make(d, one);
        make(e, two);
        if let Some(gone) = fs.rename((d, one), (e, two), how).unwrap() {
            fs.reap(gone).unwrap();
        }
    }
    make(d, b"free");
    fs.rename((d, b"free"), (d, b"freed"), RenameHow::NoReplace).unwrap();
    fs.make(d, b"inner", &directory(0o755)).unwrap();
    fs.make(e, b"empty", &directory(0o755)).unwrap();
    let gone = fs.rename((d, b"inner"), (e, b"empty"), replace).unwrap().unwrap();
    fs.reap(gone).unwrap();
    fs.make(d, b"shed", &directory(0o755)).unwrap();
    make(e, b"tool");
    fs.rename((d, b"shed"), (e, b"tool"), RenameHow::Exchange).unwrap();
    let gone = make(d, b"gone");
    fs.unlink(d, b"gone").unwrap();
    // In use when the crash comes.
    fs.write(gone, 100_000, b"without a name", SYNC).unwrap();
    fs.make(d, b"emptied", &directory(0o755)).unwrap();
    fs.remove_directory(d, b"emptied").unwrap();
    let unnamed = fs.make_unnamed(d, &NewFile { uid: 8, ..file(0o600) }, true).unwrap().ino;
    fs.write(unnamed, 8192, &[1; 9000], WriteHow::default()).unwrap();
    fs.set_xattr(unnamed, b"user.x", b"y", XattrHow::Set, false).unwrap();
    fs.link(unnamed, e, b"named").unwrap();
    let never = fs.make_unnamed(d, &file(0o600), true).unwrap().ino;
    fs.write(never, 0, b"never named", WriteHow::default()).unwrap();
}

fn change_all(fs: &FileSystem, at: Ino) {
    let part = |name: &[u8]| fs.make(at, name, &directory(0o755)).unwrap().ino;
    make_all(fs, part(b"types"));
    change_data(fs, part(b"data"));
    change_attributes(fs, part(b"attributes"));
    change_names(fs, part(b"names"));
}

#[test]
fn every_operation_is_replayed() {
    replays(|_| (), |fs, ()| change_all(fs, Ino::ROOT));
}

/// The same, while a txg has a tree already, and each step is synced on its own.
#[test]
fn every_operation_is_replayed_on_top_of_a_txg() {
    let before = |fs: &FileSystem| {
        let old = fs.make(Ino::ROOT, b"old", &directory(0o755)).unwrap().ino;
        change_all(fs, old);
        old
    };
    replays(before, |fs, old| {
        let new = fs.make(old, b"new", &directory(0o755)).unwrap().ino;
        fs.sync_file(new, false).unwrap();
        change_all(fs, new);
        fs.sync_file(new, true).unwrap();
        fs.rename((Ino::ROOT, b"old"), (Ino::ROOT, b"renamed"), RenameHow::Replace).unwrap();
    });
}
