//! Tests that use the recorder of `pm-model` as a medium, and their shared helpers.

mod crash;
mod fences;
mod format;
mod fuzz;
mod life;
mod model;

use std::convert::Infallible;

use fastness_pm_model::{Op, RecordStyle, Recorder, RecordingRange};
use fastness_pmem::RegionInfo;
use fastness_prb::{Alignment, OnLoss};
use fastness_testkit::SeededEntropy;

use crate::{CreateOptions, LogMedium, OpenError, OpenOptions, RecordLog, Recovery};

impl LogMedium for RecordingRange {
    fn split(self, mid: usize) -> (Self, Self) {
        RecordingRange::split(self, mid)
    }

    fn region_info(&self) -> Option<&RegionInfo> {
        None
    }
}

/// Two chunks of 1 KiB: one record of up to 64 bytes takes 320 bytes, so a chunk holds three.
const SMALL: usize = 16384 + 2 * 1024;

fn recorder(image: Vec<u8>) -> Recorder {
    Recorder::with_store_bytes(image, RecordStyle::NonTemporal, 8)
}

fn open_options() -> OpenOptions {
    OpenOptions::new().committers(1).entropy(SeededEntropy::new(1000)).clock(|| 0)
}

fn create_options() -> CreateOptions {
    CreateOptions::new().chunk_bytes(1024).alignment(Alignment::Line).open(open_options())
}

fn whole(recorder: &Recorder, len: usize) -> RecordingRange {
    recorder.range(0, len)
}

/// A log in fresh memory, and its recorder.
fn new_log(len: usize) -> (Recorder, RecordLog<RecordingRange>) {
    let recorder = recorder(vec![0; len]);
    let log = RecordLog::create(whole(&recorder, len), &create_options()).unwrap();
    (recorder, log)
}

/// Options whose random numbers differ from those of the previous writer.
fn reopen_options(seed: u64) -> OpenOptions {
    open_options().entropy(SeededEntropy::new(seed + 1))
}

fn open_image(image: &[u8]) -> Result<Recovery<RecordingRange>, OpenError> {
    let recorder = recorder(image.to_vec());
    RecordLog::open(whole(&recorder, image.len()), &reopen_options(0))
}

fn open_partly(image: &[u8]) -> Result<Recovery<RecordingRange>, OpenError> {
    let recorder = recorder(image.to_vec());
    RecordLog::open(whole(&recorder, image.len()), &reopen_options(0).on_loss(OnLoss::DropTail))
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

fn append_all(log: &RecordLog<RecordingRange>, numbers: std::ops::Range<u64>) {
    for number in numbers {
        log.append(&record(number)).unwrap();
    }
}
