//! Every image of persistent memory that a crash can leave (`pm-model`), beside what the origin may have
//! then: of creation, writes, write-backs, reused chunks, openings that are cut short, and detachment.
//!
//! The oracle: the next opening succeeds, and brings the origin to what the acknowledged changes have made of
//! it, with those under way in order, as far as they were made; then the cache can be used.

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use fastness_blkdev::*;
use fastness_pm_model::{Budget, Config, FlushKind, Op, RecordStyle, Recorder, RecordingRange, explore};
use fastness_pmem::ReadError;
use fastness_prb::Alignment;
use fastness_remote::OpenError;
use fastness_testkit::SeededEntropy;
use fastness_wcache::{Error, *};

const CHUNK_BYTES: usize = 2048;
const CHUNKS: usize = 3;
const REGION_BYTES: usize = DATA_OFFSET + CHUNKS * CHUNK_BYTES;
const ORIGIN_BYTES: usize = 96 << 10;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// First sector, and how many; more than two are more than one entry.
    Write(usize, usize),
    Zeroes(usize, usize),
    Discard(usize, usize),
    Tend,
    Flush,
    /// The process dies, and the next one opens the cache.
    Reopen,
    Detach,
    /// Another cache is made over this one.
    Overwrite,
}

/// What the world outside of the region is like from one mark of the trace on.
#[derive(Clone)]
struct Moment {
    /// States that are allowed: from the last acknowledged one to the end of the step under way.
    states: std::ops::RangeInclusive<usize>,
    /// What the origin may have.
    images: Vec<MemImage>,
    mark: Option<Mark>,
    is_there: There,
}

/// Whether a crash leaves a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum There {
    Certainly,
    Perhaps,
    No,
}

struct World {
    recorder: Recorder,
    disk: Faulty<MemDevice>,
    mark: Mutex<Option<Mark>>,
    /// Of the step under way.
    step: Mutex<(std::ops::RangeInclusive<usize>, There)>,
    moments: Mutex<Vec<Moment>>,
}

impl World {
    fn new(image: Vec<u8>, origin: MemImage, mark: Option<Mark>, style: RecordStyle) -> Arc<World> {
        Arc::new(World {
            recorder: Recorder::with_store_bytes(image, style, 8),
            disk: Faulty::new(MemDevice::from_image("disk", origin, 512), FaultPlan::new(3)),
            mark: Mutex::new(mark),
            step: Mutex::new((0..=0, There::Perhaps)),
            moments: Mutex::default(),
        })
    }

    fn note(&self) {
        let mut images: Vec<MemImage> = Vec::new();
        for image in (0..3).map(|seed| self.disk.crash(seed).unwrap()).chain([self.disk.inner().image()]) {
            if !images.contains(&image) {
                images.push(image);
            }
        }
        let (states, is_there) = self.step.lock().unwrap().clone();
        let mut moments = self.moments.lock().unwrap();
        self.recorder.mark(moments.len() as u64);
        moments.push(Moment { states, images, mark: *self.mark.lock().unwrap(), is_there });
    }

    fn begin(&self, states: std::ops::RangeInclusive<usize>, is_there: There) {
        *self.step.lock().unwrap() = (states, is_there);
        self.note();
    }

    fn parts(&self) -> Parts<RecordingRange> {
        let chunk = |index| self.recorder.range(DATA_OFFSET + index * CHUNK_BYTES, CHUNK_BYTES);
        let geometry = Geometry::dividing(REGION_BYTES as u64, Some(CHUNK_BYTES as u64)).unwrap();
        let view = Box::new(Image(self.recorder.clone()));
        Parts {
            geometry,
            front: self.recorder.range(0, DATA_OFFSET),
            chunks: (0..CHUNKS).map(chunk).collect(),
            view,
        }
    }

    fn options(seed: u64) -> Options {
        let options = Options::new().committers(1).alignment(Alignment::Line).paced(false);
        options.when_full(WhenFull::Fail).entropy(SeededEntropy::new(seed))
    }

    fn open(self: &Arc<World>, seed: u64) -> Result<Cache<RecordingRange>, Error> {
        let origin = Box::new(Tracked(self.clone()));
        Cache::open(self.parts(), origin, &World::options(seed)).map(|(cache, _)| cache)
    }
}

struct Image(Recorder);

impl View for Image {
    fn read(&self, region_offset: u64, dst: &mut [u8]) -> Result<(), ReadError> {
        dst.copy_from_slice(&self.0.image()[region_offset as usize..][..dst.len()]);
        Ok(())
    }
}

/// The origin; each change of it is a moment.
struct Tracked(Arc<World>);

impl Origin for Tracked {
    fn open(&self) -> Result<Arc<dyn BlockDevice>, OpenError> {
        Ok(Arc::new(Tracked(self.0.clone())))
    }
    fn number(&self) -> io::Result<(u64, u64)> {
        Ok((1, 2))
    }
    fn path(&self) -> Vec<u8> {
        b"disk".to_vec()
    }
    fn mark(&self) -> io::Result<Option<Mark>> {
        Ok(*self.0.mark.lock().unwrap())
    }
    fn set_mark(&self, mark: Option<Mark>) -> io::Result<()> {
        *self.0.mark.lock().unwrap() = mark;
        self.0.note();
        Ok(())
    }
}

impl BlockDevice for Tracked {
    fn info(&self) -> &DeviceInfo {
        self.0.disk.info()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        self.0.disk.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.0.disk.write_at(offset, data)?;
        self.0.note();
        Ok(())
    }
    fn write_fua(&self, _: u64, _: &[u8]) -> Result<(), BlockError> {
        unreachable!("write-backs are flushed together")
    }
    fn flush(&self) -> Result<(), BlockError> {
        self.0.disk.flush()?;
        self.0.note();
        Ok(())
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.0.disk.discard(offset, len_bytes)?;
        self.0.note();
        Ok(())
    }
    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.0.disk.write_zeroes(offset, len_bytes)?;
        self.0.note();
        Ok(())
    }
    fn stats(&self) -> StatsSnapshot {
        self.0.disk.stats()
    }
    fn is_poisoned(&self) -> bool {
        false
    }
}

/// Runs the steps; the states of the origin that follow each other, one for each entry.
fn run(steps: &[Step], style: RecordStyle) -> (Arc<World>, Vec<Vec<u8>>) {
    let mut image = vec![0x55; REGION_BYTES];
    // Only a region that holds nothing is taken.
    [0, 12288].into_iter().for_each(|at| image[at..at + 4096].fill(0));
    let world = World::new(image, MemImage::zeroed(ORIGIN_BYTES as u64), None, style);
    let mut states = vec![vec![0; ORIGIN_BYTES]];
    world.note();
    let origin = Box::new(Tracked(world.clone()));
    let mut cache = Some(Cache::create(world.parts(), origin, &World::options(1)).unwrap());
    world.begin(0..=0, There::Certainly);
    for (index, step) in steps.iter().enumerate() {
        let from = states.len() - 1;
        let entry_sectors = 3;
        let mut change = |sectors: std::ops::Range<usize>, byte: u8| {
            let mut next = states.last().unwrap().clone();
            next[sectors.start * 512..sectors.end * 512].fill(byte);
            states.push(next);
        };
        let byte = index as u8 + 1;
        match *step {
            Step::Write(first, count) => {
                let mut at = first;
                while at < first + count {
                    let end = ((at / entry_sectors + 1) * entry_sectors).min(first + count);
                    change(at..end, byte);
                    at = end;
                }
            }
            Step::Zeroes(first, count) | Step::Discard(first, count) => change(first..first + count, 0),
            _ => {}
        }
        // What the log had is lost when another cache is made over it.
        let (from, is_there, after) = match step {
            Step::Detach => (from, There::Perhaps, There::No),
            Step::Overwrite => (0, There::Perhaps, There::Certainly),
            _ => (from, There::Certainly, There::Certainly),
        };
        world.begin(from..=states.len() - 1, is_there);
        let here = || cache.as_ref().unwrap();
        match *step {
            Step::Write(first, count) => here().write(first as u64 * 512, &vec![byte; count * 512]).unwrap(),
            Step::Zeroes(first, count) => {
                here().write_zeroes(first as u64 * 512, count as u64 * 512, false).unwrap();
            }
            Step::Discard(first, count) => {
                here().write_zeroes(first as u64 * 512, count as u64 * 512, true).unwrap();
            }
            Step::Tend => assert!(here().tend().unwrap(), "there is something to do"),
            Step::Flush => here().flush().unwrap(),
            Step::Reopen => {
                drop(cache.take());
                cache = Some(world.open(index as u64 + 10).unwrap());
            }
            Step::Detach => here().detach().unwrap(),
            Step::Overwrite => {
                drop(cache.take());
                let options = World::options(index as u64 + 10).force(true);
                cache =
                    Some(Cache::create(world.parts(), Box::new(Tracked(world.clone())), &options).unwrap());
            }
        }
        let from = if matches!(step, Step::Overwrite) { 0 } else { states.len() - 1 };
        world.begin(from..=states.len() - 1, after);
    }
    drop(cache);
    (world, states)
}

/// Opens what a crash has left; the first thing that is wrong.
fn check(
    image: &[u8],
    origin: &MemImage,
    mark: Option<Mark>,
    moment: &Moment,
    states: &[Vec<u8>],
) -> Option<String> {
    let world = World::new(image.to_vec(), origin.clone(), mark, RecordStyle::NonTemporal);
    let allowed = &states[moment.states.clone()];
    let is_allowed = |world: &World| {
        let found = world.disk.inner().image().to_vec();
        let first = found.iter().zip(&allowed[0]).position(|(a, b)| a != b);
        if allowed.contains(&found) { None } else { Some(format!("wrong from byte {first:?} on")) }
    };
    let cache = match world.open(99) {
        Ok(_) if moment.is_there == There::No => return Some("there is a cache".to_owned()),
        Ok(cache) => cache,
        Err(Error::NoCache | Error::Block { block: "superblock", .. })
            if moment.is_there != There::Certainly =>
        {
            return is_allowed(&world);
        }
        Err(error) => return Some(format!("{error}: {error:?}")),
    };
    if let Some(wrong) = is_allowed(&world) {
        return Some(wrong);
    }
    cache.write(1024, &[0xee; 512]).unwrap();
    drop(cache);
    let cache = world.open(100).map_err(|error| error.to_string());
    let mut bytes = [0; 512];
    cache.map_or_else(Some, |cache| {
        cache.read(1024, &mut bytes).unwrap();
        (bytes != [0xee; 512]).then(|| "what was written afterwards is lost".to_owned())
    })
}

fn survive(steps: &[Step]) {
    for style in [RecordStyle::NonTemporal, RecordStyle::StoreFlush(FlushKind::Clwb)] {
        let (world, states) = run(steps, style);
        let moments = world.moments.lock().unwrap().clone();
        let (trace, mut wrong) = (world.recorder.trace(), None);
        let (mut images, mut seen) = (0, BTreeSet::new());
        let budget = Budget { exhaustive_limit: 300, samples: 60, seed: 1 };
        let visit = &mut |point: fastness_pm_model::CrashPoint<'_>| {
            let Some(number) = point.last_mark else { return ControlFlow::Continue(()) };
            let moment = &moments[number as usize];
            // A change of the origin that is under way, before its mark, has been made, or not.
            let is_under_way = matches!(trace.ops.get(point.op_index), Some(Op::Mark(_)));
            for other in moments.iter().skip(number as usize).take(1 + usize::from(is_under_way)) {
                for origin in &other.images {
                    images += 1;
                    seen.insert(number);
                    if let Some(text) = check(point.image, origin, other.mark, moment, &states) {
                        wrong =
                            Some(format!("{style:?}, operation {}, moment {number}: {text}", point.op_index));
                        return ControlFlow::Break(());
                    }
                }
            }
            ControlFlow::Continue(())
        };
        explore(&trace, &Config::default(), budget, visit).unwrap();
        assert_eq!(wrong, None);
        assert!(images > 1000 && seen.len() > steps.len(), "{images} images of {} moments", seen.len());
    }
}

#[test]
fn writes_and_write_backs_survive_every_crash() {
    use Step::*;
    survive(&[Write(0, 2), Write(1, 2), Tend, Write(2, 1), Tend, Tend]);
}

#[test]
fn chunks_that_are_used_again_survive_every_crash() {
    use Step::*;
    survive(&[Write(0, 3), Write(3, 3), Flush, Write(0, 3), Write(6, 3), Flush, Write(0, 1), Write(0, 2)]);
}

#[test]
fn writes_of_several_entries_survive_every_crash() {
    use Step::*;
    survive(&[Write(2, 5), Tend, Flush]);
}

#[test]
fn zeroes_and_discards_survive_every_crash() {
    use Step::*;
    survive(&[
        Write(0, 2),
        Discard(0, 1),
        Write(20, 2),
        Flush,
        Zeroes(1, 160),
        Write(30, 1),
        Flush,
        Discard(2, 150),
    ]);
}

#[test]
fn openings_survive_every_crash() {
    use Step::*;
    survive(&[Write(0, 2), Write(1, 2), Reopen, Write(4, 1), Reopen, Reopen]);
}

#[test]
fn detachment_survives_every_crash() {
    use Step::*;
    survive(&[Write(0, 2), Write(5, 1), Detach]);
}

#[test]
fn a_creation_over_another_cache_survives_every_crash() {
    use Step::*;
    survive(&[Write(0, 3), Write(3, 3), Write(6, 1), Overwrite]);
}
