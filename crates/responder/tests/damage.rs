//! Tags and operations that are damaged: refused with their place, or given up with consent.

mod support;

use std::path::Path;
use std::sync::Arc;

use fastness_pm_model::{RecordStyle, Recorder};
use fastness_responder::*;
use support::*;

const CHUNK: usize = 64;
const LINE: usize = 64;
const NAMES: [&str; 2] = ["a", "b"];

/// Bytes of file `number`, which has old ones in the directory and new ones in PM.
fn bytes(number: usize, is_new: bool) -> Vec<u8> {
    (0..5 * CHUNK + 17).map(|at| (at / CHUNK * 16 + number * 2 + usize::from(is_new)) as u8 | 0x80).collect()
}

/// Two files whose new bytes are in PM alone; the region as a power cut leaves it.
fn written() -> (World, Vec<u8>) {
    let world = World::new(16, CHUNK as u64);
    for (number, name) in NAMES.iter().enumerate() {
        world.backing.put(name, &bytes(number, false));
    }
    for (number, name) in NAMES.iter().enumerate() {
        let file = world.open(name);
        // One write of several chunks, and one of each.
        let new = bytes(number, true);
        assert_eq!(world.cache().write(&file, 0, &new[..2 * CHUNK]).unwrap(), 2 * CHUNK);
        for at in (2 * CHUNK..new.len()).step_by(CHUNK) {
            let part = &new[at..new.len().min(at + CHUNK)];
            assert_eq!(world.cache().write(&file, at as u64, part).unwrap(), part.len());
        }
    }
    let image = world.recorder.image();
    (world, image)
}

/// What a recovery did, the files then, and the region.
type Outcome = (Recovered, [Vec<u8>; 2], Vec<u8>);

/// Recovers an image in front of the directory as a crash leaves it.
fn recover(world: &World, image: &[u8], consents: bool) -> Result<Outcome, Error> {
    let backing = world.backing.crashed(|| false);
    let recorder = Recorder::new(image.to_vec(), RecordStyle::NonTemporal);
    let region = Pm::whole(&recorder, &Default::default());
    let options = options(world.chunk_bytes).pair_anew(true).drop_tail(consents);
    let (cache, recovered) = Cache::open(region, Arc::new(backing.clone()), &options)?;
    let after = recorder.image();
    cache.flush().unwrap();
    let contents = backing.contents();
    Ok((recovered, NAMES.map(|name| contents[Path::new(name)].clone()), after))
}

/// Chunks that are not new; they are old ones.
fn old_chunks(files: &[Vec<u8>; 2]) -> usize {
    let of = |number: usize| {
        let (new, old) = (bytes(number, true), bytes(number, false));
        assert_eq!(files[number].len(), new.len());
        let chunks = files[number].chunks(CHUNK).zip(new.chunks(CHUNK).zip(old.chunks(CHUNK)));
        chunks
            .filter(|(found, (new, old))| {
                found != new && {
                    assert_eq!(found, old);
                    true
                }
            })
            .count()
    };
    of(0) + of(1)
}

/// Damages each line of the region in turn; says how many were tags, and how many operations.
fn damaged_with(damage: fn(&mut [u8])) -> (usize, usize) {
    let (world, image) = written();
    assert_eq!(old_chunks(&recover(&world, &image, false).unwrap().1), 0);
    let (mut tags, mut operations) = (0, 0);
    for line in (0..image.len()).step_by(LINE) {
        let mut image = image.clone();
        damage(&mut image[line..line + LINE]);
        let error = match recover(&world, &image, false) {
            Err(error @ (Error::Tag { .. } | Error::Operation { .. })) => error,
            _ => continue,
        };
        let at = format!("line {line:#x}, {:?}", protocol());
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let is_tag = match error {
            Error::Tag { region_offset } | Error::Operation { region_offset }
                if region_offset != line as u64 =>
            {
                panic!("{at}: said to be at {region_offset:#x}")
            }
            Error::Tag { .. } => true,
            _ => false,
        };
        let (recovered, files, after) = recover(&world, &image, true).unwrap();
        assert_eq!(recovered.damaged, 1, "{at}: {recovered:?}");
        assert!(old_chunks(&files) <= usize::from(is_tag), "{at}");
        // A crash after that finds nothing damaged.
        let (again, files_again, _) = recover(&world, &after, false).unwrap();
        assert_eq!((again.damaged, files_again), (0, files), "{at}");
        tags += usize::from(is_tag);
        operations += usize::from(!is_tag);
    }
    (tags, operations)
}

#[test]
fn what_is_damaged_is_given_up_with_consent_and_nothing_else() {
    for protocol in [ProtocolKind::Fr, ProtocolKind::Melo, ProtocolKind::Pmal] {
        set_protocol(protocol);
        // A flipped bit of a tag: its checksum finds that. There are 12 chunks, and none is in two places.
        let (tags, operations) = damaged_with(|line| line[33] ^= 4);
        assert!(tags >= 12 && operations == 0, "{protocol:?}: {tags}, {operations}");
        // A state that is none, also of chunks without data, and of operations that have ended.
        let (tags, operations) = damaged_with(|line| line[..8].fill(7));
        let logs = if protocol == ProtocolKind::Fr { 0 } else { 8 };
        assert!(tags >= 12 && operations == logs, "{protocol:?}: {tags}, {operations}");
    }
}

/// A tag that PM does not give.
#[test]
fn a_tag_that_cannot_be_read_is_given_up_with_consent() {
    let (world, image) = written();
    let flipped = |line: usize| {
        let mut image = image.clone();
        image[line + 33] ^= 4;
        matches!(recover(&world, &image, false), Err(Error::Tag { .. }))
    };
    let line = (0..image.len()).step_by(LINE).find(|line| flipped(*line)).unwrap();
    let recorder = Recorder::new(image.clone(), RecordStyle::NonTemporal);
    let power = Arc::new(Power::default());
    power.poison(line as u64 + 9);
    let open = |consents| {
        let backing = world.backing.crashed(|| false);
        let options = options(world.chunk_bytes).pair_anew(true).drop_tail(consents);
        Cache::open(Pm::whole(&recorder, &power), Arc::new(backing), &options)
    };
    assert!(matches!(open(false).unwrap_err(), Error::Read(error) if error.region_offset == line as u64 + 9));
    let (cache, recovered) = open(true).unwrap();
    assert_eq!(recovered.damaged, 1);
    cache.flush().unwrap();
    drop(cache);
    assert_eq!(open(false).unwrap().1.damaged, 0);
}
