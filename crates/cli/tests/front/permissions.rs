//! Who may do what, whose new files are, and what a change takes from a file.
//!
//! The kernel checks. Many of these do the same in a directory without a mount, and compare.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::{Mounted, mounted};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const CAPABILITIES: &str = "security.capability";
/// CAP_NET_RAW may be used, and is. Source: Linux, `struct vfs_cap_data`, version 2.
const NET_RAW: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const USER_ID: u32 = 1000;

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

/// An access control list that lets one user do everything, and others nothing.
fn for_user() -> Vec<u8> {
    let entries = [(1, 7, u32::MAX), (2, 7, USER_ID), (4, 0, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(u16::to_le_bytes(tag));
        value.extend(u16::to_le_bytes(permissions));
        value.extend(id.to_le_bytes());
    }
    value
}

fn get(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 256];
    rustix::fs::getxattr(path, name, &mut value).ok().map(|len| value[..len].to_vec())
}

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// The mount, and a directory of the same file system without one.
fn both(files: &Mounted) -> [std::path::PathBuf; 2] {
    let plain = files.bench.path("plain");
    fs::create_dir_all(&plain).unwrap();
    fs::set_permissions(&plain, Permissions::from_mode(0o777)).unwrap();
    [files.bench.path("at"), plain]
}

/// Runs a line of sh as a user, with groups, in a folder.
fn sh(folder: &Path, (uid, gid, groups): (u32, u32, &str), line: &str) -> String {
    let mut run = Command::new("setpriv");
    run.args([format!("--reuid={uid}"), format!("--regid={gid}")]);
    run.arg(if groups.is_empty() { "--clear-groups".to_owned() } else { format!("--groups={groups}") });
    let output = run.args(["sh", "-c", line]).current_dir(folder).output().unwrap();
    format!("{:?} {}", output.status.code(), String::from_utf8_lossy(&output.stdout))
}

#[test]
fn the_kernel_refuses_as_in_a_directory_without_a_mount() {
    let Some(files) = mounted() else { return };
    let lines = [
        "umask 077; printf secret > a; mkdir d; ln -s a s; stat -c '%U %G %a' a d s",
        "cat a; printf x >> a; rm -f a; chmod 777 a; mv a b; touch a; truncate -s 0 a; ln a l; ls d",
        "umask 027; mkdir t; chmod 1777 t; printf x > t/own; stat -c '%a' t t/own",
        "rm -f t/own; mv t/own t/stolen; printf y > t/mine; ls t",
        "mknod dev c 1 3; mkfifo fifo; chown 5 a; chgrp 5 a; stat -c '%u %g %F' fifo",
    ];
    for (at, line) in lines.into_iter().enumerate() {
        for who in [(1000, 1000, ""), (1001, 1001, "1000"), (1002, 1002, "")].into_iter().skip(at % 2) {
            let [here, there] = both(&files).map(|folder| sh(&folder, who, line));
            assert_eq!(here, there, "{line}, by {who:?}");
        }
    }
}

#[test]
fn new_files_are_the_callers_and_inherit() {
    let Some(mut files) = mounted() else { return };
    for folder in both(&files) {
        fs::create_dir(folder.join("group")).unwrap();
        chown(folder.join("group"), Some(0), Some(77)).unwrap();
        fs::set_permissions(folder.join("group"), Permissions::from_mode(0o2777)).unwrap();
        fs::create_dir(folder.join("list")).unwrap();
        set(&folder.join("list"), DEFAULT, &for_user());
        fs::set_permissions(folder.join("list"), Permissions::from_mode(0o777)).unwrap();
        let made =
            sh(&folder, (1000, 1000, ""), "umask 022; for f in . group list; do > $f/f; mkdir $f/d; done");
        assert!(made.starts_with("Some(0)"), "{made}");
    }
    let [here, there] = both(&files);
    let names = ["f", "d", "group/f", "group/d", "list/f", "list/d"];
    let owners = |path: &Path| fs::metadata(path).map(|data| (data.uid(), data.gid(), data.mode())).unwrap();
    let same = |folder: &Path| {
        for name in names {
            let (path, other) = (folder.join(name), there.join(name));
            assert_eq!(owners(&path), owners(&other), "{name}");
            for list in [ACCESS, DEFAULT] {
                assert_eq!(get(&path, list), get(&other, list), "{list} of {name}");
            }
        }
    };
    assert_eq!(owners(&here.join("f")).0, 1000);
    assert!(get(&here.join("list/f"), ACCESS).is_some());
    same(&here);
    files.kill_and_recover();
    same(&files.bench.path("dir"));
}

#[test]
fn a_list_lets_a_user_in() {
    let Some(files) = mounted() else { return };
    let path = files.at("a");
    fs::write(&path, "text").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let open = || as_user(|| OpenOptions::new().read(true).write(true).open(&path).map(drop));
    assert_eq!(open().unwrap_err().raw_os_error(), Some(Errno::ACCESS.raw_os_error()));
    set(&path, ACCESS, &for_user());
    open().unwrap();
    assert_eq!((mode(&path), get(&path, ACCESS)), (0o770, Some(for_user())));
    rustix::fs::removexattr(&path, ACCESS).unwrap();
    assert!(open().is_err());
}

/// As the directory's own file system does it: bits that run a program as another go when another user
/// changes the file. A group's bit goes here even where a member of the group would keep it.
#[test]
fn a_change_takes_identity_bits_from_a_file() {
    let Some(files) = mounted() else { return };
    let acts =
        ["printf x >> a", "truncate -s 2 a", "> a", "fallocate -l 100 a", "chgrp 1000 a", "chmod 6755 a"];
    for act in acts {
        for who in [(0, 0, ""), (1000, 1000, ""), (1000, 1000, "77"), (1001, 1001, "")] {
            for before in [0o6777, 0o4766, 0o2776] {
                let modes = both(&files).map(|folder| {
                    let path = folder.join("a");
                    fs::write(&path, "text").unwrap();
                    chown(&path, Some(1000), Some(77)).unwrap();
                    fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
                    sh(&folder, who, act);
                    // Of the mode alone the kernel may think that it knows it.
                    let after = sh(&folder, (0, 0, ""), "stat -c %a a");
                    fs::remove_file(&path).unwrap();
                    after
                });
                assert_eq!(modes[0], modes[1], "{act} of {before:o}, by {who:?}");
            }
        }
    }
}

#[test]
fn a_change_takes_capabilities_from_a_program() {
    let Some(mut files) = mounted() else { return };
    let path = files.at("program");
    let lend = || {
        fs::write(&path, "text").unwrap();
        set(&path, CAPABILITIES, &NET_RAW);
        assert_eq!(get(&path, CAPABILITIES), Some(NET_RAW.to_vec()));
    };
    lend();
    drop(OpenOptions::new().write(true).open(&path).unwrap());
    assert!(get(&path, CAPABILITIES).is_some(), "it was opened alone");
    fs::write(files.at("other"), "text").unwrap();
    for (what, change) in [
        ("append", &(|| drop(sh(&files.bench.path("at"), (0, 0, ""), "printf x >> program"))) as &dyn Fn()),
        ("truncate", &|| File::options().write(true).open(&path).unwrap().set_len(1).unwrap()),
        ("allocate", &|| drop(sh(&files.bench.path("at"), (0, 0, ""), "fallocate -l 9000 program"))),
    ] {
        lend();
        change();
        assert_eq!(
            (get(&path, CAPABILITIES), get(&files.below("program"), CAPABILITIES)),
            (None, None),
            "{what}"
        );
    }
    // Set while it is open for writing.
    let open = OpenOptions::new().append(true).open(&path).unwrap();
    set(&path, CAPABILITIES, &NET_RAW);
    std::io::Write::write_all(&mut &open, b"more").unwrap();
    assert_eq!(get(&path, CAPABILITIES), None);
    drop(open);
    lend();
    files.kill_and_recover();
    assert_eq!(get(&files.below("program"), CAPABILITIES), None, "the recovery writes to it");
}
