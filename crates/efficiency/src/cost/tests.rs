use super::*;

use std::fs;
use std::time::Duration;

use crate::cpu::CpuTimes;
use crate::error::CostError;
use crate::machine::Machine;
use crate::window::Sample;

const NO_METER: &str = "/no/such/folder";

fn no_meter() -> Meter {
    Meter::of_machine(&Machine::testing(NO_METER, NO_METER))
}

fn idle(watts: Option<f64>) -> Idle {
    Idle { seconds: 5.0, busy_percent: 0.5, cpus: 8.0, watts }
}

/// After so many seconds: ticks of the kernel, joules, bytes.
fn sample(at: f64, seconds: f64, joules: Option<f64>, bytes: Option<u64>) -> Sample {
    let ticks = |seconds: f64| (seconds * ticks_per_second()) as u64;
    let cpu = CpuTimes { system: ticks(seconds), idle: ticks(8.0 * at), ..CpuTimes::default() };
    Sample { at: Duration::from_secs_f64(at), cpu, joules, bytes }
}

fn run(samples: [Sample; 4], bytes: Result<u64, CostError>) -> Run {
    let [first, begin, end, last] = samples;
    Run { whole: (first, last), counted: (begin, end), is_cut: true, bytes, no_energy: None }
}

fn near(is: Option<f64>, expected: f64) -> bool {
    is.is_some_and(|is| (is - expected).abs() < 1e-6)
}

/// The dissertation's definition, with numbers that can be checked by hand: 2 CPUs in use, 0.5 GiB/s, 150 W
/// of which 73 W are those of the idle machine.
#[test]
fn cost_is_what_is_used_for_each_gib() {
    let at = |at: f64| sample(at, 2.0 * at, Some(150.0 * at), None);
    let run = run([at(0.0), at(1.0), at(29.0), at(30.0)], Ok(15 << 30));
    let cost = RunCost::of(&idle(Some(73.0)), &no_meter(), &ByteSource::Given(15 << 30), &run);
    assert!(near(cost.cpu_s_per_gib, 4.0) && near(cost.gib_per_s, 0.5), "{cost:?}");
    assert!(near(cost.watts_over_idle, 77.0) && near(cost.joules_per_gib, 154.0), "{cost:?}");
    assert!(near(Some(cost.cpu_seconds), 60.0) && near(Some(cost.counted_seconds), 28.0), "{cost:?}");
    assert_eq!((cost.no_energy, cost.no_bytes), (None, None));
}

/// A load that prepares itself for a second at full speed and transfers nothing at its ends.
#[test]
fn what_is_cut_off_is_not_in_the_cost() {
    let samples = [
        sample(0.0, 0.0, Some(0.0), Some(0)),
        sample(1.0, 8.0, Some(500.0), Some(0)),
        sample(11.0, 18.0, Some(1500.0), Some(5 << 30)),
        sample(12.0, 26.0, Some(2000.0), Some(5 << 30)),
    ];
    let cost = RunCost::of(
        &idle(Some(50.0)),
        &no_meter(),
        &ByteSource::Devices(vec!["sda".to_owned()]),
        &run(samples, Ok(5 << 30)),
    );
    assert!(near(cost.cpu_s_per_gib, 2.0) && near(cost.gib_per_s, 0.5), "{cost:?}");
    assert!(near(cost.watts_over_idle, 50.0) && near(cost.joules_per_gib, 100.0), "{cost:?}");
    assert!(near(Some(cost.cpu_seconds), 26.0), "of the whole run: {cost:?}");
}

#[test]
fn what_was_not_measured_is_missing_with_the_reason() {
    let at = |at: f64| sample(at, at, None, None);
    let samples = || [at(0.0), at(1.0), at(9.0), at(10.0)];
    let source = ByteSource::Given(0);
    let cost = RunCost::of(&idle(None), &no_meter(), &source, &run(samples(), Ok(1 << 30)));
    assert!(cost.cpu_s_per_gib.is_some() && cost.joules_per_gib.is_none() && cost.watts_over_idle.is_none());
    let why = cost.no_energy.unwrap();
    assert!(why.starts_with("no meter: no /no/such/folder/class/powercap"), "{why}");

    let cost = RunCost::of(&idle(None), &no_meter(), &source, &run(samples(), Ok(0)));
    assert_eq!((cost.bytes, cost.cpu_s_per_gib, cost.gib_per_s), (None, None, None));
    assert_eq!(cost.no_bytes.as_deref(), Some("no bytes were counted"));
    assert!(near(Some(cost.cores.busy()), 1.0), "what is known is there");

    let failed = CostError::NoDevice { path: "/proc/diskstats".into(), name: "sdz".to_owned() };
    let cost = RunCost::of(&idle(None), &no_meter(), &source, &run(samples(), Err(failed)));
    assert_eq!(cost.no_bytes.as_deref(), Some("/proc/diskstats has no device sdz"));

    let ended = CostError::Ended { address: "meter:1".to_owned() };
    let run = Run { no_energy: Some(ended), ..run(samples(), Ok(1)) };
    let dir = tempfile::tempdir().unwrap();
    let zone = dir.path().join("class/powercap/intel-rapl:0");
    fs::create_dir_all(&zone).unwrap();
    for (name, text) in [("name", "package-0"), ("energy_uj", "5"), ("max_energy_range_uj", "9")] {
        fs::write(zone.join(name), text).unwrap();
    }
    let meter = Meter::of_machine(&Machine::testing(dir.path(), dir.path()));
    let cost = RunCost::of(&idle(Some(1.0)), &meter, &source, &run);
    assert_eq!(cost.no_energy.as_deref(), Some("the meter meter:1 has ended"));
}

#[test]
fn reports_come_back_from_json() {
    let at = |at: f64| sample(at, at, None, None);
    let cost = RunCost::of(
        &idle(None),
        &no_meter(),
        &ByteSource::Given(1),
        &run([at(0.0), at(1.0), at(9.0), at(10.0)], Ok(1 << 30)),
    );
    let mut report = Report::new("ext4", &idle(None), &no_meter());
    report.runs = vec![RunCost { value: Some("4".to_owned()), exit_code: Some(2), ..cost.clone() }, cost];
    let json = serde_json::to_string(&report).unwrap();
    assert!(!json.contains("joules") && !json.contains("null"), "{json}");
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
}
