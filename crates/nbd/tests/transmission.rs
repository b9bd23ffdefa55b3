//! What reaches the export, what comes back, and in which order.

mod support;

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use fastness_nbd::wire::{HeaderMode, command, command_flag, flag, state};
use fastness_nbd::{Client, ExportError, Features, Limits, Reply, Request, ZeroOptions};
use support::{GATED, PANICS, Recorder, SIZE, Seen, World};

const MODES: [HeaderMode; 3] = [HeaderMode::Simple, HeaderMode::Structured, HeaderMode::Extended];

fn call(client: &mut Client, kind: u16, flags: u16, offset: u64, length: u64) -> Reply {
    client.call(&Request { kind, flags, offset, length, payload: &[] }).unwrap()
}

#[test]
fn every_command_reaches_the_export_as_it_was_meant() {
    for mode in MODES {
        let world = World::new();
        let mut client = world.client(mode);
        assert_eq!(client.hello().mode, mode);
        client.write(10, b"abc", false).unwrap();
        client.write(13, b"def", true).unwrap();
        assert_eq!(client.read(9, 8).unwrap(), b"\0abcdef\0");
        client.flush().unwrap();
        for (kind, flags) in [
            (command::TRIM, 0),
            (command::TRIM, command_flag::FUA),
            (command::WRITE_ZEROES, command_flag::FUA),
            (command::WRITE_ZEROES, command_flag::NO_HOLE),
            (command::WRITE_ZEROES, command_flag::FAST_ZERO),
            (command::CACHE, 0),
        ] {
            assert_eq!(call(&mut client, kind, flags, 4096, 8192).error, 0);
        }
        let zero = ZeroOptions { fua: false, may_punch_hole: true, fast: false };
        let expected = [
            Seen::Write(10, 3, false),
            Seen::Write(13, 3, true),
            Seen::Read(9, 8),
            Seen::Flush,
            Seen::Trim(4096, 8192, false),
            Seen::Trim(4096, 8192, true),
            Seen::Zeroes(4096, 8192, ZeroOptions { fua: true, ..zero }),
            Seen::Zeroes(4096, 8192, ZeroOptions { may_punch_hole: false, ..zero }),
            Seen::Zeroes(4096, 8192, ZeroOptions { fast: true, ..zero }),
            Seen::Cache(4096, 8192),
        ];
        assert_eq!(world.recorder.take(), expected, "{mode:?}");
        client.disconnect().unwrap();
    }
}

/// The requests run in the pool at first, and in the reader once they are known to be quick; both write what
/// was sent.
#[test]
fn large_and_small_payloads() {
    for mode in MODES {
        let world = World::new();
        let mut client = world.client(mode);
        for round in 0..20u8 {
            for bytes in [1, 4096, 65536, 65537, 200_000, SIZE as usize] {
                let data: Vec<u8> = (0..bytes).map(|index| (index / 7) as u8 ^ round).collect();
                client.write(0, &data, round % 2 == 0).unwrap();
                assert!(client.read(0, bytes as u32).unwrap() == data, "{mode:?} {bytes} bytes");
            }
        }
        client.disconnect().unwrap();
    }
}

#[test]
fn slow_requests_are_overtaken() {
    for mode in MODES {
        let world = World::new();
        let mut client = world.client(mode);
        let read = |offset| Request { kind: command::READ, flags: 0, offset, length: 16, payload: &[] };
        let slow = client.send(&read(GATED)).unwrap();
        for _ in 0..100 {
            let quick = client.send(&read(0)).unwrap();
            assert_eq!(client.receive_chunk(|_| 16).unwrap().cookie, quick);
        }
        world.recorder.open_gate();
        assert_eq!(client.receive_chunk(|_| 16).unwrap().cookie, slow);
        client.disconnect().unwrap();
    }
}

#[test]
fn many_requests_in_flight_are_all_answered() {
    for mode in MODES {
        let world = World::with(Recorder::new(), Limits { requests_max: 8, ..Limits::default() });
        let mut client = world.client(mode);
        for round in 0..50 {
            let mut waiting: Vec<u64> = (0..64)
                .map(|index| {
                    let request = Request {
                        kind: command::READ,
                        flags: 0,
                        offset: index * 64,
                        length: 4096,
                        payload: &[],
                    };
                    client.send(&request).unwrap()
                })
                .collect();
            while !waiting.is_empty() {
                let chunk = client.receive_chunk(|_| 4096).unwrap();
                let place = waiting.iter().position(|cookie| *cookie == chunk.cookie);
                assert!(
                    place.is_some() && chunk.error == 0 && chunk.is_done,
                    "{mode:?} round {round}: {chunk:?}"
                );
                waiting.remove(place.unwrap());
            }
        }
        client.disconnect().unwrap();
    }
}

#[test]
fn holes_are_told_unless_the_client_wants_one_piece() {
    for mode in [HeaderMode::Structured, HeaderMode::Extended] {
        let world = World::new();
        let mut client = world.client(mode);
        client.write(128 << 10, &[7; 1000], false).unwrap();
        let sparse = call(&mut client, command::READ, 0, 0, 1 << 20);
        assert_eq!((sparse.error, sparse.holes), (0, 2));
        let whole = call(&mut client, command::READ, command_flag::DF, 0, 1 << 20);
        assert_eq!((whole.error, whole.holes), (0, 0));
        assert!(sparse.data == whole.data && sparse.data[128 << 10..][..1000] == [7; 1000]);

        let hole = state::HOLE | state::ZERO;
        let extents = [(128 << 10, hole), (64 << 10, 0), (SIZE - (192 << 10), hole)];
        assert_eq!(client.block_status(0, SIZE).unwrap(), extents);
        let one = call(&mut client, command::BLOCK_STATUS, command_flag::REQ_ONE, 0, SIZE);
        assert_eq!(one.extents, extents[..1]);
        client.disconnect().unwrap();
    }
}

#[test]
fn errors_are_told_and_the_connection_goes_on() {
    let table = [
        (ExportError::NotPermitted, 1),
        (ExportError::Io, 5),
        (ExportError::OutOfMemory, 12),
        (ExportError::Invalid, 22),
        (ExportError::NoSpace, 28),
        (ExportError::TooLarge, 22),
        (ExportError::Unsupported, 22),
        (ExportError::ShuttingDown, 108),
    ];
    for mode in MODES {
        let world = World::new();
        let mut client = world.client(mode);
        for (error, code) in table {
            *world.recorder.fail_with.lock().unwrap() = Some(error);
            for kind in [command::READ, command::TRIM] {
                assert_eq!(call(&mut client, kind, 0, 0, 512).error, code, "{mode:?} {error}");
            }
            assert_eq!(call(&mut client, command::FLUSH, 0, 0, 0).error, code);
        }
        // Numbers that only these requests may get.
        *world.recorder.fail_with.lock().unwrap() = Some(ExportError::Unsupported);
        assert_eq!(call(&mut client, command::WRITE_ZEROES, command_flag::FAST_ZERO, 0, 512).error, 95);
        if mode != HeaderMode::Simple {
            *world.recorder.fail_with.lock().unwrap() = Some(ExportError::TooLarge);
            assert_eq!(call(&mut client, command::READ, command_flag::DF, 0, 512).error, 75);
        }
        *world.recorder.fail_with.lock().unwrap() = None;
        assert_eq!(call(&mut client, command::READ, 0, PANICS, 512).error, 5, "a panic is an EIO");
        assert_eq!(call(&mut client, command::READ, 0, SIZE - 1, 512).error, 22);
        assert_eq!(client.call(&write(SIZE - 1, &[1; 512])).unwrap().error, 28);
        assert_eq!(call(&mut client, 9, 0, 0, 0).error, 22);
        assert_eq!(client.read(0, 0).unwrap(), b"");
        assert_eq!(client.read(0, 4).unwrap(), [0; 4]);
        client.disconnect().unwrap();
    }
}

fn write(offset: u64, payload: &[u8]) -> Request<'_> {
    Request { kind: command::WRITE, flags: 0, offset, length: payload.len() as u64, payload }
}

#[test]
fn a_bare_export_offers_nothing_and_gets_nothing() {
    let mut recorder = Recorder::new();
    recorder.features = Features { flush: false, ..Features::default() };
    recorder.is_read_only = true;
    let world = World::with(recorder, Limits::default());
    let mut client = world.client(HeaderMode::Structured);
    assert_eq!(client.hello().flags, flag::HAS_FLAGS | flag::READ_ONLY | flag::SEND_DF);
    assert_eq!(client.call(&write(0, b"x")).unwrap().error, 1);
    assert_eq!(call(&mut client, command::FLUSH, 0, 0, 0).error, 22);
    assert_eq!(call(&mut client, command::CACHE, 0, 0, 512).error, 22);
    // All data, as far as anyone knows.
    assert_eq!(client.block_status(0, SIZE).unwrap(), [(SIZE, 0)]);
    assert_eq!(world.recorder.take(), []);
}

#[test]
fn a_shutdown_finishes_what_was_begun_and_refuses_the_rest() {
    let world = World::new();
    let mut client = world.client(HeaderMode::Structured);
    let mut idle = world.client(HeaderMode::Structured);
    let read = |offset| Request { kind: command::READ, flags: 0, offset, length: 16, payload: &[] };
    let begun = client.send(&read(GATED)).unwrap();
    client.read(0, 1).unwrap();
    let report = thread::scope(|scope| {
        let shutdown = scope.spawn(|| world.service.shutdown());
        // An idle connection is closed.
        while idle.read(0, 1).is_ok() {}
        thread::sleep(Duration::from_millis(50));
        world.recorder.open_gate();
        let chunk = client.receive_chunk(|_| 0).unwrap();
        assert_eq!((chunk.cookie, chunk.error), (begun, 0));
        assert!(client.receive_chunk(|_| 0).is_err(), "then it is closed");
        shutdown.join().unwrap()
    });
    assert_eq!(report.cut, 0);
    let (stream, ended) = world.connect();
    assert!(Client::handshake(stream, "disk", HeaderMode::Simple).is_err());
    assert!(ended.join().unwrap().is_err());
}

/// A request that has arrived but was not begun is told that the server goes away.
#[test]
fn requests_behind_a_shutdown_get_eshutdown() {
    let world = World::with(Recorder::new(), Limits { requests_max: 1, ..Limits::default() });
    let mut client = world.client(HeaderMode::Structured);
    let read = |offset| Request { kind: command::READ, flags: 0, offset, length: 16, payload: &[] };
    client.send(&read(GATED)).unwrap();
    let behind: Vec<u64> = (0..3).map(|_| client.send(&read(0)).unwrap()).collect();
    thread::sleep(Duration::from_millis(50));
    thread::scope(|scope| {
        scope.spawn(|| world.service.shutdown());
        thread::sleep(Duration::from_millis(50));
        world.recorder.open_gate();
        assert_eq!(client.receive_chunk(|_| 0).unwrap().error, 0);
        // The first was judged before, and waited for a permit.
        let errors: Vec<u32> = behind.iter().map(|_| client.receive_chunk(|_| 0).unwrap().error).collect();
        assert_eq!(errors[1..], [108, 108]);
    });
}

/// Large payloads in both directions at the same time, more than sockets and server keep: who sends must not
/// have to wait for who receives.
#[test]
fn one_thread_sends_while_another_receives() {
    const COUNT: u64 = 48;
    let world = World::new();
    let (mut sender, mut receiver) = world.client(HeaderMode::Structured).split();
    let sending = thread::spawn(move || {
        let payload = vec![7; SIZE as usize];
        for number in 1..=COUNT {
            let is_read = number % 2 == 0;
            let (kind, payload) =
                if is_read { (command::READ, &[][..]) } else { (command::WRITE, &payload[..]) };
            let request = Request { kind, flags: 0, offset: 0, length: SIZE, payload };
            assert_eq!(sender.send(&request).unwrap(), number);
        }
        sender
    });
    let mut open: BTreeMap<u64, Reply> = (1..=COUNT).map(|number| (number, Reply::default())).collect();
    while !open.is_empty() {
        let chunk = receiver.receive_chunk(|_| SIZE).unwrap();
        let (cookie, is_done) = (chunk.cookie, chunk.is_done);
        open.get_mut(&cookie).unwrap().add(chunk, 0, SIZE).unwrap();
        if is_done {
            assert_eq!(open.remove(&cookie).unwrap().error, 0);
        }
    }
    sending.join().unwrap().hang_up();
    assert!(receiver.receive_chunk(|_| 0).is_err());
}
