//! What a commit needs, and what may be written in parallel.

use super::*;
use crate::itx::Itx;
use crate::record::{Record, Remove};

fn keys(of: &[u64]) -> Keys {
    std::array::from_fn(|index| ObjectId(of.get(index).copied().unwrap_or(0)))
}

fn add(graph: &mut Graph, txg: u64, is_sync: bool, of: &[u64]) -> u64 {
    let payload = Payload::Record(Box::new([0; 32]));
    graph.add(Entry { txg: Txg(txg), object: ObjectId(of[0]), keys: keys(of), is_sync, payload });
    graph.last_number()
}

fn needed(graph: &Graph, object: u64, horizon: u64) -> Vec<u64> {
    graph.needed(ObjectId(object), horizon).into_iter().collect()
}

#[test]
fn a_commit_needs_what_keeps_its_place_its_object_and_what_these_depend_on() {
    let mut graph = Graph::default();
    let a1 = add(&mut graph, 5, false, &[1]);
    let b1 = add(&mut graph, 5, false, &[2]);
    let name = add(&mut graph, 5, true, &[9, 3]);
    let a2 = add(&mut graph, 6, false, &[1]);
    assert_eq!(needed(&graph, 1, a2), [a1, name, a2]);
    assert_eq!(needed(&graph, 2, a2), [b1, name]);
    assert_eq!(needed(&graph, 4, a2), [name]);
    assert_eq!(needed(&graph, 0, a2), [a1, b1, name, a2]);
    // Entries added after the call are not waited for.
    assert_eq!(needed(&graph, 1, name), [a1, name]);
    // A record that keeps its place and touches object 1 brings that object's records with it.
    let link = add(&mut graph, 6, true, &[9, 1]);
    assert_eq!(needed(&graph, 4, link), [a1, name, a2, link]);
}

#[test]
fn independent_entries_are_ready_together_and_dependent_ones_in_turn() {
    let mut graph = Graph::default();
    let (a1, a2) = (add(&mut graph, 5, true, &[1]), add(&mut graph, 5, true, &[1]));
    let (b1, ab) = (add(&mut graph, 5, true, &[2]), add(&mut graph, 5, true, &[1, 2]));
    let mut all = graph.needed(ObjectId::NONE, ab);
    let first = graph.begin(&all).unwrap();
    let second = graph.begin(&all).unwrap();
    assert_eq!((first.number, second.number), (a1, b1));
    assert!(graph.begin(&all).is_none());
    assert!(!graph.enter(&first.keys));
    assert!(!graph.enter(&second.keys));
    graph.finish(a1);
    let third = graph.begin(&all).unwrap();
    assert_eq!(third.number, a2);
    assert!(graph.enter(&third.keys), "a1 is in the current generation");
    assert!(graph.begin(&all).is_none(), "b1 and a2 are being written");
    graph.finish(a2);
    assert!(graph.begin(&all).is_none());
    graph.finish(b1);
    let last = graph.begin(&all).unwrap();
    assert_eq!(last.number, ab);
    assert!(graph.enter(&last.keys));
    graph.finish(ab);
    graph.trim(&mut all);
    assert!(all.is_empty() && graph.len() == 0 && graph.last_of.is_empty() && graph.sync.is_empty());
}

#[test]
fn names_come_in_order_in_whichever_directories() {
    let mut graph = Graph::default();
    let remove = |directory| {
        Itx::sync(ObjectId(directory), &Record::Remove(Remove { is_directory: false, name: b"n" }), &[])
    };
    [7, 8].into_iter().for_each(|directory| graph.add(remove(directory).into_entry(Txg(5))));
    let all = graph.needed(ObjectId::NONE, 2);
    let first = graph.begin(&all).unwrap();
    assert!(graph.begin(&all).is_none(), "a crash could leave the second without the first");
    graph.enter(&first.keys);
    graph.finish(first.number);
    let second = graph.begin(&all).unwrap();
    assert!(graph.enter(&second.keys), "a lost first one would not be missed in the same generation");
}

#[test]
fn what_failed_is_ready_again_and_what_has_synced_is_forgotten() {
    let mut graph = Graph::default();
    let old = add(&mut graph, 5, true, &[1]);
    let new = add(&mut graph, 6, true, &[1]);
    let all = graph.needed(ObjectId(1), new);
    let job = graph.begin(&all).unwrap();
    // It is being written: it stays, whatever has synced.
    graph.forget_synced(Txg(5));
    assert_eq!(graph.newest_txg(&all), Some(Txg(6)));
    assert!(graph.begin(&all).is_none());
    graph.put_back(job);
    assert_eq!(graph.begin(&all).map(|job| (job.number, graph.put_back(job)).0), Some(old));
    graph.forget_synced(Txg(5));
    assert_eq!(graph.begin(&all).unwrap().number, new);
}

#[test]
fn a_generation_does_not_grow_without_bound() {
    let mut graph = Graph::default();
    let started = (1..=2 * TOUCHED_MAX as u64 + 2).filter(|&object| graph.enter(&keys(&[object]))).count();
    assert_eq!(started, 2);
}

#[test]
fn a_run_has_what_depends_on_nothing_but_what_is_before_it() {
    let mut graph = Graph::default();
    let a1 = add(&mut graph, 5, true, &[1]);
    let b1 = add(&mut graph, 5, true, &[2]);
    let a2 = add(&mut graph, 5, true, &[1, 3]);
    let b2 = add(&mut graph, 5, true, &[2, 4]);
    let c = add(&mut graph, 5, true, &[3, 4]);
    let numbers = |run: &[Job]| run.iter().map(|job| job.number).collect::<Vec<_>>();
    let first = graph.begin_run(&VecDeque::from([b1]), RUN_BYTES);
    assert_eq!(numbers(&first), [b1]);
    // An entry that another thread has is left out, with everything that depends on it.
    let all = VecDeque::from([a1, b1, a2, b2, c]);
    let second = graph.begin_run(&all, RUN_BYTES);
    assert_eq!(numbers(&second), [a1, a2]);
    assert!(graph.begin_run(&all, RUN_BYTES).is_empty());
    graph.finish(b1);
    second.into_iter().for_each(|job| graph.put_back(job));
    assert_eq!(numbers(&graph.begin_run(&all, RUN_BYTES)), [a1, a2, b2, c]);
}

#[test]
fn a_run_is_no_longer_than_others_can_wait() {
    let mut graph = Graph::default();
    for _ in 0..3 {
        let payload = Payload::NeedCopy { offset: 0, len_bytes: RUN_BYTES * 2 / 3 };
        let entry = Entry { txg: Txg(5), object: ObjectId(1), keys: keys(&[1]), is_sync: true, payload };
        graph.add(entry);
    }
    let all = VecDeque::from([1, 2, 3]);
    assert_eq!(graph.begin_run(&all, RUN_BYTES).len(), 2);
}
