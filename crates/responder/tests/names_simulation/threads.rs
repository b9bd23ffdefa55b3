//! Several threads until the power fails.

use std::path::Path;
use std::sync::Arc;

use fastness_responder::*;
use fastness_testkit::Rng;

use crate::like;
use crate::support::history::{Tree, tree};
use crate::support::{Pm, Power, options, recorder, set_protocol, set_shared};

/// Threads change names of their own in directories that they share, until the power fails: each finds what
/// it was told.
#[test]
fn names_of_several_threads_survive() {
    for seed in 0..60 {
        set_protocol(ProtocolKind::Fr);
        set_shared(false);
        let (recorder, backing) = (recorder(16, 64), MemoryBacking::default());
        let power = Arc::new(Power::default());
        let region = || Pm::whole(&recorder, &power);
        let cache = Cache::create(region(), Arc::new(backing.clone()), &options(64)).unwrap();
        let off = Arc::clone(&power);
        backing.set_hook(move |call| match call {
            Call::Read if !off.is_off() => Verdict::Do,
            _ if off.event() => Verdict::Do,
            _ => Verdict::Refuse(5),
        });
        power.cut_in(300 + Rng(seed).below(2000));
        let results: Vec<Vec<Tree>> = std::thread::scope(|scope| {
            let (cache, backing, power) = (&cache, &backing, &power);
            let start = |thread: u64| scope.spawn(move || one_thread(cache, backing, power, seed, thread));
            let threads: Vec<_> = (0..4).map(start).collect();
            scope.spawn(move || {
                while !power.is_off() {
                    // It may fail as the power does.
                    let _ = cache.tend();
                }
            });
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(power.is_off());
        drop(cache);
        power.turn_on();
        let mut rng = Rng(seed);
        let after = backing.crashed(|| rng.one_in(2));
        let (cache, _) = Cache::open(region(), Arc::new(after.clone()), &options(64)).unwrap();
        let found = tree(&cache, &after).unwrap();
        for (thread, allowed) in results.into_iter().enumerate() {
            let is_its = |path: &&String| path.ends_with(&thread.to_string());
            let names: Vec<&String> = found.keys().filter(is_its).collect();
            let its: Tree = names.into_iter().map(|path| (path.clone(), found[path].clone())).collect();
            assert!(allowed.contains(&its), "seed {seed}, thread {thread}: found {its:x?} of {allowed:x?}");
        }
    }
}

/// What may be left of the thread's names: those that end in its number.
fn one_thread(
    cache: &Cache<Pm>,
    backing: &MemoryBacking,
    power: &Power,
    seed: u64,
    thread: u64,
) -> Vec<Tree> {
    let mut rng = Rng(seed * 4 + thread);
    for directory in ["x", "y"] {
        let make = || Ok(((), backing.make(Path::new(directory), &like(0o040_700)).map(|()| true)?));
        // One of the threads makes it.
        let _ = cache.make(Path::new(directory), make);
    }
    let mut tree = Tree::new();
    while !power.is_off() {
        let mut name = || format!("{}/{}{thread}", rng.pick(&["x", "y"]), rng.pick(&["f", "g", "h"]));
        let (path, to) = (name(), name());
        let mut after = tree.clone();
        let result = match rng.below(4) {
            0 => {
                after.remove(&path);
                cache.unlink(Path::new(&path))
            }
            1 if path != to => {
                if let Some(content) = after.remove(&path) {
                    after.insert(to.clone(), content);
                }
                cache.rename(Path::new(&path), Path::new(&to))
            }
            _ => cache.open_file(Path::new(&path), Some(0o600), 0).and_then(|handle| {
                after.entry(path.clone()).or_default();
                let made = after.clone();
                let data = rng.bytes(30);
                after.insert(path.clone(), data.clone());
                let before = made[&path].len();
                assert!(before == 0 || before == 30);
                let written = cache.write(&handle, 0, &data);
                if written.is_err() {
                    // It was made at least, and has the data or not.
                    tree = made;
                }
                let closed = cache.close(handle);
                written.and(closed)
            }),
        };
        if power.is_off() {
            if result.is_err() && !after.contains_key(&path) && !tree.contains_key(&path) {
                // It may have been made.
                let mut made = tree.clone();
                made.insert(path, Vec::new());
                return vec![tree, after, made];
            }
            return vec![tree, after];
        }
        if result.is_ok() {
            tree = after;
        }
    }
    vec![tree]
}
