//! What the call itself costs, on emulated PM: the direct policy against a copy and a fence.

use std::sync::Arc;

use fastness_pmem::gate::{Gate, Policy};
use fastness_pmem::{Medium, NoSum, PmRange, WriteMethod};

use crate::error::Result;
use crate::measure::{Pair, Spread, by_turns, time_ns};
use crate::medium::{emulated_pm, two_sides};
use crate::{Options, Row};

const REGION_BYTES: usize = 128 << 20;
const PIECES: usize = 16;
const BLOCK: [u8; 4096] = [0xa5; 4096];
const WRITES_PER_TURN: usize = 2000;

/// Ranges that are written from one end to the other, again and again.
struct Side {
    ranges: Vec<PmRange>,
    at: usize,
}

impl Side {
    fn turn(&mut self, mut write: impl FnMut(&mut PmRange, usize) -> Result<()>) -> Result<f64> {
        let blocks = self.ranges[0].len_bytes() / BLOCK.len();
        time_ns(|| {
            for _ in 0..WRITES_PER_TURN {
                let (range, block) = (self.at / blocks % PIECES, self.at % blocks);
                write(&mut self.ranges[range], block * BLOCK.len())?;
                self.at += 1;
            }
            Ok(())
        })
    }
}

pub(super) fn rows(options: Options) -> Result<Vec<Row>> {
    let cases = [
        ("write_pm without a gate", None, Some(1.05)),
        ("write_pm, direct policy", Some(Policy::Direct), Some(1.05)),
        ("write_pm, semaphore with a free slot", Some(Policy::Semaphore { writers_max: 4 }), None),
    ];
    cases.into_iter().map(|(name, policy, goal)| row(options, name, policy, goal)).collect()
}

fn row(options: Options, name: &str, policy: Option<Policy>, goal: Option<f64>) -> Result<Row> {
    let (a, b) = two_sides(emulated_pm(REGION_BYTES, WriteMethod::Auto)?, PIECES)?;
    let (mut ours, mut floor) = (Side { ranges: a, at: 0 }, Side { ranges: b, at: 0 });
    let gate = policy.map(Gate::new).transpose()?.map(Arc::new);
    let pair: Pair = by_turns(
        options.turns(),
        WRITES_PER_TURN,
        || {
            ours.turn(|range, at| {
                match &gate {
                    Some(gate) => gate.write_pm(range, at, &BLOCK)?,
                    None => range.write_pm(at, &BLOCK)?,
                }
                Ok(())
            })
        },
        || {
            floor.turn(|range, at| {
                // PERSIST: the floor has the fence of a write, so that the ratio is the call's own cost.
                range.copy(at, &BLOCK, BLOCK.len(), &mut NoSum);
                range.fence()?;
                Ok(())
            })
        },
    )?;
    Ok(Row {
        name: format!("{name}, 4096 B"),
        value: Some(Spread::of(pair.a.clone()).median),
        unit: "ns",
        baseline: Some(format!("copy and fence, {:.0} ns", Spread::of(pair.b.clone()).median)),
        ..Row::ratio(pair.ratio(), goal.map(|goal| (goal, "at most")))
    })
}
