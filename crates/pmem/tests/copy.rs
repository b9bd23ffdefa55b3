//! Copying into a range: every kernel stores the same bytes, and no others.

mod common;

use common::{Collector, anonymous, pattern};
use fastness_pmem::{
    Kernel, LINE_BYTES, Medium, NoSum, PmRange, ReadErrorKind, Region, RegionError, Summer, WriteMethod,
    copied_bytes,
};
use proptest::prelude::*;

const LEN: usize = 16 * 1024;
const CANARY: u8 = 0xA5;

fn contents(range: &PmRange) -> Vec<u8> {
    let mut bytes = vec![0; range.len_bytes()];
    range.read(0, &mut bytes).unwrap();
    bytes
}

fn canary_range(kernel: Kernel) -> PmRange {
    let mut range = anonymous(LEN as u64, kernel);
    range.copy(0, &[CANARY; LEN], LEN, &mut NoSum);
    range.fence().unwrap();
    range
}

/// Source, zeroes to the end of the extent, and nothing else.
fn check_copy(kernel: Kernel, offset: usize, src: &[u8], extent: usize) {
    let mut range = canary_range(kernel);
    let mut summer = Collector::default();
    range.copy(offset, src, extent, &mut summer);
    range.fence().unwrap();

    let mut expected = vec![CANARY; LEN];
    expected[offset..offset + extent].fill(0);
    expected[offset..offset + src.len()].copy_from_slice(src);
    assert!(contents(&range) == expected, "{kernel:?} offset {offset} source {} extent {extent}", src.len());

    assert_eq!(summer.blocks.concat(), src, "{kernel:?}: the summer gets the source, in order");
    assert!(summer.blocks.iter().all(|block| !block.is_empty()), "{kernel:?}: no empty block");
    if let Some((_, all_but_last)) = summer.blocks.split_last() {
        assert!(
            all_but_last.iter().all(|block| block.len() == <Collector as Summer>::BLOCK_BYTES),
            "{kernel:?}: whole blocks"
        );
    }
}

#[test]
fn every_kernel_at_the_edges_of_lines_and_blocks() {
    for kernel in Kernel::available() {
        for src_len in [
            0_usize, 1, 8, 63, 64, 65, 127, 128, 255, 256, 448, 511, 512, 513, 575, 576, 1023, 1024, 4096,
            4097,
        ] {
            let lines = src_len.div_ceil(LINE_BYTES) * LINE_BYTES;
            for extent in [lines, lines + LINE_BYTES, lines + 10 * LINE_BYTES] {
                check_copy(kernel, 3 * LINE_BYTES, &pattern(src_len, extent), extent);
            }
        }
        check_copy(kernel, 0, &pattern(LEN, 1), LEN);
        check_copy(kernel, LEN - 64, &pattern(10, 1), 64);
        check_copy(kernel, LEN, &[], 0);
    }
}

proptest! {
    #[test]
    fn every_kernel_round_trips(
        offset_lines in 0_usize..128,
        src in prop::collection::vec(any::<u8>(), 0..5000),
        more_lines in 0_usize..16,
        misalign in 0_usize..64,
        read_at in 0_usize..5000,
    ) {
        let extent = (src.len().div_ceil(LINE_BYTES) + more_lines) * LINE_BYTES;
        // The source may start anywhere in a line.
        let mut shifted = vec![0; misalign];
        shifted.extend_from_slice(&src);
        for kernel in Kernel::available() {
            let offset = offset_lines * LINE_BYTES;
            check_copy(kernel, offset, &shifted[misalign..], extent);

            let mut range = anonymous(LEN as u64, kernel);
            range.copy(offset, &src, extent, &mut NoSum);
            range.fence().unwrap();
            let from = read_at.min(src.len());
            let mut back = vec![CANARY; src.len() - from + misalign];
            range.read(offset + from, &mut back[misalign..]).unwrap();
            prop_assert_eq!(&back[misalign..], &src[from..]);
            prop_assert!(back[..misalign].iter().all(|&byte| byte == CANARY), "bytes before the buffer");
        }
    }
}

fn panics(copy: impl FnOnce(&mut PmRange) + std::panic::UnwindSafe) -> bool {
    std::panic::catch_unwind(|| {
        let mut range = Region::anonymous(4096).unwrap().into_range();
        copy(&mut range);
    })
    .is_err()
}

#[test]
fn callers_bugs_panic() {
    assert!(panics(|range| range.copy(1, &[], 64, &mut NoSum)), "offset not a line");
    assert!(panics(|range| range.copy(0, &[], 65, &mut NoSum)), "extent not a line");
    assert!(panics(|range| range.copy(0, &[0; 65], 64, &mut NoSum)), "source longer than extent");
    assert!(panics(|range| range.copy(4096, &[], 64, &mut NoSum)), "after the end");
    assert!(panics(|range| range.copy(64, &[], 4096, &mut NoSum)), "over the end");
    assert!(panics(|range| range.copy(usize::MAX - 63, &[], 64, &mut NoSum)), "overflow");
    assert!(panics(|range| range.copy(64, &[], usize::MAX - 63, &mut NoSum)), "overflow");
    assert!(panics(|range| range.write_back(4000, 97)), "write-back over the end");
    assert!(!panics(|range| range.copy(4032, &[1; 64], 64, &mut NoSum)));
}

#[test]
fn split_ranges_keep_to_their_bytes() {
    let range = Region::anonymous(LEN as u64).unwrap().into_range();
    let (mut low, high) = range.split_at(4096).unwrap();
    let (mut middle, mut end) = high.split_at(8192).unwrap();
    assert_eq!((low.region_offset(), low.len_bytes()), (0, 4096));
    assert_eq!((middle.region_offset(), middle.len_bytes()), (4096, 8192));
    assert_eq!((end.region_offset(), end.len_bytes()), (12288, 4096));
    std::thread::scope(|scope| {
        for (range, byte) in [(&mut low, 1_u8), (&mut middle, 2), (&mut end, 3)] {
            scope.spawn(move || {
                let len = range.len_bytes();
                range.copy(0, &vec![byte; len], len, &mut NoSum);
                range.fence().unwrap();
            });
        }
    });
    assert!(contents(&low).iter().all(|&byte| byte == 1));
    assert!(contents(&middle).iter().all(|&byte| byte == 2));
    assert!(contents(&end).iter().all(|&byte| byte == 3));
    drop((low, end));
    assert_eq!(contents(&middle)[8191], 2, "a range keeps the region mapped");
}

#[test]
fn impossible_splits_give_the_range_back() {
    let mut range = Region::anonymous(4096).unwrap().into_range();
    for mid in [1, 63, 4096 + 64, usize::MAX] {
        let error = range.split_at(mid).unwrap_err();
        assert!(error.to_string().contains("cannot split 4096 bytes"), "{error}");
        range = error.range;
    }
    let (empty, all) = range.split_at(0).unwrap();
    assert_eq!((empty.len_bytes(), all.len_bytes()), (0, 4096));
    let (all, empty) = all.split_at(4096).unwrap();
    assert_eq!((all.len_bytes(), empty.len_bytes(), empty.region_offset()), (4096, 0, 4096));
}

#[test]
fn reads_outside_say_where() {
    let (_, range) = Region::anonymous(8192).unwrap().into_range().split_at(4096).unwrap();
    for (offset, len, expected) in [(4096, 1, 8192), (4000, 97, 8192), (5000, 0, 9096), (0, 4097, 8192)] {
        let error = range.read(offset, &mut vec![0; len]).unwrap_err();
        assert_eq!((error.kind, error.region_offset), (ReadErrorKind::OutOfRange, expected));
    }
    assert!(range.read(usize::MAX, &mut [0; 2]).is_err());
    range.read(4096, &mut []).unwrap();
}

#[test]
fn write_back_changes_nothing() {
    for kernel in Kernel::available() {
        let mut range = canary_range(kernel);
        range.write_back(0, LEN);
        range.write_back(77, 1);
        range.write_back(LEN, 0);
        range.fence().unwrap();
        assert_eq!(contents(&range), [CANARY; LEN]);
    }
}

#[test]
fn a_panic_in_the_summer_leaves_the_range_usable() {
    struct Panics;
    impl fastness_pmem::Summer for Panics {
        fn update(&mut self, _block: &[u8]) {
            panic!("summer");
        }
    }
    let mut range = anonymous(4096, Kernel::Plain);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        range.copy(0, &[1; 64], 64, &mut Panics);
    }));
    assert!(caught.is_err());
    range.copy(0, &[2; 64], 64, &mut NoSum);
    range.fence().unwrap();
    assert_eq!(contents(&range)[..64], [2; 64]);
}

#[test]
fn kernels_that_the_cpu_lacks_are_refused() {
    let available: Vec<Kernel> = Kernel::available().collect();
    assert!(available.contains(&Kernel::Plain));
    for kernel in Kernel::ALL.into_iter().filter(|kernel| !available.contains(kernel)) {
        let error = Region::anonymous_with(4096, &common::with_kernel(kernel)).unwrap_err();
        assert!(
            matches!(error, RegionError::MethodUnavailable { method: WriteMethod::Exactly(k), .. } if k == kernel)
        );
        common::skipped(&format!("{kernel:?}"), &error);
    }
}

/// Other tests of this program copy as well, so the sum is at least what this one did.
#[test]
fn copied_bytes_of_all_parts_are_counted_at_once() {
    let before = copied_bytes();
    let mut range = Region::anonymous(1 << 20).unwrap().into_range();
    (0..1000).for_each(|_| range.copy(0, &[1; 100], 1 << 20, &mut NoSum));
    let (mut low, mut high) = range.split_at(1 << 19).unwrap();
    (0..1000).for_each(|_| low.copy(0, &[1; 100], 1 << 19, &mut NoSum));
    (0..1000).for_each(|_| high.copy(0, &[], 1 << 19, &mut NoSum));
    let copied = copied_bytes() - before;
    assert!(copied >= 2000 << 20, "{copied}");
}
