//! The table of the rules: short programs, and what a crash after them can leave.
//!
//! Notation: `x=1` stores the word 1 (`x` alone too), `n(x)` is non-temporal; `x x1 x2` are words of one
//! line, `y y1` and `z` are on other lines. States are written as digits in the order of the observed words.

mod support;

use std::collections::BTreeSet;

use fastness_pm_model::{Config, Op, Persistence, Rules};
use support::{axioms, enumerated, naive};

const SIZE: usize = 192;

fn address(word: &str) -> u64 {
    match word {
        "x" => 0,
        "x1" => 8,
        "x2" => 16,
        "y" => 64,
        "y1" => 72,
        "z" => 128,
        other => panic!("no word {other}"),
    }
}

fn assignment(text: &str) -> (u64, Vec<u8>) {
    let (word, value) = text.split_once('=').unwrap_or((text, "1"));
    (address(word), value.parse::<u64>().unwrap().to_le_bytes().to_vec())
}

fn op(text: &str) -> Op {
    let non_temporal = text.strip_prefix("n(").and_then(|text| text.strip_suffix(')'));
    if let Some(text) = non_temporal {
        let (addr, data) = assignment(text);
        return Op::nt_store(addr, data);
    }
    match text.split_once(' ') {
        Some(("clwb", word)) => Op::clwb(address(word)),
        Some(("clflush", word)) => Op::clflush(address(word)),
        Some(("LOCK", rest)) => {
            let (addr, data) = assignment(rest);
            Op::rmw(addr, data)
        }
        Some(_) => panic!("no operation {text}"),
        None if text == "sfence" => Op::sfence(),
        None => {
            let (addr, data) = assignment(text);
            Op::store(addr, data)
        }
    }
}

fn program(text: &str) -> Vec<Op> {
    text.split(';').map(|text| op(text.trim())).collect()
}

fn states(images: &support::Images, observed: &str) -> BTreeSet<String> {
    let digit = |image: &Vec<u8>, word| image[address(word) as usize].to_string();
    images.iter().map(|image| observed.split(' ').map(|word| digit(image, word)).collect()).collect()
}

fn set(text: &str) -> BTreeSet<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn check(text: &str, observed: &str, allowed: &str, config: Config) {
    let ops = program(text);
    let what = format!("{text} {config:?}");
    assert_eq!(states(&enumerated(SIZE, &ops, config), observed), set(allowed), "{what}");
    assert_eq!(states(&axioms::crash_images(SIZE, &ops, config), observed), set(allowed), "{what}");
    if config.rules == Rules::Arch {
        assert_eq!(states(&naive::crash_images(SIZE, &ops, config), observed), set(allowed), "{what}");
    }
}

const ALL_4: &str = "00 01 10 11";
const ALL_9: &str = "00 01 02 10 11 12 20 21 22";

/// Program, observed words, allowed states by R1 to R8 and R10; then, where they differ, the states with
/// [`Config::strict_nt`] and those by R11.
type Row = (&'static str, &'static str, &'static str, Option<&'static str>, Option<&'static str>);

const ADR: &[Row] = &[
    ("x", "x", "0 1", None, None),
    ("x; sfence", "x", "0 1", None, None),
    ("x; clwb x", "x", "0 1", None, None),
    ("x; clflush x", "x", "0 1", None, None),
    ("x; clwb x; sfence", "x", "1", None, None),
    ("n(x); sfence", "x", "1", None, None),
    ("clwb x; x; sfence", "x", "0 1", None, None),
    ("x=1; clwb x; x=2; sfence", "x", "1 2", None, None),
    ("x; x1", "x x1", "00 10 11", None, None),
    ("x=1; x1=1; x=2", "x x1", "00 10 11 21", None, None),
    ("x; y", "x y", ALL_4, None, None),
    ("x; x1; y", "x x1 y", "000 001 100 101 110 111", None, Some("000 001 100 110 111")),
    ("x=1; y=1; x=2; y=2", "x y", ALL_9, None, Some("00 01 02 10 11 20 21 22")),
    ("x; clwb x; sfence; y", "x y", "10 11", None, None),
    ("x; clwb x; y; clwb y", "x y", ALL_4, None, None),
    ("x; clflush x; y", "x y", "00 10 11", None, Some(ALL_4)),
    ("x=1; clflush x; x=2; y=1", "x y", "00 10 20 11 21", None, Some("00 01 10 20 21")),
    ("x; clwb x; LOCK y", "x y", "10 11", None, None),
    ("n(x); LOCK y", "x y", "10 11", None, None),
    ("n(x); n(y)", "x y", ALL_4, None, None),
    ("n(x); y", "x y", ALL_4, None, None),
    ("x; n(y)", "x y", ALL_4, None, None),
    ("n(x); sfence; y", "x y", "10 11", None, None),
    ("n(x); n(x1)", "x x1", "00 10 11", Some(ALL_4), None),
    ("x=1; n(x=2); sfence", "x", "2", None, None),
    ("n(x=1); x=2; sfence", "x", "1 2", None, None),
];

const EADR: &[Row] = &[
    ("x; y", "x y", "00 10 11", None, None),
    ("n(x); y", "x y", ALL_4, None, None),
    ("x; n(y)", "x y", ALL_4, None, None),
    ("n(x); x1; y", "x x1 y", "000 100 110 111", None, None),
    ("n(x); n(x1); y", "x x1 y", "000 001 100 101 110 111", Some("000 001 010 011 100 101 110 111"), None),
];

fn check_table(persistence: Persistence, rows: &[Row]) {
    for &(text, observed, arch, strict, dissertation) in rows {
        let config = |rules, strict_nt| Config { persistence, rules, strict_nt };
        check(text, observed, arch, config(Rules::Arch, false));
        check(text, observed, strict.unwrap_or(arch), config(Rules::Arch, true));
        check(text, observed, dissertation.unwrap_or(arch), config(Rules::Dissertation, false));
        if dissertation.is_none() {
            check(text, observed, strict.unwrap_or(arch), config(Rules::Dissertation, true));
        }
    }
}

#[test]
fn volatile_caches() {
    check_table(Persistence::Adr, ADR);
}

#[test]
fn persistent_caches() {
    check_table(Persistence::Eadr, EADR);
}
