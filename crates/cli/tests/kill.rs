//! A server that is killed at random, again and again, under clients that remember what they did.
//!
//! Several volumes (blocks of 512 B to 128 KiB, `sync=standard` and `always`, compressed or not), several
//! connections each, several requests in flight on each: writes of 512 B to 4 MiB that overlap, zeroes,
//! trims, flushes, FUA, and reads. The server gets SIGKILL at any moment, also while it starts and imports,
//! while volumes are unserved and served again, or while it exports; between two kills all sectors are read,
//! and judged by `fastness-history`, which knows nothing of the server.
//!
//! The requests of a connection follow from the seed; how they and the kill meet does not.
//! `FASTNESS_KILL_SEED` is the seed, `FASTNESS_KILL_ROUNDS` the number of kills of a pool. With
//! `FASTNESS_KILL_MINUTES`, seed after seed for so long: that is `scripts/soak-kill`. `FASTNESS_TEST_DIR` is
//! where the pools are, instead of in memory, `FASTNESS_KILL_POOL_SIZE` the size of a device, and
//! `FASTNESS_KILL_TXG_TIMEOUT` one timeout for all instead of several.

#![allow(unreachable_pub, missing_debug_implementations)]
#![allow(clippy::print_stdout, reason = "a soak says how far it is")]

#[path = "kill/connection.rs"]
mod connection;
#[path = "kill/life.rs"]
mod life;
#[path = "kill/plan.rs"]
mod plan;
#[path = "kill/program.rs"]
mod program;
#[path = "kill/server.rs"]
mod server;
mod support;

use std::time::{Duration, Instant};

use life::{Life, Met};
use plan::{Kind, Plan};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// A few kills of a pool of this kind.
fn kills(kind: Kind, seed: u64) {
    let rounds = number("FASTNESS_KILL_ROUNDS").unwrap_or(12);
    let plan = Plan::new(number("FASTNESS_KILL_SEED").unwrap_or(seed), Some(kind));
    let mut met = Met::default();
    Life::new(&plan).live(rounds, &mut met);
    // A kill that comes too early tests nothing.
    assert!(rounds < 12 || met.was_busy(), "{met:?}");
}

#[test]
fn nothing_acknowledged_is_lost_with_log_blocks_in_the_pool() {
    kills(Kind::Pool, 1);
}

#[test]
fn nothing_acknowledged_is_lost_with_a_log_device() {
    kills(Kind::LogDevice, 2);
}

#[test]
fn nothing_acknowledged_is_lost_with_persistent_memory() {
    kills(Kind::Pmem, 3);
}

#[test]
fn nothing_acknowledged_is_lost_that_only_the_log_has() {
    kills(Kind::OneCopy, 5);
}

#[test]
fn nothing_acknowledged_is_lost_with_a_mirror_of_persistent_memory() {
    kills(Kind::Mirror, 4);
}

#[test]
fn a_soak() {
    let Some(minutes) = number("FASTNESS_KILL_MINUTES") else { return };
    let first = number("FASTNESS_KILL_SEED").unwrap_or(0);
    let rounds = number("FASTNESS_KILL_ROUNDS").unwrap_or(40);
    let (begun, mut met) = (Instant::now(), Met::default());
    let mut seed = first;
    while begun.elapsed() < Duration::from_secs(minutes * 60) {
        let plan = Plan::new(seed, None);
        println!("seed {seed}: {plan}");
        Life::new(&plan).live(rounds, &mut met);
        seed += 1;
        println!("seeds {first}..{seed} done: {met}");
    }
}
