//! `fastness bench crashcheck`: the operations that a crash-consistency test repeats, on images and traces.
//!
//! There is no floor: the goals are bounds.

use std::fs::File;
use std::path::{Path, PathBuf};

use fastness_crashcheck::CheckError;
use fastness_crashcheck::generate::{
    Contents, KNOWN_IMAGES, Known, Layout, Options as GenerateOptions, Part, Point, Sink, generate,
};
use fastness_crashcheck::image::Image;
use fastness_crashcheck_trace::{Event, FenceKind, FlushKind, Header, Kind, Origin, Reader, Region, Writer};

use crate::error::{Result, ensure};
use crate::measure::{Spread, rss_bytes, time_ns};
use crate::pool::{Numbers, noise};
use crate::{Options, Row};

const LINE_BYTES: u64 = 64;

/// Runs the benchmark.
///
/// # Errors
/// If the kernel does not report how much memory is in use.
pub(crate) fn run(options: Options) -> Result<Vec<Row>> {
    let mut rows = vec![memory_of_images(options)?, change_and_hash(options)?];
    rows.extend(traces(options)?);
    rows.push(crash_images("crash images: 400 fences, 4,400 images of 64 KiB", 400, 64 << 10, 2.7, 10.0)?);
    rows.push(crash_images("crash images: 100 fences, 1,101 images of 5 MiB", 100, 5 << 20, 11.6, 50.0)?);
    Ok(rows)
}

/// Eleven images at each fence: ten stores to a line, one after the other. What Vinter's generator took for
/// such a trace was measured once, on a machine like the development machine; it is not run here.
fn crash_images(name: &str, fences: u64, len_bytes: u64, vinter_seconds: f64, goal: f64) -> Result<Row> {
    let region = Region { name: "pm".to_owned(), start: 0, len_bytes };
    let header = Header { tool: "bench".to_owned(), regions: vec![region], devices: Vec::new() };
    let mut writer = Writer::new(Vec::new(), &header)?;
    for part in (0..len_bytes).step_by(64 << 10) {
        writer.push(&Event::of(Kind::Initial { address: part, data: &noise(64 << 10, part) }))?;
    }
    for fence in 0..fences {
        let address = fence * 8 % (len_bytes / LINE_BYTES) * LINE_BYTES;
        for store in 0..10_u64 {
            let data = (fence * 10 + store + 1).to_le_bytes();
            let address = address + store % 8 * 8;
            writer.push(&Event::of(Kind::Store {
                address,
                data: &data,
                is_non_temporal: false,
                is_atomic64: false,
            }))?;
        }
        writer.push(&Event::of(Kind::Flush { kind: FlushKind::Clwb, address }))?;
        writer.push(&Event::of(Kind::Fence(FenceKind::Sfence)))?;
    }
    let trace = writer.finish()?;
    let dir = PathBuf::from(format!("/dev/shm/fastness-bench-images-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let mut count = 0;
    let time = time_ns(|| {
        let mut reader = Reader::new(&trace[..])?;
        let len_bytes = Layout::of(reader.header())?.len_bytes();
        let known = Known::new(KNOWN_IMAGES);
        let mut differences = Differences { dir: &dir, len_bytes, first: None, known, count: 0 };
        generate(&mut reader, &GenerateOptions::default(), None, &mut differences)?;
        count = differences.count;
        Ok(())
    });
    std::fs::remove_dir_all(&dir)?;
    let seconds = time? / 1e9;
    ensure!(count as u64 == fences * 10 + 1, "{count} images");
    Ok(Row {
        goal: Some(format!("at most {:.0} ms", vinter_seconds / goal * 1e3)),
        met: Some(seconds <= vinter_seconds / goal),
        ..row(format!("{name}: generated, hashed, and their differences written"), seconds * 1e3, "ms")
    })
}

/// Writes the first image in full, and of the others the pages that differ from it.
struct Differences<'a> {
    dir: &'a Path,
    len_bytes: u64,
    first: Option<Contents>,
    known: Known<()>,
    count: usize,
}

impl Sink for Differences<'_> {
    fn begin(&mut self, _: &Point, _: &Contents) -> Result<(), CheckError> {
        Ok(())
    }

    fn image(&mut self, contents: Contents, _: Part, _: bool) -> Result<(), CheckError> {
        let hash = contents.hash();
        if self.known.get_mut(&hash).is_some() {
            return Ok(());
        }
        self.known.put(&hash, ());
        self.count += 1;
        let path = self.dir.join(hash.to_string());
        let file = File::create(&path);
        let written = file.and_then(|file| match &self.first {
            None => contents.memory.write_sparse(&file, 0, self.len_bytes),
            Some(first) => contents.memory.write_differences(&first.memory, &file, 0, self.len_bytes),
        });
        self.first.get_or_insert(contents);
        written.map_err(CheckError::file("write", &path))
    }

    fn end(&mut self, _: &Point) -> Result<(), CheckError> {
        Ok(())
    }
}

fn row(name: String, value: f64, unit: &'static str) -> Row {
    let medium = "memory".to_owned();
    Row { name, value: Some(value), unit, medium, threads: 1, ..Row::default() }
}

/// An image without a page of zeroes.
fn full(len_bytes: u64) -> Image {
    let mut image = Image::zeroed(len_bytes);
    let part = noise(1 << 20, 3);
    (0..len_bytes).step_by(part.len()).for_each(|at| image.write(at, &part));
    image
}

/// A line of an image, at random.
fn line(numbers: &mut Numbers, len_bytes: u64) -> u64 {
    numbers.next() % (len_bytes / LINE_BYTES) * LINE_BYTES
}

fn change_and_hash(options: Options) -> Result<Row> {
    const LEN_BYTES: u64 = 512 << 20;
    const GOAL_US: f64 = 1000.0;
    let image = full(LEN_BYTES);
    image.hash();
    let (mut numbers, mut times) = (Numbers(7), Vec::new());
    for count in 0..options.turns() as u64 * 10 {
        let at = line(&mut numbers, LEN_BYTES);
        times.push(time_ns(|| {
            let mut changed = image.clone();
            changed.write(at, &[count as u8 | 1; LINE_BYTES as usize]);
            std::hint::black_box(changed.hash());
            Ok(())
        })?);
    }
    let us = Spread::of(times).median / 1e3;
    Ok(Row {
        goal: Some(format!("at most {GOAL_US:.0} us")),
        met: Some(us <= GOAL_US),
        ..row("an image of 512 MiB: clone, change of one line, hash".to_owned(), us, "us")
    })
}

fn memory_of_images(options: Options) -> Result<Row> {
    const LEN_BYTES: u64 = 100 << 20;
    const LINES: usize = 4;
    let count = if options.quick { 1000 } else { 10_000 };
    let image = full(LEN_BYTES);
    image.hash();
    let before = rss_bytes()?;
    let mut numbers = Numbers(9);
    let mut images = Vec::with_capacity(count);
    for number in 0..count {
        let mut changed = image.clone();
        for _ in 0..LINES {
            changed.write(line(&mut numbers, LEN_BYTES), &[number as u8 | 1; LINE_BYTES as usize]);
        }
        changed.hash();
        images.push(changed);
    }
    // With the one that they share.
    let mib = (rss_bytes()?.saturating_sub(before) + LEN_BYTES) as f64 / f64::from(1 << 20);
    let goal_mib = 1024.0 * count as f64 / 10_000.0;
    drop(images);
    Ok(Row {
        goal: Some(format!("at most {goal_mib:.0} MiB")),
        // The one that they share does not become less with them.
        met: Some(if options.quick { mib - 100.0 <= goal_mib } else { mib <= goal_mib }),
        ..row(format!("{count} images of 100 MiB, {LINES} lines of each changed: memory"), mib, "MiB")
    })
}

/// Stores as a file system in a guest makes them: of 8 bytes, with the instruction's address and a stack of
/// three.
fn traces(options: Options) -> Result<Vec<Row>> {
    let count: u64 = if options.quick { 200_000 } else { 2_000_000 };
    let region = Region { name: "pm".to_owned(), start: 0, len_bytes: 1 << 30 };
    let header = Header { tool: "bench".to_owned(), regions: vec![region], devices: Vec::new() };
    let stacks: Vec<[u64; 3]> =
        (0..50).map(|at| [0x8100_0000 + at, 0x8110_0000 + at * 3, 0x8120_0000]).collect();
    let mut trace = Vec::new();
    let write_ns = time_ns(|| {
        let mut writer = Writer::new(std::mem::take(&mut trace), &header)?;
        let mut numbers = Numbers(5);
        for at in 0..count {
            let stack = &stacks[(at / 20 % 50) as usize][..];
            let origin =
                Origin { thread: 0, pc: Some(stack[0] + at % 7), is_kernel: true, stack: Some(stack) };
            let address = (at / 16 * 4096 + at % 16 * 8) % (1 << 30);
            let data = numbers.next().to_le_bytes();
            let kind = Kind::Store { address, data: &data, is_non_temporal: at % 2 == 0, is_atomic64: false };
            writer.push(&Event { kind, origin })?;
        }
        trace = writer.finish()?;
        Ok(())
    })?;
    let read_ns = time_ns(|| {
        let mut reader = Reader::new(&trace[..])?;
        while let Some(event) = reader.next()? {
            std::hint::black_box(event);
        }
        ensure!(reader.count() == count, "{} of {count} events", reader.count());
        Ok(())
    })?;
    let bytes = trace.len() as f64 / count as f64;
    Ok(vec![
        row(
            "trace of stores of 8 bytes with stacks: written".to_owned(),
            count as f64 / write_ns * 1e3,
            "million/s",
        ),
        row("the same: read".to_owned(), count as f64 / read_ns * 1e3, "million/s"),
        row("the same: bytes per event, 8 of them random data".to_owned(), bytes, "bytes"),
    ])
}
