//! Bare messages and queues filled by hand: requests of a dead server, changes of size, hostile guests.

mod support;

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fastness_pmem::ForeignMemory;
use fastness_vhost_user::client::USER;
use fastness_vhost_user::{INDIRECT, NEXT, Options, Polling, WRITE};
use support::front::{DATA, Front, MEMORY_BYTES, SIZE};
use support::{Bench, Ram};

const MIB: usize = 1 << 20;
const TABLE_BYTES: u64 = 16 + 16 * SIZE as u64;
const QUEUES: u16 = 2;

/// The tables of requests without an answer, one after the other, their file, and the message about it.
fn inflight(front: &Front) -> (ForeignMemory, OwnedFd, Vec<u8>) {
    let mut ask = [0; 16].to_vec();
    ask.extend([QUEUES, SIZE].map(u16::to_ne_bytes).concat());
    ask.extend([0; 4]);
    front.send(31, &ask, &[]).unwrap();
    let (described, file) = front.answer().unwrap();
    let file = file.unwrap();
    let len = TABLE_BYTES.next_multiple_of(64) * u64::from(QUEUES);
    let memory = ForeignMemory::map(&File::from(file.try_clone().unwrap()), 0, len).unwrap();
    (memory, file, described)
}

#[test]
fn what_a_dead_server_has_not_answered_is_carried_out_again_in_its_order() {
    let bench = Bench::new(Ram::new(MIB));
    let front = Front::connect(&bench.path);
    front.negotiate();
    let (table, file, described) = inflight(&front);
    // As a server leaves it that has taken two requests for the same sector, the later one at descriptor 0,
    // and one more before them that it has answered but not noted.
    for (head, counter) in [(3_u64, 11), (0, 12), (6, 10)] {
        table.word(16 + 16 * head + 8).unwrap().store(counter, Ordering::Release);
        table.byte(16 + 16 * head).unwrap().store(1, Ordering::Release);
    }
    table.half(12).unwrap().store(6, Ordering::Release);
    let stale = front.request(6, 1, 8, 9);
    let (first, second) = (front.request(3, 1, 1, 1), front.request(0, 1, 1, 2));
    front.offer(0, &[6, 3, 0]);
    front.memory().half(0x2002).unwrap().store(1, Ordering::Release);

    assert_eq!(front.ask(32, &described, &[file.as_fd()]).unwrap(), 0);
    front.start(1);
    front.wait_used(3);
    assert_eq!((front.byte(first), front.byte(second)), (0, 0));
    assert_eq!(front.byte(stale), 0xff, "it had its answer");
    assert_eq!(bench.disk.bytes.read().unwrap()[512], 2, "the later one is on top");
    assert_eq!(bench.disk.bytes.read().unwrap()[8 * 512], 0);
    assert!((0..SIZE.into()).all(|head| table.byte(16 + 16 * head).unwrap().load(Ordering::Acquire) == 0));
    assert_eq!(table.load_half(14).unwrap(), 3);

    // It goes on with what comes next.
    let third = front.request(9, 1, 2, 7);
    front.offer(3, &[9]);
    front.wait_used(4);
    assert_eq!((front.byte(third), bench.disk.bytes.read().unwrap()[1024]), (0, 7));
}

#[test]
fn a_request_in_work_is_in_the_table_and_one_with_an_answer_is_not() {
    let bench = Bench::new(Ram::new(MIB));
    let front = Front::connect(&bench.path);
    front.negotiate();
    let (table, file, described) = inflight(&front);
    assert_eq!(front.ask(32, &described, &[file.as_fd()]).unwrap(), 0);
    *bench.disk.pause.lock().unwrap() = Duration::from_millis(200);
    front.start(0);
    front.request(3, 1, 1, 1);
    front.offer(0, &[3]);
    let entry = || table.byte(16 + 16 * 3).unwrap().load(Ordering::Acquire);
    let begun = Instant::now();
    while entry() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it was never noted");
    }
    assert_eq!(front.used_index().unwrap(), 0, "noted before it is answered");
    front.wait_used(1);
    // The note of the answer comes after the answer.
    while entry() != 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "its answer was never noted");
    }
}

/// With a server that looks for requests, and with one that never does.
#[test]
fn a_front_end_that_kicks_and_sleeps_only_when_it_must_has_every_answer() {
    let never = Polling { longest: Duration::ZERO, vain_percent: 0 };
    for polling in [Polling::default(), never] {
        let bench = Bench::with(Ram::new(MIB), Options { polling, ..Options::default() });
        let front = Front::connect(&bench.path);
        front.negotiate();
        front.keep_inflight().unwrap();
        front.start(0);
        for round in 0..2000_u16 {
            let status = front.request(0, 1, u64::from(round % 64), round as u8);
            front.put_available(round, 0).unwrap();
            front.publish(round + 1).unwrap();
            front.kick_if_wanted().unwrap();
            while front.used_index().unwrap() != round + 1 {
                front.want_call(true).unwrap();
                let has_answer = front.used_index().unwrap() == round + 1;
                assert!(has_answer || front.sleep_for(Duration::from_secs(20)).unwrap(), "round {round}");
                front.want_call(false).unwrap();
            }
            assert_eq!((front.used(round).unwrap(), front.byte(status)), (0, 0));
            assert_eq!(bench.disk.bytes.read().unwrap()[usize::from(round % 64) * 512], round as u8);
        }
        assert!(bench.notes.lock().unwrap().is_empty(), "{:?}", bench.notes);
    }
}

/// One that is not known, and one for the serial number without room for it.
#[test]
fn requests_that_cannot_be_carried_out_are_counted_as_errors() {
    let bench = Bench::new(Ram::new(MIB));
    let front = Front::connect(&bench.path);
    front.negotiate();
    front.start(0);
    for (round, (kind, status, name)) in (0..).zip([(99, 2, "unknown"), (8, 1, "get_id")]) {
        let answer = front.request(0, kind, 0, 1);
        front.offer(round, &[0]);
        front.wait_used(round + 1);
        assert_eq!(front.byte(answer), status, "{name}");
        let stats = bench.server.stats();
        let of = stats.iter().find(|of| of.request == name).unwrap_or_else(|| panic!("{stats:?}"));
        assert_eq!((of.counts.ops, of.counts.errors, of.counts.bytes), (1, 1, 0), "{name}");
    }
}

#[test]
fn a_queue_that_was_stopped_goes_on_where_it_was() {
    let bench = Bench::new(Ram::new(MIB));
    let front = Front::connect(&bench.path);
    front.negotiate();
    front.start(0);
    for round in 0..40_u16 {
        let status = front.request(0, 1, u64::from(round), round as u8 + 1);
        front.offer(round, &[0]);
        front.wait_used(round + 1);
        assert_eq!(front.byte(status), 0);
        if round % 10 == 9 {
            front.send(11, &[0; 8], &[]).unwrap();
            let (state, _) = front.answer().unwrap();
            assert_eq!(u32::from_ne_bytes(state[4..].try_into().unwrap()), u32::from(round) + 1);
            front.start(u32::from(round) + 1);
        }
    }
    assert_eq!(bench.disk.bytes.read().unwrap()[39 * 512], 40);
}

#[test]
fn a_change_of_size_is_told() {
    let bench = Bench::new(Ram::new(MIB));
    let front = Front::connect(&bench.path);
    front.negotiate();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    assert_eq!(front.ask(21, &0_u64.to_ne_bytes(), &[theirs.as_fd()]).unwrap(), 0);
    bench.disk.bytes.write().unwrap().resize(2 * MIB, 0);
    bench.server.config_changed();
    let mut message = [0; 12];
    ours.read_exact(&mut message).unwrap();
    assert_eq!(message, *[2_u32, 1, 0].map(u32::to_ne_bytes).concat());
    let ask = [0_u32, 60, 0].map(u32::to_ne_bytes).concat();
    let mut payload = ask.clone();
    payload.extend([0; 60]);
    front.send(24, &payload, &[]).unwrap();
    let (space, _) = front.answer().unwrap();
    assert_eq!(space[..12], ask);
    assert_eq!(u64::from_le_bytes(space[12..20].try_into().unwrap()), 2 * MIB as u64 / 512);
}

/// Queues that break a rule: what the test does to the memory, and a word of the note.
#[test]
fn a_queue_that_breaks_the_rules_is_stopped_and_the_others_go_on() {
    type Breaks = fn(&Front);
    let cases: &[(&str, &str, Breaks)] = &[
        ("an index far ahead", "further", |front| front.offer_up_to(SIZE + 1)),
        ("a head that is none", "descriptor 16", |front| front.offer(0, &[SIZE])),
        ("a next that is none", "descriptor 700", |front| {
            front.request(0, 1, 0, 1);
            front.describe(1, DATA, 512, NEXT, 700);
            front.offer(0, &[0]);
        }),
        ("a chain in a circle", "no end", |front| {
            front.describe(0, DATA, 16, NEXT, 1);
            front.describe(1, DATA, 16, NEXT, 0);
            front.offer(0, &[0]);
        }),
        ("what is read after what is written", "mixes", |front| {
            front.describe(0, DATA, 16, NEXT | WRITE, 1);
            front.describe(1, DATA, 16, 0, 0);
            front.offer(0, &[0]);
        }),
        ("a buffer outside of the memory", "outside", |front| {
            front.request(0, 1, 0, 1);
            front.describe(1, MEMORY_BYTES - 511, 512, NEXT, 2);
            front.offer(0, &[0]);
        }),
        ("a buffer at the end of all addresses", "outside", |front| {
            front.request(0, 1, 0, 1);
            front.describe(1, u64::MAX, 512, NEXT, 2);
            front.offer(0, &[0]);
        }),
        ("a short header", "outside", |front| {
            front.describe(0, DATA, 15, NEXT, 1);
            front.describe(1, DATA + 64, 1, WRITE, 0);
            front.offer(0, &[0]);
        }),
        ("no place for the answer", "mixes", |front| {
            front.describe(0, DATA, 16, 0, 0);
            front.offer(0, &[0]);
        }),
        ("a table in a table", "table", |front| {
            front.describe(0, 32, 32, INDIRECT, 0);
            front.describe(2, 32, 32, INDIRECT, 0);
            front.offer(0, &[0]);
        }),
        ("a table of half a descriptor", "table", |front| {
            front.describe(0, 32, 24, INDIRECT, 0);
            front.offer(0, &[0]);
        }),
        ("an empty table", "table", |front| {
            front.describe(0, 32, 0, INDIRECT, 0);
            front.offer(0, &[0]);
        }),
    ];
    for (what, word, breaks) in cases {
        let bench = Bench::new(Ram::new(MIB));
        let front = Front::connect(&bench.path);
        front.negotiate();
        front.start(0);
        breaks(&front);
        let begun = Instant::now();
        while bench.notes.lock().unwrap().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{what}: nothing was noted");
            std::thread::sleep(Duration::from_millis(1));
        }
        let notes = bench.notes.lock().unwrap().clone();
        assert!(notes[0].contains(word), "{what}: {notes:?}");
        // A driver that starts anew is served.
        front.send(11, &[0; 8], &[]).unwrap();
        front.answer().unwrap();
        front.memory().write(0x1000, &[0; 0x2000]).unwrap();
        let status = front.request(0, 1, 3, 5);
        front.start(0);
        front.offer(0, &[0]);
        front.wait_used(1);
        assert_eq!((front.byte(status), bench.disk.bytes.read().unwrap()[3 * 512]), (0, 5), "{what}");
    }
}

/// A descriptor of no queue would be in the table of the next queue.
#[test]
fn a_head_outside_of_the_queue_is_in_no_table() {
    let bench = Bench::new(Ram::new(MIB));
    let front = Front::connect(&bench.path);
    front.negotiate();
    let (tables, file, described) = inflight(&front);
    assert_eq!(front.ask(32, &described, &[file.as_fd()]).unwrap(), 0);
    front.start(0);
    let mut before = vec![0; (TABLE_BYTES.next_multiple_of(64) * u64::from(QUEUES)) as usize];
    tables.read(0, &mut before).unwrap();
    front.offer(0, &[SIZE + 7]);
    let begun = Instant::now();
    while bench.notes.lock().unwrap().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing was noted");
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut after = vec![0; before.len()];
    tables.read(0, &mut after).unwrap();
    assert!(before == after, "a request of another queue is in flight");
}

#[test]
fn messages_that_break_the_rules_are_refused() {
    let state = |index: u32, number: u32| [index, number].map(u32::to_ne_bytes).concat();
    let region =
        |guest: u64, len: u64, offset: u64| [1, guest, len, USER, offset].map(u64::to_ne_bytes).concat();
    let cases: Vec<(&str, u32, Vec<u8>, bool)> = vec![
        ("a queue too many", 8, state(4, 16), false),
        ("a queue that is too long", 8, state(0, 2048), false),
        ("a length that is no power of two", 8, state(0, 12), false),
        ("features that were not offered", 2, (1_u64 << 34).to_ne_bytes().to_vec(), false),
        ("a short payload", 9, vec![0; 20], false),
        ("memory without a descriptor", 5, region(0, 4096, 0), false),
        ("memory after the end of its file", 5, region(0, MEMORY_BYTES + 4096, 0), true),
        ("memory at an odd place of its file", 5, region(0, 4096, 100), true),
        ("memory around the end of all addresses", 5, region(u64::MAX - 100, 4096, 0), true),
        ("configuration after its end", 24, [250_u32, 60, 0].map(u32::to_ne_bytes).concat(), false),
        ("a request that is none", 99, vec![], false),
        ("a kick without a descriptor", 12, vec![0; 8], false),
        ("tables for too many queues", 31, [&[0; 16][..], &[9, 0, 16, 0, 0, 0, 0, 0]].concat(), false),
        ("tables without entries", 31, [&[0; 16][..], &[1, 0, 0, 0, 0, 0, 0, 0]].concat(), false),
    ];
    let bench = Bench::new(Ram::new(MIB));
    for (what, request, payload, has_file) in cases {
        let front = Front::connect(&bench.path);
        front.negotiate();
        let file = front.memory_file();
        let files = if has_file { vec![file] } else { Vec::new() };
        let answer = front.ask(request, &payload, &files).ok();
        assert!(answer.is_none() || answer == Some(1), "{what}: {answer:?}");
        drop(front);
        let front = Front::connect(&bench.path);
        assert!(front.ask(1, &[], &[]).is_ok(), "{what}: the next one is not served");
    }
}

#[test]
fn bytes_without_a_sense_do_no_harm() {
    let bench = Bench::new(Ram::new(MIB));
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for _ in 0..300 {
        let front = Front::connect(&bench.path);
        front.negotiate();
        if random(2) == 0 {
            front.start(random(3) as u32);
        }
        for _ in 0..random(8) + 1 {
            let payload: Vec<u8> = (0..random(64)).map(|_| random(4) as u8 * random(86) as u8).collect();
            let files = [front.memory_file(), front.kick_event()];
            let files = &files[..random(3) as usize];
            if front.send(random(42) as u32, &payload, files).is_err() {
                break;
            }
            let ring: Vec<u8> = (0..256).map(|_| random(256) as u8 & random(256) as u8).collect();
            front.memory().write(random(0x2100), &ring).unwrap();
            front.offer_up_to(random(20) as u16);
        }
    }
    let front = Front::connect(&bench.path);
    front.negotiate();
    front.start(0);
    let status = front.request(0, 1, 1, 4);
    front.offer(0, &[0]);
    front.wait_used(1);
    assert_eq!(front.byte(status), 0);
}
