//! The recorder as a [`Medium`].

use std::ops::ControlFlow;
use std::panic::catch_unwind;

use fastness_pm_model::{
    Budget, Config, Fault, FlushKind, Machine, Op, Persistence, RecordStyle, Recorder, RecordingRange,
    explore,
};
use fastness_pmem::{Medium, NoSum, ReadError, ReadErrorKind, Summer};

fn recorder(style: RecordStyle) -> Recorder {
    Recorder::new(vec![0xff; 512], style)
}

#[derive(Default)]
struct Blocks(Vec<Vec<u8>>);

impl Summer for Blocks {
    fn update(&mut self, block: &[u8]) {
        self.0.push(block.to_vec());
    }
}

#[test]
fn a_copy_is_recorded_line_by_line_with_its_tail_of_zeroes() {
    let recorder = recorder(RecordStyle::StoreFlush(FlushKind::Clwb));
    let mut range = recorder.range(128, 256);
    assert_eq!((range.len_bytes(), range.region_offset()), (256, 128));
    let mut blocks = Blocks::default();
    range.copy(64, &[5; 70], 192, &mut blocks);
    range.fence().unwrap();
    recorder.mark(9);
    assert_eq!(blocks.0, [vec![5; 70]], "one block of the summer");
    let second: Vec<u8> = [vec![5; 6], vec![0; 58]].concat();
    let expected = [
        Op::store(192, [5; 64]),
        Op::clwb(192),
        Op::store(256, second),
        Op::clwb(256),
        Op::store(320, [0; 64]),
        Op::clwb(320),
        Op::sfence(),
        Op::Mark(9),
    ];
    assert_eq!(recorder.trace().ops, expected);
    assert_eq!(recorder.trace().initial, [0xff; 512]);
    assert_eq!(recorder.op_count(), 8);
    let mut read = [1; 256];
    range.read(0, &mut read).unwrap();
    assert_eq!(read[..], recorder.image()[128..384]);
    assert_eq!(recorder.image()[192..384], [[5; 70].as_slice(), &[0; 122]].concat());
}

#[test]
fn other_styles_and_sizes() {
    let recorder = Recorder::with_store_bytes(vec![0; 64], RecordStyle::NonTemporal, 32);
    recorder.range(0, 64).copy(0, &[1; 64], 64, &mut NoSum);
    assert_eq!(recorder.trace().ops, [Op::nt_store(0, [1; 32]), Op::nt_store(32, [1; 32])]);
    let recorder = Recorder::new(vec![0; 64], RecordStyle::PlainEadr);
    recorder.range(0, 64).copy(0, &[1; 64], 64, &mut NoSum);
    assert_eq!(recorder.trace().ops, [Op::store(0, [1; 64])]);
    recorder.record(Op::rmw(8, [2; 8]));
    assert_eq!(recorder.image()[..24], [[1; 8], [2; 8], [1; 8]].concat());
}

/// After copy and fence exactly one image is left, in each style on its platform.
#[test]
fn copy_and_fence_persist() {
    let styles = [
        (RecordStyle::NonTemporal, Persistence::Adr),
        (RecordStyle::NonTemporal, Persistence::Eadr),
        (RecordStyle::StoreFlush(FlushKind::Clflushopt), Persistence::Adr),
        (RecordStyle::StoreFlush(FlushKind::Clflush), Persistence::Adr),
        (RecordStyle::PlainEadr, Persistence::Eadr),
    ];
    for (style, persistence) in styles {
        let recorder = recorder(style);
        let mut range = recorder.range(0, 512);
        range.copy(0, &[3; 300], 512, &mut NoSum);
        let config = Config { persistence, ..Config::default() };
        let replay = || {
            let trace = recorder.trace();
            let mut machine = Machine::new(trace.initial, config);
            trace.ops.iter().for_each(|op| machine.apply(op).unwrap());
            machine
        };
        assert!(replay().count_upper_bound() > 1);
        range.fence().unwrap();
        assert_eq!(replay().count_upper_bound(), 1);
        assert_eq!(replay().persistent_image(), recorder.image());
    }
    let recorder = recorder(RecordStyle::PlainEadr);
    recorder.range(0, 512).copy(0, &[3; 8], 64, &mut NoSum);
    let mut machine = Machine::new(vec![0xff; 512], Config::default());
    recorder.trace().ops.iter().for_each(|op| machine.apply(op).unwrap());
    machine.apply(&Op::sfence()).unwrap();
    assert!(machine.count_upper_bound() > 1, "plain stores need persistent caches");
}

#[test]
fn ranges_are_exclusive_and_can_be_divided() {
    let recorder = recorder(RecordStyle::NonTemporal);
    let range = recorder.range(64, 256);
    let overlap = recorder.clone();
    assert!(catch_unwind(move || overlap.range(256, 128)).is_err());
    let (low, mut high) = range.split(64);
    assert_eq!((low.len_bytes(), low.region_offset()), (64, 64));
    assert_eq!((high.len_bytes(), high.region_offset()), (192, 128));
    high.copy(0, &[1], 64, &mut NoSum);
    assert_eq!(recorder.image()[128], 1);
    drop(low);
    drop(recorder.range(0, 128));
    let overlap = recorder.clone();
    assert!(catch_unwind(move || overlap.range(64, 128)).is_err());
    drop(high);
    assert_eq!(recorder.range(0, 512).recorder().image().len(), 512);
}

fn read_error(range: &RecordingRange, offset: usize, len: usize) -> Option<ReadError> {
    range.read(offset, &mut vec![0; len]).err()
}

fn poison(region_offset: u64) -> Option<ReadError> {
    Some(ReadError { region_offset, kind: ReadErrorKind::Poison })
}

#[test]
fn poison_and_truncation() {
    let recorder = recorder(RecordStyle::NonTemporal);
    let mut range = recorder.range(128, 384);
    range.inject(Fault::Poison(70..200));
    assert_eq!(read_error(&range, 0, 70), None);
    assert_eq!(read_error(&range, 0, 71), poison(198));
    assert_eq!(read_error(&range, 100, 0), None);
    assert_eq!(read_error(&range, 150, 8), poison(278));
    range.copy(64, &[1; 64], 64, &mut NoSum);
    assert_eq!(read_error(&range, 64, 64), None);
    assert_eq!(read_error(&range, 64, 65), poison(256));
    let (mut low, high) = range.split(128);
    assert_eq!(read_error(&low, 0, 128), None);
    assert_eq!(read_error(&high, 0, 1), poison(256));
    assert_eq!(read_error(&high, 72, 56), None);
    low.inject(Fault::Truncate { end: 100 });
    assert_eq!(read_error(&low, 90, 20), poison(228));
    assert_eq!(read_error(&low, 110, 8), poison(238));
    let outside = ReadError { region_offset: 256, kind: ReadErrorKind::OutOfRange };
    assert_eq!(read_error(&low, 120, 9), Some(outside));
}

#[test]
fn a_failed_fence_refuses_all_further_ones() {
    let recorder = recorder(RecordStyle::NonTemporal);
    let (mut a, mut b) = (recorder.range(0, 64), recorder.range(64, 64));
    a.inject(Fault::FailFence { after: 1 });
    a.fence().unwrap();
    let error = a.fence().unwrap_err();
    assert_eq!((error.start, error.end), (0, 64));
    assert_eq!(error.source.raw_os_error(), Some(5));
    assert_eq!(b.fence().unwrap_err().start, 64);
    assert_eq!(recorder.op_count(), 1, "a failed fence promises nothing");
    recorder.reopen();
    a.fence().unwrap();
    b.fence().unwrap();
}

/// A header and a record after it: the whole path from a structure to its oracle.
#[test]
fn from_medium_to_oracle() {
    let recorder = Recorder::new(vec![0; 256], RecordStyle::NonTemporal);
    let mut range = recorder.range(0, 256);
    for round in 1..=3_u8 {
        range.copy(64, &[round; 100], 128, &mut NoSum);
        range.fence().unwrap();
        range.copy(0, &[round], 64, &mut NoSum);
        range.fence().unwrap();
        recorder.mark(u64::from(round));
    }
    let (mut torn, mut lost) = (0, 0);
    let budget = Budget { exhaustive_limit: 1 << 16, ..Budget::default() };
    let summary = explore(&recorder.trace(), &Config::default(), budget, &mut |point| {
        lost += usize::from(u64::from(point.image[0]) < point.last_mark.unwrap_or(0));
        torn += usize::from(point.image[64..164].iter().any(|&byte| byte != point.image[0]));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!((lost, summary.sampled_points), (0, 0));
    assert!(torn > 1000, "overwriting the record in place has to be seen as wrong: {torn}");
}
