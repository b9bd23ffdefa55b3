//! Programs that log their operations, from a trace to a report.

use fastness_crashcheck_trace::hypercall::OPERATION_ACTION;
use fastness_crashcheck_trace::{Event, FenceKind, FlushKind, Header, Hypercall, Kind, Region, Writer};

use super::*;
use crate::Result;
use crate::check::State;
use crate::generate::Contents;
use crate::process::Ending;
use crate::report::Report;

fn logged(value: &str) -> Kind<'_> {
    Kind::Hypercall(Hypercall::Other { action: OPERATION_ACTION, value })
}

fn store(data: &[u8]) -> Kind<'_> {
    Kind::Store { address: 0, data, is_non_temporal: false, is_atomic64: false }
}

const FLUSH: Kind<'_> = Kind::Flush { kind: FlushKind::Clwb, address: 0 };
const FENCE: Kind<'_> = Kind::Fence(FenceKind::Sfence);

/// The report on a program that keeps the value of the key `a` in its first byte; 0: none.
fn report(kinds: &[Kind<'_>]) -> Report {
    let region = Region { name: "pm".to_owned(), start: 0, len_bytes: 4096 };
    let header = Header { tool: "test".to_owned(), regions: vec![region], devices: Vec::new() };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    kinds.iter().for_each(|kind| writer.push(&Event::of(*kind)).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    std::fs::write(&trace, writer.finish().unwrap()).unwrap();
    let extract = |contents: &Contents| -> Result<State> {
        let mut byte = [0];
        contents.memory.read(0, &mut byte);
        let text = if byte[0] == 0 { String::new() } else { format!("a {}\n", byte[0]) };
        Ok(State { ending: Ending::Code(0), text: text.into_bytes(), write: None })
    };
    let analysis = Analysis {
        name: "logged",
        trace: &trace,
        images: &ImagesConfig::default(),
        extract: &extract,
        recovery: None,
        oracles: Vec::new(),
        has_prefix_oracle: false,
        has_operations: true,
        must_be_atomic: true,
        in_recovery: None,
        threads: 1,
        symbols: &|_, _| None,
        deadline: None,
        limits: Limits::default(),
        exclude: &[],
        progress: &|_| {},
    };
    analysis.run().unwrap()
}

fn findings(kinds: &[Kind<'_>]) -> Vec<String> {
    let operations = report(kinds).operations;
    operations.into_iter().flat_map(|operation| operation.findings).map(|finding| finding.what).collect()
}

#[test]
fn operations_that_are_durable_when_they_are_answered_may_have_many_states() {
    let (one, two, three) = ([1; 8], [2; 8], [3; 8]);
    let mut kinds = vec![store(&one), FLUSH, FENCE];
    for (data, text) in [(&two, "put a 2\n"), (&three, "put a 3\n"), (&one, "put a 1\n")] {
        kinds.extend([logged(text), store(data), FLUSH, FENCE, logged("ok\n")]);
    }
    let report = report(&kinds);
    assert!(report.is_clean(), "what was there before counts: {:#?}", report.operations);
    assert_eq!(report.states.len(), 3);
}

#[test]
fn a_crash_is_exactly_between_an_answer_and_what_begins_next() {
    // The delete is never durable. From when the next one begins nobody can see that.
    let (zero, one) = ([0; 8], [1; 8]);
    let again = [store(&one), FLUSH, FENCE, logged("ok\n")];
    let deleted = [logged("del a\n"), store(&zero), logged("ok\n"), logged("put a 1\n")];
    let kinds = [&[store(&one), FLUSH, FENCE][..], &deleted, &again].concat();
    let what = findings(&kinds);
    assert_eq!(what.len(), 1, "{what:?}");
    assert!(
        what[0].ends_with("`del a`, which was answered, is lost: a is 1, as before the first operation"),
        "{what:?}"
    );
}

#[test]
fn what_comes_before_the_first_operation_is_not_judged() {
    let (one, two) = ([1; 8], [2; 8]);
    let prepared = [store(&two), FENCE, store(&one), FLUSH, FENCE];
    let kinds = [&prepared[..], &[logged("put a 2\n"), store(&two), FLUSH, FENCE, logged("ok\n")]].concat();
    assert_eq!(findings(&kinds), Vec::<String>::new());
}
