//! The whole stack, simulated: a pool, its log of either kind, volumes and files, on persistent memory and on
//! disks that lose their power together, or under a process that dies.
//!
//! One seed is one program and one schedule that can be repeated, without a txg thread. Each seed draws which
//! steps it takes, and how often (a swarm):
//! - Writes, zeroes and discards of any alignment, flushes and txgs, on volumes with blocks of 512 bytes to
//!   128 KiB, by several clients, one after the other or at one time. Volumes are made, closed, opened,
//!   resized and destroyed. Snapshots of them are made, cloned, gone back to and destroyed; clones are
//!   promoted. Snapshots are sent and received, as volumes and as the next states of others; streams end
//!   early, are damaged, go on, and are discarded. Some volumes are thick for a while.
//! - Files beside them: everything of `crates/zpl/tests/simulation`, syncs, several clients at one time, some
//!   under a quota.
//! - Pools of every layout, some of them full. The kind of the log changes, and its vdevs, regions and sides.
//! - Devices fail reads, writes, flushes, tear writes, have no room, or go away, and are back; regions are
//!   cut short while they are in use; what is free is trimmed; sides are attached, replaced, detached, taken
//!   offline and back; scrubs and resilvers, with all of this beside them. A pool that is suspended is
//!   cleared, with faults in the middle of that, too.
//! - Between two lives a device is put back as it was some txgs ago, or a bit flips in a block or an entry of
//!   a log.
//!
//! The end comes at any store or fence in persistent memory, or any write or flush of a disk, which are
//! counted together; then, now and then, once more in the middle of the import. What is left of persistent
//! memory is drawn from the states that the `pm-model` allows, what is left of each disk from those that its
//! volatile cache allows. When a process dies, nothing is lost of either, and nothing is durable that was
//! not.
//!
//! What must hold of a volume after an import:
//! 1. Its bytes are divided at the borders of blocks of 4096 bytes, of changes since it was last durable as a
//!    whole, and of their records (64 KiB from the beginning of a change). Each part holds, as a whole, what
//!    one of the changes that cover it left, or what was there before them; never anything older than the
//!    newest of these that is *durable*.
//! 2. Durable is a change that returned with FUA; before which a flush of the volume returned; whose txg is
//!    synced (so a sync that returned); and of kind pmem each that returned and was logged.
//! 3. If the log was of kind lwb throughout, what is left is a prefix of the records since then, the last
//!    change up to the border of a block, each with what it read back, or stored in the pool, at the commit.
//!    A write with FUA then makes durable what came before it, too.
//! 4. A volume whose making returned is there; another is whole or not.
//! 5. A snapshot holds exactly what its volume held when it was asked for, whatever of that was durable; and
//!    is there if its making returned. A volume that was rolled back is what it was, or what the snapshot is.
//! 6. A stream that was received is there as a whole or not at all. What came of it is kept if that was said,
//!    as far as it was said; what was not to be kept is gone. A stream makes of what it is on just what was
//!    sent.
//! 7. A clone and the volume that it began in have changed places with all that this changes, or with nothing
//!    of it.
//!
//! What must hold of files: see `tree`; and their check finds nothing.
//!
//! Besides: an import succeeds without consent to lose anything, but for a device that fails, or was damaged
//! or put back: then it names the device or the log, changes nothing, and succeeds with the device as it was;
//! or nothing is lost. After a clear everything reads as before. Allocated is reachable, after an import,
//! after another txg, and after the volumes were used; on a log of kind pmem no log block is left. When all
//! is destroyed at the end, no space is in use but what was at the beginning.
//!
//! `FASTNESS_STACK_SEEDS=FROM..TO` runs others than the default 0..400; with `FASTNESS_STACK_ONE_COPY=1` all
//! of their pools, and not only half of them, have `logdata=pm`.

#![allow(unreachable_pub, missing_debug_implementations, clippy::print_stdout)]

#[path = "stack/arrivals.rs"]
mod arrivals;
#[path = "stack/coming.rs"]
mod coming;
#[path = "stack/copies.rs"]
mod copies;
#[path = "stack/damage.rs"]
mod damage;
#[path = "stack/devices.rs"]
mod devices;
#[path = "stack/draw.rs"]
mod draw;
#[path = "../../zpl/tests/simulation/drive.rs"]
mod drive;
#[path = "stack/end.rs"]
mod end;
#[path = "stack/files.rs"]
mod files;
#[path = "stack/flips.rs"]
mod flips;
#[path = "stack/full.rs"]
mod full;
#[path = "stack/judge.rs"]
mod judge;
#[path = "stack/log.rs"]
mod log;
#[path = "stack/met.rs"]
mod met;
#[path = "../../zpl/tests/simulation/model.rs"]
mod model;
#[path = "stack/oracle.rs"]
mod oracle;
#[path = "stack/program.rs"]
mod program;
#[path = "stack/promotions.rs"]
mod promotions;
#[path = "stack/race.rs"]
mod race;
#[path = "stack/recovery.rs"]
mod recovery;
#[path = "stack/rng.rs"]
mod rng;
#[path = "stack/schedule.rs"]
mod schedule;
#[path = "stack/shape.rs"]
mod shape;
#[path = "stack/shorten.rs"]
mod shorten;
#[path = "stack/snapshots.rs"]
mod snapshots;
#[path = "stack/streams.rs"]
mod streams;
#[path = "stack/suspend.rs"]
mod suspend;
#[path = "stack/thick.rs"]
mod thick;
#[path = "stack/tree.rs"]
mod tree;
#[path = "stack/trims.rs"]
mod trims;
#[path = "stack/volumes.rs"]
mod volumes;
#[path = "stack/world.rs"]
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use met::Met;
use shorten::{Failed, Skipped, caught, shorten};
use world::World;

/// Lives of a world.
const LIVES: u64 = 4;

fn seeds(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("FASTNESS_STACK_SEEDS") else { return default };
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

/// Lives and dies several times; what it did comes with a failure.
fn live(seed: u64, met: &Met, skipped: &Skipped) -> Result<Vec<String>, Failed> {
    // In a thread of its own, which remembers no other world (which commit slot it used last).
    std::thread::scope(|scope| scope.spawn(|| live_here(seed, met, skipped)).join().expect("caught below"))
}

fn live_here(seed: u64, met: &Met, skipped: &Skipped) -> Result<Vec<String>, Failed> {
    schedule::set_clock();
    let mut world = World::new(seed, met, skipped);
    let lived = caught(|| {
        for life in 0..LIVES {
            world.live(life);
            world.end_and_import();
            if world.is_over {
                return;
            }
        }
        world.destroy_all();
    });
    let story = std::mem::take(&mut world.story);
    match lived {
        Ok(()) => Ok(story),
        Err(text) => Err(Failed { text, story }),
    }
}

/// The same, and what fails is made shorter.
fn live_or_tell(seed: u64, met: &Met) -> Result<(), String> {
    let Err(failed) = live(seed, met, &Skipped::new()) else { return Ok(()) };
    let full = failed.story.len();
    let Failed { text, story } = shorten(failed, |skipped| live(seed, &Met::default(), skipped).err());
    Err(format!("seed {seed}: {text}\nprogram, {} of {full} lines:\n  {}", story.len(), story.join("\n  ")))
}

/// Runs all seeds; what failed. One failure suffices, unless it is said that all are wanted.
fn live_all(seeds: std::ops::Range<u64>, met: &Met) -> Vec<String> {
    let wants_all = std::env::var_os("FASTNESS_STACK_ALL").is_some();
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::<Vec<String>>::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if let Err(told) = live_or_tell(seed, met) {
                failed.lock().unwrap().push(told);
                next.fetch_max(if wants_all { 0 } else { seeds.end }, Ordering::Relaxed);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 16);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    failed.into_inner().unwrap()
}

#[test]
fn nothing_acknowledged_is_lost_whenever_the_power_fails() {
    let (seeds, met) = (seeds(0..400), Met::default());
    let count = seeds.end - seeds.start;
    let failed = live_all(seeds, &met);
    println!("{count} seeds have met\n{}", met.table());
    assert!(failed.is_empty(), "{} seeds failed\n{}", failed.len(), failed.join("\n\n"));
    assert_eq!(met.missing(count), [""; 0], "never happened in {count} seeds");
}

/// Without what is random in each run: GUIDs.
fn without_guids(line: &str) -> String {
    let is_guid = |word: &&str| word.len() >= 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = line.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| !is_guid(word)).collect::<Vec<_>>().join(" ")
}

#[test]
fn one_seed_is_one_schedule() {
    let run = |seed| -> Vec<String> {
        let story = live(seed, &Met::default(), &Skipped::new());
        let story = story.unwrap_or_else(|failed| panic!("{failed:?}"));
        story.iter().map(|line| without_guids(line)).collect()
    };
    for seed in seeds(1000..1012) {
        let (first, second) = (run(seed), run(seed));
        let differs = first.iter().zip(&second).position(|(first, second)| first != second);
        assert!(
            differs.is_none(),
            "seed {seed}: {:?} and {:?}",
            first[differs.unwrap()],
            second[differs.unwrap()]
        );
    }
}
