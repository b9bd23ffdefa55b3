//! The work, and its rows.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, OFlags, fadvise};

use super::served::Places;
use crate::error::{Result, foreign};
use crate::measure::{Pair, by_turns, in_parallel, time_ns};
use crate::pool::{Numbers, noise};
use crate::sync_write::one::{median, swapped};
use crate::{Options, Row};

const BLOCK_BYTES: usize = 4096;
const FILE_BYTES: u64 = 64 << 20;
/// Synchronous writes of a turn.
const WRITES: u64 = 200;
/// The same where each waits for a disk.
const WRITES_TO_DISK: u64 = 10;
const LARGE_BYTES: usize = 1 << 20;
/// Large requests of a turn.
const LARGE: u64 = 32;
/// Small files of a turn and thread.
const SMALL: u64 = 10;

/// Random writes of 4 KiB to a file that was opened with `O_SYNC`.
struct Writer {
    file: File,
    numbers: Numbers,
    data: Vec<u8>,
}

impl Writer {
    fn new(folder: &Path) -> Result<Writer> {
        let path = folder.join("sync");
        let mut file = File::create(&path)?;
        for _ in 0..FILE_BYTES / LARGE_BYTES as u64 {
            file.write_all(&noise(LARGE_BYTES, 5))?;
        }
        file.sync_all()?;
        let file = OpenOptions::new().write(true).custom_flags(OFlags::SYNC.bits() as i32).open(path)?;
        Ok(Writer { file, numbers: Numbers(7), data: noise(BLOCK_BYTES, 3) })
    }

    /// Time of one write, in ns.
    fn turn(&mut self, writes: u64) -> Result<f64> {
        let time = time_ns(|| {
            for _ in 0..writes {
                let block = self.numbers.below(FILE_BYTES / BLOCK_BYTES as u64);
                self.file.write_all_at(&self.data, block * BLOCK_BYTES as u64)?;
            }
            Ok(())
        })?;
        Ok(time / writes as f64)
    }
}

/// A file that is read or written from beginning to end.
struct Stream {
    file: File,
    buffer: Vec<u8>,
}

impl Stream {
    fn new(folder: &Path) -> Result<Stream> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(folder.join("stream"))?;
        let mut stream = Stream { file, buffer: noise(LARGE_BYTES, 9) };
        stream.write()?;
        Ok(stream)
    }

    fn write(&mut self) -> Result<f64> {
        time_ns(|| {
            for at in 0..LARGE {
                self.file.write_all_at(&self.buffer, at * LARGE_BYTES as u64)?;
            }
            Ok(())
        })
    }

    /// From the server: the kernel's pages are dropped before.
    fn read(&mut self) -> Result<f64> {
        self.file.sync_all()?;
        fadvise(&self.file, 0, None, Advice::DontNeed).map_err(foreign)?;
        time_ns(|| {
            for at in 0..LARGE {
                self.file.read_exact_at(&mut self.buffer, at * LARGE_BYTES as u64)?;
            }
            Ok(())
        })
    }
}

/// Creates small files, makes each durable, and removes it.
fn small_files(folder: &Path, threads: usize) -> Result<f64> {
    let folders: Vec<PathBuf> = (0..threads).map(|thread| folder.join(format!("small-{thread}"))).collect();
    for folder in &folders {
        if !folder.exists() {
            std::fs::create_dir(folder)?;
        }
    }
    let work = |folder: &PathBuf| -> Result<()> {
        for file in 0..SMALL {
            let path = folder.join(format!("{file}"));
            let mut file = File::create(&path)?;
            file.write_all(&[7; 1000])?;
            file.sync_all()?;
            std::fs::remove_file(&path)?;
        }
        Ok(())
    };
    Ok(in_parallel(folders.iter(), work)?.wall)
}

/// What `pair` says of the first against the second, as speed.
fn speed(name: &str, pair: &Pair, against: &str, goal: Option<(f64, &str)>) -> Row {
    Row {
        name: name.to_owned(),
        value: Some(median(&pair.a) / 1000.0),
        unit: "us",
        baseline: Some(format!("{against}, {:.1} us", median(&pair.b) / 1000.0)),
        ..Row::ratio(swapped(pair).ratio(), goal)
    }
}

pub(super) fn rows(places: &Places, options: Options) -> Result<Vec<Row>> {
    let mut rows = sync_writes(places, options)?;
    rows.extend(streams(places, options)?);
    rows.extend(small(places, options)?);
    Ok(rows)
}

fn sync_writes(places: &Places, options: Options) -> Result<Vec<Row>> {
    let mut ours = Writer::new(&places.pmem)?;
    let mut pass = Writer::new(&places.pass_through)?;
    let mut disabled = Writer::new(&places.disabled)?;
    let (mut lwb, mut plain) = (Writer::new(&places.lwb)?, Writer::new(&places.plain)?);
    let turns = options.turns();
    let to_pass = by_turns(turns, 1, || ours.turn(WRITES), || pass.turn(WRITES))?;
    let to_disabled = by_turns(turns, 1, || ours.turn(WRITES), || disabled.turn(WRITES))?;
    let to_lwb = by_turns(turns.min(101), 1, || ours.turn(WRITES), || lwb.turn(WRITES_TO_DISK))?;
    let to_plain = by_turns(turns.min(101), 1, || ours.turn(WRITES), || plain.turn(WRITES_TO_DISK))?;
    let name = "write 4 KiB, O_SYNC, through the mount";
    let against = "pass-through without durability";
    Ok(vec![
        latency(speed(name, &to_pass, against, None), &to_pass, 1.15),
        speed("the same: writes a second", &to_disabled, "sync=disabled", Some((0.8, "at least"))),
        speed("the same: writes a second", &to_lwb, "kind lwb, pool in a file", Some((3.0, "at least"))),
        speed("the same: writes a second", &to_plain, &places.plain_type, Some((1.0, "at least"))),
    ])
}

/// Latency, of which less is better.
fn latency(row: Row, pair: &Pair, most: f64) -> Row {
    let of = Row::ratio(pair.ratio(), Some((most, "at most")));
    Row { ratio: of.ratio, ratio_interval: of.ratio_interval, goal: of.goal, met: of.met, ..row }
}

fn streams(places: &Places, options: Options) -> Result<Vec<Row>> {
    let (mut ours, mut pass) = (Stream::new(&places.pmem)?, Stream::new(&places.pass_through)?);
    let turns = if options.quick { 21 } else { 101 };
    let write = by_turns(turns, LARGE as usize, || ours.write(), || pass.write())?;
    let read = by_turns(turns, LARGE as usize, || ours.read(), || pass.read())?;
    let against = "pass-through without durability";
    Ok(vec![
        speed("write 1 MiB after 1 MiB: bytes a second", &write, against, Some((0.8, "at least"))),
        speed("read 1 MiB after 1 MiB: bytes a second", &read, against, Some((0.8, "at least"))),
    ])
}

fn small(places: &Places, options: Options) -> Result<Vec<Row>> {
    let turns = if options.quick { 11 } else { 51 };
    let mut rows = Vec::new();
    for threads in [1, 4] {
        let count = SMALL as usize * threads;
        let of = |folder: &Path| small_files(folder, threads);
        let to_plain = by_turns(turns, count, || of(&places.pmem), || of(&places.plain))?;
        let row = speed(
            "create, fsync and remove a file of 1,000 bytes: files a second",
            &to_plain,
            &places.plain_type,
            Some((3.0, "at least")),
        );
        rows.push(Row { threads, name: format!("{}, threads: {threads}", row.name), ..row });
    }
    Ok(rows)
}
