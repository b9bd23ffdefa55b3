//! The same counters through perf: the events `energy-pkg` and `energy-ram` of the PMU `power`.
//!
//! Source: `perf_event_open(2)`; `Documentation/ABI/testing/sysfs-bus-event_source-devices-events`.

use std::fs::File;
use std::io::{self, Read};

use crate::error::CostError;
use crate::machine::{Machine, number, read};
use crate::perf_event::{self, Attributes, Scope};

/// Those that are added up; the second one is not everywhere.
const EVENTS: [&str; 2] = ["energy-pkg", "energy-ram"];

/// An open counter for each event and package.
#[derive(Debug)]
pub(crate) struct PerfEvents {
    counters: Vec<Counter>,
}

#[derive(Debug)]
struct Counter {
    event: &'static str,
    file: File,
    joules_each: f64,
}

impl PerfEvents {
    /// The counters; an error says why there are none.
    pub(crate) fn find(machine: &Machine) -> Result<PerfEvents, String> {
        let pmu = machine.sys.join("bus/event_source/devices/power");
        if !pmu.is_dir() {
            return Err(format!("no {}", pmu.display()));
        }
        let why = |error: CostError| fastness_base::chain(&error);
        let kind = number(&pmu.join("type")).map_err(why)?;
        let cpus = fastness_pmem::cpu_list(&read(&pmu.join("cpumask")).map_err(why)?);
        let cpus = cpus.filter(|cpus| !cpus.is_empty()).ok_or("cpumask is no list of CPUs")?;
        let mut counters = Vec::new();
        for event in EVENTS {
            let Ok(code) = read(&pmu.join("events").join(event)) else { continue };
            let scale = read(&pmu.join("events").join(format!("{event}.scale"))).map_err(why)?;
            let (config, joules_each) =
                event_of(&code, &scale).ok_or_else(|| format!("the event {event} is not as documented"))?;
            for cpu in &cpus {
                let opened = u32::try_from(kind).map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
                let file = opened.and_then(|kind| open(kind, config, *cpu as u32));
                let file = file
                    .map_err(|source| why(CostError::Event { event: format!("power/{event}/"), source }))?;
                counters.push(Counter { event, file, joules_each });
            }
        }
        if counters.iter().any(|counter| counter.event == EVENTS[0]) {
            return Ok(PerfEvents { counters });
        }
        Err(format!("no event {} in {}", EVENTS[0], pmu.display()))
    }

    pub(crate) fn describe(&self) -> String {
        let has_memory = self.counters.iter().any(|counter| counter.event == EVENTS[1]);
        let packages = self.counters.iter().filter(|counter| counter.event == EVENTS[0]).count();
        format!("RAPL by perf ({packages} packages{})", if has_memory { ", memory" } else { "" })
    }

    pub(crate) fn joules(&mut self) -> Result<f64, CostError> {
        let mut sum = 0.0;
        for counter in &mut self.counters {
            let mut bytes = [0; 8];
            let failed = |source| CostError::Event { event: format!("power/{}/", counter.event), source };
            counter.file.read_exact(&mut bytes).map_err(failed)?;
            sum += u64::from_ne_bytes(bytes) as f64 * counter.joules_each;
        }
        Ok(sum)
    }
}

/// "event=0x02" and "2.3e-10": the number of the event, and joules for each count.
fn event_of(code: &str, scale: &str) -> Option<(u64, f64)> {
    let code = code.trim().strip_prefix("event=0x")?;
    let scale: f64 = scale.trim().parse().ok()?;
    Some((u64::from_str_radix(code, 16).ok()?, scale)).filter(|(_, scale)| scale.is_finite() && *scale > 0.0)
}

/// Counts an event of any process on one CPU.
fn open(kind: u32, config: u64, cpu: u32) -> io::Result<File> {
    perf_event::open(&Attributes::new(kind, config), Scope::Cpu(cpu)).map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;

    #[test]
    fn descriptions_of_events_are_read() {
        assert_eq!(event_of("event=0x02\n", "2.5e-10\n"), Some((2, 2.5e-10)));
        for (code, scale) in
            [("event=2", "1"), ("event=0xg", "1"), ("event=0x2", "NaN"), ("event=0x2", "-1"), ("", "")]
        {
            assert_eq!(event_of(code, scale), None, "{code} {scale}");
        }
    }

    fn machine_with(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let dir = tempfile::tempdir().unwrap();
        let pmu = dir.path().join("bus/event_source/devices/power");
        fs::create_dir_all(pmu.join("events")).unwrap();
        for (name, text) in files {
            fs::write(pmu.join(name), text).unwrap();
        }
        let machine = Machine::testing(dir.path(), dir.path());
        (dir, machine)
    }

    /// The call itself, with an event that every kernel has: the clock of a CPU counts nanoseconds.
    #[test]
    #[allow(clippy::print_stdout, reason = "a test that is skipped says why")]
    fn an_event_of_a_cpu_is_counted() {
        const SOFTWARE: &str = "1";
        let files = [
            ("type", SOFTWARE),
            ("cpumask", "0"),
            ("events/energy-pkg", "event=0x0"),
            ("events/energy-pkg.scale", "1e-9"),
        ];
        let (_dir, machine) = machine_with(&files);
        let mut events = match PerfEvents::find(&machine) {
            Ok(events) => events,
            Err(why)
                if why.contains("denied") || why.contains("permitted") || why.contains("not implemented") =>
            {
                println!("SKIPPED: {why}");
                return;
            }
            Err(why) => panic!("{why}"),
        };
        assert_eq!(events.describe(), "RAPL by perf (1 packages)");
        let first = events.joules().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let passed = events.joules().unwrap() - first;
        assert!((0.04..10.0).contains(&passed), "{passed} s of CPU 0's clock");
    }

    #[test]
    fn what_is_missing_or_denied_is_named() {
        let why = |files: &[(&str, &str)]| {
            let (_dir, machine) = machine_with(files);
            PerfEvents::find(&machine).unwrap_err()
        };
        assert!(why(&[]).contains("power/type"));
        assert!(why(&[("type", "1"), ("cpumask", "?")]).contains("cpumask"));
        assert!(why(&[("type", "1"), ("cpumask", "0")]).starts_with("no event energy-pkg"));
        let no_such_pmu = [
            ("type", "4000000000"),
            ("cpumask", "0"),
            ("events/energy-pkg", "event=0x2"),
            ("events/energy-pkg.scale", "1"),
        ];
        assert!(why(&no_such_pmu).starts_with("cannot open the event power/energy-pkg/"));
    }
}
