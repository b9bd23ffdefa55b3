//! `fastness run`: programs over a directory with a cache in front of it.
//!
//! These tests mount as root, and are skipped, with the reason, where that is not possible.

#![allow(unreachable_pub, missing_docs, missing_debug_implementations)]
#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use support::{Bench, STRANGER};

const OPTIONS: &str = "--pm pm --size 4M --flush-ms 60000 --dir dir --";

fn bench() -> Option<Bench> {
    let bench = Bench::for_mounts()?;
    fs::create_dir(bench.path("dir")).unwrap();
    Some(bench)
}

/// Runs a script of sh under the cache.
fn sh(bench: &Bench, script: &str) -> Command {
    sh_with(bench, "", script)
}

/// The same, with more options.
fn sh_with(bench: &Bench, options: &str, script: &str) -> Command {
    let mut command = bench.command(&format!("run {options} {OPTIONS}"));
    command.args(["sh", "-c", script]);
    command
}

fn output(bench: &Bench, script: &str) -> Output {
    sh(bench, script).output().unwrap()
}

#[test]
fn a_program_finds_its_files_and_leaves_them_in_the_directory() {
    let Some(bench) = bench() else { return };
    fs::write(bench.path("dir/old"), "old").unwrap();
    let script = "umask; ulimit -Sn; cat dir/old; cd dir; printf new > new; mv old older; cat new; exit 7";
    let before = Command::new("sh").args(["-c", "umask; ulimit -Sn"]).output().unwrap();
    let ran = output(&bench, script);
    assert_eq!(ran.status.code(), Some(7), "{ran:?}");
    let inherited = String::from_utf8(before.stdout).unwrap();
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), format!("{inherited}oldnew"));
    assert_eq!(fs::read(bench.path("dir/new")).unwrap(), b"new");
    assert_eq!(fs::read(bench.path("dir/older")).unwrap(), b"old");
    assert_eq!(fs::metadata(bench.path("pm")).unwrap().permissions().mode() & 0o777, 0o600);
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(said.contains("after a power cut"), "{said}");
    assert_eq!(bench.json("responder status pm")["dirty_chunks"], 0);
}

#[test]
fn no_other_process_sees_the_mount() {
    let Some(bench) = bench() else { return };
    let mut command = sh(&bench, "printf text > dir/file; echo ready; read line");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&bench.text("dir")), "{mounts}");
    assert_eq!(fs::read(bench.path("dir/file")).unwrap(), b"", "flushed too early to tell");
    // Another one cannot have the region, and a flush from outside reaches the one that has it.
    fs::create_dir(bench.path("elsewhere")).unwrap();
    assert_eq!(bench.run("responder mount dir elsewhere --pm pm").status.code(), Some(4));
    bench.ok("responder flush pm");
    assert_eq!(fs::read(bench.path("dir/file")).unwrap(), b"text");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(1), "read meets the end of its input");
}

#[test]
fn signals_and_programs_that_cannot_be_started() {
    let Some(bench) = bench() else { return };
    let missing = bench.command(&format!("run {OPTIONS}")).arg("./no-such-program").output().unwrap();
    assert_eq!(missing.status.code(), Some(127), "{missing:?}");
    assert_eq!(output(&bench, "kill -9 $$").status.code(), Some(137));
    let mut child =
        sh(&bench, "trap 'echo told > dir/told; exit 3' TERM; echo ready; while :; do sleep 0.01; done");
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(fs::read(bench.path("dir/told")).unwrap(), b"told\n");
}

#[test]
fn what_a_program_leaves_running_keeps_the_directory() {
    let Some(bench) = bench() else { return };
    let begun = Instant::now();
    let script = "exec >/dev/null 2>&1; cd dir; (sleep 1.5; printf late > late) & exit 0";
    let ran = output(&bench, script);
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    assert!(begun.elapsed() >= Duration::from_secs(1), "it ended before what it started");
    assert_eq!(fs::read(bench.path("dir/late")).unwrap(), b"late");
    assert!(String::from_utf8(ran.stderr).unwrap().contains("still uses the directory"));
}

#[test]
fn a_signal_ends_what_a_program_has_left_running() {
    let Some(bench) = bench() else { return };
    // The first one ends what lets itself be ended; the other one needs two.
    for (trap, signals) in [("", 1), ("trap '' TERM;", 2)] {
        let script = format!("cd dir; ({trap} echo left > left; exec sleep 1000) >&- & exit 5");
        let mut child = sh(&bench, &script).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains("Ctrl-C ends that")), "{:?}", child.wait());
        for number in 1..=signals {
            assert_eq!(child.try_wait().unwrap(), None, "before signal {number} of {signals}");
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            std::thread::sleep(Duration::from_millis(500));
        }
        let ended = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(ended.elapsed() < Duration::from_secs(30), "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(child.wait().unwrap().code(), Some(5));
        assert_eq!(fs::read(bench.path("dir/left")).unwrap(), b"left\n");
    }
}

#[test]
fn what_was_written_before_everything_is_killed_is_recovered() {
    killed(
        "",
        "exec 3>dir/file; i=0; while :; do i=$((i+1)); printf '%09d\\n' $i >&3 || exit; echo $i; done",
    );
}

#[test]
fn what_was_synced_before_everything_is_killed_is_recovered_from_the_log() {
    let script = "rm -f dir/file; i=0; while :; do i=$((i+1)); printf '%09d\\n' $i | \
        dd of=dir/file oflag=append,dsync conv=notrunc status=none || exit; echo $i; done";
    killed("--protocol log", script);
}

/// Every write is acknowledged on a pipe, which survives the kill.
fn killed(options: &str, script: &str) {
    let Some(bench) = bench() else { return };
    let mut acknowledged = 0;
    for round in 0..6 {
        let mut command = sh_with(&bench, options, script);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(150 + 40 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut said = String::new();
        // The shell ends when its file is gone.
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let mut numbers = said.lines().filter_map(|line| line.parse::<u64>().ok());
        let last = numbers.next_back().unwrap_or(0);
        bench.ok("responder recover pm");
        let file = fs::File::open(bench.path("dir/file"));
        let Ok(file) = file else {
            assert_eq!(last, 0);
            continue;
        };
        for number in 1..=last {
            let mut line = [0; 10];
            let read = file.read_exact_at(&mut line, (number - 1) * 10);
            assert!(read.is_ok(), "write {number} of {last} is lost");
            assert_eq!(line, *format!("{number:09}\n").as_bytes());
        }
        acknowledged += last;
    }
    assert!(acknowledged > 0, "nothing was written in time");
}

#[test]
fn a_second_run_joins_the_first_one() {
    let Some(bench) = bench() else { return };
    let mut first = sh(&bench, "printf first > dir/a; echo ready; read line; cat dir/b; exit 3");
    let mut first = first.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    first.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    let second = output(&bench, "cat dir/a; printf second > dir/b; echo; pwd; exit 5");
    assert_eq!(second.status.code(), Some(5), "{second:?}");
    let here = fs::canonicalize(bench.path(".")).unwrap();
    assert_eq!(String::from_utf8(second.stdout).unwrap(), format!("first\n{}\n", here.display()));
    assert_eq!(fs::read(bench.path("dir/b")).unwrap_or_default(), b"", "past the cache");
    // Not if the directory is another one.
    fs::create_dir(bench.path("other")).unwrap();
    assert_eq!(bench.run("run --pm pm --dir other -- true").status.code(), Some(4));
    // What joins keeps the directory as long as it runs.
    let mut late = sh(&bench, "echo ready; sleep 1; cat dir/a; printf late > dir/late");
    let mut late = late.stdout(Stdio::piped()).spawn().unwrap();
    late.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    drop(first.stdin.take());
    let first = first.wait_with_output().unwrap();
    assert_eq!((first.status.code(), &first.stdout[..]), (Some(3), &b"second"[..]));
    assert_eq!(fs::read(bench.path("dir/late")).unwrap(), b"late");
    let late = late.wait_with_output().unwrap();
    assert_eq!((late.status.code(), &late.stdout[..]), (Some(0), &b"first"[..]));
    assert_eq!(bench.json("responder status pm")["dirty_chunks"], 0);
}

#[test]
fn an_ordinary_user_needs_neither_root_nor_a_helper() {
    let Some(bench) = bench() else { return };
    let dir = bench.path("home/dir");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("roots"), "of root").unwrap();
    fs::write(dir.join("secret"), "of root").unwrap();
    fs::set_permissions(dir.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(dir.join("old"), "old\n").unwrap();
    for path in ["home", "home/dir", "home/dir/old"] {
        // The group is one that the user does not have.
        std::os::unix::fs::chown(bench.path(path), Some(STRANGER), Some(0)).unwrap();
    }
    let namespaces = bench.as_stranger(&["unshare", "--user", "--mount", "true"]);
    if !namespaces.status.success() {
        println!("SKIPPED: ordinary users get no namespaces here: {namespaces:?}");
        return;
    }
    let script = "id -u; id -g; cat dir/old; cd dir; printf more >> old; printf new > new; mkdir sub; \
        stat -c %u:%g new old; \
        cat roots; (printf x > roots) 2>/dev/null || echo refused; cat secret 2>/dev/null || echo secret; \
        chown 0 new 2>/dev/null || echo kept; mount -t tmpfs none sub 2>/dev/null || echo unmounted; exit 7";
    let program = bench.text("programs/fastness");
    let words = format!("{program} run {OPTIONS} sh -c");
    let words: Vec<&str> = words.split(' ').chain([script]).collect();
    let ran = bench.as_stranger(&words);
    assert_eq!(ran.status.code(), Some(7), "{ran:?}");
    let said = String::from_utf8(ran.stdout).unwrap();
    let owner = "12345:12345";
    assert_eq!(
        said,
        format!("12345\n12345\nold\n{owner}\n{owner}\nof rootrefused\nsecret\nkept\nunmounted\n")
    );
    let owned = |name: &str| {
        let metadata = fs::metadata(dir.join(name)).unwrap();
        (metadata.uid(), metadata.gid())
    };
    assert_eq!(fs::read(dir.join("new")).unwrap(), b"new");
    assert_eq!(fs::read(dir.join("old")).unwrap(), b"old\nmore");
    assert_eq!((owned("new"), owned("old")), ((STRANGER, STRANGER), (STRANGER, 0)));
    // A second one joins the first one's namespace of users as well.
    let run = |script: &str| format!("{program} run {OPTIONS} sh -c '{script}'");
    let first = run("printf newer > dir/new; echo ready; sleep 2");
    let both = format!("{first} & sleep 1; {}; wait", run("cat dir/new; id -u"));
    let ran = bench.as_stranger(&["sh", "-c", &both]);
    assert_eq!(
        String::from_utf8(ran.stdout).unwrap(),
        "ready\nnewer12345\n",
        "{:?}",
        String::from_utf8(ran.stderr)
    );
}
