use std::io::Write;
use std::process::{Command, Stdio};

use super::*;
use crate::run::Suite;

fn system() -> FileSystem {
    let mut system = Suite::built_in().unwrap().systems.remove("ext4-dax").unwrap();
    system.mount = "mounted".to_owned();
    system.state = "echo state".to_owned();
    system.write = "echo noise; wrote".to_owned();
    system.unmount = "echo $OPTIONS >&2; unmounted".to_owned();
    system.messages = String::new();
    system
}

/// One for which the agent is a program in `folder` that prints its arguments.
fn shell(folder: &Path) -> Command {
    std::os::unix::fs::symlink("/bin/echo", folder.join("fastness-agent")).unwrap();
    let mut shell = Command::new("sh");
    let path = std::env::var("PATH").unwrap();
    shell.env("PATH", format!("{}:{path}", folder.display())).arg("-c");
    shell
}

/// Exit status and output of a recovery whose commands end like this.
fn recovery(has_write: bool, mounted: &str, wrote: &str, unmounted: &str) -> (i32, String, String) {
    let commands = format!(
        "mounted() {{ echo mounts; {mounted}; }}; wrote() {{ {wrote}; }}; unmounted() {{ {unmounted}; }}\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let done = shell(folder.path()).arg(commands + &system().recovery(has_write)).output().unwrap();
    let [out, err] = [done.stdout, done.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let out = out.strip_prefix("mounts\n").expect("it is mounted first");
    (done.status.code().unwrap(), out.to_owned(), err)
}

#[test]
fn a_recovery_mounts_prints_writes_and_unmounts() {
    let good = (0, "state\n".to_owned(), "dax=always,noatime\n".to_owned());
    assert_eq!(recovery(false, "true", "false", "true"), good);
    let written = |status| format!("crashcheck: the write ended with {status}\n{}", good.2);
    let of = |status| (status, good.1.clone(), written(status));
    assert_eq!(
        recovery(true, "true", "true", "true"),
        of(0),
        "what the write prints is no part of the state"
    );
    assert_eq!(recovery(true, "true", "return 7", "true"), of(7));
    assert_eq!(recovery(true, "true", "true", "return 9").0, 9);
    let (status, out, _) = recovery(true, "return 5", "true", "true");
    assert_eq!((status, out.as_str()), (32, ""), "nothing is printed of what is not mounted");
}

#[test]
fn a_recovery_without_scripts_of_its_own_is_one_process() {
    let said = |system: &FileSystem, has_write| {
        let folder = tempfile::tempdir().unwrap();
        let done = shell(folder.path()).arg(system.recovery(has_write)).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    let mut systems = Suite::built_in().unwrap().systems;
    let mut system = |name: &str| FileSystem { messages: String::new(), ..systems.remove(name).unwrap() };
    let dax = system("ext4-dax");
    let options = "--type ext4 --options dax=always,noatime";
    assert_eq!(said(&dax, true), format!("recover /dev/pmem0 /mnt {options} --write --failed exit 32\n\n"));
    assert_eq!(said(&dax, false), format!("recover /dev/pmem0 /mnt {options} --failed exit 32\n\n"));
    let disk = FileSystem { disk_bytes: None, ..system("ext4-journal-on-pm") };
    assert!(
        said(&disk, true).starts_with("recover /dev/nvme0n1 /mnt --type ext4 --options rw,noatime --write")
    );
    // Its own write matters only where it is written to.
    let own = FileSystem { write: "true".to_owned(), ..dax.clone() };
    assert!(!own.recovery(true).contains("recover") && own.recovery(false).contains("recover"));
    for own in [
        FileSystem { mount: "true".to_owned(), ..dax.clone() },
        FileSystem { state: "true".to_owned(), ..dax.clone() },
        FileSystem { unmount: "true".to_owned(), ..dax.clone() },
    ] {
        assert!(!own.recovery(false).contains("recover"), "{own:?}");
    }
}

#[test]
fn of_what_the_kernel_said_in_a_recovery_the_last_two_that_match_are_told() {
    let said = |text: &str| {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(MESSAGES_GIVEN).env("MESSAGES", "EXT4-fs|JBD2[:]");
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let done = shell.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(i32::from(NOT_MOUNTED)));
        String::from_utf8(done.stdout).unwrap()
    };
    assert_eq!(said("JBD2: a\nEXT4-fs: b [x] c\nother\nJBD2: d\n"), "EXT4-fs: b [x] c\nJBD2: d\n");
    assert_eq!(said("other\nJBD2: d\n"), "JBD2: d\n");
    assert_eq!(said(""), "");
}

#[test]
fn a_state_that_was_not_shown_is_not_written_to() {
    let mut system = system();
    system.mount = "true".to_owned();
    system.state = "echo part; false".to_owned();
    system.unmount = "true".to_owned();
    let folder = tempfile::tempdir().unwrap();
    let done = shell(folder.path()).arg(system.recovery(true)).output().unwrap();
    assert_eq!((done.status.code(), &done.stdout[..], done.stderr.len()), (Some(1), &b"part\n"[..], 0));
}

#[test]
fn of_a_recovery_that_fails_it_is_known_whether_the_write_failed() {
    let said = |status, stderr: &str| {
        let (stdout, stderr) = (b"state\n".to_vec(), stderr.as_bytes().to_vec());
        let (state, write) =
            state_of(Ok(Output { status, timed_out: false, cut: false, stdout, stderr })).unwrap();
        (state.ending, String::from_utf8(state.text).unwrap(), write)
    };
    let of = |code, text: &str, write| (Ending::Code(code), text.to_owned(), write);
    let written = "noise\ncrashcheck: the write ended with ";
    assert_eq!(said(0, ""), of(0, "state\n", None));
    assert_eq!(said(0, &format!("{written}0\n")), of(0, "state\n", Some(0)));
    assert_eq!(said(7, &format!("{written}7\n")), of(0, "state\n", Some(7)));
    assert_eq!(said(32, "bad\n"), of(32, "state\nbad\n", None));
    // It cannot be unmounted after the write: is it the write's fault?
    let (ending, _, write) = said(1, &format!("{written}0\nbusy\n"));
    assert_eq!((ending, write), (Ending::Code(1), Some(0)));
    let late = Ok(Output { status: 0, timed_out: true, cut: false, stdout: vec![1], stderr: Vec::new() });
    let (state, _) = state_of(late).unwrap();
    assert_eq!((state.ending, state.text.len()), (Ending::TimedOut, 0));
}

#[test]
fn what_the_kernel_said_before_is_not_about_this_recovery() {
    let mut system = system();
    system.messages = "EXT4-fs|JBD2[:]".to_owned();
    let script = system.recovery(false);
    let (begin, mount) = (script.find(MESSAGES_BEGIN).unwrap(), script.find("\nmounted\n").unwrap());
    assert!(begin < mount, "{script}");
    let folder = tempfile::tempdir().unwrap();
    let said = |lines: &[&str]| {
        let log = folder.path().join("log");
        std::fs::write(&log, lines.join("\n") + "\n").unwrap();
        let dmesg = format!("dmesg() {{ cat {}; }}\n{MESSAGES}", log.display());
        let done = shell(folder.path()).arg(dmesg).env("MESSAGES", &system.messages).output();
        let _ = std::fs::remove_file(folder.path().join("fastness-agent"));
        String::from_utf8(done.unwrap().stdout).unwrap()
    };
    let (old, begins) = ("[    1.0] EXT4-fs (pmem0): old", "[    2.0] crashcheck: a recovery begins");
    assert_eq!(said(&[old, begins, "[    2.1] other", "[    2.2] JBD2: new [x]"]), "JBD2: new [x]\n");
    assert_eq!(said(&[old, begins]), "");
    let three = ["[    2.1] JBD2: a", "[    2.2] JBD2: b", "[    2.3] EXT4-fs: c"];
    assert_eq!(said(&[&[old, begins][..], &three].concat()), "JBD2: b\nEXT4-fs: c\n");
}

#[test]
fn words_of_a_suite_stay_words() {
    let mut system = system();
    system.options = "a='b'; exit 3 $TYPE #,log=$PM,data=$DISK".to_owned();
    system.unmount = "printf %s \"$OPTIONS\"".to_owned();
    system.mount = "true".to_owned();
    let folder = tempfile::tempdir().unwrap();
    let done = shell(folder.path()).arg(system.recovery(false)).output().unwrap();
    // Devices are put in, and nothing else.
    let expected = "state\na='b'; exit 3 $TYPE #,log=/dev/pmem0,data=/dev/nvme0n1,noatime";
    assert_eq!(String::from_utf8_lossy(&done.stdout), expected);
}

#[test]
fn each_operation_ends_with_what_makes_it_durable_and_a_checkpoint() {
    let system = FileSystem { settle: "settled".to_owned(), disk_bytes: Some(1 << 20), ..system() };
    let test = |work| FileTest { name: "t".to_owned(), prepare: "prepared".to_owned(), work }.script(&system);
    let script = test(Work::Operations(vec!["one".to_owned(), "two".to_owned()]));
    let tail = "prepared\nsync\nfastness-agent hypercall start\nfastness-agent hypercall checkpoint 0\n\
        one\nsettled\nfastness-agent hypercall checkpoint 1\n\
        two\nsettled\nfastness-agent hypercall checkpoint 2\nfastness-agent hypercall success\n";
    assert!(script.ends_with(tail), "{script}");
    assert!(script.contains("until [ -b $DISK ]"), "a disk is waited for");
    let (clock, make) =
        (script.find("fastness-agent clock test").unwrap(), script.find(&system.make).unwrap());
    assert!(clock < make, "{script}");
    // A program and a workload have their own checkpoints.
    for work in [Work::Program("mine $M".to_owned()), Work::Workload(Workload::default())] {
        assert!(!test(work).contains("hypercall checkpoint"));
    }
}

#[test]
fn one_that_is_synchronous_is_not_settled() {
    let workload = Workload::parse("# define\nA\n\n# run\nmark\nmkdir A 0777\ncheckpoint 1\n").unwrap();
    let script = |system: &FileSystem| FileTest::of_workload("t", &workload).script(system);
    let settled = script(&system());
    assert!(settled.contains("sync\nmark\n") && settled.contains("sync\ncheckpoint 1\n"), "{settled}");
    let not = script(&FileSystem { is_synchronous: true, ..system() });
    assert!(not.contains("\nmark\nmkdir A 0777\ncheckpoint 1\n"), "{not}");
}
