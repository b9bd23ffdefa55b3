//! Segments against the bytes that an object has.

mod support;

use fastness_pool::{DatasetKind, Object, Pool, Property, Segment};
use support::{Rig, Rng, manual};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 200;

/// All segments, in calls of `segments_max`.
fn all(object: &Object, from: u64, segments_max: usize) -> Vec<Segment> {
    let (mut at, mut found) = (from, Vec::<Segment>::new());
    while at < object.size_bytes() {
        let mut some = Vec::new();
        object.segments(at, u64::MAX - at, segments_max, &mut some).unwrap();
        assert!(!some.is_empty() && some.len() <= segments_max);
        for segment in some {
            assert_ne!(segment.len_bytes, 0);
            at += segment.len_bytes;
            match found.last_mut() {
                Some(last) if last.is_hole == segment.is_hole => last.len_bytes += segment.len_bytes,
                _ => found.push(segment),
            }
        }
    }
    assert_eq!(at, object.size_bytes().max(from));
    found
}

fn check(object: &Object, from: u64, is_synced: bool) {
    let mut bytes = vec![0; object.size_bytes() as usize];
    object.read(0, &mut bytes).unwrap();
    let found = all(object, from, 1000);
    assert_eq!(found, all(object, from, 1));
    let mut at = from as usize;
    for segment in found {
        let part = &bytes[at..at + segment.len_bytes as usize];
        if segment.is_hole {
            assert!(part.iter().all(|byte| *byte == 0), "a hole at {at}");
        } else if is_synced {
            let whole = part.chunks(BLOCK as usize);
            assert!(
                whole.skip(1).all(|block| block.iter().any(|byte| *byte != 0)),
                "a block of zeroes is stored in {at}"
            );
        }
        at += segment.len_bytes as usize;
    }
}

#[test]
fn segments_tell_holes_from_data() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let rig = Rig::fresh(1, 16 << 20, seed);
        let pool = Pool::create("tank", &[fastness_pool::VdevSpec::single(rig.device(0))], manual()).unwrap();
        let tx = pool.begin_tx().unwrap();
        let size = (Property::VolBlockSize, BLOCK);
        let dataset = pool.create_dataset(&tx, "tank/v", DatasetKind::Volume, &[size]).unwrap();
        let object = dataset.create_object(&tx).unwrap();
        object.truncate(&tx, BLOCK * BLOCKS - rng.below(BLOCK)).unwrap();
        drop(tx);
        assert_eq!(all(&object, 0, 9), [Segment { len_bytes: object.size_bytes(), is_hole: true }]);
        for _ in 0..40 {
            let tx = pool.begin_tx().unwrap();
            let offset = rng.below(BLOCK * (BLOCKS - 20));
            let len = rng.below(BLOCK * 12) + 1;
            match rng.below(4) {
                0 => object.punch(&tx, offset, len).unwrap(),
                1 => object.write(&tx, offset, &vec![0; len as usize]).unwrap(),
                _ => object.write(&tx, offset, &vec![1; len as usize]).unwrap(),
            }
            drop(tx);
            if rng.below(4) == 0 {
                pool.sync().unwrap();
            }
            check(&object, rng.below(object.size_bytes()), false);
        }
        pool.sync().unwrap();
        check(&object, 0, true);
    }
}
