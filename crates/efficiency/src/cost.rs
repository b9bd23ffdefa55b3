//! From counters to costs.
//!
//! CPU cost = average CPUs in use / average bytes a second. Energy cost = (average power - idle power) /
//! average bytes a second. The averages are those of the window; where the bytes are known at the end only,
//! their average is that of the whole run, which is the same for a constant load.
//!
//! Source: dissertation (2025), 4.1.1 and 4.1.2.

use serde::{Deserialize, Serialize};

use crate::bytes::ByteSource;
use crate::cpu::ticks_per_second;
use crate::idle::Idle;
use crate::meter::Meter;
use crate::session::Run;

const GIB: f64 = (1_u64 << 30) as f64;

/// Average CPUs in use, by what they did.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Cores {
    /// Programs.
    pub user: f64,
    /// The kernel.
    pub system: f64,
    /// Handlers of interrupts.
    pub irq: f64,
    /// What handlers have put off.
    pub softirq: f64,
    /// What a hypervisor gave to others; not in the sum.
    pub steal: f64,
}

impl Cores {
    /// CPUs in use.
    pub fn busy(&self) -> f64 {
        self.user + self.system + self.irq + self.softirq
    }
}

/// Why a figure is missing, in words.
pub type NoFigure = String;

/// What one run has cost. What could not be measured is left out, and `missing` says why.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunCost {
    /// The value that was put into the command, if it was run for several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// How the command ended; left out for 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// Time of the run, in s.
    pub seconds: f64,
    /// Time that counts, in s.
    pub counted_seconds: f64,
    /// Whether both ends were cut off.
    pub is_cut: bool,
    /// Bytes of the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Where they were counted.
    pub bytes_from: String,
    /// GiB a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gib_per_s: Option<f64>,
    /// Average CPUs in use.
    pub cores: Cores,
    /// CPU time of the whole run, in s.
    pub cpu_seconds: f64,
    /// CPU cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_gib: Option<f64>,
    /// Average power beyond that of the idle machine, in W.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts_over_idle: Option<f64>,
    /// Energy cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joules_per_gib: Option<f64>,
    /// Why energy is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_energy: Option<NoFigure>,
    /// Why bytes are missing, and with them all costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_bytes: Option<NoFigure>,
}

/// The costs of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What was measured.
    pub name: String,
    /// CPUs of the machine.
    pub cpus: f64,
    /// How long the idle machine was watched, in s.
    pub idle_seconds: f64,
    /// Share of all CPUs that was in use then, in percent.
    pub idle_percent: f64,
    /// Its power, in W.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_watts: Option<f64>,
    /// What measured energy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meter: Option<String>,
    /// A run for each value, in the order in which they were made.
    pub runs: Vec<RunCost>,
}

impl Report {
    /// A report without runs.
    pub fn new(name: impl Into<String>, idle: &Idle, meter: &Meter) -> Report {
        Report {
            name: name.into(),
            cpus: idle.cpus,
            idle_seconds: idle.seconds,
            idle_percent: idle.busy_percent,
            idle_watts: idle.watts,
            meter: meter.describe().ok(),
            runs: Vec::new(),
        }
    }
}

impl RunCost {
    /// What a run has cost, against the idle machine.
    pub fn of(idle: &Idle, meter: &Meter, source: &ByteSource, run: &Run) -> RunCost {
        let (begin, end) = run.counted;
        let seconds =
            |from: std::time::Duration, to: std::time::Duration| (to - from).as_secs_f64().max(1e-9);
        let (counted, whole) = (seconds(begin.at, end.at), seconds(run.whole.0.at, run.whole.1.at));
        let used = end.cpu - begin.cpu;
        let cores = |ticks: u64| ticks as f64 / ticks_per_second() / counted;
        let bytes = run.bytes.as_ref().ok().copied().filter(|bytes| *bytes > 0);
        let in_window = end.bytes.zip(begin.bytes).map(|(end, begin)| end.saturating_sub(begin) as f64);
        let rate = bytes.map(|bytes| match in_window {
            Some(in_window) => in_window / counted / GIB,
            None => bytes as f64 / whole / GIB,
        });
        let rate = rate.filter(|rate| *rate > 0.0);
        let watts = end.joules.zip(begin.joules).map(|(end, begin)| (end - begin) / counted);
        let over_idle = watts.zip(idle.watts).map(|(watts, idle)| watts - idle);
        let cores = Cores {
            user: cores(used.user),
            system: cores(used.system),
            irq: cores(used.irq),
            softirq: cores(used.softirq),
            steal: cores(used.steal),
        };
        RunCost {
            value: None,
            exit_code: None,
            seconds: whole,
            counted_seconds: counted,
            is_cut: run.is_cut,
            bytes,
            bytes_from: source.describe(),
            gib_per_s: rate,
            cores,
            cpu_seconds: (run.whole.1.cpu - run.whole.0.cpu).busy() as f64 / ticks_per_second(),
            cpu_s_per_gib: rate.map(|rate| cores.busy() / rate),
            watts_over_idle: over_idle,
            joules_per_gib: over_idle.zip(rate).map(|(watts, rate)| watts / rate),
            no_energy: over_idle.is_none().then(|| why_no_energy(meter, run)),
            no_bytes: rate.is_none().then(|| why_no_bytes(run)),
        }
    }
}

fn why_no_energy(meter: &Meter, run: &Run) -> NoFigure {
    match (meter.describe(), &run.no_energy) {
        (Err(why), _) => format!("no meter: {}", why.0),
        (Ok(_), Some(error)) => fastness_base::chain(error),
        (Ok(meter), None) => format!("{meter} did not answer while the machine was idle"),
    }
}

fn why_no_bytes(run: &Run) -> NoFigure {
    match &run.bytes {
        Err(error) => fastness_base::chain(error),
        Ok(_) => "no bytes were counted".to_owned(),
    }
}

#[cfg(test)]
mod tests;
