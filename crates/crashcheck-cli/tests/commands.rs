//! The program `crashcheck` on traces that are there: what needs no QEMU.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fastness_pm_model::{Op, Trace};
use serde_json::Value;
use tempfile::TempDir;

fn crashcheck(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_crashcheck")).args(arguments).current_dir(dir).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A journal: a byte of data at 64, and the mark that makes it valid at 0. Prints what is valid.
const RECOVER: &str = "sh recover.sh {pm}";
const SCRIPT: &str = "\
set -- $(od -An -v -tu1 -N65 $1)
[ $1 = 0 ] && echo empty && exit
shift 64
echo entry $1
";

/// The trace of the journal, with or without a flush of the data.
fn traced(has_flush: bool) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("recover.sh"), SCRIPT).unwrap();
    let mut ops = vec![Op::Mark(0), Op::store(64, [7; 8])];
    if has_flush {
        ops.push(Op::clwb(64));
    }
    ops.extend([Op::sfence(), Op::store(0, [1; 8]), Op::clwb(0), Op::sfence(), Op::Mark(1)]);
    let trace = Trace { initial: vec![0; 4096], ops };
    let file = fastness_crashcheck::trace::record(&trace, "pm", Vec::new()).unwrap();
    std::fs::write(dir.path().join("journal.trace"), file).unwrap();
    dir
}

#[test]
fn a_correct_trace_is_ok() {
    let dir = traced(true);
    let done = crashcheck(dir.path(), &["analyze", "journal.trace", "--recover", RECOVER]);
    assert!(done.status.success(), "{done:?}");
    assert!(stdout(&done).ends_with("\njournal: ok\n"), "{}", stdout(&done));
}

#[test]
fn a_missing_flush_is_found_reported_and_explained() {
    let dir = traced(false);
    let arguments = ["analyze", "journal.trace", "--recover", RECOVER, "-o", "out"];
    let done = crashcheck(dir.path(), &arguments);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    for part in ["-entry 7\n", "+entry 0\n", "lost  event 1 store 0x40", "line 0x40 of pm, never flushed"] {
        assert!(stdout(&done).contains(part), "no {part:?} in\n{}", stdout(&done));
    }
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("out/journal.json")).unwrap()).unwrap();
    let evidence = &json["operations"][0]["findings"][0]["evidence"][0];
    let (image, event) = (evidence["image"].as_str().unwrap(), evidence["event"].to_string());
    let page = std::fs::read_to_string(dir.path().join("out/journal.html")).unwrap();
    assert!(page.contains(image) && !page.contains("http"), "a page that needs nothing else");

    let again = crashcheck(dir.path(), &["report", "out/journal.json", "--junit", "junit.xml"]);
    assert_eq!((again.status.code(), stdout(&again)), (Some(1), stdout(&done)));
    assert!(std::fs::read_to_string(dir.path().join("junit.xml")).unwrap().contains("failures=\"1\""));
    assert_eq!(
        json["causes"][0]["witnesses"][0]["image"],
        json["operations"][0]["findings"][0]["evidence"][0]["image"]
    );
    // Two tests with one bug have one cause: the second is a line.
    std::fs::copy(dir.path().join("out/journal.json"), dir.path().join("out/other.json")).unwrap();
    let both = ["report", "out/journal.json", "out/other.json", "--causes", "causes.json"];
    let (few, all) =
        (crashcheck(dir.path(), &both), crashcheck(dir.path(), &[&both[..], &["--all"]].concat()));
    let in_full = |done: &Output| stdout(done).matches("lost  event 1 store 0x40").count();
    assert_eq!((few.status.code(), in_full(&few), in_full(&all)), (Some(1), 1, 2), "{few:?}");
    assert!(stdout(&few).starts_with("1 cause, shown by 2 crashes:\n"), "{}", stdout(&few));
    let causes = std::fs::read_to_string(dir.path().join("causes.json")).unwrap();
    let causes: Value = serde_json::from_str(&causes).unwrap();
    assert_eq!(causes[0]["witnesses"].as_array().unwrap().len(), 2);

    let images = crashcheck(dir.path(), &["images", "journal.trace", "-o", "images"]);
    assert!(images.status.success() && stdout(&images).contains("failure points"), "{images:?}");
    let file: PathBuf = ["images", image, "pm0"].iter().collect();
    let arguments = ["explain", "journal.trace", file.to_str().unwrap(), "--at", &event];
    let explained = crashcheck(dir.path(), &arguments);
    assert!(stdout(&explained).contains("lost  event 1 store 0x40"), "{explained:?}");
    let elsewhere = crashcheck(dir.path(), &[&arguments[..3], &["--at", "1"]].concat());
    assert_eq!(elsewhere.status.code(), Some(3), "{elsewhere:?}");

    let state = crashcheck(dir.path(), &["trace", "state", "journal.trace", "--at", &event]);
    assert!(stdout(&state).contains("event 1 store 0x40"), "{state:?}");
}

#[test]
fn what_cannot_be_done_is_said_and_is_no_finding() {
    let dir = traced(true);
    let analyze = |trace: &str, recover: &str| {
        let done = crashcheck(dir.path(), &["analyze", trace, "--recover", recover]);
        (done.status.code(), stderr(&done))
    };
    let (code, said) = analyze("journal.trace", "/no/such/program {pm}");
    assert!(code == Some(3) && said.contains("cannot run /no/such/program"), "{code:?} {said}");
    let (code, said) = analyze("none.trace", RECOVER);
    assert!(code == Some(7) && said.contains("none.trace"), "{code:?} {said}");
    let (code, said) = analyze("recover.sh", RECOVER);
    assert!(code == Some(3) && said.contains("no trace"), "{code:?} {said}");
    let whole = std::fs::read(dir.path().join("journal.trace")).unwrap();
    std::fs::write(dir.path().join("cut.trace"), &whole[..whole.len() - 10]).unwrap();
    let (code, said) = analyze("cut.trace", RECOVER);
    assert!(code == Some(6) && said.contains("cut off"), "{code:?} {said}");
    std::fs::write(dir.path().join("old.json"), "{\"version\": 7}").unwrap();
    let old = crashcheck(dir.path(), &["report", "old.json"]);
    assert_eq!(old.status.code(), Some(3), "{old:?}");
    let mixed = crashcheck(dir.path(), &["run", "some.toml", "--prefix"]);
    assert_eq!(mixed.status.code(), Some(2), "{mixed:?}");
    let none = crashcheck(dir.path(), &["fs", "nofs"]);
    assert!(none.status.code() == Some(3) && stderr(&none).contains("ext4-dax"), "{none:?}");
}

/// However a tester ends, its recoveries end with it, with all that they have started, and no file stays.
#[test]
fn nothing_outlives_a_tester_that_is_killed() {
    for signal in ["INT", "TERM", "KILL"] {
        let dir = traced(true);
        std::fs::write(dir.path().join("hang.sh"), "sleep 1000 & echo $! >> pids; echo $$ >> pids; wait")
            .unwrap();
        // What starts tests in the background makes them ignore SIGINT.
        let mut tester = Command::new("env");
        tester.args(["--default-signal", env!("CARGO_BIN_EXE_crashcheck")]);
        tester.args(["analyze", "journal.trace", "--recover", "sh hang.sh {pm}", "-j", "2"]);
        // As a terminal does: the signal goes to the whole group.
        let mut tester = tester.current_dir(dir.path()).process_group(0).spawn().unwrap();
        let begun = Instant::now();
        let wait_until = |what: &str, is_so: &dyn Fn() -> bool| {
            while !is_so() {
                assert!(begun.elapsed() < Duration::from_secs(60), "{signal}: {what}");
                sleep(Duration::from_millis(10));
            }
        };
        let pids = || std::fs::read_to_string(dir.path().join("pids")).unwrap_or_default();
        wait_until("no recovery hangs", &|| pids().lines().count() >= 4);
        let folders = || {
            let folders = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name());
            let of_tester = format!("fastness-crashcheck-run-{}-", tester.id());
            folders.filter(|name| name.to_string_lossy().starts_with(&of_tester)).count()
        };
        assert_eq!(folders(), 1);
        Command::new("kill")
            .args([&format!("-{signal}"), "--", &format!("-{}", tester.id())])
            .status()
            .unwrap();
        wait_until("a folder stays", &|| folders() == 0);
        let runs = |pid: &str| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.is_ok_and(|stat| !stat.contains(") Z"))
        };
        wait_until("a recovery stays", &|| !pids().lines().any(runs));
        assert!(!tester.wait().unwrap().success());
    }
}

/// A budget ends the recoveries, and not the report, which says what was not reached.
#[test]
fn a_budget_ends_with_a_report_of_what_was_reached() {
    let dir = traced(false);
    let analyze = |more: &[&str]| {
        let recover = ["analyze", "journal.trace", "-j", "1", "-o", "out", "--recover"];
        let done = crashcheck(dir.path(), &[&recover[..], more].concat());
        let report = std::fs::read_to_string(dir.path().join("out/journal.json")).unwrap();
        (done, serde_json::from_str::<Value>(&report).unwrap()["totals"].clone())
    };
    let (_, whole) = analyze(&[RECOVER]);
    let all = whole["images"].as_u64().unwrap();
    assert!(all > 2 && whole["unreached_images"] == 0, "{whole}");
    std::fs::write(dir.path().join("slow.sh"), format!("sleep 0.7\n{SCRIPT}")).unwrap();
    let (done, cut) = analyze(&["sh slow.sh {pm}", "--budget", "1"]);
    let (reached, unreached) = (cut["images"].as_u64().unwrap(), cut["unreached_images"].as_u64().unwrap());
    assert!(reached > 0 && unreached > 0 && reached + unreached == all, "{cut}");
    assert!(cut["exhaustive_points"].as_u64() < whole["exhaustive_points"].as_u64(), "{cut}");
    assert!(stdout(&done).contains(&format!("{unreached} crash images were not recovered")), "{done:?}");
    // What records say is judged by the image with everything, which is recovered in any case.
    std::fs::write(dir.path().join("lines.sh"), "sleep 1.2; echo 1").unwrap();
    let (done, cut) = analyze(&["sh lines.sh {pm}", "--budget", "1", "--prefix"]);
    assert!(cut["unreached_images"].as_u64().unwrap() > 0, "{cut}");
    assert!(done.status.success(), "{done:?}");
}

/// The first recovery that hangs takes the whole time-out, and others after it do not.
#[test]
fn after_a_recovery_that_hangs_others_get_less_time() {
    let dir = traced(true);
    std::fs::write(dir.path().join("hang.sh"), "echo >> begun; sleep 1000").unwrap();
    let begun = Instant::now();
    let arguments = ["analyze", "journal.trace", "--recover", "sh hang.sh {pm}"];
    let options = ["--timeout", "12", "-j", "1", "--shrink", "0"];
    let done = crashcheck(dir.path(), &[&arguments[..], &options].concat());
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let count = std::fs::read_to_string(dir.path().join("begun")).unwrap().lines().count();
    assert!(count >= 3, "{count}");
    assert!(begun.elapsed() >= Duration::from_secs(12));
    assert!(begun.elapsed() < Duration::from_secs(12) * count as u32, "{count}: {:?}", begun.elapsed());
}
