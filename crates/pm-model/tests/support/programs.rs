//! Random small programs.

use fastness_pm_model::{FenceKind, FlushKind, Op, Rng};

/// Size of the programs' PM: three lines.
pub(crate) const SIZE: usize = 192;

/// Which operations a program may contain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mix {
    pub(crate) max_ops: usize,
    pub(crate) max_pieces: usize,
    pub(crate) nt: bool,
}

/// A program with at least one operation.
pub(crate) fn random_program(rng: &mut Rng, mix: Mix) -> Vec<Op> {
    let count = 1 + rng.index(mix.max_ops);
    let lines = 1 + rng.below(3);
    let mut pieces = 0;
    let mut ops = Vec::new();
    while ops.len() < count {
        let op = random_op(rng, lines, mix);
        pieces += pieces_of(&op);
        if pieces > mix.max_pieces {
            break;
        }
        ops.push(op);
    }
    ops
}

fn pieces_of(op: &Op) -> usize {
    match op {
        Op::Store { atomic64: true, .. } => 1,
        Op::Store { addr, data, .. } | Op::Rmw { addr, data } => {
            ((addr % 8) as usize + data.len()).div_ceil(8)
        }
        _ => 0,
    }
}

fn random_op(rng: &mut Rng, lines: u64, mix: Mix) -> Op {
    let line = rng.below(lines) * 64;
    match rng.below(20) {
        0..=6 => random_store(rng, line, false),
        7..=10 if mix.nt => random_store(rng, line, true),
        7..=10 => random_store(rng, line, false),
        11..=12 => Op::clflush(line),
        13..=14 => Op::clwb(line + rng.below(64)),
        15 => Op::Flush { kind: FlushKind::Clflushopt, addr: line },
        16..=17 => Op::sfence(),
        18 if rng.one_in(3) => Op::Fence(FenceKind::Lfence),
        18 if rng.one_in(4) => Op::rmw(line, [[value(rng); 8], [value(rng); 8]].concat()),
        18 => Op::rmw(line + 8 * rng.below(2), [value(rng); 8]),
        19 if mix.nt && rng.one_in(3) => Op::movdir64b(line, [value(rng); 64]),
        _ => Op::Fence(FenceKind::Mfence),
    }
}

fn value(rng: &mut Rng) -> u8 {
    rng.below(3) as u8
}

fn random_store(rng: &mut Rng, line: u64, nt: bool) -> Op {
    let (offset, len) = match rng.below(12) {
        0 => (4, 8),
        1 => (0, 16),
        2 if line < 128 => (60, 8),
        3 => (3, 1),
        4 => (4, 4),
        5 if rng.one_in(3) => (0, 32),
        6 if line < 128 && rng.one_in(3) => (52, 16),
        7..=8 => (8, 8),
        _ => (0, 8),
    };
    let data: Vec<u8> = (0..len).map(|_| value(rng)).collect();
    let data = if rng.one_in(2) { vec![1 + value(rng); len] } else { data };
    Op::Store { addr: line + offset, data, nt, atomic64: false }
}
