//! Modules of a crate do not use each other in a circle.

use std::collections::BTreeSet;
use std::fs;

use super::modules::{Graph, cycles, graph};
use super::root;

#[test]
fn modules_use_each_other_in_no_circle() {
    let mut wrong = String::new();
    let mut folders: Vec<_> =
        fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    for folder in folders {
        // A program beside a library has no modules of its own.
        let lib = folder.join("src/lib.rs");
        let graph = graph(&if lib.exists() { lib } else { folder.join("src/main.rs") });
        for cycle in cycles(&graph) {
            wrong += &format!("{}: {cycle:?}\n{}", folder.display(), uses(&graph, &cycle));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A line for each use of a module of a cycle by another.
fn uses(graph: &Graph, cycle: &BTreeSet<String>) -> String {
    let mut lines = String::new();
    for from in cycle {
        for (to, example) in graph[from].iter().filter(|(to, _)| cycle.contains(*to)) {
            lines += &format!("    {from} -> {to} ({example})\n");
        }
    }
    lines
}
