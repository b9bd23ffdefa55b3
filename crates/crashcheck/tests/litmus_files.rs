//! The litmus files of this crate: the model gives their states, and so do two machines that share no
//! code with the enumerator.

#[path = "../../pm-model/tests/support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fastness_crashcheck::litmus::{
    LitmusArgs, LitmusFile, LitmusTest, ModeOverride, parse, run, run_file, run_tests,
};
use fastness_pm_model::{Config, Op, Rules};
use support::{Images, axioms, naive};

const FILES: [&str; 5] = ["basics.json", "adr.json", "eadr.json", "strict-nt.json", "dissertation.json"];

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("litmus").join(name)
}

fn load(name: &str) -> LitmusFile {
    parse(&std::fs::read(path(name)).unwrap()).unwrap()
}

fn config(file: &LitmusFile, test: &LitmusTest) -> Config {
    Config {
        persistence: test.persistence,
        rules: file.rules.unwrap_or_default(),
        strict_nt: file.strict_nt.unwrap_or_default(),
    }
}

fn states(images: &Images, test: &LitmusTest) -> BTreeSet<Vec<u64>> {
    let value = |image: &[u8], addr: usize, size: usize| {
        image[addr..addr + size].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
    };
    let state = |image: &Vec<u8>| test.observe.iter().map(|r| value(image, r.addr, r.size)).collect();
    images.iter().map(state).collect()
}

#[test]
fn the_model_agrees_with_every_file() {
    for name in FILES {
        let report = run_file(&path(name), ModeOverride::default()).unwrap();
        let mut text = Vec::new();
        report.write_text(&mut text).unwrap();
        assert!(report.agrees(), "{}", String::from_utf8(text).unwrap());
    }
}

#[test]
fn the_schedule_search_agrees_with_every_file() {
    for name in FILES {
        let file = load(name);
        for test in &file.tests {
            let config = config(&file, test);
            if config.rules == Rules::Arch {
                let images = naive::crash_images(192, &test.ops, config);
                assert_eq!(states(&images, test), test.allowed, "{name}: {}", test.name);
            }
        }
    }
}

#[test]
fn the_axioms_agree_with_every_file() {
    for name in FILES {
        let file = load(name);
        for test in &file.tests {
            let images = axioms::crash_images(192, &test.ops, config(&file, test));
            assert_eq!(states(&images, test), test.allowed, "{name}: {}", test.name);
        }
    }
}

#[test]
fn every_rule_has_a_program() {
    let mut per_rule = BTreeMap::new();
    let mut programs = 0;
    for name in FILES {
        for test in load(name).tests {
            programs += 1;
            let word = test.name.split(' ').next().unwrap().to_owned();
            *per_rule.entry(word).or_insert(0) += 1;
        }
    }
    for rule in 1..=12 {
        assert!(per_rule.contains_key(&format!("R{rule}")), "no program for R{rule}");
    }
    assert!(programs >= 100, "{programs} programs");
}

#[test]
fn the_narrow_model_differs_where_it_should() {
    let mode = ModeOverride { rules: Some(Rules::Dissertation), strict_nt: None };
    let report = run_file(&path("basics.json"), mode).unwrap();
    let differing: Vec<_> =
        report.tests.iter().filter(|test| !test.agrees()).map(|test| &test.name).collect();
    let expected =
        ["early_eviction", "nova_hello_final", "clflush_orders_later_store", "clflush_then_rewrite"];
    assert_eq!(differing, expected);
    let nova = report.tests.iter().find(|test| test.name == "nova_hello_final").unwrap();
    assert_eq!((nova.states, nova.missing.len(), nova.extra.len()), (2, 2, 0));
}

#[test]
fn the_strict_switch_reaches_the_model() {
    let mode = ModeOverride { rules: None, strict_nt: Some(true) };
    let report = run_file(&path("basics.json"), mode).unwrap();
    let differing: Vec<_> = report.tests.iter().filter(|test| !test.agrees()).collect();
    assert_eq!(differing.len(), 1);
    assert_eq!(differing[0].name, "nt_same_line_two_words");
    assert_eq!(differing[0].extra, [vec![0, 1]]);
}

/// A planted defect: without the flush or the fence before the commit word, its states change.
#[test]
fn a_planted_missing_fence_is_found() {
    let file = load("adr.json");
    let publish = file.tests.iter().find(|test| test.name == "R4 write, persist, publish").unwrap();
    for index in [1, 2] {
        let mut broken = publish.clone();
        let removed = broken.ops.remove(index);
        assert!(matches!(removed, Op::Fence(_) | Op::Flush { .. }));
        let reports = run_tests(&[broken], Config::default()).unwrap();
        assert_eq!(reports[0].extra, [vec![0, 0], vec![0, 1]], "without {removed:?}");
    }
}

#[test]
fn reports() {
    let files = vec![path("basics.json"), path("adr.json")];
    let mut args = LitmusArgs { files, mode: ModeOverride::default(), json: false };
    let mut out = Vec::new();
    assert!(run(&args, &mut out).unwrap());
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("basics.json: 25 programs (arch), 25 agree, 0 differ\n"), "{text}");
    args.json = true;
    args.mode.rules = Some(Rules::Dissertation);
    let mut out = Vec::new();
    assert!(!run(&args, &mut out).unwrap());
    let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(json["ok"], false);
    assert_eq!(json["files"][0]["rules"], "dissertation");
    assert_eq!(json["files"][0]["differ"], 4);
    assert_eq!(json["files"][0]["tests"][7]["missing"], serde_json::json!([[1, 0, 1]]));
}
