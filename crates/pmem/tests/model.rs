//! The model of a device: never faster than its figures, and exact in what it counts.

use std::sync::Arc;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use fastness_pmem::model::{DeviceModel, Modelled, ModelledView, Node, ONE_MODULE, Stall};
use fastness_pmem::{Medium, NoSum, PmRange, Region, Summer};

const BLOCK: [u8; 4096] = [7; 4096];

fn range() -> PmRange {
    Region::anonymous(1 << 20).unwrap().into_range()
}

fn ns(bytes: u64, gib_per_s: f64) -> u64 {
    (bytes as f64 / gib_per_s / (1_u64 << 30) as f64 * 1e9) as u64
}

/// A busy machine only makes it slower.
#[test]
fn a_lone_writer_takes_as_long_as_the_device_and_stores_what_it_wrote() {
    let device = Arc::new(DeviceModel::new(ONE_MODULE, Stall::Burn));
    let mut medium = Modelled::new(range(), device.clone(), Node::Local);
    let begun = Instant::now();
    for block in 0..100 {
        medium.copy(block * 4096, &BLOCK, 4096, &mut NoSum);
        medium.fence().unwrap();
    }
    let (took_ns, expected_ns) = (begun.elapsed().as_nanos() as u64, ns(100 * 4096, 1.9));
    assert!(took_ns >= expected_ns - 1000, "{took_ns} of {expected_ns} ns");
    let stalled_ns = device.stalled_ns();
    assert!(stalled_ns.abs_diff(expected_ns) <= 200, "{stalled_ns} of {expected_ns} ns");
    assert_eq!(device.most_writers(), 1);
    let mut read = [0; 4096];
    medium.into_range().read(99 * 4096, &mut read).unwrap();
    assert!(read == BLOCK);
}

#[test]
fn a_reader_waits_for_the_first_bytes_and_then_for_all_others() {
    let device = Arc::new(DeviceModel::new(ONE_MODULE, Stall::Burn));
    let mut range = range();
    range.copy(8192, &BLOCK, 4096, &mut NoSum);
    let view = ModelledView::new(Arc::new(range.view()), device.clone());
    let (begun, mut read) = (Instant::now(), [0; 4096]);
    for _ in 0..100 {
        fastness_pmem::View::read(&view, 8192, &mut read).unwrap();
    }
    let (took_ns, expected_ns) = (begun.elapsed().as_nanos() as u64, 100 * (300 + ns(4096, 6.5)));
    assert!(read == BLOCK && took_ns >= expected_ns - 1000, "{took_ns} of {expected_ns} ns");
    assert!(device.stalled_ns().abs_diff(expected_ns) <= 200);
}

/// Stays in the middle of its copy until it may go on.
struct Held<'a> {
    arrived: &'a Barrier,
    released: &'a Barrier,
}

impl Summer for Held<'_> {
    const BLOCK_BYTES: usize = 4096;

    fn update(&mut self, _block: &[u8]) {
        self.arrived.wait();
        self.released.wait();
    }
}

#[test]
fn a_writer_beside_seven_others_gets_an_eighth_of_what_eight_reach() {
    let device = Arc::new(DeviceModel::new(ONE_MODULE, Stall::Burn));
    let (arrived, released) = (Barrier::new(8), Barrier::new(8));
    std::thread::scope(|scope| {
        for _ in 0..7 {
            scope.spawn(|| {
                let mut medium = Modelled::new(range(), device.clone(), Node::Local);
                let mut held = Held { arrived: &arrived, released: &released };
                medium.copy(0, &BLOCK, 4096, &mut held);
            });
        }
        arrived.wait();
        let before_ns = device.stalled_ns();
        Modelled::new(range(), device.clone(), Node::Local).copy(0, &BLOCK, 4096, &mut NoSum);
        let stalled_ns = device.stalled_ns() - before_ns;
        let expected_ns = 8 * ns(4096, ONE_MODULE.gib_per_s(Node::Local, 8));
        assert!(stalled_ns.abs_diff(expected_ns) < 50, "{stalled_ns} of {expected_ns} ns");
        released.wait();
    });
    assert_eq!(device.most_writers(), 8);
}

/// Slower time: what sleeps is counted as if it had been burnt, and no more.
#[test]
fn a_writer_that_sleeps_has_the_same_cost() {
    let device = Arc::new(DeviceModel::new(ONE_MODULE, Stall::Sleep { slower: 500 }));
    let mut medium = Modelled::new(range(), device.clone(), Node::Local);
    let begun = Instant::now();
    (0..4).for_each(|block| medium.copy(block * 4096, &BLOCK, 4096, &mut NoSum));
    let (took, expected_ns) = (device.time_of(begun.elapsed()), ns(4 * 4096, 1.9));
    assert!(took >= Duration::from_nanos(expected_ns) - Duration::from_micros(1), "{took:?}");
    assert!(device.stalled_ns().abs_diff(expected_ns) < 10, "{} of {expected_ns} ns", device.stalled_ns());
    device.work(Duration::from_micros(7));
    assert!(device.stalled_ns().abs_diff(expected_ns + 7000) < 10, "work of one's own is CPU time, too");
}

#[test]
fn pieces_of_lines_and_other_nodes_take_longer() {
    let stalled = |node, len: usize| {
        let device = Arc::new(DeviceModel::new(ONE_MODULE, Stall::Burn));
        let mut medium = Modelled::new(range(), device.clone(), node);
        (0..64).for_each(|at| medium.copy(at * 256, &BLOCK[..len], len, &mut NoSum));
        device.stalled_ns()
    };
    assert!(stalled(Node::Local, 64) >= stalled(Node::Local, 256), "a piece costs a line");
    let (local, remote) = (stalled(Node::Local, 256), stalled(Node::Remote, 256));
    assert!((remote as f64 / local as f64 - 1.9).abs() < 0.05, "{remote} {local}");
}

/// A copy that panics is not one that goes on for ever.
#[test]
fn a_writer_that_panics_is_gone() {
    let device = Arc::new(DeviceModel::new(ONE_MODULE, Stall::Burn));
    let wrong = device.clone();
    let panicked = std::thread::spawn(move || {
        let mut medium = Modelled::new(range(), wrong, Node::Local);
        medium.copy(1, &BLOCK, 4096, &mut NoSum);
    });
    assert!(panicked.join().is_err());
    let mut medium = Modelled::new(range(), device.clone(), Node::Local);
    let before_ns = device.stalled_ns();
    medium.copy(0, &BLOCK, 4096, &mut NoSum);
    assert!((device.stalled_ns() - before_ns).abs_diff(ns(4096, 1.9)) < 10);
    assert_eq!(device.most_writers(), 1);
}
