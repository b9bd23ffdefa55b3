//! `fastness bench crashcheck`: what a crash-consistency test does again and again, on images and traces.
//!
//! There is no floor: the goals are bounds.

use fastness_crashcheck::image::Image;
use fastness_trace::{Event, Header, Kind, Origin, Reader, Region, Writer};

use crate::measure::{Spread, rss_bytes, time_ns};
use crate::pool::{Numbers, noise};
use crate::{Options, Row};

const LINE_BYTES: u64 = 64;

/// Runs the benchmark.
///
/// # Errors
/// If the kernel does not say how much memory there is in use.
pub(crate) fn run(options: Options) -> anyhow::Result<Vec<Row>> {
    let mut rows = vec![memory_of_images(options)?, change_and_hash(options)?];
    rows.extend(traces(options)?);
    Ok(rows)
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

fn change_and_hash(options: Options) -> anyhow::Result<Row> {
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

fn memory_of_images(options: Options) -> anyhow::Result<Row> {
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

/// Stores as a file system in a guest makes them: of 8 bytes, with the instruction's address and a stack of three.
fn traces(options: Options) -> anyhow::Result<Vec<Row>> {
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
        anyhow::ensure!(reader.count() == count, "{} of {count} events", reader.count());
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
        row("the same: bytes of an event, 8 of them data at random".to_owned(), bytes, "bytes"),
    ])
}
