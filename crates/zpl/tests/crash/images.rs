//! What crashes leave, and whether that may be.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use fastness_pm_model::{Budget, Config, CrashPoints, Machine, Op, Trace};
use fastness_store::{Store, StoreOptions, Tuning};
use fastness_testkit::Rng;
use fastness_testkit::media::{Bank, Disk, Power};
use fastness_zpl::{FileSystem, FileSystemOptions, Time};

use crate::support::{FS, Log, Media, options, tree};
use crate::{Program, Step};

const DISK_BYTES: u64 = 16 << 20;
const CHUNKS: usize = 8;
const CHUNK_BYTES: usize = 32 << 10;
/// States of a disk that are looked at for each crash.
const STATES: u64 = 3;
/// Writes and flushes of one step at which the power fails.
const POINTS_MAX: u64 = 8;
/// Times before this were set by a program; the others are the clock's.
const CLOCK_SECONDS: i64 = 1_000_000;

/// Numbers of a file, its times if a program has set them, contents, extended attributes.
type Shown = (Vec<u64>, [i64; 2], Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>);
/// What a program can rely on, by path.
type Seen = BTreeMap<Vec<u8>, Shown>;

fn seen(fs: &FileSystem) -> Seen {
    let time = |time: Time| if time.seconds < CLOCK_SECONDS { time.seconds } else { 0 };
    let show = |(path, (at, contents, xattrs))| {
        let of: fastness_zpl::Attributes = at;
        let numbers = [of.ino.0, of.mode.into(), of.links.into(), of.uid.into(), of.gid.into(), of.rdev];
        let numbers = numbers.into_iter().chain([of.size_bytes]).collect();
        (path, (numbers, [time(of.atime), time(of.mtime)], contents, xattrs))
    };
    tree(fs).into_iter().map(show).collect()
}

fn one_committer() -> StoreOptions {
    let tuning = Tuning { ncommitters: Some(1), lets_log_fill: true, ..Tuning::default() };
    StoreOptions { tuning, ..options(Duration::from_secs(3600)) }
}

fn create(log: Log) -> (Media, Arc<Store>, FileSystem) {
    let (media, store) = Media::with(log, DISK_BYTES, (CHUNKS, CHUNK_BYTES), one_committer());
    let fs = FileSystem::create(&store, FS, &FileSystemOptions::default()).unwrap();
    store.pool().sync().unwrap();
    (media, store, fs)
}

/// The media as a crash has left them, under a power supply of their own.
fn after(disk: &Disk, bank: Option<Bank>) -> Media {
    let power = Arc::new(Power::default());
    let disk = Disk::new(&disk.path, disk.image(), &power, 0);
    let bank = bank.map(|bank| bank.powered_by(&power));
    Media { power, disk, bank }
}

/// Imports what is left; it must be one of these trees, and nothing contradict anything.
fn judge(program: &Program, media: &Media, allowed: &[&Seen], when: &str) {
    let name = &program.name;
    let (store, _) = media.try_import().unwrap_or_else(|error| panic!("{name}, {when}: {error:?}"));
    let fs = FileSystem::open(&store, FS).unwrap();
    fs.reap_all(|_| false).unwrap();
    let found = seen(&fs);
    assert!(allowed.contains(&&found), "{name}, {when}: {found:#?}\nallowed: {allowed:#?}");
    let report = fastness_zpl::check(fs.dataset()).unwrap();
    assert!(report.is_clean(), "{name}, {when}: {report:?}");
}

/// What was stored since a mark, when nothing was on its way at that mark.
fn since_mark(trace: Trace, mark: u64) -> Trace {
    let at = trace.ops.iter().position(|op| *op == Op::Mark(mark)).expect("it was made");
    let mut machine = Machine::new(trace.initial, Config::default());
    trace.ops[..at].iter().for_each(|op| machine.apply(op).unwrap());
    assert_eq!(machine.pending_lines(), 0, "nothing is on its way before the first step");
    Trace { initial: machine.volatile_image(), ops: trace.ops[at..].to_vec() }
}

/// Crashes of the persistent memory at every store and fence, while the pool is frozen. Returns how many
/// images there were.
pub(crate) fn of_memory(program: &Program) -> usize {
    let (media, store, fs) = create(Log::Pmem);
    store.pool().freeze();
    let bank = media.bank.as_ref().expect("a region");
    let mut trees = vec![seen(&fs)];
    for (number, step) in program.steps.iter().enumerate() {
        bank.mark(2 * number as u64);
        step(&fs);
        fs.sync_all().unwrap();
        bank.mark(2 * number as u64 + 1);
        trees.push(seen(&fs));
    }
    drop((fs, store));
    let trace = since_mark(bank.trace(), 2 * program.from as u64);
    let mut images = 0;
    // What is allowed where non-temporal stores have no order includes what is allowed where they have.
    let budget = Budget { exhaustive_limit: 48, samples: 16, seed: 1 };
    let points = CrashPoints::new(&trace, Config { strict_nt: true, ..Config::default() }, budget);
    let visit = &mut |point: fastness_pm_model::CrashPoint<'_>| {
        let Some(mark) = point.last_mark else { return ControlFlow::Continue(()) };
        let step = mark as usize / 2;
        // An odd mark: it was synced.
        let from = if mark % 2 == 0 { step } else { step + 1 };
        let allowed: Vec<_> = trees[from..=step + 1].iter().collect();
        let left = after(&media.disk, Some(bank.with(point.image.to_vec())));
        judge(program, &left, &allowed, &format!("after {} stores, mark {mark}", point.op_index));
        images += 1;
        ControlFlow::Continue(())
    };
    points.explore(visit).unwrap();
    images
}

/// How a step becomes durable.
#[derive(Debug, Clone, Copy)]
enum Durable {
    Commit,
    Txg,
}

/// Crashes at every write and flush of the disk, while a step gets into the block log, or into a txg. Returns
/// how many images there were.
pub(crate) fn of_disk(program: &Program) -> usize {
    let mut images = 0;
    for (durable, log) in [(Durable::Commit, Log::Lwb), (Durable::Txg, Log::Pmem)] {
        let (media, store, fs) = create(log);
        let mut before = seen(&fs);
        drop((fs, store));
        let mut start = media;
        for (number, step) in program.steps.iter().enumerate() {
            let (media, done, events, _) = run_step(&start, step, durable, None);
            let events = if number < program.from { 0 } else { events };
            let points = (1..=events).step_by(events.div_ceil(POINTS_MAX).max(1) as usize);
            for nth in points {
                let (media, _, _, is_synced) = run_step(&start, step, durable, Some((nth, &done)));
                let allowed = if is_synced { vec![&done] } else { vec![&before, &done] };
                for seed in 0..STATES {
                    let disk = media.disk.crashed(seed);
                    let bank = media.bank.as_ref().map(|bank| bank.crashed(&mut Rng(seed)));
                    let when = format!("step {number}, {durable:?} on {log:?}, cut {nth}, state {seed}");
                    judge(program, &after(&disk, bank), &allowed, &when);
                    images += 1;
                }
            }
            // It was made durable, whatever the disk's cache had.
            start = after(&media.disk.crashed(1), media.bank.as_ref().map(|bank| bank.crashed(&mut Rng(0))));
            judge(
                program,
                &after(&start.disk, start.bank.clone()),
                &[&done],
                &format!("after step {number}"),
            );
            before = done;
        }
    }
    images
}

/// Imports, makes a step, and makes that durable; or dies at the `nth` event of it. What there is then, how
/// many events there were, and whether it says that it is durable.
fn run_step(
    start: &Media,
    step: &Step,
    durable: Durable,
    cut: Option<(u64, &Seen)>,
) -> (Media, Seen, u64, bool) {
    let media = after(&start.disk, start.bank.clone());
    let (store, _) = media.import();
    let fs = FileSystem::open(&store, FS).unwrap();
    let events = media.power.events();
    if let Some((nth, _)) = cut {
        media.power.cut_in(nth);
    }
    step(&fs);
    let synced = match durable {
        Durable::Commit => fs.sync_all().map_err(|error| error.to_string()),
        Durable::Txg => store.pool().sync().map(drop).map_err(|error| error.to_string()),
    };
    assert!(synced.is_ok() || media.power.is_off(), "{synced:?}");
    let events = media.power.events() - events;
    let done = cut.map_or_else(|| seen(&fs), |(_, done)| done.clone());
    media.power.turn_off();
    drop((fs, store));
    (media, done, events, synced.is_ok())
}
