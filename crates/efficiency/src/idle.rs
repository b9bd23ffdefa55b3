//! The machine before the load: how much of it is in use, by what, and what power it takes.
//!
//! The CPU time of all processes counts, so a load can only be measured on a machine that does nothing else.
//!
//! Source: dissertation (2025), 4.1.2, step 1.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use crate::bytes::ByteSource;
use crate::cpu::ticks_per_second;
use crate::error::CostError;
use crate::machine::Machine;
use crate::meter::Meter;
use crate::session::Session;

/// Processes that are named at most.
const NAMED_MAX: usize = 3;

/// What counts as idle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IdleRule {
    /// How long the machine is watched.
    pub watch: Duration,
    /// Share of the time of all CPUs that may be in use, in percent.
    pub max_percent: f64,
}

impl Default for IdleRule {
    fn default() -> IdleRule {
        IdleRule { watch: Duration::from_secs(5), max_percent: 2.0 }
    }
}

/// The idle machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Idle {
    /// How long it was watched, in s.
    pub seconds: f64,
    /// Share of the time of all CPUs that was in use, in percent.
    pub busy_percent: f64,
    /// CPUs whose time was counted.
    pub cpus: f64,
    /// Power, if there is a meter that answers.
    pub watts: Option<f64>,
}

impl Idle {
    /// Watches the machine, and refuses one that is in use.
    ///
    /// # Errors
    /// [`CostError::NotIdle`], with the busiest processes; those of the counters.
    pub fn measure(machine: &Machine, meter: &Meter, rule: IdleRule) -> Result<Idle, CostError> {
        let before = processes(machine);
        let session = Session::start(machine, meter, ByteSource::Given(0), Duration::ZERO)?;
        std::thread::sleep(rule.watch);
        let run = session.finish(0)?;
        let (first, last) = run.whole;
        let (used, seconds) = (last.cpu - first.cpu, (last.at - first.at).as_secs_f64());
        let total = used.total().max(1) as f64;
        let busy_percent = 100.0 * used.busy() as f64 / total;
        if busy_percent > rule.max_percent {
            let who = busiest(&before, &processes(machine), seconds);
            return Err(CostError::NotIdle { busy_percent, max_percent: rule.max_percent, seconds, who });
        }
        let joules = last.joules.zip(first.joules).map(|(last, first)| last - first);
        Ok(Idle {
            seconds,
            busy_percent,
            cpus: (total / ticks_per_second() / seconds).round(),
            watts: joules.map(|joules| joules / seconds),
        })
    }
}

/// Name and ticks of each process, by its number.
type Processes = HashMap<u32, (String, u64)>;

/// What can be read of them: processes come and go.
fn processes(machine: &Machine) -> Processes {
    let Ok(listed) = fs::read_dir(&machine.proc) else { return Processes::new() };
    let numbers = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of = |number: u32| {
        let text = fs::read_to_string(machine.proc.join(format!("{number}/stat"))).ok()?;
        Some((number, name_and_ticks(&text)?))
    };
    numbers.filter_map(of).collect()
}

/// "71 (fio) S 1 ...": the name may have anything in it; the 14th and the 15th field are ticks.
fn name_and_ticks(text: &str) -> Option<(String, u64)> {
    let (before, after) = text.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((name.escape_debug().to_string(), ticks(11)?.checked_add(ticks(12)?)?))
}

/// In words, those first that use most; those that use less than a hundredth of a CPU are left out.
fn busiest(before: &Processes, after: &Processes, seconds: f64) -> String {
    let used = |(number, (name, ticks)): (&u32, &(String, u64))| {
        let earlier = before.get(number).map_or(0, |(_, ticks)| *ticks);
        let percent = 100.0 * ticks.saturating_sub(earlier) as f64 / ticks_per_second() / seconds;
        (percent >= 1.0).then(|| (percent, format!("{name} ({number}) {percent:.0} % of a CPU")))
    };
    let mut all: Vec<(f64, String)> = after.iter().filter_map(used).collect();
    all.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let words: Vec<_> = all.into_iter().take(NAMED_MAX).map(|(_, words)| words).collect();
    if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_processes_are_named() {
        let of = |list: &[(u32, &str, u64)]| -> Processes {
            list.iter().map(|(number, name, ticks)| (*number, ((*name).to_owned(), *ticks))).collect()
        };
        let before = of(&[(1, "init", 50), (7, "fio", 100), (8, "cc", 0), (9, "idle", 3)]);
        let after = of(&[
            (1, "init", 50),
            (7, "fio", 190),
            (8, "cc", 40),
            (9, "idle", 3),
            (12, "new", 20),
            (13, "x", 10),
        ]);
        let said = busiest(&before, &after, 100.0 / ticks_per_second());
        assert_eq!(said, ": fio (7) 90 % of a CPU, cc (8) 40 % of a CPU, new (12) 20 % of a CPU");
        assert_eq!(busiest(&after, &after, 1.0), "");
    }

    #[test]
    fn names_may_have_anything_in_them() {
        let stat = "71 (a) (b\n) S 1 1 1 0 -1 4194304 100 0 0 0 12 30 0 0 20 0 1 0";
        assert_eq!(name_and_ticks(stat), Some(("a) (b\\n".to_owned(), 42)));
        for text in ["", "71 (a", "71 (a) S 1", "71 (a) S 1 1 1 0 -1 4194304 100 0 0 0 x 30 0"] {
            assert_eq!(name_and_ticks(text), None, "{text}");
        }
    }
}
