//! Who may do what: access control lists, bits that lend an identity, sticky directories.
//!
//! The kernel checks; the file system keeps lists and modes in agreement, and clears what must not stay.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;

use rustix::fs::{CWD, Mode, RenameFlags, XattrFlags};
use rustix::io::Errno;

use crate::mounted;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
/// Tags of entries. Source: Linux, `include/uapi/linux/posix_acl.h`.
const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const MASK: u16 = 16;
const OTHER: u16 = 32;
const NOBODY: u32 = u32::MAX;
const USER_ID: u32 = 1000;

fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// Others may nothing, one user what `user` says, through `mask`.
fn for_user(user: u16, mask: u16) -> Vec<u8> {
    let named = [(USER, user, USER_ID), (OWNING_GROUP, 0, NOBODY), (MASK, mask, NOBODY)];
    list(&[&[(OWNER, 7, NOBODY)], &named[..], &[(OTHER, 0, NOBODY)]].concat())
}

fn get(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = [0; 256];
    rustix::fs::getxattr(path, name, &mut value).map(|len| value[..len].to_vec())
}

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Does something as another user, in this thread.
pub fn as_user<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: they change what this thread may do in file systems, and nothing else.
    #[expect(unsafe_code, reason = "in no safe interface")]
    let become_user = |id| unsafe { (libc::setfsgid(id), libc::setfsuid(id)) };
    become_user(USER_ID);
    let done = act();
    become_user(0);
    done
}

fn may(path: &Path, writes: bool) -> bool {
    let opened = as_user(|| OpenOptions::new().read(true).write(writes).open(path));
    match opened.map_err(|error| error.raw_os_error()) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error, Some(Errno::ACCESS.raw_os_error()));
            false
        }
    }
}

#[test]
fn a_list_lets_a_user_in_as_far_as_its_mask_allows() {
    let Some(files) = mounted("log pm --emulate-pm --pm-size 16M") else { return };
    fs::set_permissions(files.bench.dir.path(), Permissions::from_mode(0o755)).unwrap();
    let path = files.path("a");
    fs::write(&path, "text").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert!(!may(&path, false));
    set(&path, ACCESS, &for_user(6, 6));
    assert!(may(&path, true));
    // The permissions of the group are those of the mask, in both directions.
    assert_eq!(mode(&path), 0o760);
    set(&path, ACCESS, &for_user(6, 4));
    assert_eq!((mode(&path), may(&path, false), may(&path, true)), (0o740, true, false));
    fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    assert!(!may(&path, false));
    assert_eq!(get(&path, ACCESS).unwrap(), for_user(6, 0));
    fs::set_permissions(&path, Permissions::from_mode(0o770)).unwrap();
    assert_eq!((may(&path, true), get(&path, ACCESS).unwrap()), (true, for_user(6, 7)));
    File::open(&path).unwrap().sync_all().unwrap();
    files.kill();
    files.bench.ok("pool import tank");
    assert_eq!((may(&path, true), get(&path, ACCESS).unwrap(), mode(&path)), (true, for_user(6, 7), 0o770));
    // A list that says no more than a mode is one.
    set(&path, ACCESS, &list(&[(OWNER, 6, NOBODY), (OWNING_GROUP, 4, NOBODY), (OTHER, 4, NOBODY)]));
    assert_eq!((get(&path, ACCESS), mode(&path)), (Err(Errno::NODATA), 0o644));
    for wrong in [&b"\x02\0\0"[..], &list(&[(OWNER, 7, NOBODY)]), &list(&[(USER, 7, USER_ID)])] {
        let refused = rustix::fs::setxattr(&path, ACCESS, wrong, XattrFlags::empty());
        assert_eq!(refused, Err(Errno::INVAL));
    }
}

#[test]
fn what_is_created_in_a_directory_inherits_its_list() {
    let Some(files) = mounted("log pm --emulate-pm --pm-size 16M") else { return };
    fs::set_permissions(files.bench.dir.path(), Permissions::from_mode(0o755)).unwrap();
    let folder = files.path("folder");
    fs::create_dir(&folder).unwrap();
    set(&folder, DEFAULT, &for_user(7, 7));
    let (file, below) = (folder.join("file"), folder.join("below"));
    // The umask counts only where there is no list.
    let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o666).open(&file).unwrap();
    fs::create_dir(&below).unwrap();
    assert_eq!((mode(&file), mode(&below)), (0o660, 0o770));
    let owner_6 = list(&[
        (OWNER, 6, NOBODY),
        (USER, 7, USER_ID),
        (OWNING_GROUP, 0, NOBODY),
        (MASK, 6, NOBODY),
        (OTHER, 0, NOBODY),
    ]);
    assert_eq!(get(&file, ACCESS).unwrap(), owner_6);
    assert_eq!((get(&below, ACCESS), get(&below, DEFAULT)), (Ok(for_user(7, 7)), Ok(for_user(7, 7))));
    assert_eq!(get(&file, DEFAULT), Err(Errno::NODATA));
    made.sync_all().unwrap();
    files.kill();
    files.bench.ok("pool import tank");
    assert_eq!((get(&file, ACCESS), get(&below, DEFAULT)), (Ok(owner_6), Ok(for_user(7, 7))));
    rustix::fs::removexattr(&folder, DEFAULT).unwrap();
    fs::write(folder.join("plain"), "").unwrap();
    assert_eq!(get(&folder.join("plain"), ACCESS), Err(Errno::NODATA));
}

#[test]
fn bits_that_lend_an_identity_are_cleared_by_whoever_changes_the_file() {
    let Some(files) = mounted("") else { return };
    let path = files.path("a");
    fs::write(&path, "text").unwrap();
    let lend = |mode| {
        chown(&path, Some(0), Some(0)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    };
    // Group execution makes the group's bit one that lends an identity.
    let open = || OpenOptions::new().write(true).open(&path).unwrap();
    let changes: [(&str, &dyn Fn()); 4] = [
        ("write", &|| as_user(|| open().write_all(b"x")).unwrap()),
        ("truncate", &|| as_user(|| open().set_len(2)).unwrap()),
        ("open to truncate", &|| drop(as_user(|| File::create(&path).unwrap()))),
        ("chown", &|| chown(&path, Some(5), Some(5)).unwrap()),
    ];
    for (what, change) in changes {
        for (before, after) in [(0o6777, 0o777), (0o4766, 0o766), (0o2776, 0o776)] {
            lend(before);
            change();
            assert_eq!(mode(&path), after, "{what} of {before:o}");
        }
    }
    // Not by a user who has nothing to do with it, although the kernel lets this request through.
    lend(0o6755);
    let _ = as_user(|| chown(&path, None, None));
    assert_eq!(mode(&path), 0o6755);
    // Root keeps them, but not when it gives the file away.
    lend(0o6777);
    fs::write(&path, "more").unwrap();
    assert_eq!(mode(&path), 0o6777);
    // Of a directory they mean something else.
    let folder = files.path("folder");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o2777)).unwrap();
    chown(&folder, Some(5), Some(5)).unwrap();
    assert_eq!(mode(&folder), 0o2777);
    as_user(|| fs::create_dir(folder.join("below")).unwrap());
    let below = fs::metadata(folder.join("below")).unwrap();
    assert_eq!((below.gid(), below.mode() & 0o2000), (5, 0o2000));
}

#[test]
fn in_a_sticky_directory_files_belong_to_their_owners() {
    let Some(files) = mounted("") else { return };
    fs::set_permissions(files.bench.dir.path(), Permissions::from_mode(0o755)).unwrap();
    let folder = files.path("folder");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o1777)).unwrap();
    fs::write(folder.join("roots"), "").unwrap();
    as_user(|| {
        fs::write(folder.join("own"), "").unwrap();
        let refused = |done: std::io::Result<()>| done.unwrap_err().raw_os_error();
        let not_permitted = Some(Errno::PERM.raw_os_error());
        assert_eq!(refused(fs::remove_file(folder.join("roots"))), not_permitted);
        assert_eq!(refused(fs::rename(folder.join("roots"), folder.join("taken"))), not_permitted);
        assert_eq!(refused(fs::rename(folder.join("own"), folder.join("roots"))), not_permitted);
        fs::rename(folder.join("own"), folder.join("renamed")).unwrap();
        fs::remove_file(folder.join("renamed")).unwrap();
    });
}

/// As the other file system of this machine does it: a member of the group leaves the bit, and so does root.
#[test]
fn a_set_group_bit_without_execution_is_cleared_from_outside_of_the_group() {
    let Some(files) = mounted("") else { return };
    fs::set_permissions(files.bench.dir.path(), Permissions::from_mode(0o755)).unwrap();
    let other = tempfile::tempdir().unwrap();
    fs::set_permissions(other.path(), Permissions::from_mode(0o755)).unwrap();
    let acts = [
        "printf x >> a",
        "printf x | dd of=a conv=notrunc oflag=direct",
        "truncate -s 2 a",
        "truncate -s 0 a; printf x > a",
        "fallocate -l 100 a",
        "chgrp 1000 a",
        "chmod 2646 a",
    ];
    for act in acts {
        for (uid, gid, groups) in [(0, 0, ""), (1000, 1000, ""), (1000, 77, ""), (1000, 1000, "77,5")] {
            let modes = [files.at.as_path(), other.path()].map(|folder| {
                let path = folder.join("a");
                fs::write(&path, "text").unwrap();
                chown(&path, Some(1000), Some(77)).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(0o2666)).unwrap();
                let mut run = std::process::Command::new("setpriv");
                let id = [format!("--reuid={uid}"), format!("--regid={gid}")];
                let groups =
                    if groups.is_empty() { "--clear-groups".into() } else { format!("--groups={groups}") };
                run.args(id).arg(groups).args(["sh", "-c", act]).current_dir(folder);
                run.output().unwrap();
                let mode = fs::metadata(&path).unwrap().mode();
                fs::remove_file(&path).unwrap();
                mode
            });
            assert_eq!(modes[0], modes[1], "{act}, by {uid}:{gid} of {groups}");
        }
    }
}

#[test]
fn a_whiteout_takes_a_free_name_only_if_that_is_asked_for() {
    let Some(files) = mounted("") else { return };
    fs::write(files.path("a"), "a").unwrap();
    fs::write(files.path("b"), "b").unwrap();
    let rename = |to: &str| {
        let flags = RenameFlags::NOREPLACE | RenameFlags::WHITEOUT;
        rustix::fs::renameat_with(CWD, files.path("a"), CWD, files.path(to), flags)
    };
    assert_eq!(rename("b"), Err(Errno::EXIST));
    rename("c").unwrap();
    let whiteout = fs::metadata(files.path("a")).unwrap();
    assert_eq!((whiteout.mode(), whiteout.rdev()), (0o020_000, 0));
    assert_eq!(fs::read_to_string(files.path("c")).unwrap(), "a");
    // A user may leave one, too.
    fs::create_dir(files.path("open")).unwrap();
    fs::set_permissions(files.path("open"), Permissions::from_mode(0o777)).unwrap();
    let folder = File::open(files.path("open")).unwrap();
    as_user(|| {
        rustix::fs::openat(&folder, "x", rustix::fs::OFlags::CREATE, Mode::RWXU).unwrap();
        rustix::fs::renameat_with(&folder, "x", &folder, "y", RenameFlags::WHITEOUT).unwrap();
    });
}
