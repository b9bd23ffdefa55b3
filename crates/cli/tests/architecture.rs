//! The house keeps its shape: dependencies point to lower layers, fences say what they are for, files stay
//! short.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Layer of each crate (`ARCHITECTURE.md`). A normal dependency points to a lower layer.
const LAYERS: &[(&str, u32)] = &[
    ("fastness-error", 0),
    ("fastness-sync", 0),
    ("fastness-trace", 1),
    ("fastness-workload", 1),
    ("fastness-pmem", 1),
    ("fastness-blkdev", 1),
    // An executable model of what `pmem` does to memory, on `pmem`'s trait.
    ("fastness-pm-model", 2),
    ("fastness-prb", 2),
    ("fastness-lwb", 2),
    ("fastness-pmlog", 3),
    ("fastness-zil", 3),
    // Only tests depend on these.
    ("fastness-history", 0),
    ("fastness-testkit", 4),
    ("fastness-pool", 4),
    ("fastness-store", 5),
    ("fastness-zvol", 6),
    ("fastness-nbd", 6),
    // Part of what `crashcheck` speaks to; runs in the guest.
    ("fastness-crashcheck-agent", 5),
    ("fastness-crashcheck", 6),
    // A program of its own, under another licence: nothing depends on it.
    ("fastness-crashcheck-tracer", 6),
    ("fastness-daemon", 7),
    ("fastness-bench", 7),
    ("fastness-cli", 8),
];

/// Lines of a source file at which to ask what second idea lives there.
const LINES_MAX: usize = 400;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

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
            }
        }
    }
}

/// Every Rust source file of the workspace.
fn sources() -> Vec<(PathBuf, String)> {
    fn visit(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                visit(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    visit(&root().join("crates"), &mut found);
    found
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "examples")
        || path.file_name().is_some_and(|name| name == "tests.rs" || name == "shapes.rs")
}

/// A call of `fence`, `_mm_sfence` or `write_back` outside of tests has a PERSIST comment within 12 lines
/// above.
#[test]
fn every_fence_says_what_it_orders() {
    let mut missing = Vec::new();
    // The model talks about fences, it issues none.
    let is_real = |path: &Path| !is_test(path) && !path.starts_with(root().join("crates/pm-model"));
    for (path, text) in sources().iter().filter(|(path, _)| is_real(path)) {
        let lines: Vec<&str> = text.lines().collect();
        let end = lines.iter().position(|line| line.trim() == "#[cfg(test)]").unwrap_or(lines.len());
        for (index, line) in lines[..end].iter().enumerate() {
            let code = line.split("//").next().unwrap();
            let calls = ["fence()", "_mm_sfence()", ".write_back("].iter().any(|call| code.contains(call));
            let declares = code.contains("fn ") || code.contains("is_fence()");
            let near = &lines[index.saturating_sub(12)..=(index + 6).min(end - 1)];
            if calls && !declares && !near.iter().any(|line| line.contains("PERSIST")) {
                missing.push(format!("{}:{}: {}", path.display(), index + 1, line.trim()));
            }
        }
    }
    assert!(missing.is_empty(), "without a PERSIST comment:\n{}", missing.join("\n"));
}

#[test]
fn source_files_stay_short() {
    let long: Vec<_> = sources()
        .iter()
        .filter(|(path, _)| !is_test(path))
        .map(|(path, text)| (path.clone(), text.lines().count()))
        .filter(|&(_, lines)| lines > LINES_MAX)
        .collect();
    assert!(long.is_empty(), "longer than {LINES_MAX} lines: {long:?}");
}

/// `rustfmt` sees to code, and leaves comments as they are. Tables and drawings may be wider.
#[test]
fn comments_are_within_110_columns() {
    let mut long = Vec::new();
    for (path, text) in sources() {
        let mut is_drawing = false;
        for (index, line) in text.lines().enumerate() {
            let comment = line.trim_start();
            let said = comment.trim_start_matches(['/', '!']).trim_start();
            is_drawing = comment.starts_with("//") && is_drawing != said.starts_with("```");
            if comment.starts_with("//")
                && !is_drawing
                && !said.starts_with('|')
                && line.chars().count() > 110
            {
                long.push(format!("{}:{}", path.display(), index + 1));
            }
        }
    }
    assert!(long.is_empty(), "longer than 110 columns:\n{}", long.join("\n"));
}

#[test]
fn tests_that_documents_name_exist() {
    let text = fs::read_to_string(root().join("docs/log-scenarios.md")).unwrap();
    let sources: Vec<_> = sources().into_iter().map(|(_, source)| source).collect();
    let mut count = 0;
    // Names between backticks; those with a slash or a dot are files.
    for name in text.split('`').skip(1).step_by(2).filter(|name| !name.contains(['/', '.'])) {
        count += 1;
        let is_there = |source: &String| {
            source
                .match_indices(name)
                .any(|(at, _)| !source[at + name.len()..].starts_with(char::is_alphanumeric))
        };
        assert!(sources.iter().any(is_there), "no test is called {name}");
    }
    assert!(count > 40, "the document names its tests");
}
