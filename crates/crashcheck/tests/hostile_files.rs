//! Invalid and hostile litmus files give errors with a location, never a panic.

use fastness_crashcheck::litmus::{
    LitmusArgs, LitmusError, Location, ModeOverride, Problem, limits, parse, run, run_file, run_tests,
};
use fastness_pm_model::Config;
use proptest::prelude::*;
use serde_json::{Value, json};

fn valid() -> Value {
    json!({
        "meta": {"format": 1, "about": "one program"},
        "tests": [{
            "name": "first",
            "mode": "adr",
            "ops": [
                {"op": "store", "addr": 0, "data": "01"},
                {"op": "clwb", "addr": 0},
                {"op": "sfence"}
            ],
            "observe": [{"addr": 0, "size": 1}],
            "allowed": [[1]]
        }]
    })
}

fn error(value: &Value) -> (Location, Problem) {
    parse(value.to_string().as_bytes()).expect_err("invalid")
}

fn set(pointer: &str, new: Value) -> Value {
    let mut value = valid();
    match value.pointer_mut(pointer) {
        Some(place) => *place = new,
        None => {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            value.pointer_mut(parent).unwrap()[key] = new;
        }
    }
    value
}

fn located(pointer: &str, new: Value) -> (String, String) {
    let (location, problem) = error(&set(pointer, new));
    (location.to_string(), problem.to_string())
}

#[test]
fn the_valid_file_is_valid() {
    let file = parse(valid().to_string().as_bytes()).unwrap();
    assert!(run_tests(&file.tests, Config::default()).unwrap()[0].agrees());
}

#[test]
fn errors_name_the_operation() {
    let cases = [
        ("/tests/0/ops/1/op", json!("clzero"), "unknown operation \"clzero\""),
        ("/tests/0/ops/1/data", json!("00"), "clwb with wrong fields: data or atomic64"),
        (
            "/tests/0/ops/1/addr",
            json!(limits::PM_BYTES_MAX),
            "end of the bytes in PM: 1048577, at most 1048576",
        ),
        (
            "/tests/0/ops/1/addr",
            json!(u64::MAX),
            "end of the bytes in PM: 18446744073709551615, at most 1048576",
        ),
        ("/tests/0/ops/1", json!({"op": "store", "addr": 0}), "store with wrong fields: data"),
        ("/tests/0/ops/1", json!({"op": "store", "data": "00"}), "store with wrong fields: addr"),
        ("/tests/0/ops/1", json!({"op": "store", "addr": 0, "data": ""}), "no data"),
        (
            "/tests/0/ops/1",
            json!({"op": "store", "addr": 0, "data": "0"}),
            "the data are not pairs of hexadecimal digits",
        ),
        (
            "/tests/0/ops/1",
            json!({"op": "store", "addr": 0, "data": "0g"}),
            "the data are not pairs of hexadecimal digits",
        ),
        (
            "/tests/0/ops/1",
            json!({"op": "store", "addr": 0, "data": "+1"}),
            "the data are not pairs of hexadecimal digits",
        ),
        (
            "/tests/0/ops/1",
            json!({"op": "store", "addr": 0, "data": "é"}),
            "the data are not pairs of hexadecimal digits",
        ),
        (
            "/tests/0/ops/1",
            json!({"op": "rmw", "addr": 0, "data": "00".repeat(17)}),
            "bytes of the store: 17, at most 16",
        ),
        (
            "/tests/0/ops/1",
            json!({"op": "rmw", "addr": 0, "data": "00", "atomic64": true}),
            "rmw with wrong fields: atomic64",
        ),
        (
            "/tests/0/ops/1",
            json!({"op": "sfence", "addr": 0}),
            "sfence with wrong fields: addr, data or atomic64",
        ),
    ];
    for (pointer, new, problem) in cases {
        assert_eq!(located(pointer, new), ("test 0 (first), operation 1".to_owned(), problem.to_owned()));
    }
    for new in [json!(null), json!(-1), json!([]), json!({"op": "sfence", "colour": 1}), json!({"op": 1})] {
        let (location, problem) = error(&set("/tests/0/ops/1", new));
        assert_eq!(location.op_index, Some(1));
        assert!(matches!(problem, Problem::Json(_)));
    }
}

#[test]
fn errors_name_the_program() {
    let cases = [
        ("/tests/0/observe", json!([]), "no observed range"),
        ("/tests/0/observe/0/size", json!(0), "no bytes in an observed range"),
        ("/tests/0/observe/0/size", json!(9), "bytes of an observed range: 9, at most 8"),
        (
            "/tests/0/observe/0/addr",
            json!(u64::MAX),
            "end of the bytes in PM: 18446744073709551615, at most 1048576",
        ),
        ("/tests/0/allowed", json!([]), "no allowed state"),
        ("/tests/0/allowed/0", json!([1, 2]), "allowed state 0 has 2 values for 1 observed ranges"),
        ("/tests/0/allowed/0", json!([256]), "allowed state 0 has the value 256, too large for 1 bytes"),
        (
            "/tests/0/ops",
            json!(vec![json!({"op": "sfence"}); limits::OPS_MAX + 1]),
            "operations: 1001, at most 1000",
        ),
    ];
    for (pointer, new, problem) in cases {
        assert_eq!(located(pointer, new), ("test 0 (first)".to_owned(), problem.to_owned()));
    }
    let (location, problem) = error(&set("/tests/0/mode", json!("pcommit")));
    assert_eq!((location.test.as_deref(), location.op_index), (Some("first"), None));
    assert!(matches!(problem, Problem::Json(_)));
    assert_eq!(located("/tests/0/name", json!("")).1, "no name");
    assert!(matches!(error(&set("/tests/0/name", json!("a\u{1b}[2J"))).1, Problem::Name));
    let long = json!("x".repeat(limits::NAME_BYTES_MAX + 1));
    assert!(matches!(error(&set("/tests/0/name", long)).1, Problem::TooLarge { .. }));
    let twice = vec![valid()["tests"][0].clone(); 2];
    let (location, problem) = error(&set("/tests", json!(twice)));
    assert_eq!(location.test_index, Some(1));
    assert!(matches!(problem, Problem::Name));
}

#[test]
fn all_stores_together_are_bounded() {
    let store = json!({"op": "store", "addr": 0, "data": "01".repeat(4096)});
    assert!(parse(set("/tests/0/ops", json!(vec![&store; 16])).to_string().as_bytes()).is_ok());
    let (location, problem) = error(&set("/tests/0/ops", json!(vec![&store; 17])));
    assert_eq!(location.op_index, Some(16));
    assert!(matches!(problem, Problem::TooLarge { found: 69_632, max: 65_536, .. }));
}

#[test]
fn errors_of_the_file() {
    assert!(matches!(error(&set("/meta/format", json!(2))).1, Problem::Format { found: 2 }));
    assert!(matches!(error(&set("/meta/rules", json!("sparc"))).1, Problem::Json(_)));
    assert!(matches!(error(&set("/more", json!(1))).1, Problem::Json(_)));
    assert!(parse(b"").is_err() && parse(&[0xff; 10]).is_err());
    assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    let many = vec![json!(null); limits::TESTS_MAX + 1];
    assert!(matches!(error(&set("/tests", json!(many))).1, Problem::TooLarge { .. }));
    let huge = vec![b' '; limits::FILE_BYTES_MAX as usize + 1];
    assert!(matches!(parse(&huge), Err((_, Problem::TooLarge { .. }))));
}

#[test]
fn errors_of_the_model_have_a_location() {
    let atomic = json!({"op": "ntstore", "addr": 0, "data": "01", "atomic64": true});
    let file = parse(set("/tests/0/ops/1", atomic).to_string().as_bytes()).unwrap();
    let (location, problem) = run_tests(&file.tests, Config::default()).unwrap_err();
    assert_eq!(location.op_index, Some(1));
    assert!(matches!(problem, Problem::Model(_)));
    let wide: Vec<_> =
        (0..8).map(|line| json!({"op": "store", "addr": 64 * line, "data": "01".repeat(64)})).collect();
    let file = parse(set("/tests/0/ops", json!(wide)).to_string().as_bytes()).unwrap();
    let (location, problem) = run_tests(&file.tests, Config::default()).unwrap_err();
    assert_eq!((location.test.as_deref(), location.op_index), (Some("first"), None));
    assert!(matches!(problem, Problem::TooMany(_)));
}

#[test]
fn unreadable_files() {
    let missing = std::path::Path::new("no/such/file.json");
    assert!(matches!(run_file(missing, ModeOverride::default()), Err(LitmusError::Read { .. })));
    let args = LitmusArgs { files: vec![missing.to_owned()], json: true, ..LitmusArgs::default() };
    let mut out = Vec::new();
    assert!(run(&args, &mut out).is_err());
    assert!(out.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any damage to a valid file is an error or a valid file.
    #[test]
    fn damaged_files_do_not_panic(at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>()) {
        let mut text = valid().to_string().into_bytes();
        let index = at.index(text.len());
        text[index] = byte;
        if let Ok(file) = parse(&text) {
            let _ = run_tests(&file.tests, Config::default());
        }
        text.truncate(cut.index(text.len()));
        prop_assert!(parse(&text).is_err());
    }
}
