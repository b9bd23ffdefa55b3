//! Measurements over counters that a test moves.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastness_base::ErrorKind;
use fastness_efficiency::{
    ByteSource, CostError, Counted, Idle, IdleRule, Machine, Meter, RunCost, Session, ticks_per_second,
};

const MOMENT: Duration = Duration::from_millis(350);

/// A machine of files.
struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    fn new() -> Fake {
        let fake = Fake { dir: tempfile::tempdir().unwrap() };
        fake.cpu(0, 0);
        fake
    }

    fn machine(&self) -> Machine {
        Machine::testing(self.dir.path(), self.dir.path())
    }

    /// Replaces a file in one step, as counters change.
    fn put(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &path).unwrap();
    }

    fn cpu(&self, busy: u64, idle: u64) {
        self.put("stat", &format!("cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n"));
    }

    fn energy(&self, text: &str) {
        let zone = Path::new("class/powercap/intel-rapl:0");
        self.put(zone.join("name").to_str().unwrap(), "package-0");
        self.put(zone.join("max_energy_range_uj").to_str().unwrap(), "1000000000");
        self.put(zone.join("energy_uj").to_str().unwrap(), text);
    }

    fn disk(&self, sectors: u64) {
        self.put("diskstats", &format!("8 0 sda 1 0 0 1 1 0 {sectors} 1 0 1 1\n"));
    }
}

fn sda() -> ByteSource {
    ByteSource::Devices(vec!["sda".to_owned()])
}

#[test]
fn counters_at_the_ends_of_a_run_make_its_cost() {
    let fake = Fake::new();
    fake.energy("0");
    fake.disk(0);
    let (machine, meter) = (fake.machine(), Meter::of_machine(&fake.machine()));
    let idle = Idle::measure(&machine, &meter, IdleRule { watch: MOMENT, max_percent: 2.0 }).unwrap();
    assert_eq!((idle.busy_percent, idle.watts), (0.0, Some(0.0)));
    let session = Session::start(&machine, &meter, sda(), Duration::from_secs(1)).unwrap();
    let second = ticks_per_second() as u64;
    fake.cpu(6 * second, second);
    fake.energy("9000000");
    fake.disk(3 << 21);
    let run = session.finish(0).unwrap();
    assert!(!run.is_cut, "too short to be cut");
    let cost = RunCost::of(&idle, &meter, &sda(), &run);
    assert_eq!((cost.bytes, cost.cpu_seconds), (Some(3 << 30), 6.0));
    assert!((cost.cpu_s_per_gib.unwrap() - 2.0).abs() < 1e-6, "{cost:?}");
    assert!((cost.joules_per_gib.unwrap() - 3.0).abs() < 1e-6, "{cost:?}");
}

#[test]
fn a_machine_that_is_in_use_is_refused_and_the_busiest_process_named() {
    let fake = Fake::new();
    let process = |ticks: u64| format!("71 (fio) S 1 1 1 0 -1 0 1 0 0 0 {ticks} 0 0 0 20 0 1 0\n");
    fake.put("71/stat", &process(0));
    let is_over = AtomicBool::new(false);
    let meter = Meter::of_machine(&fake.machine());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for ticks in (0..).take_while(|_| !is_over.load(Ordering::SeqCst)) {
                fake.cpu(10 * ticks, 90 * ticks);
                fake.put("71/stat", &process(10 * ticks));
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let measure =
            |max_percent| Idle::measure(&fake.machine(), &meter, IdleRule { watch: MOMENT, max_percent });
        let (refused, allowed) = (measure(9.0), measure(11.0));
        is_over.store(true, Ordering::SeqCst);
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Retry);
        let said = refused.to_string();
        assert!(said.contains("not idle: 10.0 %") && said.contains("fio (71)"), "{said}");
        assert!((allowed.unwrap().busy_percent - 10.0).abs() < 0.1);
    });
}

#[test]
fn a_counter_that_fails_in_the_middle_costs_its_own_figure_only() {
    let fake = Fake::new();
    fake.energy("0");
    fake.disk(0);
    let (machine, meter) = (fake.machine(), Meter::of_machine(&fake.machine()));
    let idle = Idle { seconds: 1.0, busy_percent: 0.0, cpus: 1.0, watts: Some(1.0) };
    let session = Session::start(&machine, &meter, sda(), Duration::ZERO).unwrap();
    fake.energy("?");
    fake.disk(2 << 21);
    std::thread::sleep(MOMENT);
    // Back again: what happened in between is not known.
    fake.energy("5000000");
    let cost = RunCost::of(&idle, &meter, &sda(), &session.finish(0).unwrap());
    assert_eq!((cost.bytes, cost.joules_per_gib), (Some(2 << 30), None));
    assert!(cost.no_energy.unwrap().ends_with("energy_uj is not a number"));

    let session = Session::start(&machine, &meter, sda(), Duration::ZERO).unwrap();
    fake.put("diskstats", "");
    std::thread::sleep(MOMENT);
    fake.disk(4 << 21);
    let run = session.finish(0).unwrap();
    assert!(matches!(run.bytes, Err(CostError::NoDevice { .. })), "{:?}", run.bytes);

    let session = Session::start(&machine, &meter, sda(), Duration::ZERO).unwrap();
    fs::remove_file(fake.dir.path().join("stat")).unwrap();
    assert!(matches!(session.finish(0), Err(CostError::Read { .. })), "without CPU time there is no result");
}

#[test]
fn what_cannot_be_counted_is_refused_before_the_run() {
    let fake = Fake::new();
    let meter = Meter::of_machine(&fake.machine());
    let error = Session::start(&fake.machine(), &meter, sda(), Duration::ZERO).unwrap_err();
    assert!(matches!(error, CostError::Read { .. }), "no diskstats: {error}");
    fake.disk(0);
    let other = ByteSource::Devices(vec!["sdb".to_owned()]);
    let error = Session::start(&fake.machine(), &meter, other, Duration::ZERO).unwrap_err();
    assert!(matches!(error, CostError::NoDevice { .. }), "{error}");
}

/// The kernel's counts of a real child, and of its child.
#[test]
fn what_a_command_and_its_children_write_is_counted_once() {
    let (machine, fake) = (Machine::default(), Fake::new());
    let written = ByteSource::Calls(Counted::Written);
    let session =
        Session::start(&machine, &Meter::of_machine(&fake.machine()), written, Duration::ZERO).unwrap();
    let script = "head -c 3000000 /dev/zero > /dev/null; sh -c 'head -c 2000000 /dev/zero > /dev/null; true'";
    assert!(std::process::Command::new("sh").args(["-c", script]).status().unwrap().success());
    let bytes = session.finish(0).unwrap().bytes.unwrap();
    // Threads of other tests that end meanwhile have written a little.
    assert!((5_000_000..5_500_000).contains(&bytes), "{bytes}");
}

/// The whole machine's time is seen, that of other processes, too.
#[test]
fn a_busy_process_is_in_the_time_of_the_machine() {
    let machine = Machine::default();
    let meter = Meter::of_machine(&Machine::testing("/nowhere", "/nowhere"));
    let session = Session::start(&machine, &meter, ByteSource::Given(1 << 30), Duration::ZERO).unwrap();
    let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; times";
    let output = std::process::Command::new("sh").args(["-c", script]).output().unwrap();
    let run = session.finish(0).unwrap();
    assert!(output.status.success());
    let (first, last) = run.whole;
    let used_s = (last.cpu - first.cpu).busy() as f64 / ticks_per_second();
    // "0m0.21s 0m0.00s": its own time, as the kernel counted it for the process.
    let text = String::from_utf8(output.stdout).unwrap();
    let own_s: f64 = text.lines().next().unwrap().split_whitespace().map(seconds).sum();
    assert!(
        used_s >= 0.5 * own_s - 0.05 && own_s > 0.05,
        "{used_s} s of the machine, {own_s} s of the process"
    );
}

fn seconds(text: &str) -> f64 {
    let (minutes, seconds) = text.trim_end_matches('s').split_once('m').unwrap();
    minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
}
