//! Mount points, and options.

use std::fs;
use std::io::ErrorKind;

use crate::mounted;

const INVALID: i32 = 3;
const BUSY: i32 = 4;

#[test]
fn a_mount_point_must_be_a_folder() {
    let Some(files) = mounted("") else { return };
    files.bench.ok("fs create tank/other");
    fs::write(files.bench.path("file"), "").unwrap();
    for (path, why) in [("missing", "No such file"), ("file", "no directory"), ("file/below", "cannot be")] {
        let said = files.bench.fails(&format!("fs mount tank/other {path}"), INVALID);
        assert!(said.contains(why), "{path}: {said}");
    }
    files.bench.fails("fs mount tank/nothing at", INVALID);
    files.bench.fails("fs mount tank at", INVALID);
    files.bench.fails("fs mount tank/other at -o acl=maybe", INVALID);
}

#[test]
fn a_folder_with_something_in_it_is_hidden_and_that_is_said() {
    let Some(files) = mounted("") else { return };
    files.bench.ok("fs create tank/other");
    fs::create_dir(files.bench.path("full")).unwrap();
    fs::write(files.bench.path("full/hidden"), "").unwrap();
    files.bench.ok("fs mount tank/other full");
    assert!(!files.bench.path("full/hidden").exists());
    assert!(files.bench.ok("status tank").contains("is not empty; the mount hides what is in it"));
    files.bench.unmount("tank/other");
    assert!(files.bench.path("full/hidden").exists());
}

#[test]
fn a_file_system_is_mounted_once_and_a_place_has_one_mount() {
    let Some(files) = mounted("") else { return };
    fs::create_dir(files.bench.path("second")).unwrap();
    let said = files.bench.fails("fs mount tank/home second", BUSY);
    assert!(said.contains("mounted at") && said.contains("already"), "{said}");
    files.bench.ok("fs create tank/other");
    let said = files.bench.fails("fs mount tank/other at", BUSY);
    assert!(said.contains("something is mounted at"), "{said}");
    files.bench.ok("fs mount tank/other second");
    // As both would be after an import.
    files.bench.ok("pool export tank");
    files.bench.ok("pool import tank");
    let list = files.bench.ok("fs list");
    assert!(list.contains("/at") && list.contains("/second"), "{list}");
}

/// All at once: one of them is mounted.
#[test]
fn of_mounts_at_the_same_time_one_wins() {
    let Some(files) = mounted("") else { return };
    files.bench.unmount("tank/home");
    for name in ["0", "1", "2", "3"] {
        fs::create_dir(files.bench.path(name)).unwrap();
    }
    let mounts: Vec<_> = ["0", "1", "2", "3"]
        .map(|at| files.bench.command(&format!("fs mount tank/home {at}")).spawn().unwrap())
        .into_iter()
        .map(|mut child| child.wait().unwrap().success())
        .collect();
    assert_eq!(mounts.iter().filter(|is_mounted| **is_mounted).count(), 1, "{mounts:?}");
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let Some(files) = mounted("") else { return };
    fs::write(files.path("a"), "text").unwrap();
    files.bench.unmount("tank/home");
    files.bench.ok("fs mount tank/home at -o ro,noatime");
    assert_eq!(fs::read_to_string(files.path("a")).unwrap(), "text");
    for refused in [fs::write(files.path("a"), "other"), fs::remove_file(files.path("a"))] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(files.at.to_str().unwrap())).unwrap();
    assert!(line.starts_with("tank/home ") && line.contains("ro,") && line.contains("noatime"), "{line}");
    // The options come back, too.
    files.bench.ok("pool export tank");
    files.bench.ok("pool import tank");
    assert!(fs::write(files.path("b"), "").is_err());
}

/// As `mount -t fastness` calls it, for a line of /etc/fstab.
#[test]
fn mount_calls_the_program_by_another_name() {
    use std::os::unix::process::CommandExt;
    let Some(files) = mounted("") else { return };
    fs::write(files.path("a"), "text").unwrap();
    files.bench.unmount("tank/home");
    let mount = |arguments: &[&str]| {
        let mut command = files.bench.command("");
        command.arg0("/sbin/mount.fastness").args(arguments).output().unwrap()
    };
    let at = files.at.to_str().unwrap();
    let fake = mount(&["tank/home", at, "-f", "-o", "rw"]);
    assert!(fake.status.success() && !files.path("a").exists(), "{fake:?}");
    let done = mount(&["tank/home", at, "-o", "ro,noauto,nofail,_netdev,x-systemd.requires=a.service"]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(fs::read_to_string(files.path("a")).unwrap(), "text");
    assert!(fs::write(files.path("b"), "").is_err(), "read-only");
    for wrong in [&["tank/home"][..], &["tank/home", at, "-o", "remount"], &["tank/home", at, "-o", "huge"]] {
        assert!(!mount(wrong).status.success(), "{wrong:?}");
    }
    // It belongs to /etc/fstab: the pool does not mount it by itself.
    files.bench.ok("pool export tank");
    files.bench.ok("pool import tank");
    assert!(!files.path("a").exists());
}
