//! CPU time of more writers than slots, in real time: the model's stalls are burnt on this machine's CPUs.

use std::sync::Arc;

use fastness_pmem::gate::{Gate, Policy};
use fastness_pmem::model::{DeviceModel, Node, ONE_MODULE, Stall};

use super::load::{collect, gated, logged, turn};
use crate::error::Result;
use crate::measure::{Pair, Spread, by_turns};
use crate::{Options, Row};

/// Of a turn: long enough that starting its threads does not show.
const TURN_BYTES: usize = 24 << 20;
const GOAL: f64 = 1.15;
/// Writers for each slot.
const TIMES: usize = 4;

pub(super) fn rows(options: Options) -> Result<Vec<Row>> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let turns = if options.quick { 9 } else { options.turns() / 8 };
    let mut rows = Vec::new();
    for slots in [1, 2, 3].into_iter().filter(|slots| *slots as usize <= cpus) {
        for block in [4096, 16_384] {
            let semaphore = Policy::Semaphore { writers_max: slots };
            let workers = Policy::Workers { writers_max: slots, is_adaptive: true, cpus: Vec::new() };
            rows.push(row("semaphore", slots, block, &of_gate(&semaphore, slots, block, turns)?, Some(GOAL)));
            rows.push(row("commit slots", slots, block, &of_log(slots, block, turns)?, Some(GOAL)));
            rows.push(row("adaptive workers", slots, block, &of_gate(&workers, slots, block, turns)?, None));
        }
    }
    Ok(rows)
}

fn device() -> Arc<DeviceModel> {
    Arc::new(DeviceModel::new(ONE_MODULE, Stall::Burn))
}

fn of_gate(policy: &Policy, slots: u32, block: usize, turns: usize) -> Result<Pair> {
    let side = |writers: usize| gated(writers, &Arc::new(Gate::new(policy.clone())?), &device(), Node::Local);
    let (mut many, mut few) = (side(TIMES * slots as usize)?, side(slots as usize)?);
    let (data, count) = (vec![0xa5; block], TURN_BYTES / block);
    by_turns(
        turns,
        count,
        || Ok(turn(&mut many, &data, count)?.cpu),
        || Ok(turn(&mut few, &data, count)?.cpu),
    )
}

fn of_log(slots: u32, block: usize, turns: usize) -> Result<Pair> {
    let (data, count) = (vec![0xa5; block], TURN_BYTES / block);
    let side = |writers: usize| logged(writers, slots, &device(), Node::Local, TURN_BYTES / writers);
    let (mut many, mut few) = (side(TIMES * slots as usize)?, side(slots as usize)?);
    let of = |logs: &mut Vec<_>| {
        let cpu = turn(logs, &data, count)?.cpu;
        collect(logs)?;
        Ok(cpu)
    };
    by_turns(turns, count, || of(&mut many), || of(&mut few))
}

fn row(what: &str, slots: u32, block: usize, pair: &Pair, goal: Option<f64>) -> Row {
    let per_gib = |ns: f64| ns / 1e9 * (1_u64 << 30) as f64 / block as f64;
    let writers = TIMES * slots as usize;
    Row {
        name: format!("burnt: CPU time, {what}, {writers} writers with {slots} slots, {block} B"),
        value: Some(per_gib(Spread::of(pair.a.clone()).median)),
        unit: "s/GiB",
        baseline: Some(format!(
            "as many writers as slots, {:.2} s/GiB",
            per_gib(Spread::of(pair.b.clone()).median)
        )),
        medium: format!("model of {}", ONE_MODULE.name),
        threads: writers,
        ..Row::ratio(pair.ratio(), goal.map(|goal| (goal, "at most")))
    }
}
