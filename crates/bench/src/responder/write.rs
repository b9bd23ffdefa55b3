//! Writes in process: against the floor, and what is left of them beside their stores and fences.

use fastness_pmem::{Medium, NoSum, PmRange, WriteMethod};
use fastness_responder::{Handle, ProtocolKind};

use super::cached::{Cached, PROTOCOLS};
use super::mix::PERIOD;
use crate::error::{Result, ensure};
use crate::folder::Folder;
use crate::measure::{Pair, Spread, by_turns, in_parallel, time_ns};
use crate::medium::emulated_pm;
use crate::pool::{Numbers, noise};
use crate::{Options, Row};

const REGION_BYTES: usize = 128 << 20;
/// All of its chunks find a slot of their own.
const FILE_BYTES: u64 = 32 << 20;
const BLOCK_BYTES: usize = 4096;
/// A tag in PM, and any other line.
const LINE: usize = 64;
/// Writes of a turn: about a millisecond.
const WRITES: u64 = 500;

/// Overwrites of blocks of a file that is in PM, at random places.
struct Writer<'a> {
    cached: &'a Cached,
    file: &'a Handle,
    data: Vec<u8>,
    numbers: Numbers,
}

impl<'a> Writer<'a> {
    fn new(cached: &'a Cached, file: &'a Handle, len: usize) -> Result<Writer<'a>> {
        let mut writer = Writer { cached, file, data: noise(len, 3), numbers: Numbers(7) };
        for block in 0..FILE_BYTES / len as u64 {
            writer.write(block)?;
        }
        Ok(writer)
    }

    fn write(&mut self, block: u64) -> Result<()> {
        let done = self.cached.cache.write_synced(self.file, block * self.data.len() as u64, &self.data)?;
        ensure!(done == self.data.len(), "a write was made in part");
        Ok(())
    }

    fn turn(&mut self) -> Result<f64> {
        let blocks = FILE_BYTES / self.data.len() as u64;
        time_ns(|| {
            for _ in 0..self.writes() {
                let block = self.numbers.below(blocks);
                self.write(block)?;
            }
            Ok(())
        })
    }

    fn writes(&self) -> u64 {
        (WRITES * BLOCK_BYTES as u64 / self.data.len() as u64).clamp(20, WRITES)
    }
}

/// The same bytes at random places of another region, without a cache.
struct Bare {
    range: PmRange,
    data: Vec<u8>,
    numbers: Numbers,
}

impl Bare {
    fn new(len: usize) -> Result<Bare> {
        Ok(Bare {
            range: emulated_pm(REGION_BYTES, WriteMethod::Auto)?,
            data: noise(len, 3),
            numbers: Numbers(7),
        })
    }

    /// A copy with its fence: the floor. With `tags`, also the stores and fences of an overwrite by FR.
    fn turn(&mut self, writes: u64, tags: bool) -> Result<f64> {
        let len = self.data.len();
        let (blocks, lines) = (REGION_BYTES / len / 2, REGION_BYTES / LINE / 2);
        time_ns(|| {
            for _ in 0..writes {
                let block = self.numbers.below(blocks as u64) as usize;
                // PERSIST: as in a write of the cache; nothing here relies on it.
                self.range.copy(REGION_BYTES / 2 + block * len, &self.data, len, &mut NoSum);
                self.range.fence()?;
                if tags {
                    let line = block * len / BLOCK_BYTES * 2 % lines;
                    for tag in [line, line ^ 1] {
                        // PERSIST: as above: a tag, then that of the chunk that it replaces.
                        self.range.copy(tag * LINE, &self.data[..LINE], LINE, &mut NoSum);
                        self.range.fence()?;
                    }
                }
            }
            Ok(())
        })
    }
}

fn row(name: String, pair: &Pair, against: &str, goal: Option<(f64, &str)>) -> Row {
    let (ours, theirs) = (Spread::of(pair.a.clone()), Spread::of(pair.b.clone()));
    Row {
        name,
        value: Some(ours.median),
        unit: "ns",
        baseline: Some(format!("{against}, {:.0} ns", theirs.median)),
        ..Row::ratio(pair.ratio(), goal)
    }
}

pub(super) fn rows(folder: &Folder, options: Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (protocol, name) in PROTOCOLS {
        let cached = match protocol {
            ProtocolKind::Pmal | ProtocolKind::PmalOrdered => Cached::in_memory((protocol, REGION_BYTES))?,
            // Its log is freed in the background; the others go on without that.
            ProtocolKind::Log => Cached::new(folder, "write-log", (protocol, REGION_BYTES), Some(PERIOD))?,
            _ => Cached::new(folder, &format!("write-{name}"), (protocol, REGION_BYTES), None)?,
        };
        let file = cached.file("file", FILE_BYTES)?;
        rows.push(against_floor(&cached, &file, (name, BLOCK_BYTES), options)?);
        if name == "FR" {
            rows.push(management(&cached, &file, options)?);
        }
        if !options.quick {
            for len in [512, 65536] {
                rows.push(against_floor(&cached, &file, (name, len), options)?);
            }
            rows.push(two_threads(&cached, name)?);
        }
        cached.cache.flush()?;
        cached.cache.close(file)?;
    }
    Ok(rows)
}

fn against_floor(
    cached: &Cached,
    file: &Handle,
    (name, len): (&str, usize),
    options: Options,
) -> Result<Row> {
    let (mut writer, mut floor) = (Writer::new(cached, file, len)?, Bare::new(len)?);
    let writes = writer.writes();
    let pair = by_turns(options.turns(), writes as usize, || writer.turn(), || floor.turn(writes, false))?;
    // The goal is that of the library in a program (`front`); in process it is met the more easily.
    let goal = (name == "FR" && len == BLOCK_BYTES).then_some((2.5, "at most"));
    Ok(row(format!("{name}: overwrite {len} B, in process"), &pair, "a copy and its fence", goal))
}

/// What a write takes beyond its own stores and fences.
fn management(cached: &Cached, file: &Handle, options: Options) -> Result<Row> {
    const GOAL_NS: f64 = 70.0;
    let (mut writer, mut bare) = (Writer::new(cached, file, BLOCK_BYTES)?, Bare::new(BLOCK_BYTES)?);
    let pair = by_turns(options.turns(), WRITES as usize, || writer.turn(), || bare.turn(WRITES, true))?;
    let rest = Spread::of(pair.a.iter().zip(&pair.b).map(|(a, b)| a - b).collect());
    let of_pair = row("FR: of that, not its stores and fences".to_owned(), &pair, "these alone", None);
    let goal = Some(format!("at most {GOAL_NS} ns"));
    Ok(Row { value: Some(rest.median), goal, met: Some(rest.median <= GOAL_NS), ..of_pair })
}

/// Two threads, each with a file of its own, against one.
fn two_threads(cached: &Cached, name: &str) -> Result<Row> {
    const TURNS: usize = 101;
    let files = [cached.file("one", FILE_BYTES / 2)?, cached.file("two", FILE_BYTES / 2)?];
    let data = noise(BLOCK_BYTES, 3);
    let work = |files: &[Handle]| -> Result<f64> {
        let write = |(number, file): (usize, &Handle)| -> Result<()> {
            let mut numbers = Numbers(number as u64);
            for _ in 0..4 * WRITES {
                let block = numbers.below(FILE_BYTES / 2 / BLOCK_BYTES as u64);
                cached.cache.write_synced(file, block * BLOCK_BYTES as u64, &data)?;
            }
            Ok(())
        };
        // Writes a second, as time for each.
        Ok(in_parallel(files.iter().enumerate(), write)?.wall / files.len() as f64)
    };
    let pair = by_turns(TURNS, 4 * WRITES as usize, || work(&files[..1]), || work(&files))?;
    for file in files {
        cached.cache.close(file)?;
    }
    let ratio = Row { threads: 2, ..Row::ratio(pair.ratio(), None) };
    Ok(Row {
        name: format!("{name}: 2 threads, a file each: writes a second"),
        baseline: Some("1 thread".to_owned()),
        ..ratio
    })
}
