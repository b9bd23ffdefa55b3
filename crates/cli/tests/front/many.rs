//! Many files: listings longer than a buffer, and more files than a process may have open at first.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::{folder, mounted};

#[test]
fn a_long_listing_has_every_name_once_also_while_names_go() {
    let Some(files) = mounted() else { return };
    let folder = files.at("folder");
    fs::create_dir(&folder).unwrap();
    let name = |number: usize| format!("{number:04}{}", "n".repeat(251));
    (0..600).for_each(|number| drop(File::create(folder.join(name(number))).unwrap()));
    let listed: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let all: BTreeSet<_> = (0..600).map(|number| name(number).into()).collect();
    assert_eq!((listed.len(), listed.into_iter().collect::<BTreeSet<_>>()), (600, all));
    let mut removed = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        removed += 1;
    }
    assert_eq!(removed, 600);
    fs::remove_dir(&folder).unwrap();
    // The cache's own file is not shown, and its name cannot be taken.
    assert_eq!(fs::read_dir(files.bench.path("at")).unwrap().count(), 0);
    assert!(fs::write(files.at(".fastness-responder"), "").is_err());
    fs::create_dir(files.at("below")).unwrap();
    fs::write(files.at("below/.fastness-responder"), "").unwrap();
    assert_eq!(fs::read_dir(files.at("below")).unwrap().count(), 1);
}

fn may_raise_limits() -> bool {
    const SYS_RESOURCE: u64 = 1 << 24;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(effective.trim(), 16).unwrap() & SYS_RESOURCE != 0
}

/// The kernel knows every file that it was asked for, and each takes a descriptor of the server.
#[test]
fn a_limit_of_open_files_does_not_limit_the_directory() {
    if !may_raise_limits() {
        println!("SKIPPED: this user cannot raise the limit of open files (CAP_SYS_RESOURCE)");
        return;
    }
    let Some(mut files) = folder() else { return };
    let line = "responder mount dir at --pm pm --size 8M --flush-ms 60000";
    let mut command = files.bench.command(line);
    let few = Rlimit { current: Some(100), maximum: Some(200) };
    // SAFETY: a system call, between fork and exec.
    #[expect(unsafe_code, reason = "in no safe interface")]
    unsafe {
        command.pre_exec(move || Ok(setrlimit(Resource::Nofile, few)?));
    }
    files.mount_by(command);
    for number in 0..400 {
        File::create(files.at(&number.to_string())).unwrap();
    }
    let sizes: Vec<_> =
        (0..400).map(|number| fs::metadata(files.at(&number.to_string())).unwrap().len()).collect();
    assert_eq!(sizes, [0; 400]);
}

#[test]
fn a_program_has_the_limits_of_its_caller() {
    let Some(files) = folder() else { return };
    let line = "run --pm pm --size 4M --dir dir -- sh -c";
    let mut command = files.bench.command(line);
    let few = Rlimit { current: Some(100), maximum: Some(200) };
    // SAFETY: a system call, between fork and exec.
    #[expect(unsafe_code, reason = "in no safe interface")]
    unsafe {
        command.pre_exec(move || Ok(setrlimit(Resource::Nofile, few)?));
    }
    let output = command.arg("ulimit -Sn; ulimit -Hn").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "100\n200\n");
}
