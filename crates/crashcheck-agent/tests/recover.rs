//! `fastness-agent recover`, with tmpfs in the place of what a crash left. Where it may be mounted.

#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

use std::process::{Command, Output};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

fn recover(directory: &std::path::Path, kind: &str, more: &[&str]) -> Output {
    let mut agent = Command::new(env!("CARGO_BIN_EXE_fastness-agent"));
    agent.args(["recover", "none"]).arg(directory).args(["--type", kind, "--options", "size=1m,noatime"]);
    agent.args(more).output().unwrap()
}

/// Root may, but not in every container.
fn may_mount() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let mounted = mount("none", folder.path(), "tmpfs", MountFlags::empty(), None);
    match mounted.and_then(|()| unmount(folder.path(), UnmountFlags::empty())) {
        Err(Errno::PERM | Errno::ACCESS) => println!("SKIPPED: this user may not mount"),
        done => return done.map(|()| true).unwrap(),
    }
    false
}

#[test]
fn what_is_mounted_is_shown_written_to_and_unmounted() {
    if !may_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let shown = recover(folder.path(), "tmpfs", &[]);
    let [out, err] = [&shown.stdout, &shown.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert_eq!((shown.status.code(), &*err), (Some(0), ""));
    assert!(out.starts_with("{\n  \"/\": {") && !out.contains("blocks"), "{out}");
    let written = recover(folder.path(), "tmpfs", &["--write"]);
    assert_eq!(String::from_utf8_lossy(&written.stderr), "crashcheck: the write ended with 0\n");
    assert!(written.status.success() && !String::from_utf8_lossy(&written.stdout).contains("after"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it is not mounted any more");
}

#[test]
fn a_write_that_fails_is_told_by_the_status() {
    if !may_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut agent = Command::new(env!("CARGO_BIN_EXE_fastness-agent"));
    agent.args(["recover", "none"]).arg(folder.path());
    let written = agent.args(["--type", "tmpfs", "--options", "ro,size=1m", "--write"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&written.stderr), "crashcheck: the write ended with 1\n");
    assert_eq!(written.status.code(), Some(1));
    assert!(written.stdout.starts_with(b"{"));
}

#[test]
fn what_cannot_be_mounted_is_told_as_mount_does() {
    if !may_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let said = format!("mount: mounting none on {} failed: No such device\n", folder.path().display());
    let failed = recover(folder.path(), "no-such-kind", &["--write"]);
    assert_eq!((failed.status.code(), failed.stdout.len()), (Some(32), 0));
    assert_eq!(String::from_utf8_lossy(&failed.stderr), said);
    let failed = recover(folder.path(), "no-such-kind", &["--failed", "echo why; exit 5"]);
    assert_eq!((failed.status.code(), &failed.stdout[..]), (Some(5), &b"why\n"[..]));
    assert_eq!(String::from_utf8_lossy(&failed.stderr), said);
}

/// What the kernel has said before is not about this mount.
#[test]
fn what_the_kernel_says_meanwhile_is_the_input_of_the_shell() {
    if !may_mount() {
        return;
    }
    let say = |line: &str| std::fs::write("/dev/kmsg", line).is_ok();
    if !say("fastness-agent: a test begins") {
        println!("SKIPPED: /dev/kmsg cannot be written to");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let failed =
        recover(folder.path(), "no-such-kind", &["--failed", "grep -c 'fastness-agent: a test begins'"]);
    assert_eq!(String::from_utf8_lossy(&failed.stdout), "0\n");
    // The kernel names an option that it does not know.
    let mut agent = Command::new(env!("CARGO_BIN_EXE_fastness-agent"));
    agent.args(["recover", "none"]).arg(folder.path()).args(["--type", "tmpfs", "--options", "no-such=1"]);
    let failed = agent.args(["--failed", "cat"]).output().unwrap();
    assert!(String::from_utf8_lossy(&failed.stdout).contains("no-such"), "{failed:?}");
}
