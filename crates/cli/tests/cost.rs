//! `fastness cost`: commands under measurement.

#![allow(unreachable_pub, missing_docs, missing_debug_implementations)]

mod support;

use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use support::Bench;

/// Other tests run beside these, so any machine is idle.
const ANY: &str = "cost --idle-seconds 0.1 --idle-max 100";

fn cost(bench: &Bench, options: &str, script: &str) -> Output {
    bench.command(&format!("{ANY} {options} --")).args(["sh", "-c", script]).output().unwrap()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn bytes_and_cpu_time_of_a_command_make_its_cost() {
    let bench = Bench::new();
    let script = "head -c 40000000 /dev/zero > zeros; echo said; times >&2";
    let output = cost(&bench, "--json --name zeros", script);
    let report = json(&output);
    assert!(text(&output.stderr).contains("said"), "standard output is for the report: {output:?}");
    let run = &report["runs"][0];
    let bytes = run["bytes"].as_u64().unwrap();
    assert!((40_000_000..40_100_000).contains(&bytes), "{report}");
    assert_eq!((&report["name"], &run["is_cut"]), (&"zeros".into(), &false.into()));
    assert!(run["cpu_s_per_gib"].is_f64() && run["no_energy"].is_string() != run["joules_per_gib"].is_f64());

    let shown = cost(&bench, "--bytes 2G --cut 0", "sleep 1.2");
    let shown = text(&shown.stdout);
    for words in ["idle ", "% of", "CPUs in use", "CPU cost", "2.00 GiB, as given", "energy cost"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let shown = text(&cost(&bench, "", "exec >&- 2>&-; true").stdout);
    assert!(shown.contains("no bytes were counted") && shown.contains("--bytes device:NAME"), "{shown}");
    assert!(shown.contains("too short to cut off"), "{shown}");
}

#[test]
fn a_machine_in_use_is_refused_before_the_command_runs() {
    let bench = Bench::new();
    let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let output = bench.command("cost --idle-seconds 0.5 --idle-max 0.1 -- touch ran").output().unwrap();
    busy.kill().unwrap();
    busy.wait().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.contains("not idle") && said.contains("% of a CPU") && said.contains("--idle-max"),
        "{said}"
    );
    assert!(!bench.path("ran").exists());
}

#[test]
fn exit_codes_are_those_of_the_command() {
    let bench = Bench::new();
    let failed = cost(&bench, "--json", "exit 7");
    assert_eq!(failed.status.code(), Some(7));
    let report: Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!(report["runs"][0]["exit_code"], 7);
    assert!(text(&failed.stderr).contains("may mean nothing"));
    assert_eq!(cost(&bench, "", "kill -9 $$").status.code(), Some(137));
    let missing = bench.command(&format!("{ANY} -- /no/such/program")).output().unwrap();
    assert_eq!(missing.status.code(), Some(127));
    // A signal is for the command, which answers it.
    let mut ours = bench.command(&format!("{ANY} --")).args(["sh", "-c", ON_TERM]).spawn().unwrap();
    while !bench.path("ready").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&ours);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(ours.wait().unwrap().code(), Some(9));
}

const ON_TERM: &str = "trap 'exit 9' TERM; touch ready; while :; do sleep 0.05; done";

#[test]
fn a_command_runs_for_each_value_and_is_drawn_beside_an_earlier_one() {
    let bench = Bench::new();
    let script = "echo $(( {} * 1000000 )) > $FASTNESS_BYTES_FILE; echo junk without end >&2";
    let first = cost(&bench, "--for 1,2,4 --bytes report --name first --json", script);
    let report = json(&first);
    let of = |index: usize| report["runs"][index]["bytes"].as_u64();
    assert_eq!([of(0), of(1), of(2)], [Some(1_000_000), Some(2_000_000), Some(4_000_000)]);
    assert_eq!(report["runs"][2]["value"], "4");
    std::fs::write(bench.path("first.json"), &first.stdout).unwrap();
    let second =
        cost(&bench, "--for 1,4 --bytes 1M --name second --with first.json --svg both.svg", "true {}");
    assert!(second.status.success(), "{second:?}");
    let table = text(&second.stdout);
    assert!(table.contains("CPU s/GiB") && table.lines().any(|line| line.starts_with("4 ")), "{table}");
    let svg = std::fs::read_to_string(bench.path("both.svg")).unwrap();
    assert!(svg.contains("first") && svg.contains("second") && svg.contains("Energy cost"), "{svg}");
    // The second value's command fails: the third is not run.
    let stopped = cost(&bench, "--for 0,3,0 --json", "exit {}");
    assert_eq!(stopped.status.code(), Some(3));
    let report: Value = serde_json::from_slice(&stopped.stdout).unwrap();
    assert_eq!(report["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn energy_comes_from_a_meter_over_tcp() {
    let bench = Bench::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let busy = Arc::new(AtomicBool::new(false));
    let of_meter = busy.clone();
    let meter = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut bytes = 0_u64;
        loop {
            let is_busy = of_meter.load(Ordering::SeqCst);
            bytes += if is_busy { 1 << 20 } else { 0 };
            let lines = format!("watts {} cpu\nwatts 5 fan\nbytes {bytes}\n", if is_busy { 90 } else { 40 });
            if client.write_all(lines.as_bytes()).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let watch = std::thread::spawn({
        let ready = bench.path("ready");
        move || {
            while !ready.exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
            busy.store(true, Ordering::SeqCst);
        }
    });
    let options = format!("--meter {address} --bytes meter --cut 0.4 --json");
    let report = json(&cost(&bench, &options, "touch ready; sleep 2.5"));
    watch.join().unwrap();
    let run = &report["runs"][0];
    let watts = run["watts_over_idle"].as_f64().unwrap();
    assert!((watts - 50.0).abs() < 5.0 && run["is_cut"] == true, "{report}");
    assert!((report["idle_watts"].as_f64().unwrap() - 45.0).abs() < 2.0, "{report}");
    let expected = watts / run["gib_per_s"].as_f64().unwrap();
    assert!((run["joules_per_gib"].as_f64().unwrap() - expected).abs() < 1e-6 * expected);
    assert_eq!(report["meter"], format!("the meter {address}"));
    meter.join().unwrap();
}

#[test]
fn requests_that_cannot_be_met_are_refused_before_the_command_runs() {
    let bench = Bench::new();
    std::fs::write(bench.path("other.json"), "[1, 2]").unwrap();
    for (options, code, words) in [
        ("--for 1,2", 3, "--for needs a {}"),
        ("--bytes some", 2, "neither a size nor"),
        ("--bytes device:none0", 3, "no device none0"),
        ("--cut 4000", 2, "up to 3600"),
        ("--meter 127.0.0.1:1", 3, "cannot reach the meter"),
        ("--meter nothing", 3, "cannot reach the meter"),
        ("--svg a.svg --with other.json", 3, "no report of fastness cost"),
        ("--with other.json", 2, "--svg"),
    ] {
        let output = cost(&bench, options, "touch ran");
        assert_eq!(output.status.code(), Some(code), "{options}: {output:?}");
        assert!(text(&output.stderr).contains(words), "{options}: {output:?}");
        assert!(!bench.path("ran").exists(), "{options}");
    }
}
