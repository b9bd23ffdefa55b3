//! A smaller workload that still fails.

use fastness_crashcheck_workload::jlang::Path;
use fastness_crashcheck_workload::{Command, Workload};

use super::fields::{numbers_mut, paths_mut};
use super::{names, operations, workload};
use crate::minimal;

/// Names that are read easily.
const NAMES: [&str; 3] = ["foo", "bar", "baz"];

/// A smaller workload of which `fails` says yes, as it does of `input`. It is asked up to `most` times; with
/// enough of these no operation can be left out, no number become 0 or a whole block, and no path a short
/// name.
///
/// # Errors
/// Those of `fails`.
pub fn shrink<E>(
    input: &Workload,
    most: usize,
    fails: &mut dyn FnMut(&Workload) -> Result<bool, E>,
) -> Result<Workload, E> {
    let mut asked = 0;
    let mut ask = |operations: &[Command]| {
        if asked == most {
            return Ok(false);
        }
        asked += 1;
        fails(&workload(operations.to_vec()))
    };
    let mut now = operations(input);
    // A setup, and checkpoints elsewhere, may be what it fails for.
    if !ask(&now)? {
        return Ok(input.clone());
    }
    loop {
        let fewer = minimal(now.clone(), most, &mut ask)?;
        let simple = simple(fewer, &mut ask)?;
        if simple == now {
            return Ok(workload(now));
        }
        now = simple;
    }
}

fn simple<E>(
    mut now: Vec<Command>,
    ask: &mut dyn FnMut(&[Command]) -> Result<bool, E>,
) -> Result<Vec<Command>, E> {
    'again: loop {
        for candidate in simpler(&now) {
            if ask(&candidate)? {
                now = candidate;
                continue 'again;
            }
        }
        return Ok(now);
    }
}

/// All that are simpler by one number or one path.
fn simpler(now: &[Command]) -> Vec<Vec<Command>> {
    let mut all = Vec::new();
    for at in 0..now.len() {
        for index in 0..numbers_mut(&mut now[at].clone()).len() {
            for whole in [0, 4096, 8192] {
                let mut candidate = now.to_vec();
                let (number, _) = numbers_mut(&mut candidate[at]).swap_remove(index);
                let is_simpler = rank(whole) < rank(*number);
                *number = whole;
                if is_simpler {
                    all.push(candidate);
                }
            }
        }
    }
    let used = names::used(now);
    for path in used.iter().filter(|path| !path.is_root() && path.as_str().len() > 3) {
        let free = NAMES.iter().filter_map(|name| Path::new(name).ok()).find(|name| !used.contains(name));
        if let Some(free) = free {
            let mut candidate = now.to_vec();
            let same = candidate.iter_mut().flat_map(paths_mut).filter(|other| *other == path);
            same.for_each(|other| *other = free.clone());
            all.push(candidate);
        }
    }
    all
}

/// The simplest numbers first: nothing, whole blocks, any.
fn rank(number: u64) -> u64 {
    match number {
        0 => 0,
        4096 => 1,
        8192 => 2,
        _ => 3,
    }
}
