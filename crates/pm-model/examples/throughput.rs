//! Measures how many crash images a second the model hands out: `cargo run --release --example throughput`.
#![allow(clippy::print_stdout, reason = "its purpose")]

use std::ops::ControlFlow;
use std::time::Instant;

use fastness_pm_model::{Budget, Config, FlushKind, Machine, Op, RecordStyle, Recorder, explore};
use fastness_pmem::{Medium, NoSum};

const IMAGE_BYTES: usize = 16 << 10;

fn machine(ops: &[Op]) -> Machine {
    let mut machine = Machine::new(vec![0; IMAGE_BYTES], Config::default());
    ops.iter().for_each(|op| machine.apply(op).expect("fits"));
    machine
}

fn report(what: &str, started: Instant, images: usize) {
    let seconds = started.elapsed().as_secs_f64();
    println!("{what}: {images} images in {seconds:.3} s, {:.0} images/s", images as f64 / seconds);
}

fn enumerate(what: &str, ops: &[Op]) {
    let machine = machine(ops);
    let started = Instant::now();
    let mut sum = 0_u64;
    let done = machine.for_each_crash_image(1 << 24, &mut |image| {
        sum = sum.wrapping_add(u64::from(image[0]));
        ControlFlow::Continue(())
    });
    report(what, started, std::hint::black_box(done.expect("few enough").images));
}

fn sample(what: &str, ops: &[Op]) {
    let machine = machine(ops);
    let started = Instant::now();
    let mut images = 0;
    machine.sample_crash_images(1, 100_000, &mut |_| {
        images += 1;
        ControlFlow::Continue(())
    });
    report(what, started, images);
}

/// A log of records, each with a commit word, explored as a test would.
fn explore_log(what: &str, style: RecordStyle, store_bytes: usize) {
    let recorder = Recorder::with_store_bytes(vec![0; IMAGE_BYTES], style, store_bytes);
    let mut range = recorder.range(0, IMAGE_BYTES);
    for record in 0..100 {
        range.copy(record * 128, &[record as u8 + 1; 60], 64, &mut NoSum);
        range.copy(record * 128 + 64, &[record as u8 + 1; 20], 64, &mut NoSum);
        range.fence().expect("no fault");
        recorder.mark(record as u64);
    }
    let trace = recorder.trace();
    let started = Instant::now();
    let budget = Budget { exhaustive_limit: 1 << 17, ..Budget::default() };
    let summary = explore(&trace, &Config::default(), budget, &mut |_| ControlFlow::Continue(()));
    report(what, started, summary.expect("fits").images);
}

fn main() {
    let words: Vec<_> = (0..20).map(|line| Op::store(64 * line, [1; 8])).collect();
    enumerate("20 lines, one word each", &words);
    let lines: Vec<_> = (0..2).map(|line| Op::store(64 * line, [1; 64])).collect();
    enumerate("2 lines, torn anywhere", &lines);
    let chain = (0..9).flat_map(|line| {
        [Op::store(64 * line, [1; 16]), Op::clflush(64 * line), Op::store(64 * line, [2; 16])]
    });
    enumerate("9 lines with clflush between", &chain.collect::<Vec<_>>());
    let page: Vec<_> = (0..64).map(|line| Op::nt_store(64 * line, [1; 64])).collect();
    sample("samples of a 4 KiB copy", &page);
    explore_log("explore, NT stores of 64 bytes", RecordStyle::NonTemporal, 64);
    explore_log("explore, NT stores of 8 bytes", RecordStyle::NonTemporal, 8);
    explore_log("explore, stores of 16 bytes and clwb", RecordStyle::StoreFlush(FlushKind::Clwb), 16);
}
