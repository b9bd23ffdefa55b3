//! The protocol Log with a log of records that is damaged: refused, or carried out up to the damage.

mod support;

use fastness_pm_model::{RecordStyle, Recorder};
use fastness_responder::*;
use support::*;

/// Bytes that no other record has.
fn data(number: u8) -> Vec<u8> {
    (0..40).map(|at| at ^ (number * 41 + 3)).collect()
}

/// Syncs of two files by turns; the region as a power cut leaves it.
fn synced(count: u8) -> (World, Vec<u8>) {
    set_protocol(ProtocolKind::Log);
    let world = World::new(24, 64);
    ["a", "b"].into_iter().for_each(|name| world.backing.put(name, b""));
    let files = [world.open("a"), world.open("b")];
    for number in 0..count {
        let file = &files[usize::from(number % 2)];
        assert_eq!(world.cache().write_synced(file, u64::from(number) * 40, &data(number)).unwrap(), 40);
    }
    let image = world.recorder.image();
    (world, image)
}

/// What the directory has after `count` syncs.
fn expected(count: u8) -> [Vec<u8>; 2] {
    let mut files = [Vec::new(), Vec::new()];
    for number in 0..count {
        let file = &mut files[usize::from(number % 2)];
        file.resize(usize::from(number) * 40, 0);
        file.extend(data(number));
    }
    files
}

fn place_of(image: &[u8], number: u8) -> usize {
    image.windows(40).position(|bytes| bytes == data(number)).unwrap()
}

fn open(world: &mut World, image: Vec<u8>, drops_tail: bool) -> Result<Recovered, Error> {
    world.cache = None;
    world.backing = world.backing.crashed(|| false);
    world.recorder = Recorder::new(image, RecordStyle::NonTemporal);
    let region = Pm::whole(&world.recorder, &Default::default());
    let backing = std::sync::Arc::new(world.backing.clone());
    let options = options(world.chunk_bytes).pair_anew(true).drop_tail(drops_tail);
    let (cache, recovered) = Cache::open(region, backing, &options)?;
    world.cache = Some(cache);
    Ok(recovered)
}

/// `sees_all`: what follows the damage in its chunk is found.
fn check(world: &mut World, image: &[u8], (damaged, count): (u8, u8), sees_all: bool) {
    let (before, rest) = (u64::from(damaged), u64::from(count - damaged));
    let fits = |after: u64| if sees_all { after == rest } else { after <= rest };
    let inspected = {
        let copy = Recorder::new(image.to_vec(), RecordStyle::NonTemporal);
        Inspection::of_whole(Pm::whole(&copy, &Default::default())).unwrap()
    };
    assert_eq!(inspected.dirty_chunks.values().sum::<u64>(), before, "{damaged}");
    let said = inspected.log_damage.unwrap();
    let error = open(world, image.to_vec(), false).unwrap_err();
    let Error::Log(log) = &error else { panic!("{error}") };
    match **log {
        LogError::Damaged { before: found, after, .. } => {
            assert_eq!(found, before, "{damaged}: {said}");
            assert!(fits(after), "{damaged}: {after}: {said}");
        }
        _ => panic!("{error}"),
    }
    let image = world.recorder.image();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let recovered = open(world, image, true).unwrap();
    assert_eq!(recovered.records, before, "{damaged}: {recovered:?}");
    let left_out = recovered.left_out.values().sum::<u64>() + recovered.unreadable;
    assert!(fits(left_out), "{damaged}: {recovered:?}");
    world.cache().flush().unwrap();
    assert_eq!([world.below("a"), world.below("b")], expected(damaged), "{damaged}");
    // It works on.
    let a = world.open("a");
    assert_eq!(world.cache().write_synced(&a, 0, b"after").unwrap(), 5);
    world.backing = world.backing.crashed(|| false);
    assert_eq!(world.reopen().records, 1);
    assert_eq!(world.below("a")[..5], *b"after");
}

#[test]
fn a_log_with_a_damaged_record_is_carried_out_up_to_that_with_consent() {
    const COUNT: u8 = 6;
    for damaged in 0..COUNT {
        let (mut world, mut image) = synced(COUNT);
        let at = place_of(&image, damaged);
        image[at + 7] ^= 0x10;
        check(&mut world, &image, (damaged, COUNT), true);
    }
}

/// The header of the entry in front of the record: nothing in its chunk is found from there on.
#[test]
fn a_log_with_a_damaged_entry_is_carried_out_up_to_that_with_consent() {
    const COUNT: u8 = 6;
    for damaged in 0..COUNT {
        let (mut world, mut image) = synced(COUNT);
        // In front of the data: the ranges, the record's first line, and the header.
        let at = place_of(&image, damaged) - 128 - fastness_prb::HEADER_BYTES;
        image[at + 9] ^= 0x10;
        check(&mut world, &image, (damaged, COUNT), false);
    }
}

/// What is not damaged is recovered as without consent.
#[test]
fn consent_costs_nothing_where_nothing_is_damaged() {
    let (mut world, image) = synced(5);
    let recovered = open(&mut world, image, true).unwrap();
    assert_eq!((recovered.records, recovered.unreadable, recovered.left_out.len()), (5, 0, 0));
    world.cache().flush().unwrap();
    assert_eq!([world.below("a"), world.below("b")], expected(5));
}
