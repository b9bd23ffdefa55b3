//! The whole stack, simulated: a pool, its log of either kind and volumes, on persistent memory and on disks that lose
//! their power together, or under a process that dies.
//!
//! One seed is one program and one schedule: one thread, no txg thread. Writes, zeroes, discards, flushes; txgs; volumes
//! are made; the kind of the log and its vdevs change. The end comes at any store or fence in persistent memory, or any
//! write or flush of a disk, which are counted together; then, now and then, once more in the middle of the import. What
//! is left of persistent memory is drawn from the states that the `pm-model` allows, what is left of each disk from those
//! that its volatile cache allows. When a process dies, nothing is lost of either, and nothing is durable that was not.
//!
//! What must hold of a volume after an import:
//! 1. Its bytes are divided at the borders of blocks of 4096 bytes, of changes since it was last durable as a whole, and of
//!    their records (64 KiB from the beginning of a change). Each part holds, as a whole, what one of the changes that
//!    cover it left, or what was there before them; never anything older than the newest of these that is *durable*.
//! 2. Durable is a change that returned with FUA; before which a flush of the volume returned; whose txg is synced (so a
//!    sync that returned); and of kind pmem each that returned and was logged.
//! 3. If the log was of kind lwb throughout, what is left is a prefix of the records since then, the last change up to the
//!    border of a block, each with what it read back, or stored in the pool, at the commit. A write with FUA then makes
//!    durable what came before it, too.
//! 4. A volume whose making returned is there; another is whole or not.
//!
//! Besides: an import succeeds without consent to lose anything; allocated is reachable then, after another txg, and after
//! the volumes were used; on a log of kind pmem no log block is left.
//!
//! `FASTNESS_STACK_SEEDS=FROM..TO` runs others than the default 0..60.

#![allow(unreachable_pub, missing_debug_implementations)]

#[path = "stack/oracle.rs"]
mod oracle;
#[path = "stack/power.rs"]
mod power;
#[path = "stack/program.rs"]
mod program;
#[path = "stack/recovery.rs"]
mod recovery;
#[path = "stack/world.rs"]
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use world::{Met, World};

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("FASTNESS_STACK_SEEDS") else { return 0..60 };
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

/// Lives and dies four times; what it did comes with a failure.
fn live(seed: u64, met: &Met) -> Vec<u64> {
    let mut world = World::new(seed, met);
    let mut prints = Vec::new();
    let lived = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..4 {
            world.live();
            prints.push(world.fingerprint());
            world.crash_and_import();
            prints.push(world.fingerprint());
        }
    }));
    if let Err(panic) = lived {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?");
        panic!("seed {seed}: {text}\nprogram:\n  {}", world.story.join("\n  "));
    }
    prints
}

#[test]
fn nothing_acknowledged_is_lost_whenever_the_power_fails() {
    let (seeds, met) = (seeds(), Met::default());
    let next = AtomicU64::new(seeds.start);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if let Err(panic) = catch_unwind(|| live(seed, &met)) {
                next.store(seeds.end, Ordering::Relaxed);
                std::panic::resume_unwind(panic);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 16);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        // So that the message with the seed is this test's.
        for thread in threads {
            if let Err(panic) = thread.join() {
                panic!("{}", panic.downcast_ref::<String>().map_or("a thread failed", String::as_str));
            }
        }
    });
    if seeds.end - seeds.start >= 60 {
        met.assert_all();
    }
    if seeds.end - seeds.start >= 2000 {
        assert!(met.sides_repaired.load(Ordering::Relaxed) > 0, "{met:?}");
    }
}

#[test]
fn one_seed_is_one_schedule() {
    for seed in 1000..1006 {
        assert_eq!(live(seed, &Met::default()), live(seed, &Met::default()), "seed {seed}");
    }
}
