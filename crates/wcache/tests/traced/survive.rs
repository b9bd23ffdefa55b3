//! Runs steps, and opens every image of persistent memory that a crash can leave (`pm-model`), beside what
//! the origin may have then.
//!
//! The oracle: the next opening succeeds, and brings the origin to what the acknowledged changes have made of
//! it, with those under way in order, as far as they were made; then the cache can be used. Of a mirror,
//! either side alone does, unless the cache has gone on without it: then it is refused.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastness_blkdev::*;
use fastness_pm_model::{Budget, Config, FlushKind, Op, RecordStyle, explore};
use fastness_wcache::{Error, *};

use crate::world::*;

/// What is run.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "each test uses a part")]
pub(crate) struct Run<'a> {
    pub(crate) steps: &'a [Step],
    /// Sides that the cache has at first.
    pub(crate) sides: usize,
    pub(crate) can_be_marked: bool,
    /// A side that goes away after so many copies.
    pub(crate) goes_away: Option<(usize, u64)>,
    pub(crate) budget: Budget,
    /// That it gets everywhere.
    pub(crate) images_min: usize,
}

impl Run<'_> {
    /// Of a cache in one region.
    pub(crate) fn single(steps: &[Step]) -> Run<'_> {
        let budget = Budget { exhaustive_limit: 300, samples: 60, seed: 1 };
        Run { steps, sides: 1, can_be_marked: true, goes_away: None, budget, images_min: 1000 }
    }

    /// Of a mirror.
    #[allow(dead_code, reason = "each test uses a part")]
    pub(crate) fn mirrored(steps: &[Step]) -> Run<'_> {
        let budget = Budget { exhaustive_limit: 150, samples: 20, seed: 1 };
        Run { sides: 2, budget, images_min: 200, ..Run::single(steps) }
    }
}

fn options(seed: u64) -> Options {
    World::options(seed)
}

/// The states of the origin that follow each other, one for each entry.
struct States(Vec<Vec<u8>>);

impl States {
    fn last(&self) -> usize {
        self.0.len() - 1
    }

    fn change(&mut self, sectors: std::ops::Range<usize>, byte: u8) {
        let mut next = self.0.last().unwrap().clone();
        next[sectors.start * 512..sectors.end * 512].fill(byte);
        self.0.push(next);
    }

    fn step(&mut self, step: Step, byte: u8) {
        let entry_sectors = 3;
        match step {
            Step::Write(first, count) => {
                let mut at = first;
                while at < first + count {
                    let end = ((at / entry_sectors + 1) * entry_sectors).min(first + count);
                    self.change(at..end, byte);
                    at = end;
                }
            }
            Step::Zeroes(first, count) | Step::Discard(first, count) => self.change(first..first + count, 0),
            _ => {}
        }
    }
}

/// What an opening with either side alone comes to, within a step and after it.
fn alone_of(step: Step, now: [Alone; 2]) -> ([Alone; 2], [Alone; 2]) {
    use Alone::*;
    let but = |of: [Alone; 2], side: usize, alone| {
        std::array::from_fn(|at| if at == side { alone } else { of[at] })
    };
    match step {
        Step::ReopenAlone(side) => (but(now, 1 - side, Perhaps), but(now, 1 - side, Never)),
        Step::Attach => (but([Current; 2], 1, Joins), [Current; 2]),
        Step::DetachSide => ([Current, Perhaps], [Current, Never]),
        Step::Detach => ([Perhaps; 2], [Never; 2]),
        Step::Overwrite => ([Perhaps; 2], now),
        _ => (now, now),
    }
}

type TracedCache = Cache<Placed>;

fn act(world: &Arc<World>, cache: &mut Option<TracedCache>, step: Step, index: usize, sides: usize) {
    let (byte, seed) = (index as u8 + 1, index as u64 + 10);
    let here = |cache: &Option<TracedCache>, act: &dyn Fn(&TracedCache)| act(cache.as_ref().unwrap());
    let reopen = |cache: &mut Option<TracedCache>, first: usize, with_other: bool| {
        drop(cache.take());
        let options = options(seed).degraded(!with_other);
        *cache = Some(world.open_with(world.sides(first, with_other), &options).unwrap());
    };
    match step {
        Step::Write(first, count) => {
            here(cache, &|it| it.write(first as u64 * 512, &vec![byte; count * 512]).unwrap());
        }
        Step::Zeroes(first, count) => {
            here(cache, &|it| it.write_zeroes(first as u64 * 512, count as u64 * 512, false).unwrap());
        }
        Step::Discard(first, count) => {
            here(cache, &|it| it.write_zeroes(first as u64 * 512, count as u64 * 512, true).unwrap());
        }
        Step::Tend => here(cache, &|it| assert!(it.tend().unwrap(), "there is something to do")),
        Step::Flush => here(cache, &|it| it.flush().unwrap()),
        Step::Reopen => reopen(cache, 0, true),
        Step::ReopenAlone(side) => reopen(cache, side, false),
        Step::Detach => here(cache, &|it| it.detach().unwrap()),
        Step::Attach => {
            here(cache, &|it| it.attach(world.parts(1), "a".into()).unwrap());
            reopen(cache, 0, true);
        }
        Step::DetachSide => {
            here(cache, &|it| it.detach_side().unwrap());
            reopen(cache, 0, true);
        }
        Step::Overwrite => {
            drop(cache.take());
            let origin = Box::new(Tracked(world.clone()));
            *cache = Some(Cache::create(world.new_sides(sides), origin, &options(seed).force(true)).unwrap());
        }
    }
}

/// Runs the steps.
fn run(run: &Run<'_>, style: RecordStyle) -> (Arc<World>, Vec<Vec<u8>>) {
    let mut image = vec![0x55; 2 * REGION_BYTES];
    // Only regions that hold nothing are taken.
    [0, 12288].into_iter().for_each(|at| image[at..at + 4096].fill(0));
    [0, 12288].into_iter().for_each(|at| image[REGION_BYTES + at..][..4096].fill(0));
    let origin = MemImage::zeroed(ORIGIN_BYTES as u64);
    let mut world = World::new(image, origin, None, style, run.can_be_marked);
    let left = Arc::new(AtomicU64::new(u64::MAX));
    if let Some((side, _)) = run.goes_away {
        world.left[side] = Some(left.clone());
    }
    let world = Arc::new(world);
    let mut states = States(vec![vec![0; ORIGIN_BYTES]]);
    world.note();
    let origin = Box::new(Tracked(world.clone()));
    let mut cache = Some(Cache::create(world.new_sides(run.sides), origin, &options(1)).unwrap());
    let mut alone = if run.sides == 2 { [Alone::Current; 2] } else { [Alone::Current, Alone::Never] };
    if let Some((side, copies)) = run.goes_away {
        left.store(copies, Ordering::Relaxed);
        alone[side] = Alone::Perhaps;
    }
    world.begin(0..=0, There::Certainly, alone);
    for (index, step) in run.steps.iter().enumerate() {
        let from = states.last();
        states.step(*step, index as u8 + 1);
        // What the log had is lost when another cache is made over it.
        let (from, is_there, after): (_, _, _) = match step {
            Step::Detach => (from, There::Perhaps, There::No),
            Step::Overwrite => (0, There::Perhaps, There::Certainly),
            _ => (from, There::Certainly, There::Certainly),
        };
        let (within, mut afterwards) = alone_of(*step, alone);
        world.begin(from..=states.last(), is_there, within);
        act(&world, &mut cache, *step, index, run.sides);
        if let Some((side, _)) = run.goes_away {
            let status = cache.as_ref().unwrap().status();
            let is_out = status.sides[side].out.is_some();
            afterwards[side] = if is_out { Alone::Never } else { Alone::Perhaps };
        }
        alone = afterwards;
        let from = if matches!(step, Step::Overwrite) { 0 } else { states.last() };
        world.begin(from..=states.last(), after, alone);
    }
    if let Some((side, _)) = run.goes_away {
        assert_eq!(alone[side], Alone::Never, "it went away, and that was noticed");
    }
    drop(cache);
    (world, states.0)
}

/// What a crash has left.
struct Crashed<'a> {
    image: &'a [u8],
    origin: &'a MemImage,
    mark: Option<Mark>,
    moment: &'a Moment,
    allowed: &'a [Vec<u8>],
    can_be_marked: bool,
}

impl Crashed<'_> {
    fn world(&self) -> Arc<World> {
        let style = RecordStyle::NonTemporal;
        Arc::new(World::new(self.image.to_vec(), self.origin.clone(), self.mark, style, self.can_be_marked))
    }

    fn wrong(&self, world: &World) -> Option<String> {
        let found = world.disk.inner().image().to_vec();
        let first = found.iter().zip(&self.allowed[0]).position(|(a, b)| a != b);
        if self.allowed.contains(&found) { None } else { Some(format!("wrong from byte {first:?} on")) }
    }

    /// Opens it with all sides; the first thing that is wrong.
    fn check(&self) -> Option<String> {
        let world = self.world();
        let cache = match world.open(99) {
            Ok(_) if self.moment.is_there == There::No => return Some("there is a cache".to_owned()),
            Ok(cache) => cache,
            Err(Error::NoCache | Error::Block { block: "superblock", .. })
                if self.moment.is_there != There::Certainly =>
            {
                return self.wrong(&world);
            }
            // A creation or a detachment was cut short, and nobody can know that.
            Err(Error::SideMissing { .. }) if self.moment.is_there == There::Perhaps => {
                return self.wrong(&world);
            }
            Err(error) => return Some(format!("{error}: {error:?}")),
        };
        if let Some(wrong) = self.wrong(&world) {
            return Some(wrong);
        }
        cache.write(1024, &[0xee; 512]).unwrap();
        drop(cache);
        read_back(world.open(100))
    }

    /// Opens it with one side, as if the other had been lost in the crash.
    fn check_alone(&self, side: usize) -> Option<String> {
        let world = self.world();
        let alone = self.moment.of_side[side];
        let mut opened = world.open_with(world.sides(side, false), &options(99));
        if matches!(opened, Err(Error::SideMissing { .. })) && !self.can_be_marked && alone == Alone::Current
        {
            opened = world.open_with(world.sides(side, false), &options(99).degraded(true));
        }
        let cache = match (opened, alone) {
            (Ok(_), Alone::Never) => return Some(format!("side {side} is used alone")),
            (Ok(cache), _) => cache,
            (Err(_), Alone::Never | Alone::Perhaps | Alone::Joins) => return None,
            (Err(error), Alone::Current) => return Some(format!("side {side} alone: {error}: {error:?}")),
        };
        if let Some(wrong) = self.wrong(&world) {
            return Some(format!("side {side} alone: {wrong}"));
        }
        cache.write(1024, &[0xee; 512]).unwrap();
        drop(cache);
        let place = |side| Superblock::of(&world.parts(side).front).ok().and_then(|found| found.side);
        let (Some(own), others) = (place(side), place(1 - side)) else { return None };
        // The other side comes back: it is not used alone, nor read, whichever is named first.
        let other = 1 - side;
        if world.open_with(world.sides(other, false), &options(100)).is_ok() {
            return Some(format!("side {other} is used alone after side {side} was"));
        }
        if others.is_none_or(|others| others.mirror != own.mirror) {
            return (alone == Alone::Joins).then(|| format!("side {side} is used before it has joined"));
        }
        read_back(world.open_with(world.sides(other, true), &options(101)))
            .map(|wrong| format!("both, after side {side} alone: {wrong}"))
    }
}

fn read_back(opened: Result<TracedCache, Error>) -> Option<String> {
    let mut bytes = [0; 512];
    opened.map_or_else(
        |error| Some(format!("{error}: {error:?}")),
        |cache| {
            cache.read(1024, &mut bytes).unwrap();
            (bytes != [0xee; 512]).then(|| "what was written afterwards is lost".to_owned())
        },
    )
}

fn allowed(states: &[Vec<u8>], range: &RangeInclusive<usize>) -> Vec<Vec<u8>> {
    states[range.clone()].to_vec()
}

pub(crate) fn survive(what: &Run<'_>) {
    for style in [RecordStyle::NonTemporal, RecordStyle::StoreFlush(FlushKind::Clwb)] {
        let (world, states) = run(what, style);
        let moments = world.moments.lock().unwrap().clone();
        let (trace, mut wrong) = (world.recorder.trace(), None);
        let (mut images, mut seen) = (0, BTreeSet::new());
        let visit = &mut |point: fastness_pm_model::CrashPoint<'_>| {
            let Some(number) = point.last_mark else { return ControlFlow::Continue(()) };
            let moment = &moments[number as usize];
            // A change of the origin that is under way, before its mark, has been made, or not.
            let is_under_way = matches!(trace.ops.get(point.op_index), Some(Op::Mark(_)));
            for other in moments.iter().skip(number as usize).take(1 + usize::from(is_under_way)) {
                for origin in &other.images {
                    images += 1;
                    seen.insert(number);
                    let allowed = allowed(&states, &moment.states);
                    let can_be_marked = what.can_be_marked;
                    let (image, mark, allowed) = (point.image, other.mark, &*allowed);
                    let crashed = Crashed { image, origin, mark, moment, allowed, can_be_marked };
                    let is_mirror = what.sides == 2 || what.steps.contains(&Step::Attach);
                    let sides = if is_mirror { 0..2 } else { 0..0 };
                    let found =
                        crashed.check().or_else(|| sides.into_iter().find_map(|it| crashed.check_alone(it)));
                    if let Some(text) = found {
                        wrong =
                            Some(format!("{style:?}, operation {}, moment {number}: {text}", point.op_index));
                        return ControlFlow::Break(());
                    }
                }
            }
            ControlFlow::Continue(())
        };
        explore(&trace, &Config::default(), what.budget, visit).unwrap();
        assert_eq!(wrong, None);
        assert!(
            images > what.images_min && seen.len() > what.steps.len(),
            "{images} images of {} moments",
            seen.len()
        );
    }
}
