//! Modules of a crate do not use each other in a circle.

use std::collections::BTreeSet;
use std::fs;

use super::modules::{Graph, cycles, graph};
use super::root;

/// The cycles that there are, by crate: sets of modules, none of which can be understood without all others.
/// The list only shrinks.
const KNOWN: &[(&str, &str)] = &[
    ("lwb", "chain error format header log"),
    ("pmlog", "create open"),
    ("pmlog", "error front geometry log recovery slot superblock"),
    (
        "pool",
        "upkeep::check objects::cleared namespace::dataset txg::freeing objects::handle log_space \
        objects::object txg::output pool space::room rows namespace::settings state objects::stored \
        txg::sync metadata::tables txg::thread",
    ),
    ("pool", "devices::label error"),
    ("pool", "import::find import::open"),
    ("prb", "health prb"),
    ("store", "config error marks region"),
    ("store", "dataset_log log logs side_loss sides"),
    ("sync", "lib turns"),
    ("zil", "itx kind"),
];

#[test]
fn modules_use_each_other_in_no_circle() {
    let mut wrong = String::new();
    let mut folders: Vec<_> =
        fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    for folder in folders {
        let name = folder.file_name().unwrap().to_str().unwrap();
        // A program beside a library has no modules of its own.
        let lib = folder.join("src/lib.rs");
        let graph = graph(&if lib.exists() { lib } else { folder.join("src/main.rs") });
        let found = cycles(&graph);
        let known: BTreeSet<BTreeSet<String>> = KNOWN
            .iter()
            .filter(|(krate, _)| *krate == name)
            .map(|(_, cycle)| cycle.split_whitespace().map(str::to_owned).collect())
            .collect();
        for cycle in found.difference(&known) {
            wrong += &format!("{name}: a cycle that is not in the list: {cycle:?}\n{}", uses(&graph, cycle));
        }
        for cycle in known.difference(&found) {
            wrong += &format!("{name}: a cycle of the list is gone or another one: {cycle:?}\n");
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
