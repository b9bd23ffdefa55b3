//! Images against plain vectors.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Longer than one inner node's pages, and no whole number of them.
const LEN: u64 = (WIDTH * PAGE_BYTES) as u64 * 2 + 1000;

fn contents(image: &Image) -> Vec<u8> {
    let mut all = vec![0xee; image.len_bytes() as usize];
    image.read(0, &mut all);
    let file = tempfile::NamedTempFile::new().unwrap();
    let start = PAGE_BYTES as u64;
    image.write_sparse(file.as_file(), start, LEN - start).unwrap();
    assert_eq!(all[PAGE_BYTES..], std::fs::read(file.path()).unwrap());
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Writes to one of several clones, each beside a vector.
    #[test]
    fn an_image_is_what_was_written_and_clones_do_not_see_it(
        writes in prop::collection::vec((0..4usize, 0..LEN, 0..9000usize, 0..3u8, any::<bool>()), 1..20),
    ) {
        let mut images = vec![(Image::zeroed(LEN), vec![0; LEN as usize])];
        for (which, offset, len, value, clones) in writes {
            let at = which % images.len();
            if clones {
                let copy = images[at].clone();
                images.push(copy);
            }
            let (image, bytes) = &mut images[at];
            let (offset, end) = (offset as usize, (offset as usize + len).min(LEN as usize));
            image.write(offset as u64, &vec![value; end - offset]);
            bytes[offset..end].fill(value);
        }
        let mut by_hash = HashMap::new();
        for (image, bytes) in &images {
            prop_assert_eq!(&contents(image), bytes);
            // One hash, one contents; whatever the way that led there.
            prop_assert_eq!(by_hash.entry(image.hash()).or_insert(bytes), &bytes);
            let mut again = Image::zeroed(LEN);
            again.read_into(0, &bytes[..], LEN).unwrap();
            prop_assert_eq!(again.hash(), image.hash());
            prop_assert!(again.differences(image, 64).is_empty());
            let (first, first_bytes) = &images[0];
            let mut expected = vec![];
            for (line, (one, two)) in first_bytes.chunks(64).zip(bytes.chunks(64)).enumerate() {
                if one != two {
                    expected.push(line as u64);
                }
            }
            let found = first.differences(image, 64);
            let lines: Vec<u64> = found.iter().flat_map(|range| range.start / 64..range.end / 64).collect();
            prop_assert_eq!(lines, expected);
            prop_assert!(found.windows(2).all(|pair| pair[0].end < pair[1].start), "neighbours are one range");
        }
    }
}

#[test]
fn lengths_tell_images_apart_and_short_files_end_in_zeroes() {
    assert_ne!(Image::zeroed(4096).hash(), Image::zeroed(4097).hash());
    let mut short = Image::zeroed(10_000);
    short.read_into(0, &[1, 2, 3][..], 10_000).unwrap();
    let mut by_hand = Image::zeroed(10_000);
    by_hand.write(0, &[1, 2, 3]);
    assert_eq!(short.hash(), by_hand.hash());
    by_hand.write(0, &[0, 0, 0]);
    assert_eq!(by_hand.hash(), Image::zeroed(10_000).hash(), "zeroes that take memory");
}

#[test]
fn a_change_shares_all_but_one_path() {
    let len = 512 << 20;
    let mut one = Image::zeroed(len);
    (0..len).step_by(1 << 20).for_each(|at| one.write(at, &[1]));
    let mut two = one.clone();
    two.write(300 << 20, &[9; 64]);
    let shared = |height| {
        let (mut one, mut two) = (one.root.as_ref().unwrap(), two.root.as_ref().unwrap());
        let mut same = 0;
        for level in (0..height).rev() {
            let pairs = one.inner().children.iter().zip(&two.inner().children);
            same += pairs.filter(|pair| matches!(pair, (Some(one), Some(two)) if one.is_same(two))).count();
            let at = child((300 << 20) / PAGE_BYTES as u64, level);
            one = one.inner().children[at].as_ref().unwrap();
            two = two.inner().children[at].as_ref().unwrap();
        }
        same
    };
    // 512 MiB in nodes of 16 MiB, 256 KiB and 4 KiB; a page in each MiB.
    assert_eq!((one.height, shared(3)), (3, 31 + 15));
    let found = one.differences(&two, 64);
    assert_eq!((found.len(), &found[0]), (1, &(300 << 20..(300 << 20) + 64)));
}
