use std::process::Command;

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
    let out = out.strip_prefix("clock recovery\nmounts\n").expect("the clock is set before it is mounted");
    (done.status.code().unwrap(), out.to_owned(), err)
}

#[test]
fn a_recovery_mounts_prints_writes_and_unmounts() {
    let good = (0, "state\n".to_owned(), "dax=always,noatime\n".to_owned());
    assert_eq!(recovery(false, "true", "false", "true"), good);
    assert_eq!(recovery(true, "true", "true", "true"), good, "what the write prints is no part of the state");
    assert_eq!(recovery(true, "true", "return 7", "true").0, 7);
    assert_eq!(recovery(true, "true", "true", "return 9").0, 9);
    let (status, out, _) = recovery(true, "return 5", "true", "true");
    assert_eq!((status, out.as_str()), (32, ""), "nothing is printed of what is not mounted");
}

#[test]
fn words_of_a_suite_stay_words() {
    let mut system = system();
    system.options = "a='b'; exit 3 #".to_owned();
    system.unmount = "printf %s \"$OPTIONS\"".to_owned();
    system.mount = "true".to_owned();
    let folder = tempfile::tempdir().unwrap();
    let done = shell(folder.path()).arg(system.recovery(false)).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "clock recovery\nstate\na='b'; exit 3 #,noatime");
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
