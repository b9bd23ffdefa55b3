//! Our own PM log under the crash tester: recorded in process, recovered in process, correct and with planted
//! bugs.
//!
//! Bugs are planted into the trace: a flush or a fence that the log has made is left out, as if it had been
//! forgotten in the code. Each that matters has to be found, and nothing in the trace as it is. With the
//! feature `planted-bugs` there are bugs in the code, too.

use std::convert::Infallible;
use std::path::Path;

use fastness_crashcheck::Result;
use fastness_crashcheck::check::State;
use fastness_crashcheck::generate::Contents;
use fastness_crashcheck::process::Ending;
use fastness_crashcheck::report::Report;
use fastness_crashcheck::run::{Analysis, ImagesConfig, Limits};
use fastness_crashcheck::trace::record;
use fastness_pm_model::{Config, FlushKind, Machine, Op, RecordStyle, Recorder, RecordingRange, Trace};
use fastness_pmem::{Medium, NoSum, PersistError, ReadError, RegionInfo, Summer};
use fastness_pmlog::{CreateOptions, LogMedium, OpenOptions, RecordLog};
use fastness_prb::Alignment;
use fastness_testkit::SeededEntropy;

/// Two chunks of 1 KiB.
const LEN_BYTES: usize = 16384 + 2 * 1024;
const RECORDS: u64 = 4;

/// The recorder as a medium of the log.
struct Recorded(RecordingRange);

impl Medium for Recorded {
    fn len_bytes(&self) -> usize {
        self.0.len_bytes()
    }

    fn region_offset(&self) -> u64 {
        self.0.region_offset()
    }

    fn copy<S: Summer>(&mut self, offset: usize, src: &[u8], extent_bytes: usize, summer: &mut S) {
        self.0.copy(offset, src, extent_bytes, summer);
    }

    fn write_back(&mut self, offset: usize, len_bytes: usize) {
        self.0.write_back(offset, len_bytes);
    }

    fn fence(&mut self) -> Result<(), PersistError> {
        // PERSIST: as the log asks for it; it is only recorded here.
        self.0.fence()
    }

    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        self.0.read(offset, dst)
    }

    fn copy_side(&mut self, side: usize, offset: usize, src: &[u8], extent_bytes: usize) {
        assert_eq!(side, 0, "there is one side");
        self.copy(offset, src, extent_bytes, &mut NoSum);
    }
}

impl LogMedium for Recorded {
    fn split(self, mid: usize) -> (Self, Self) {
        let (one, two) = self.0.split(mid);
        (Recorded(one), Recorded(two))
    }

    fn region_info(&self) -> Option<&RegionInfo> {
        None
    }
}

fn options(seed: u64) -> OpenOptions {
    OpenOptions::new().committers(1).entropy(SeededEntropy::new(seed)).clock(|| 0)
}

/// Four records; checkpoint N when N of them are acknowledged.
fn appended() -> Trace {
    let recorder =
        Recorder::with_store_bytes(vec![0; LEN_BYTES], RecordStyle::StoreFlush(FlushKind::Clwb), 64);
    let create = CreateOptions::new().chunk_bytes(1024).alignment(Alignment::Line).open(options(1));
    let log = RecordLog::create(Recorded(recorder.range(0, LEN_BYTES)), &create).unwrap();
    recorder.mark(0);
    for number in 1..=RECORDS {
        log.append(format!("record {number} of some length").as_bytes()).unwrap();
        recorder.mark(number);
    }
    drop(log);
    recorder.trace()
}

/// Opens the log in an image, and prints its records.
fn reopened(contents: &Contents) -> Result<State> {
    let mut image = vec![0; LEN_BYTES];
    contents.memory.read(0, &mut image);
    let recorder = Recorder::new(image, RecordStyle::NonTemporal);
    let mut text = Vec::new();
    let opened = RecordLog::open(Recorded(recorder.range(0, LEN_BYTES)), &options(2));
    let read = opened.map_err(|error| error.to_string()).and_then(|mut recovery| {
        let mut print = |record: &[u8]| {
            text.extend_from_slice(record);
            text.push(b'\n');
        };
        let replayed = recovery.replay(|_, record| {
            print(record);
            Ok::<_, Infallible>(())
        });
        replayed.map(drop).map_err(|error| error.to_string())
    });
    let ending = Ending::Code(i32::from(read.is_err()));
    if let Err(error) = read {
        text = error.into_bytes();
    }
    Ok(State { ending, text, write: None })
}

/// `per_point`: crash images of a failure point. An insertion has 65,536; what a forgotten
/// flush leaves is among the first.
fn tested(trace: &Trace, file: &Path, per_point: usize) -> Report {
    std::fs::write(file, record(trace, "log", Vec::new()).unwrap()).unwrap();
    let analysis = Analysis {
        name: "pm-log",
        trace: file,
        images: &ImagesConfig { per_point, ..ImagesConfig::default() },
        extract: &reopened,
        recovery: None,
        oracles: Vec::new(),
        has_prefix_oracle: true,
        has_operations: false,
        must_be_atomic: true,
        in_recovery: None,
        threads: 2,
        exclude: &[],
        symbols: &|_, _| None,
        deadline: None,
        limits: Limits::default(),
        progress: &|_| {},
    };
    analysis.run().unwrap()
}

/// Whether something is pending that the flush or fence at `index` is there for.
fn matters(trace: &Trace, index: usize) -> bool {
    let mut machine = Machine::new(trace.initial.clone(), Config::default());
    trace.ops[..index].iter().for_each(|op| machine.apply(op).unwrap());
    let (before, after) = (machine.persistent_image(), machine.volatile_image());
    match &trace.ops[index] {
        Op::Flush { addr, .. } => {
            let line = *addr as usize / 64 * 64;
            before[line..line + 64] != after[line..line + 64]
        }
        op => op.is_fence() && before != after,
    }
}

#[test]
fn the_log_is_atomic_and_keeps_what_it_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let report = tested(&appended(), &dir.path().join("trace"), 1 << 16);
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!((report.states.len(), report.operations.len()), (RECORDS as usize + 1, RECORDS as usize));
    assert_eq!(report.totals.cut_points, 0);
    assert!(report.totals.images > 20, "{:?}", report.totals);
}

#[test]
fn each_flush_that_is_forgotten_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let trace = appended();
    let begin = trace.ops.iter().position(|op| matches!(op, Op::Mark(0))).unwrap();
    let (mut planted, mut missed) = (0, Vec::new());
    for index in begin..trace.ops.len() {
        if !matches!(trace.ops[index], Op::Flush { .. }) || !matters(&trace, index) {
            continue;
        }
        let mut broken = trace.clone();
        broken.ops.remove(index);
        planted += 1;
        if tested(&broken, &dir.path().join("trace"), 4096).is_clean() {
            missed.push((index, trace.ops[index].clone()));
        }
    }
    assert!(planted >= 8, "only {planted} were planted");
    assert!(missed.is_empty(), "{} of {planted} missed: {missed:?}", missed.len());
}

#[test]
fn an_acknowledgement_before_the_last_fence_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let trace = appended();
    for number in 1..=RECORDS {
        let mark = trace.ops.iter().position(|op| *op == Op::Mark(number)).unwrap();
        let fence = trace.ops[..mark].iter().rposition(Op::is_fence).unwrap();
        assert!(matters(&trace, fence));
        let mut broken = trace.clone();
        broken.ops.remove(fence);
        let report = tested(&broken, &dir.path().join("trace"), 4096);
        assert!(!report.is_clean(), "the fence of record {number}");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn bugs_in_the_code_are_found() {
    use fastness_prb::{Bug, plant};

    let dir = tempfile::tempdir().unwrap();
    for bug in [Bug::HeaderBesideBody, Bug::Unfenced, Bug::Unsummed, Bug::PaddingCounted] {
        plant(Some(bug));
        let trace = appended();
        plant(None);
        let report = tested(&trace, &dir.path().join("trace"), 4096);
        assert!(!report.is_clean(), "{bug:?}");
    }
}
