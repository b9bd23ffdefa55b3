//! Clients that mean no good, or are broken: they are answered or cut off, and nobody else notices.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use fastness_nbd::wire::{HeaderMode, RequestHeader, command, command_flag};
use fastness_nbd::{ConnectionError, FLOOR_BYTES, Limits, Request};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use support::{GATED, Recorder, World};

fn quick() -> Limits {
    let soon = Duration::from_millis(200);
    Limits { handshake_timeout: soon, request_timeout: soon, write_timeout: soon, ..Limits::default() }
}

/// A handshake up to transmission.
fn handshake(mode: HeaderMode) -> Vec<u8> {
    let mut bytes = 3u32.to_be_bytes().to_vec();
    let mut option = |kind: u32, data: &[u8]| {
        bytes.extend_from_slice(b"IHAVEOPT");
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
        bytes.extend_from_slice(data);
    };
    match mode {
        HeaderMode::Simple => {}
        HeaderMode::Structured => option(8, &[]),
        HeaderMode::Extended => option(11, &[]),
    }
    if mode != HeaderMode::Simple {
        option(10, b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation");
    }
    option(7, b"\0\0\0\x04disk\0\x01\0\x03");
    bytes
}

fn header(mode: HeaderMode, kind: u16, flags: u16, offset: u64, length: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    RequestHeader { flags, kind, cookie: 1, offset, length }.encode(mode, &mut bytes);
    bytes
}

/// Sends bytes, says goodbye, and reads what comes; how the server saw it.
fn throw(world: &World, bytes: &[u8]) -> Result<(), ConnectionError> {
    let (stream, ended) = world.connect();
    let mut reading = stream.try_clone().unwrap();
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        let _ = reading.read_to_end(&mut all);
        all
    });
    let _ = (&stream).write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let outcome = ended.join().expect("a connection does not panic");
    drop(stream);
    reader.join().unwrap();
    outcome
}

/// The world still serves.
fn is_well(world: &World) {
    let mut client = world.client(HeaderMode::Structured);
    client.write(0, b"well", true).unwrap();
    assert_eq!(client.read(0, 4).unwrap(), b"well");
    client.disconnect().unwrap();
}

#[test]
fn malformed_requests() {
    let world = World::with(Recorder::new(), quick());
    let modes = [HeaderMode::Simple, HeaderMode::Structured, HeaderMode::Extended];
    for mode in modes {
        let with = |request: Vec<u8>| [handshake(mode), request].concat();
        let wrong_magic = vec![0; 32];
        let other = if mode == HeaderMode::Extended { HeaderMode::Simple } else { HeaderMode::Extended };
        for (name, bytes, is_error) in [
            ("nothing", with(vec![]), false),
            ("wrong magic", with(wrong_magic), true),
            ("the other kind of header", with(header(other, 0, 0, 0, 512)), true),
            ("half a header", with(header(mode, 0, 0, 0, 512)[..9].to_vec()), true),
            ("a write without its payload", with(header(mode, 1, 0, 0, 512)), true),
            ("a large write without its payload", with(header(mode, 1, 0, 0, 1 << 20)), true),
            (
                "a write with half its payload",
                with([header(mode, 1, 0, 0, 1 << 17), vec![7; 1 << 16]].concat()),
                true,
            ),
            ("a refused write without its payload", with(header(mode, 1, 0, 1 << 40, 512)), true),
            (
                "a refused write with it",
                with([header(mode, 1, 0, 1 << 40, 512), vec![0; 512]].concat()),
                false,
            ),
            ("a write of 4 GiB", with(header(mode, 1, 0, 0, u64::from(u32::MAX))), true),
            ("a write of 33 MiB", with([header(mode, 1, 0, 0, 33 << 20), vec![0; 33 << 20]].concat()), false),
            ("a read of 4 GiB", with(header(mode, 0, 0, 0, u64::from(u32::MAX))), false),
            ("an unknown command", with(header(mode, 9, 0, 0, 512)), false),
            ("requests behind a disconnect", with([header(mode, 2, 0, 0, 0), vec![7; 100]].concat()), false),
        ] {
            let outcome = throw(&world, &bytes);
            assert_eq!(outcome.is_err(), is_error, "{mode:?}: {name}: {outcome:?}");
        }
    }
    let payload = command_flag::PAYLOAD_LEN;
    for (name, request, is_error) in [
        ("a read with a payload", header(HeaderMode::Extended, 0, payload, 0, 8), false),
        ("a read with an endless payload", header(HeaderMode::Extended, 0, payload, 0, u64::MAX), true),
        ("an endless write", header(HeaderMode::Extended, 1, payload, 0, u64::MAX), true),
    ] {
        let outcome = throw(&world, &[handshake(HeaderMode::Extended), request, vec![0; 8]].concat());
        assert_eq!(outcome.is_err(), is_error, "{name}: {outcome:?}");
    }
    is_well(&world);
}

/// Sends a byte now and then; how long the server looked on.
fn trickle(world: &World, bytes: &[u8], first: usize) -> Duration {
    let (mut stream, ended) = world.connect();
    stream.write_all(&bytes[..first]).unwrap();
    let began = Instant::now();
    for byte in bytes[first..].chunks(1).cycle() {
        if ended.is_finished() || stream.write_all(byte).is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert!(matches!(ended.join().unwrap(), Err(ConnectionError::TimedOut { .. })));
    began.elapsed()
}

#[test]
fn slow_clients_are_cut_off() {
    let world = World::with(Recorder::new(), quick());
    let hello = handshake(HeaderMode::Structured);
    let write = [hello.clone(), header(HeaderMode::Structured, 1, 0, 0, 1 << 20), vec![0; 400]].concat();
    for (name, bytes, first) in [
        ("in the greeting", &hello, 1),
        ("in an option", &hello, 30),
        ("in a header", &write, hello.len() + 1),
        ("in a payload", &write, hello.len() + 28),
    ] {
        let took = trickle(&world, bytes, first);
        assert!(took < Duration::from_secs(3), "{name}: {took:?}");
    }
    // One that says nothing at all.
    let (_stream, ended) = world.connect();
    assert!(matches!(ended.join().unwrap(), Err(ConnectionError::TimedOut { .. })));
    assert_eq!(world.service.stats().timed_out, 5);
}

#[test]
fn idle_clients_stay_unless_told_otherwise() {
    let patient = World::with(Recorder::new(), quick());
    let mut client = patient.client(HeaderMode::Structured);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(client.read(0, 1).unwrap(), [0]);
    let idle_timeout = Some(Duration::from_millis(150));
    let world = World::with(Recorder::new(), Limits { idle_timeout, ..quick() });
    let (stream, ended) = world.connect();
    let mut client = fastness_nbd::Client::handshake(stream, "disk", HeaderMode::Structured).unwrap();
    let gated = Request { kind: command::READ, flags: 0, offset: GATED, length: 1, payload: &[] };
    client.send(&gated).unwrap();
    thread::sleep(Duration::from_millis(500));
    world.recorder.open_gate();
    assert_eq!(client.receive_chunk(|_| 0).unwrap().error, 0, "a client that waits is not idle");
    assert!(matches!(ended.join().unwrap(), Err(ConnectionError::TimedOut { .. })));
}

/// A client that asks and never reads holds its own budget, not the workers, and not for ever.
#[test]
fn a_client_that_takes_no_replies_stops_nobody() {
    let limits = Limits { workers: 1, server_bytes_max: 32 << 20, connection_bytes_max: 32 << 20, ..quick() };
    let world = World::with(Recorder::new(), Limits { write_timeout: Duration::from_secs(2), ..limits });
    let (mut stream, ended) = world.connect();
    stream.write_all(&handshake(HeaderMode::Structured)).unwrap();
    let read = header(HeaderMode::Structured, command::READ, command_flag::DF, 0, 4 << 20);
    stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut asked = 0;
    while asked < 100_000 && stream.write_all(&read).is_ok() {
        asked += 1;
    }
    let began = Instant::now();
    let mut client = world.client(HeaderMode::Structured);
    for _ in 0..100 {
        client.write(0, &[7; FLOOR_BYTES as usize], false).unwrap();
        client.read(0, FLOOR_BYTES as u32).unwrap();
    }
    assert!(began.elapsed() < Duration::from_millis(1500), "{:?}", began.elapsed());
    assert!(ended.join().unwrap().is_err());
    // And what it held is free again.
    assert_eq!(client.read(0, 4 << 20).unwrap().len(), 4 << 20);
}

#[test]
fn too_many_connections() {
    let world = World::with(Recorder::new(), Limits { connections_max: 2, ..Limits::default() });
    let mut clients = [(); 2].map(|()| world.client(HeaderMode::Simple));
    let (mut stream, ended) = world.connect();
    assert!(matches!(ended.join().unwrap(), Err(ConnectionError::Refused { .. })));
    let closed = stream.read(&mut [0; 1]);
    assert!(matches!(closed, Ok(0)) || closed.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    clients.iter_mut().for_each(|client| drop(client.read(0, 1).unwrap()));
    drop(clients);
    while world.service.stats().connections > 0 {
        thread::yield_now();
    }
    is_well(&world);
}

/// A shutdown does not wait for a client that stops in the middle.
#[test]
fn a_shutdown_cuts_clients_that_hang() {
    let grace = Duration::from_millis(300);
    let world = World::with(Recorder::new(), Limits { shutdown_grace: grace, ..Limits::default() });
    let (mut stream, ended) = world.connect();
    let read = header(HeaderMode::Structured, command::READ, command_flag::DF, 0, 4 << 20);
    stream.write_all(&[handshake(HeaderMode::Structured), read].concat()).unwrap();
    thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    assert_eq!(world.service.shutdown().cut, 1);
    assert!(began.elapsed() < Duration::from_secs(5));
    let _ = ended.join().unwrap();
    drop::<UnixStream>(stream);
}

/// A session that is fine: a handshake, and requests of all kinds.
fn session(mode: HeaderMode, requests: &[(u16, u16, u64, u16)]) -> Vec<u8> {
    let mut bytes = handshake(mode);
    for &(kind, flags, offset, length) in requests {
        let is_write = kind == command::WRITE;
        let flags =
            if is_write && mode == HeaderMode::Extended { flags | command_flag::PAYLOAD_LEN } else { flags };
        bytes.extend_from_slice(&header(mode, kind, flags, offset, u64::from(length)));
        if is_write {
            bytes.resize(bytes.len() + usize::from(length), kind as u8);
        }
    }
    bytes
}

fn any_session() -> impl Strategy<Value = Vec<u8>> {
    let mode =
        prop_oneof![Just(HeaderMode::Simple), Just(HeaderMode::Structured), Just(HeaderMode::Extended)];
    let request = (0u16..9, 0u16..64, 0u64..5 << 20, 0u16..9000)
        // Neither the gate nor the planted panic, which would fill the test's output.
        .prop_map(|(kind, flags, offset, length)| (kind, flags, offset | 1, length));
    (mode, proptest::collection::vec(request, 0..12)).prop_map(|(mode, requests)| session(mode, &requests))
}

/// Flips, cuts, repeats and inserts.
fn mutate(mut bytes: Vec<u8>, changes: &[(u16, u8, u8)]) -> Vec<u8> {
    for &(at, what, value) in changes {
        let at = usize::from(at) % bytes.len().max(1);
        match what % 5 {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << (value % 8),
            1 if !bytes.is_empty() => bytes[at] = value,
            2 => bytes.truncate(at.max(4)),
            3 => drop(bytes.splice(at..at, [value; 4])),
            _ => {
                let end = (at + usize::from(value)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, copy));
            }
        }
    }
    bytes
}

/// Thousands of hostile sessions, the same ones in each run.
#[test]
fn random_and_mutated_sessions() {
    let limits = Limits { workers: 2, ..Limits::default() };
    let world = World::with(Recorder::new(), limits);
    world.recorder.open_gate();
    let config = ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let noise = proptest::collection::vec(any::<u8>(), 0..600);
    let changes = proptest::collection::vec(any::<(u16, u8, u8)>(), 0..6);
    let behind_handshake = noise.clone().prop_map(|noise| [handshake(HeaderMode::Simple), noise].concat());
    let sessions = prop_oneof![
        1 => noise,
        1 => behind_handshake,
        6 => (any_session(), changes).prop_map(|(bytes, changes)| mutate(bytes, &changes)),
    ];
    runner
        .run(&sessions, |bytes| {
            let _ = throw(&world, &bytes);
            Ok(())
        })
        .unwrap();
    is_well(&world);
    let stats = world.service.stats();
    assert_eq!(stats.accepted, 4001);
    assert_eq!(stats.timed_out, 0, "a closed client is not waited for");
    assert!(stats.protocol_errors > 100, "{stats:?}");
    assert!(!world.recorder.take().is_empty(), "some of it was sound");
}
