use fastness_crashcheck_trace::hypercall::OPERATION_ACTION;
use fastness_crashcheck_trace::{Event, Header, Hypercall, Kind, Origin, Reader, Writer};
use fastness_pm_model::Rng;

use super::*;
use crate::error::CheckError;
use crate::process::Ending;

/// A log of texts, each one event: thread and text.
fn read(texts: &[(u32, &str)]) -> Result<Log> {
    let header = Header { tool: "test".to_owned(), regions: Vec::new(), devices: Vec::new() };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    for (thread, value) in texts {
        let kind = Kind::Hypercall(Hypercall::Other { action: OPERATION_ACTION, value });
        writer.push(&Event { kind, origin: Origin { thread: *thread, ..Origin::default() } }).unwrap();
    }
    Log::read(&mut Reader::new(&writer.finish().unwrap()[..]).unwrap())
}

/// What is said of a state, a line for each word pair, after `event` lines of a log, which begin with a
/// thread.
fn said_of(initial: &str, log: &str, event: u64, state: &str) -> Option<String> {
    let lines: Vec<(u32, String)> = log
        .lines()
        .map(|line| {
            let (thread, line) = line.trim().split_once(' ').unwrap();
            (thread.parse().unwrap(), format!("{line}\n"))
        })
        .collect();
    let texts: Vec<(u32, &str)> = lines.iter().map(|(thread, line)| (*thread, &line[..])).collect();
    let oracle = Operations::new(read(&texts).unwrap(), &shown(initial));
    oracle.refuses(&shown(state), Moment { checkpoint: None, event }).unwrap()
}

fn shown(pairs: &str) -> State {
    let text = pairs.split(", ").collect::<Vec<_>>().join("\n").into_bytes();
    State { ending: Ending::Code(0), text, write: None }
}

fn allowed(log: &str, event: u64, state: &str) -> bool {
    said_of("", log, event, state).is_none()
}

const TWO: &str = "0 put a 1\n0 ok\n0 put a 2\n0 ok";

#[test]
fn an_answered_operation_is_there_and_one_in_flight_may_be() {
    let may = |event| ["", "a 1", "a 2"].map(|state| allowed(TWO, event, state));
    assert_eq!(may(0), [true, false, false], "nothing has begun");
    assert_eq!(may(1), [true, true, false]);
    assert_eq!(may(2), [false, true, false], "just after the answer");
    assert_eq!(may(3), [false, true, true]);
    assert_eq!(may(4), [false, false, true]);
    let said = said_of("", TWO, 4, "a 1").unwrap();
    assert_eq!(said, "operation 2, `put a 2`, which was answered, is lost: a is 1, of operation 1");
    let said = said_of("", TWO, 2, "").unwrap();
    assert_eq!(said, "operation 1, `put a 1`, which was answered, is lost: a is not there");
    let said = said_of("", TWO, 1, "a 2").unwrap();
    assert!(said.contains("a is 2, of operation 2, which begins later (log each before its call)"), "{said}");
}

#[test]
fn what_was_deleted_or_was_there_before_counts() {
    let log = "0 del a\n0 ok\n0 put b 1\n0 failed";
    assert_eq!(said_of("a 1, c 3", log, 0, "a 1, c 3"), None);
    assert_eq!(said_of("a 1, c 3", log, 2, "c 3"), None);
    let said = said_of("a 1, c 3", log, 2, "a 1, c 3").unwrap();
    assert!(said.contains("`del a`, which was answered, is lost: a is 1, as before"), "{said}");
    let said = said_of("a 1, c 3", log, 2, "").unwrap();
    assert_eq!(said, "the key c, which was there before the first operation, is lost");
    let said = said_of("", log, 2, "x 9").unwrap();
    assert_eq!(said, "x is 9, which no operation gave it");
    // A failed one changes nothing; before it is answered nobody knows.
    assert_eq!(said_of("", log, 3, "b 1"), None);
    assert!(said_of("", log, 4, "b 1").is_some());
    assert_eq!(said_of("", log, 4, ""), None);
}

#[test]
fn an_operation_is_whole_or_not_there() {
    let log = "0 put a 1 b 1\n0 ok\n0 put a 2 b 2";
    assert!(allowed(log, 3, "a 1, b 1") && allowed(log, 3, "b 2, a 2"));
    let said = said_of("", log, 3, "a 2, b 1").unwrap();
    let half = "operation 2, `put a 2 b 2`, not answered yet, is half there: b is 1, of operation 1";
    assert_eq!(said, half);
    // Though the one before it is right as it is, and excludes it.
    let said = said_of("", "0 put a 1\n0 ok\n0 del b\n0 ok\n0 put a 2 b 2", 5, "a 2").unwrap();
    assert!(said.contains("operation 3, `put a 2 b 2`, not answered yet, is half there: b is not"), "{said}");
    let said = said_of("", log, 3, "a 2x, b 1").unwrap();
    assert!(
        said.contains("operation 2") && said.contains("half there: a is 2x, which no operation"),
        "{said}"
    );
    let said = said_of("", log, 2, "a 1").unwrap();
    assert!(
        said.contains("operation 1") && said.contains("answered, is half there: b is not there"),
        "{said}"
    );
}

#[test]
fn threads_are_ordered_by_what_was_answered_before_what_began() {
    // Both are under way at once: either can be the last.
    let both = "1 put a 1\n2 put a 2\n1 ok\n2 ok";
    assert!(allowed(both, 4, "a 1") && allowed(both, 4, "a 2") && !allowed(both, 4, ""));
    // One after the other, by different threads.
    let after = "1 put a 1\n1 ok\n2 put a 2\n2 ok";
    assert!(!allowed(after, 4, "a 1") && allowed(after, 4, "a 2"));
    let said = said_of("", after, 4, "a 1").unwrap();
    assert!(said.starts_with("operation 2 of thread 2, `put a 2`"), "{said}");
    // Of two that overlap, with two keys each, one is last in both.
    let pairs = "1 put a 1 b 1\n2 put a 2 b 2\n1 ok\n2 ok";
    assert!(allowed(pairs, 4, "a 1, b 1") && allowed(pairs, 4, "a 2, b 2"));
    assert!(!allowed(pairs, 4, "a 1, b 2") && !allowed(pairs, 4, "a 2, b 1"));
    // A client by name, whichever thread speaks.
    let named = "1 @x put a 1\n2 @x ok\n1 @y put a 2\n1 @y ok";
    assert!(!allowed(named, 4, "a 1") && allowed(named, 4, "a 2"));
}

#[test]
fn one_in_flight_comes_after_what_was_answered_before_it_began() {
    // Thread 2 begins after thread 1's answer, so it cannot be below it; thread 3 is under way all the time.
    let log = "3 put b 3\n1 put a 1 c 1\n1 ok\n2 put a 2 b 2\n3 ok";
    assert!(allowed(log, 5, "a 1, c 1, b 3"), "without thread 2's");
    assert!(allowed(log, 5, "a 2, c 1, b 2") && allowed(log, 5, "a 2, c 1, b 3"), "with it, in two orders");
    assert!(!allowed(log, 5, "a 1, c 1, b 2"), "a of thread 1 over a of thread 2, which came later");
    // That of the latest answer is taken first: otherwise thread 2's could not come any more.
    let log = "4 put b 4\n1 put c 1\n1 ok\n2 put a 2 b 2\n4 ok";
    assert!(allowed(log, 5, "a 2, b 4, c 1"));
}

/// All orders, tried one by one, agree with what is taken from the end.
#[test]
fn every_small_log_agrees_with_all_of_its_orders() {
    let mut rng = Rng::new(12345);
    let mut random = move |below: u64| rng.below(below);
    let (mut yes, mut no) = (0, 0);
    for _ in 0..3000 {
        let mut lines = Vec::new();
        let mut busy = [false; 3];
        for _ in 0..6 {
            let thread = random(3) as usize;
            let line = match (busy[thread], random(4)) {
                (true, _) => "ok".to_owned(),
                (false, 0) => format!("put a {}", random(2)),
                (false, 1) => format!("del {}", ["a", "b"][random(2) as usize]),
                (false, _) => format!("put a {} b {}", random(2), random(2)),
            };
            busy[thread] = !busy[thread];
            lines.push((thread as u32, format!("{line}\n")));
        }
        let texts: Vec<(u32, &str)> = lines.iter().map(|(thread, line)| (*thread, &line[..])).collect();
        let log = read(&texts).unwrap();
        let all = effects(&log);
        for a in [None, Some("0"), Some("1")] {
            for b in [None, Some("0"), Some("1")] {
                let pairs = [("a", a), ("b", b)].into_iter();
                let state: Map =
                    pairs.filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).collect();
                let is_right = explain(&log, &Map::new(), &state, 6).is_none();
                assert_eq!(is_right, all.contains(&state), "{texts:?} {state:?}");
                if is_right { yes += 1 } else { no += 1 }
            }
        }
    }
    assert!(yes > 3000 && no > 3000, "{yes} {no}");
}

/// What each order of all answered operations and some of the others leaves.
fn effects(log: &Log) -> Vec<Map> {
    fn go(log: &Log, done: &mut Vec<usize>, map: &Map, all: &mut Vec<Map>) {
        let left: Vec<usize> = (0..log.operations.len()).filter(|index| !done.contains(index)).collect();
        if left.iter().all(|index| log.operations[*index].answer.is_none()) {
            all.push(map.clone());
        }
        for next in &left {
            let begun = log.operations[*next].begun;
            let is_before = |other: &usize| {
                other != next && log.operations[*other].answer.is_some_and(|answer| answer.event < begun)
            };
            if left.iter().any(is_before) {
                continue;
            }
            let mut map = map.clone();
            for (key, value) in &log.operations[*next].writes {
                match value {
                    Some(value) => drop(map.insert(key.clone(), value.clone())),
                    None => drop(map.remove(key)),
                }
            }
            done.push(*next);
            go(log, done, &map, all);
            done.pop();
        }
    }
    let mut all = Vec::new();
    go(log, &mut Vec::new(), &Map::new(), &mut all);
    all
}

#[test]
fn a_log_that_cannot_be_is_refused() {
    for (texts, said) in [
        (&[][..], "has logged none"),
        (&[(0, "ok\n")], "thread 0 has no operation to be answered"),
        (&[(0, "put a 1\n"), (0, "put b 1\n")], "put b 1: thread 0 has begun an operation"),
        (&[(0, "put a 1\nok\n")], "written at once"),
        (&[(0, "put a")], "written in pieces"),
        (&[(0, "put a\n")], "a line is `put KEY VALUE ...`"),
        (&[(0, "get a\n")], "a line is `put KEY VALUE ...`"),
        (&[(0, "put a 1 a 2\n")], "a key is there twice"),
        (&[(0, "del\n")], "a line is"),
        (&[(0, "@x\n")], "a line is"),
        (&[(0, "put \u{7} 1\u{0}\n"), (0, "ok 1\n")], "ok 1: thread 0 has begun"),
    ] {
        let error = read(texts).unwrap_err();
        assert!(error.to_string().contains(said), "{said:?} in {error}");
        assert!(matches!(error, CheckError::Operations { .. }));
    }
    assert!(read(&[(0, "put a 1\n"), (0, "ok\nput b 1\n"), (0, "\nok\n")]).is_ok());
}

#[test]
fn states_that_are_no_keys_and_values_are_refused() {
    let said = |state| said_of("", "0 put a 1", 1, state).unwrap();
    assert_eq!(said("a"), "a line is no key and value: a");
    assert_eq!(said("a 1 2"), "a line is no key and value: a 1 2");
    assert_eq!(said("a 1, a 1"), "the key a is there twice");
    assert!(said(&"x".repeat(1000)).len() < 120);
}

#[test]
fn many_operations_that_are_lost_are_not_all_named() {
    let mut texts = Vec::new();
    for number in 0..40 {
        texts.push((0, format!("put k{number} 1\n")));
        texts.push((0, "ok\n".to_owned()));
    }
    let texts: Vec<(u32, &str)> = texts.iter().map(|(thread, text)| (*thread, &text[..])).collect();
    let oracle = Operations::new(read(&texts).unwrap(), &shown(""));
    let said: std::collections::BTreeSet<String> = (1..=40)
        .map(|number| {
            oracle.refuses(&shown(""), Moment { checkpoint: None, event: 2 * number }).unwrap().unwrap()
        })
        .collect();
    assert_eq!(said.len(), NAMED_MAX + 1, "{said:?}");
}
