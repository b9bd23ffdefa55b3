use std::ops::ControlFlow;

use fastness_crashcheck_fuzz::Features;
use fastness_crashcheck_trace::{self as trace, Event, Header, Kind, Origin, Reader, Region, Writer};
use fastness_pm_model::{Config, FlushKind, Op, Rng, Scope, Trace};

use super::*;
use crate::trace::record;

fn recorded(ops: Vec<Op>) -> Vec<u8> {
    record(&Trace { initial: vec![0; 4096], ops }, "pm", Vec::new()).unwrap()
}

fn pending(file: &[u8], event: u64) -> Pending {
    pending_at(&mut Reader::new(file).unwrap(), Config::default(), 1 << 20, event).unwrap()
}

#[test]
fn pending_stores_are_those_of_the_model_at_every_event() {
    let mut rng = Rng::new(3);
    for _ in 0..300 {
        let address = |rng: &mut Rng| rng.below(3) * 64 + rng.below(7) * 8;
        let ops = (0..20).map(|at| match rng.below(6) {
            0 | 1 => Op::store(address(&mut rng), [at; 12]),
            2 => Op::nt_store(address(&mut rng), [at; 8]),
            3 => Op::clwb(address(&mut rng)),
            4 if at % 5 == 0 => Op::rmw(address(&mut rng), [at; 8]),
            _ => Op::sfence(),
        });
        let file = recorded(ops.collect());
        for event in 0..=20 {
            let pending = pending(&file, event);
            let counts: Vec<_> =
                pending.lines.iter().map(|(number, stores)| (*number, stores.len())).collect();
            let model: Vec<_> =
                pending.replay.machine().pending().map(|(number, count, _)| (number, count)).collect();
            assert_eq!(counts, model, "at {event}");
            // Every image that is possible is explained, and that without losses loses nothing.
            let machine = pending.replay.machine();
            let _ = machine.enumerate(Scope::default(), 1 << 16, &mut |image| {
                assert!(explain(&pending, image.memory).is_some());
                ControlFlow::Continue(())
            });
            let lines = explain(&pending, &machine.volatile()).unwrap();
            assert!(!lines.iter().any(ExplainedLine::has_lost));
        }
    }
}

#[test]
fn an_image_is_explained_store_by_store() {
    let torn = Op::store(64, [(1..=8).collect::<Vec<u8>>(), vec![9; 8]].concat());
    let file =
        recorded(vec![Op::store(0, [1; 8]), Op::store(8, [2; 8]), Op::clwb(0), Op::store(16, [3; 8]), torn]);
    let pending = pending(&file, 5);
    let mut image = pending.replay.machine().persistent().clone();
    image.write(0, &[1; 8]);
    image.write(72, &[9; 8]);
    let lines = explain(&pending, &image).unwrap();
    let kept: Vec<Vec<_>> = lines
        .iter()
        .map(|line| line.stores.iter().map(|(store, kept)| (store.event, *kept)).collect())
        .collect();
    assert_eq!(kept, [vec![(0, Kept::Whole), (1, Kept::Lost), (3, Kept::Lost)], vec![(4, Kept::Part)]]);
    assert_eq!(lines.iter().map(|line| line.flushed).collect::<Vec<_>>(), [2, 0]);
    // The third store without the second, and a line that nothing was stored to.
    for (offset, value) in [(16, 3), (640, 1)] {
        let mut image = pending.replay.machine().persistent().clone();
        image.write(offset, &[value; 8]);
        assert_eq!(explain(&pending, &image), None);
    }
}

#[test]
fn patterns_are_found_with_their_first_event() {
    let found = |ops: Vec<Op>| -> Vec<(&'static str, u64, u64)> {
        let file = recorded(ops);
        let found = patterns(&mut Reader::new(&file[..]).unwrap(), Search::default()).unwrap();
        found.iter().map(|pattern| (pattern.kind.name(), pattern.count, pattern.first_event)).collect()
    };
    let store = |line: u64| Op::store(line * 64, [1; 8]);
    let clwb = |line: u64| Op::clwb(line * 64);
    assert_eq!(found(vec![store(0), clwb(0), Op::sfence()]), []);
    assert_eq!(found(vec![store(0), store(1)]), [("missing-flush", 2, 0)]);
    assert_eq!(found(vec![store(0), Op::sfence()]), [("missing-flush", 1, 0), ("redundant-fence", 1, 1)]);
    let nt = Op::nt_store(0, [1; 8]);
    assert_eq!(found(vec![nt.clone(), store(1), clwb(1)]), [("missing-fence", 2, 0)]);
    assert_eq!(found(vec![nt.clone(), Op::sfence(), nt, Op::sfence()]), []);
    let over = vec![store(0), store(0), clwb(0), store(0), clwb(0), Op::sfence()];
    assert_eq!(found(over), [("overwrite-before-persist", 2, 1)]);
    assert_eq!(found(vec![store(0), Op::store(8, [1; 8]), clwb(0), Op::sfence()]), [], "other bytes");
    let two = vec![store(0), store(1), clwb(0), clwb(1), Op::sfence()];
    assert_eq!(found(two), [("unordered-flushes", 1, 2)]);
    let twice = vec![store(0), clwb(0), clwb(0), clwb(5), Op::sfence(), Op::sfence()];
    assert_eq!(found(twice), [("redundant-flush", 2, 2), ("redundant-fence", 1, 5)]);
    let locked = vec![store(0), clwb(0), Op::rmw(64, [1; 8]), clwb(1), Op::rmw(128, [1; 8])];
    assert_eq!(found(locked), [("missing-flush", 1, 4)]);
    let opt = Op::Flush { kind: FlushKind::Clflushopt, addr: 60 };
    assert_eq!(found(vec![Op::store(60, [1; 8]), opt, clwb(1), Op::sfence()]), [("unordered-flushes", 1, 1)]);
}

#[test]
fn patterns_are_those_of_each_thread() {
    let header = Header {
        regions: vec![Region { name: "pm".to_owned(), start: 0, len_bytes: 4096 }],
        ..Header::default()
    };
    // Thread 1 stores to line 0 and flushes it, 2 stores to it past the caches; a fence of each.
    let traced = |fences: &[u32]| {
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        let mut push = |thread, kind| {
            let origin = Origin { thread, ..Origin::default() };
            writer.push(&Event { kind, origin }).unwrap();
        };
        let store = |address, is_non_temporal| Kind::Store {
            address,
            data: &[1; 8],
            is_non_temporal,
            is_atomic64: false,
        };
        push(1, store(0, false));
        push(1, Kind::Flush { kind: trace::FlushKind::Clwb, address: 0 });
        push(2, store(8, true));
        fences.iter().for_each(|&thread| push(thread, Kind::Fence(trace::FenceKind::Sfence)));
        let file = writer.finish().unwrap();
        let found = patterns(&mut Reader::new(&file[..]).unwrap(), Search::default()).unwrap();
        found.iter().map(|pattern| (pattern.kind, pattern.first_event)).collect::<Vec<_>>()
    };
    assert_eq!(traced(&[1, 2]), []);
    assert_eq!(traced(&[1]), [(PatternKind::MissingFence, 2)]);
    assert_eq!(traced(&[2]), [(PatternKind::MissingFence, 0)]);
    assert_eq!(traced(&[2, 3, 1]), [(PatternKind::RedundantFence, 4)]);
}

#[test]
fn what_is_pending_at_fences_is_a_feature() {
    let reached = |ops: Vec<Op>| {
        let mut features = Features::default();
        let file = recorded(ops);
        pending_features(&mut Reader::new(&file[..]).unwrap(), &|pc| pc, &mut features).unwrap();
        features
    };
    let store = |line: u64| Op::store(line * 64, [1; 8]);
    let clwb = |line: u64| Op::clwb(line * 64);
    let persist = |line: u64| vec![store(line), clwb(line), Op::sfence()];
    // One line or another, once or again: the same.
    let once = reached(persist(0));
    assert_eq!(once, reached(persist(7)));
    assert_eq!(once, reached([persist(0), persist(1)].concat()));
    let others = [
        reached(vec![store(0), Op::sfence()]),
        reached(vec![store(0), clwb(0)]),
        // The last line of two without a flush.
        reached(vec![store(0), store(1), clwb(0), Op::sfence()]),
        reached(vec![store(0), store(1), clwb(0), clwb(1), Op::sfence()]),
    ];
    for (index, one) in others.iter().enumerate() {
        assert_ne!(*one, once, "{index}");
        assert!(!others[..index].contains(one), "{index}");
    }
    let nt = reached(vec![Op::nt_store(0, [1; 8]), Op::sfence()]);
    assert_eq!(nt, once, "past the caches, or flushed: it waits for the fence");
}
