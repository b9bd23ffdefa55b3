//! Modes, owners, extended attributes, times; quotas and properties that changed meanwhile.

use fastness_store::Property;
use fastness_zpl::{FileSystem, Ino, NewFile, RenameHow, SetAttributes, WriteHow, XattrHow};

use crate::everything::list;
use crate::support::{Log, World, archive, directory, file};
use crate::{SYNC, replays};

fn program(fs: &FileSystem, name: &[u8]) -> Ino {
    let ino = fs.make(Ino::ROOT, name, &NewFile { uid: 5, gid: 6, ..file(0o6755) }).unwrap().ino;
    fs.write(ino, 0, &[1; 5000], WriteHow::default()).unwrap();
    ino
}

/// The bits that run a program as another user are gone after whatever clears them, and after nothing else.
#[test]
fn set_id_bits_are_cleared_by_what_clears_them() {
    replays(
        |fs| [&b"kept"[..], b"written", b"cut", b"owned", b"listed"].map(|name| program(fs, name)),
        |fs, [kept, written, cut, owned, listed]| {
            fs.write(kept, 0, &[2; 100], SYNC).unwrap();
            fs.write(written, 0, &[2; 100], WriteHow { clears_set_id: true, ..WriteHow::default() }).unwrap();
            let set = SetAttributes { clears_set_id: true, ..SetAttributes::default() };
            fs.set_attributes(cut, &SetAttributes { size_bytes: Some(7), ..set }).unwrap();
            fs.set_attributes(owned, &SetAttributes { uid: Some(0), ..set }).unwrap();
            fs.set_xattr(listed, b"system.posix_acl_access", &list(5), XattrHow::Set, true).unwrap();
            for ino in [written, cut, owned, listed] {
                assert_ne!(fs.attributes(ino).unwrap().mode & 0o6000, 0o6000);
            }
            assert_eq!(fs.attributes(kept).unwrap().mode & 0o6000, 0o6000);
        },
    );
}

#[test]
fn access_control_lists_and_modes_say_the_same() {
    replays(
        |fs| fs.make(Ino::ROOT, b"d", &directory(0o775)).unwrap().ino,
        |fs, d| {
            let (access, default) = (&b"system.posix_acl_access"[..], &b"system.posix_acl_default"[..]);
            fs.set_xattr(d, default, &list(7), XattrHow::Set, false).unwrap();
            let a = fs.make(d, b"a", &file(0o666)).unwrap().ino;
            let listed = fs.make(d, b"listed", &file(0o666)).unwrap().ino;
            for ino in [a, listed] {
                let set = SetAttributes { mode: Some(0o604), ..SetAttributes::default() };
                fs.set_attributes(ino, &set).unwrap();
            }
            fs.set_xattr(d, default, &list(1), XattrHow::Set, false).unwrap();
            let b = fs.make(d, b"b", &directory(0o777)).unwrap().ino;
            fs.make(b, b"c", &file(0o777)).unwrap();
            // A whiteout inherits as well.
            fs.rename((b, b"c"), (b, b"moved"), RenameHow::Whiteout { uid: 1, gid: 2 }).unwrap();
            let white = fs.find(b, b"c").unwrap();
            assert_eq!(fs.attributes(white).unwrap().mode, 0o020_000);
            assert!(fs.xattr(white, access).is_ok());
            fs.remove_xattr(d, default).unwrap();
            fs.make(d, b"e", &file(0o777)).unwrap();
            fs.set_xattr(a, access, &list(3), XattrHow::Set, false).unwrap();
            fs.remove_xattr(a, access).unwrap();
        },
    );
}

#[test]
fn extended_attributes_come_and_go() {
    replays(
        |fs| {
            let a = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
            for name in [&b"user.kept"[..], b"user.gone", b"user.changed", b"user.emptied"] {
                fs.set_xattr(a, name, b"old", XattrHow::Set, false).unwrap();
            }
            a
        },
        |fs, a| {
            fs.remove_xattr(a, b"user.gone").unwrap();
            fs.set_xattr(a, b"user.changed", &[9; 60_000], XattrHow::Replace, false).unwrap();
            fs.set_xattr(a, b"user.emptied", b"", XattrHow::Replace, false).unwrap();
            fs.set_xattr(a, b"user.short", b"made", XattrHow::Create, false).unwrap();
            fs.remove_xattr(a, b"user.short").unwrap();
            let removed = fs.make(Ino::ROOT, b"removed", &file(0o644)).unwrap().ino;
            fs.set_xattr(removed, b"user.x", b"x", XattrHow::Set, false).unwrap();
            fs.sync_all().unwrap();
            fs.unlink(Ino::ROOT, b"removed").unwrap();
        },
    );
}

/// What was acknowledged before a file system became read-only, or got a quota, is replayed all the same.
#[test]
fn a_property_that_forbids_changes_does_not_forbid_their_replay() {
    for log in Log::ALL {
        for (property, value) in [(Property::ReadOnly, 1), (Property::Quota, 1 << 20)] {
            let world = World::logged(log, &[]);
            let fs = world.fs();
            let a = fs.make(Ino::ROOT, b"a", &file(0o644)).unwrap().ino;
            let pool = world.store.pool();
            let set = |value| pool.transact(|tx| fs.dataset().set(tx, property, value)).unwrap();
            set(Some(value));
            pool.sync().unwrap();
            // Lost, as everything is from now on: the txg that is left has the old value.
            pool.freeze();
            set(None);
            fs.write(a, 0, &vec![1; 2 << 20], WriteHow::default()).unwrap();
            fs.make(Ino::ROOT, b"b", &directory(0o755)).unwrap();
            fs.sync_all().unwrap();
            let wanted = archive(&fs);
            drop((fs, pool));
            let (world, _) = world.crash();
            let found = archive(&world.fs());
            assert_eq!(found.0.keys().collect::<Vec<_>>(), wanted.0.keys().collect::<Vec<_>>());
            assert!(found == wanted, "{log:?}: {property:?}");
            world.check();
        }
    }
}
