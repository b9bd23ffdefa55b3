//! Tests that need the recorder of `pm-model` as a medium, and the tools that they share.

mod crash;
mod fences;
mod format;
mod fuzz;
mod life;
mod model;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastness_pm_model::{Op, RecordStyle, Recorder, RecordingRange};
use fastness_pmem::RegionInfo;
use fastness_prb::{Alignment, Entropy, OnLoss};

use crate::{CreateOptions, LogMedium, OpenError, OpenOptions, PmLog, Recovery};

impl LogMedium for RecordingRange {
    fn split(self, mid: usize) -> (Self, Self) {
        RecordingRange::split(self, mid)
    }

    fn region_info(&self) -> Option<&RegionInfo> {
        None
    }
}

/// Numbers that look random and are the same in each run.
#[derive(Debug, Default)]
struct Counting(AtomicU64);

impl Entropy for Counting {
    fn next_u64(&self) -> u64 {
        (self.0.fetch_add(1, Ordering::Relaxed) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Two chunks of 1 KiB: one record of up to 64 bytes takes 320 bytes, so a chunk holds three.
const SMALL: usize = 16384 + 2 * 1024;

fn recorder(image: Vec<u8>) -> Recorder {
    Recorder::with_store_bytes(image, RecordStyle::NonTemporal, 8)
}

fn open_options() -> OpenOptions {
    OpenOptions::new().committers(1).entropy(Arc::new(Counting::default())).clock(|| 0)
}

fn create_options() -> CreateOptions {
    CreateOptions::new().chunk_bytes(1024).alignment(Alignment::Line).open(open_options())
}

fn whole(recorder: &Recorder, len: usize) -> RecordingRange {
    recorder.range(0, len)
}

/// A log in fresh memory, and what records it.
fn new_log(len: usize) -> (Recorder, PmLog<RecordingRange>) {
    let recorder = recorder(vec![0; len]);
    let log = PmLog::create(whole(&recorder, len), &create_options()).unwrap();
    (recorder, log)
}

/// Options whose random numbers differ from those of the writer before.
fn reopen_options(seed: u64) -> OpenOptions {
    open_options().entropy(Arc::new(Counting(AtomicU64::new(1000 * (seed + 1)))))
}

fn open_image(image: &[u8]) -> Result<Recovery<RecordingRange>, OpenError> {
    let recorder = recorder(image.to_vec());
    PmLog::open(whole(&recorder, image.len()), &reopen_options(0))
}

fn open_partly(image: &[u8]) -> Result<Recovery<RecordingRange>, OpenError> {
    let recorder = recorder(image.to_vec());
    PmLog::open(whole(&recorder, image.len()), &reopen_options(0).on_loss(OnLoss::DropTail))
}

/// The records of a recovery, which changes nothing.
fn records_of(recovery: Recovery<RecordingRange>) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    recovery
        .inspect(|_, record| {
            records.push(record.to_vec());
            Ok::<_, Infallible>(())
        })
        .unwrap();
    records
}

fn record(number: u64) -> Vec<u8> {
    format!("record {number}").into_bytes()
}

fn records(numbers: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    numbers.map(record).collect()
}

fn append_all(log: &PmLog<RecordingRange>, numbers: std::ops::Range<u64>) {
    for number in numbers {
        log.append(&record(number)).unwrap();
    }
}
