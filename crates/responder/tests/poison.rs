//! PM that cannot be read in places: said with the place, and nothing else is kept from the directory.

mod support;

use std::path::Path;
use std::sync::Arc;

use fastness_pm_model::Recorder;
use fastness_responder::*;
use support::*;

/// A cache whose PM can be poisoned, and the place of some bytes in it.
fn with_power(slots: usize, backing: &MemoryBacking) -> (Recorder, Arc<Power>, Cache<Pm>) {
    let (recorder, power) = (recorder(slots, 64), Arc::new(Power::default()));
    let cache = Cache::create(Pm::whole(&recorder, &power), Arc::new(backing.clone()), &options(64)).unwrap();
    (recorder, power, cache)
}

fn place_of(recorder: &Recorder, bytes: &[u8]) -> u64 {
    recorder.image().windows(bytes.len()).position(|found| found == bytes).unwrap() as u64
}

fn place_in(error: &Error) -> u64 {
    match error {
        Error::Read(error) => error.region_offset,
        other => panic!("{other}"),
    }
}

/// What PM does not give of a chunk is said with its place, and keeps nothing else from the directory.
#[test]
fn a_line_that_cannot_be_read_keeps_no_other_chunk_from_the_directory() {
    for protocol in [ProtocolKind::Fr, ProtocolKind::Melo, ProtocolKind::Pmal] {
        set_protocol(protocol);
        let backing = MemoryBacking::default();
        let (recorder, power, cache) = with_power(16, &backing);
        let open = |cache: &Cache<Pm>, name: &str| cache.open_file(Path::new(name), Some(0o600), 0).unwrap();
        let (a, b) = (open(&cache, "a"), open(&cache, "b"));
        cache.flush().unwrap();
        // PMAL gives what it writes to the directory at once, which does not take it here.
        backing.set_hook(|call| match call {
            Call::Write { .. } => Verdict::Refuse(28),
            _ => Verdict::Do,
        });
        let data: Vec<u8> = (0..=255).collect();
        assert_eq!(cache.write(&a, 0, &data).unwrap(), 256);
        assert_eq!(cache.write(&b, 0, b"of another file").unwrap(), 15);
        backing.set_hook(|_| Verdict::Do);
        let place = place_of(&recorder, &data[128..192]) + 7;
        power.poison(place);
        let mut expected = data.clone();
        expected[128..192].fill(0);
        let check = |cache: &Cache<Pm>, backing: &MemoryBacking| {
            let error = cache.flush().unwrap_err();
            assert_eq!((place_in(&error), error.errno()), (place, 5), "{protocol:?}");
            let status = cache.status().unwrap();
            assert_eq!(status.dirty_chunks, 1, "{protocol:?}");
            assert_eq!(
                (status.failures[0].1, status.unreadable.clone()),
                (5, vec![(status.failures[0].0, place)])
            );
            assert_eq!(backing.contents()[Path::new("a")], expected, "{protocol:?}");
            assert_eq!(backing.contents()[Path::new("b")], b"of another file", "{protocol:?}");
        };
        check(&cache, &backing);
        assert_eq!(place_in(&cache.read(&a, 100, &mut [0; 100]).unwrap_err()), place);
        drop(cache);
        // And after a crash.
        let region = Pm::whole(&recorder, &power);
        let (cache, recovered) = Cache::open(region, Arc::new(backing.clone()), &options(64)).unwrap();
        assert_eq!(recovered.dirty_chunks, 1, "{protocol:?}");
        check(&cache, &backing);
        // Storing to the whole chunk cures it.
        let a = open(&cache, "a");
        if protocol != ProtocolKind::Fr {
            // In place: that takes the poison away.
            power.poison(0);
        }
        if protocol != ProtocolKind::Pmal {
            assert_eq!(cache.write(&a, 128, &data[128..192]).unwrap(), 64, "{protocol:?}");
        }
        cache.flush().unwrap();
        assert_eq!(cache.status().unwrap().unreadable, []);
        assert_eq!(backing.contents()[Path::new("a")], data, "{protocol:?}");
    }
}

/// A file that the crash has lost is made again: with all of it, or with consent without what PM does not
/// give.
#[test]
fn a_lost_file_that_cannot_be_read_is_refused_or_made_without_that() {
    let backing = MemoryBacking::default();
    let (recorder, power, cache) = with_power(16, &backing);
    let a = cache.open_file(Path::new("a"), Some(0o600), 0).unwrap();
    let data: Vec<u8> = (0..=255).collect();
    assert_eq!(cache.write(&a, 0, &data).unwrap(), 256);
    drop(cache);
    let place = place_of(&recorder, &data[64..128]);
    power.poison(place);
    let mut lost = backing.crashed(|| false);
    let open = |backing: &MemoryBacking, drops: bool| {
        let region = Pm::whole(&recorder, &power);
        Cache::open(region, Arc::new(backing.clone()), &options(64).drop_tail(drops))
    };
    for _ in 0..2 {
        assert_eq!(place_in(&open(&lost, false).unwrap_err()), place);
        lost = lost.crashed(|| false);
    }
    let (cache, recovered) = open(&lost, true).unwrap();
    assert_eq!((recovered.made_again, recovered.unreadable), (1, 1));
    let mut expected = data;
    expected[64..128].fill(0);
    drop(cache);
    let (cache, recovered) = open(&lost.crashed(|| false), false).unwrap();
    assert_eq!(recovered, Recovered::default());
    let a = cache.open_file(Path::new("a"), None, 0).unwrap();
    assert_eq!(content(&cache, &a).unwrap(), expected);
}
