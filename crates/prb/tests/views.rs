//! Entries that are read by their places, on one side and on two, damaged and gone.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fastness_base::{LogPlace, ReadLogged};
use fastness_pmem::{Mirror, ReadError, SIDES_MAX, View};
use fastness_prb::*;
use fastness_testkit::{Heap, HeapRange};
use support::{config, durable_log};

const CHUNK: usize = 16 << 10;
const CHUNKS: usize = 4;

struct World {
    sides: Vec<Heap>,
    prb: Arc<Prb<Mirror<HeapRange>>>,
    hdl: Hdl<Mirror<HeapRange>>,
    views: EntryViews,
}

impl World {
    fn new(sides: usize) -> World {
        let sides: Vec<Heap> = (0..sides).map(|_| Heap::new(vec![0; CHUNK * CHUNKS])).collect();
        let first = sides[0].chunks(CHUNK);
        let chunks = match sides.get(1) {
            None => first.into_iter().map(Mirror::single).collect(),
            Some(second) => {
                first.into_iter().zip(second.chunks(CHUNK)).map(|(a, b)| Mirror::pair(a, b)).collect()
            }
        };
        let prb = Prb::format(config(3), chunks).unwrap();
        let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
        durable_log(&mut hdl);
        prb.finish_claiming().unwrap();
        let views = sides.iter().map(|side| Arc::new(side.clone()) as Arc<dyn View>).collect();
        World { sides, prb, hdl, views: EntryViews::new(views) }
    }

    fn write(&self, txg: u64, body: &[u8]) -> Placed {
        self.hdl.place_entry(Txg(txg), [&[], body], Wait::Fail).unwrap().unwrap()
    }

    fn read(&self, placed: &Placed) -> Result<Vec<u8>, BodyError> {
        self.views.read(placed.region_offset, placed.sum, 0, <[u8]>::to_vec)
    }
}

fn body(salt: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 3 % 251) as u8 ^ salt).collect()
}

#[test]
fn an_entry_is_read_from_its_place_until_its_chunk_is_emptied() {
    let world = World::new(1);
    let bodies: Vec<Vec<u8>> = (0..9).map(|n| body(n, 1000 * usize::from(n) + 1)).collect();
    let placed: Vec<Placed> = bodies.iter().map(|body| world.write(5, body)).collect();
    for (body, placed) in bodies.iter().zip(&placed) {
        assert_eq!(world.read(placed).as_ref(), Ok(body));
        // However much of it is known.
        for least in [1, body.len() / 2, body.len() - 1, body.len()] {
            let found = world.views.read(placed.region_offset, placed.sum, least, <[u8]>::to_vec);
            assert_eq!(found.as_ref(), Ok(body), "{least} of {} bytes", body.len());
        }
    }
    assert!(world.views.read_bytes() as usize > bodies.iter().map(Vec::len).sum::<usize>());
    assert_eq!(world.views.faults(), [0; SIDES_MAX]);
    world.prb.collect(Txg(5)).unwrap();
    // Entries of later txgs take the places; one that begins at the same offset is not taken for the old one.
    let later: Vec<Placed> = bodies.iter().map(|body| world.write(6, body)).collect();
    let same: Vec<_> =
        placed.iter().filter(|old| later.iter().any(|new| new.region_offset == old.region_offset)).collect();
    assert!(!same.is_empty());
    for old in same {
        let region_offset = old.region_offset;
        assert_eq!(world.read(old), Err(BodyError::HeaderChanged { region_offset }));
    }
}

#[test]
fn a_side_that_does_not_have_it_is_counted_and_the_other_gives_it() {
    for sides in [1, 2] {
        // In the header, in the body; flipped, unreadable.
        for (at, is_poison) in
            [(40, false), (HEADER_BYTES + 777, false), (64, true), (HEADER_BYTES + 1000, true)]
        {
            let world = World::new(sides);
            let body = body(7, 3000);
            let placed = world.write(5, &body);
            let at = placed.region_offset as usize + at;
            match is_poison {
                true => world.sides[0].poison(at..at + 1),
                false => world.sides[0].flip(at * 8),
            }
            match sides {
                1 => assert!(world.read(&placed).is_err(), "{at}"),
                _ => assert_eq!(world.read(&placed), Ok(body), "{at}"),
            }
            assert_eq!(world.views.faults()[..2], [1, 0], "of the side that does not have it");
        }
    }
    let world = World::new(2);
    let placed = world.write(5, &body(7, 3000));
    world.sides.iter().for_each(|side| side.flip((placed.region_offset as usize + HEADER_BYTES) * 8));
    assert!(matches!(world.read(&placed), Err(BodyError::Checksum { .. })));
    assert_eq!(world.views.faults()[..2], [1, 1]);
}

#[test]
fn parts_of_a_body_are_inside_of_it() {
    let world = World::new(1);
    let body = body(7, 3000);
    let placed = world.write(5, &body);
    assert_eq!(world.prb.place_of(&placed), None, "nobody reads by places yet");
    world.prb.set_number(4);
    let place = world.prb.place_of(&placed).unwrap();
    assert_eq!(place, LogPlace { log: 4, offset: placed.region_offset, sum: placed.sum });
    let mut part = [0; 100];
    ReadLogged::read(&world.views, place, 2900, &mut part).unwrap();
    assert_eq!(part, body[2900..]);
    for within in [2901, 3000, usize::MAX] {
        let lost = ReadLogged::read(&world.views, place, within, &mut part).unwrap_err();
        assert_eq!(lost.offset, placed.region_offset);
    }
    let other = LogPlace { sum: place.sum ^ 1, ..place };
    assert!(ReadLogged::read(&world.views, other, 0, &mut part).is_err());
    let beyond = LogPlace { offset: (CHUNK * CHUNKS) as u64, ..place };
    assert!(ReadLogged::read(&world.views, beyond, 0, &mut part).is_err());
}

/// A region that counts how often it is read.
struct Counting {
    of: Heap,
    reads: AtomicUsize,
}

impl View for Counting {
    fn read(&self, region_offset: u64, dst: &mut [u8]) -> Result<(), ReadError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.of.read(region_offset, dst)
    }
}

/// The first bytes are what takes the time of a read from PM.
#[test]
fn what_is_read_to_its_end_takes_one_read() {
    let world = World::new(1);
    let body = body(7, 4096 + 40);
    let placed = world.write(5, &body);
    let side = Arc::new(Counting { of: world.sides[0].clone(), reads: AtomicUsize::new(0) });
    let views = EntryViews::new(vec![side.clone()]);
    let place = LogPlace { log: 1, offset: placed.region_offset, sum: placed.sum };
    for (within, len, reads) in [(40, 4096, 1), (40, 512, 2), (3072, 1064, 1)] {
        let mut part = vec![0; len];
        side.reads.store(0, Ordering::Relaxed);
        ReadLogged::read(&views, place, within, &mut part).unwrap();
        assert_eq!(part, body[within..within + len]);
        assert_eq!(side.reads.load(Ordering::Relaxed), reads, "{len} bytes from {within} on");
    }
    assert_eq!(views.read_bytes(), 3 * (HEADER_BYTES + body.len()) as u64);
}
