//! Dependencies between crates point to lower layers.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use super::{root, sources};

/// Layer of each crate (`ARCHITECTURE.md`). A normal dependency points to a lower layer.
const LAYERS: &[(&str, u32)] = &[
    // Its tests read the source; no code.
    ("fastness-architecture", 0),
    ("fastness-base", 0),
    ("fastness-sync", 0),
    ("fastness-crashcheck-trace", 1),
    ("fastness-crashcheck-workload", 1),
    ("fastness-pmem", 1),
    ("fastness-blkdev", 1),
    ("fastness-stream", 1),
    ("fastness-remote", 2),
    // An executable model of what `pmem` does to memory, on `pmem`'s trait.
    ("fastness-pm-model", 2),
    ("fastness-prb", 2),
    ("fastness-lwb", 2),
    // On the model's generator of pseudo-random numbers.
    ("fastness-crashcheck-fuzz", 3),
    ("fastness-pmlog", 3),
    ("fastness-zil", 3),
    ("fastness-responder", 4),
    ("fastness-wcache", 4),
    // Only tests depend on these.
    ("fastness-history", 0),
    ("fastness-testkit", 6),
    ("fastness-pool", 4),
    ("fastness-store", 5),
    ("fastness-zvol", 6),
    ("fastness-zpl", 6),
    ("fastness-nbd", 6),
    ("fastness-vhost-user", 6),
    ("fastness-fuse", 6),
    ("fastness-http", 6),
    // Part of what `crashcheck` speaks to; runs in the guest.
    ("fastness-crashcheck-agent", 5),
    ("fastness-crashcheck", 6),
    ("fastness-terminal", 1),
    ("fastness-crashcheck-cli", 7),
    ("fastness-efficiency", 6),
    // A program of its own, under another licence: nothing depends on it.
    ("fastness-crashcheck-tracer", 6),
    ("fastness-daemon", 7),
    ("fastness-front", 7),
    // Loaded into programs: nothing depends on it.
    ("fastness-preload", 5),
    ("fastness-bench", 8),
    ("fastness-cli", 9),
];

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn dependencies_point_to_lower_layers() {
    let layers: BTreeMap<_, _> = LAYERS.iter().copied().collect();
    let metadata = metadata();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let layer = layers
            .get(name)
            .unwrap_or_else(|| panic!("{name} has no layer: name it in ARCHITECTURE.md and here"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["name"].as_str().unwrap();
            // Tests may use anything; `null` is a normal dependency.
            if dependency["kind"].is_null() && on.starts_with("fastness-") {
                assert_ne!(
                    on, "fastness-crashcheck-tracer",
                    "{name} depends on what is under another licence"
                );
                assert!(layers[on] < *layer, "{name} (layer {layer}) depends on {on} (layer {})", layers[on]);
                // What only tests use looks at the parts.
                assert!(
                    name == "fastness-testkit"
                        || *layer <= layers["fastness-store"]
                        || !["fastness-pool", "fastness-zil"].contains(&on),
                    "{name} depends on {on}, which only the store ties to a log"
                );
            }
        }
    }
}

/// What the simulation of the whole stack runs: its threads wait for each other, and sleep, where it decides.
#[test]
fn what_is_simulated_waits_by_the_simulation_alone() {
    let crates = ["lwb", "pool", "prb", "pmlog", "store", "zil", "zpl", "zvol"];
    let waits = [".lock()", ".wait_timeout(", "thread::sleep(", "Condvar::wait"];
    // A medium for tests.
    let may = [root().join("crates/lwb/src/device_space.rs")];
    let of_crate = |name: &str| root().join("crates").join(name).join("src");
    let mut found = Vec::new();
    for (path, text) in sources() {
        let is_test = path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
        if is_test || may.contains(&path) || !crates.iter().any(|name| path.starts_with(of_crate(name))) {
            continue;
        }
        for (index, line) in text.lines().take_while(|line| line.trim() != "#[cfg(test)]").enumerate() {
            let code = line.split("//").next().unwrap();
            if waits.iter().any(|call| code.contains(call)) {
                found.push(format!("{}:{}: {}", path.display(), index + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "not by `fastness_sync`:\n{}", found.join("\n"));
}
