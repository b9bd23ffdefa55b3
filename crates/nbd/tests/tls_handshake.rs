//! The way to TLS: nothing is served without it, and only clients whose certificate is good come through.

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use fastness_nbd::wire::{HeaderMode, option, reply};
use fastness_nbd::{Client, ClientError, ConnectionError, Limits};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use support::World;
use support::tls::{Authority, ask_for_tls, client, code, connection, greet, option_bytes, world};

fn ask(stream: &mut (impl Read + Write), kind: u32, data: &[u8]) -> u32 {
    stream.write_all(&option_bytes(kind, data)).unwrap();
    stream.flush().unwrap();
    loop {
        let code = code(stream);
        if code == reply::ACK || code & reply::ERR != 0 {
            return code;
        }
    }
}

const NAME: &[u8] = b"\0\0\0\x04disk\0\0";

#[test]
fn before_tls_only_tls_is_answered() {
    let authority = Authority::new();
    let world = world(authority.tls(false), Limits::default());
    let (mut stream, _) = world.connect();
    greet(&mut stream);
    let context = b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation";
    for (kind, data) in [
        (option::LIST, &[][..]),
        (option::LIST, &[1; 5]),
        (option::INFO, NAME),
        (option::GO, NAME),
        (option::GO, b"malformed"),
        (option::STRUCTURED_REPLY, &[]),
        (option::EXTENDED_HEADERS, &[]),
        (option::LIST_META_CONTEXT, context),
        (option::SET_META_CONTEXT, context),
        (99, &[]),
        (99, &[7; 100_000]),
    ] {
        assert_eq!(ask(&mut stream, kind, data), reply::ERR_TLS_REQD, "option {kind}");
    }
    assert_eq!(ask(&mut stream, option::STARTTLS, &[1]), reply::ERR_INVALID);
    assert_eq!(ask(&mut stream, option::STARTTLS, &[]), reply::ACK);
    let mut stream = rustls::StreamOwned::new(connection(&authority.client(None)), stream);
    assert_eq!(ask(&mut stream, option::STARTTLS, &[]), reply::ERR_INVALID, "TLS in TLS");
    assert_eq!(ask(&mut stream, option::LIST, &[]), reply::ACK);
    assert_eq!(ask(&mut stream, option::INFO, NAME), reply::ACK);
    assert_eq!(ask(&mut stream, option::ABORT, &[]), reply::ACK);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the end is told");
}

#[test]
fn a_client_without_tls_is_refused() {
    let world = world(Authority::new().tls(false), Limits::default());
    for mode in [HeaderMode::Simple, HeaderMode::Structured, HeaderMode::Extended] {
        let refused = Client::handshake(world.connect().0, "disk", mode).map(drop);
        assert!(
            matches!(refused, Err(ClientError::Refused { code: reply::ERR_TLS_REQD, .. })),
            "{mode:?}: {refused:?}"
        );
    }
    // The old way has no answer but the end.
    let (mut stream, ended) = world.connect();
    greet(&mut stream);
    stream.write_all(&option_bytes(option::EXPORT_NAME, b"disk")).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert!(matches!(ended.join().unwrap(), Err(ConnectionError::Refused { .. })));
    // It may say goodbye.
    let (mut stream, ended) = world.connect();
    greet(&mut stream);
    assert_eq!(ask(&mut stream, option::ABORT, &[]), reply::ACK);
    ended.join().unwrap().unwrap();
}

#[test]
fn a_server_without_tls_says_so() {
    let world = World::new();
    let (mut stream, _) = world.connect();
    greet(&mut stream);
    assert_eq!(ask(&mut stream, option::STARTTLS, &[]), reply::ERR_UNSUP);
    assert_eq!(ask(&mut stream, option::GO, NAME), reply::ACK);
}

/// Bytes that somebody put after STARTTLS must not count as sent through TLS.
#[test]
fn bytes_between_starttls_and_tls_are_refused() {
    let authority = Authority::new();
    let world = world(authority.tls(false), Limits::default());
    let (mut stream, ended) = world.connect();
    stream.read_exact(&mut [0; 18]).unwrap();
    let both =
        [&3u32.to_be_bytes()[..], &option_bytes(option::STARTTLS, &[]), &option_bytes(option::GO, NAME)]
            .concat();
    stream.write_all(&both).unwrap();
    let outcome = ended.join().unwrap();
    assert!(
        matches!(outcome, Err(ConnectionError::Protocol { what: "bytes before TLS began" })),
        "{outcome:?}"
    );
}

/// How a client fares, and what the server saw.
fn outcome(world: &World, config: &std::sync::Arc<rustls::ClientConfig>) -> Result<(), ConnectionError> {
    let (mut stream, ended) = world.connect();
    ask_for_tls(&mut stream);
    let mut stream = rustls::StreamOwned::new(connection(config), stream);
    // With TLS 1.3 a client hears of a refusal when it reads the next time.
    let _ =
        stream.write_all(&option_bytes(option::ABORT, &[])).and_then(|()| stream.read_exact(&mut [0; 20]));
    drop(stream);
    ended.join().unwrap()
}

#[test]
fn certificates_are_checked() {
    let (ours, another) = (Authority::new(), Authority::new());
    let world = world(ours.tls(true), Limits::default());
    let good = ours.identity();
    outcome(&world, &ours.client(Some(&good))).unwrap();
    for (name, identity) in [
        ("none", None),
        ("of another authority", Some(another.identity())),
        ("expired", Some(ours.identity_until(2021))),
    ] {
        let refused = outcome(&world, &ours.client(identity.as_ref()));
        assert!(matches!(refused, Err(ConnectionError::Tls { .. })), "{name}: {refused:?}");
    }
    assert_eq!(world.service.stats().tls_failures, 3);

    let (mut certified, _goodbye) = client(&world, &ours.client(Some(&good)), HeaderMode::Structured);
    certified.write(0, b"x", true).unwrap();
    let stats = world.service.stats();
    assert_eq!((stats.connections, stats.secure, stats.certified), (1, 1, 1));
}

#[test]
fn certificates_of_clients_are_not_asked_for_unless_told() {
    let ours = Authority::new();
    let world = world(ours.tls(false), Limits::default());
    let (_client, _goodbye) = client(&world, &ours.client(Some(&ours.identity())), HeaderMode::Simple);
    let stats = world.service.stats();
    assert_eq!((stats.secure, stats.certified), (1, 0));
}

#[test]
fn a_client_does_not_take_another_server_for_ours() {
    let world = world(Authority::new().tls(false), Limits::default());
    let refused = outcome(&world, &Authority::new().client(None));
    assert!(matches!(refused, Err(ConnectionError::Tls { .. })), "{refused:?}");
}

fn impatient() -> Limits {
    Limits { handshake_timeout: Duration::from_millis(300), ..Limits::default() }
}

/// A client that stops after STARTTLS, or in the middle of the handshake, or sends a byte now and then.
#[test]
fn half_a_handshake_ends_in_time() {
    let authority = Authority::new();
    let world = world(authority.tls(false), impatient());
    let mut hello = Vec::new();
    connection(&authority.client(None)).write_tls(&mut hello).unwrap();
    let half = hello.len() / 2;
    for (name, first, is_slow) in [("nothing", 0, false), ("half", half, false), ("slowly", 10, true)] {
        let (mut stream, ended) = world.connect();
        ask_for_tls(&mut stream);
        let began = Instant::now();
        stream.write_all(&hello[..first]).unwrap();
        for byte in hello[first..hello.len() - 1].chunks(1) {
            if !is_slow || ended.is_finished() || stream.write_all(byte).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let outcome = ended.join().unwrap();
        assert!(matches!(outcome, Err(ConnectionError::TimedOut { .. })), "{name}: {outcome:?}");
        assert!(began.elapsed() < Duration::from_secs(5), "{name}");
    }
    assert_eq!(world.service.stats().timed_out, 3);
}

/// A greeting of a client in records of one byte each, as long as it likes.
#[test]
fn an_endless_handshake_ends() {
    let world = world(Authority::new().tls(false), Limits::default());
    let (mut stream, ended) = world.connect();
    ask_for_tls(&mut stream);
    let record = |byte: u8| [22, 3, 1, 0, 1, byte];
    let length = [1, 0, 0xff, 0];
    let bytes: Vec<u8> = length.into_iter().chain([0; 0xff00 - 1]).flat_map(record).collect();
    let _ = stream.write_all(&bytes);
    let outcome = ended.join().unwrap();
    assert!(matches!(outcome, Err(ConnectionError::Protocol { .. })), "{outcome:?}");
}

/// Thousands of hostile handshakes, the same ones in each run.
#[test]
fn random_and_mutated_handshakes() {
    let authority = Authority::new();
    let world = world(authority.tls(true), Limits { workers: 1, ..Limits::default() });
    let config = authority.client(None);
    let runs = ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(runs, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let noise = proptest::collection::vec(any::<u8>(), 0..600);
    let changes = proptest::collection::vec(any::<(u16, u8)>(), 1..6);
    let hostile = prop_oneof![1 => noise.prop_map(Err), 4 => changes.prop_map(Ok)];
    runner
        .run(&hostile, |hostile| {
            let bytes = hostile.map(|changes| {
                let mut hello = Vec::new();
                connection(&config).write_tls(&mut hello).unwrap();
                for (at, value) in changes {
                    let at = usize::from(at) % hello.len();
                    hello[at] = value;
                }
                hello
            });
            let (mut stream, ended) = world.connect();
            ask_for_tls(&mut stream);
            let _ = stream.write_all(&bytes.unwrap_or_else(|noise| noise));
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
            assert!(ended.join().expect("a connection does not panic").is_err());
            Ok(())
        })
        .unwrap();
    let stats = world.service.stats();
    assert_eq!((stats.accepted, stats.timed_out, stats.connections), (1000, 0, 0), "{stats:?}");
    assert!(stats.tls_failures > 100, "{stats:?}");
    let (mut certified, _) =
        client(&world, &authority.client(Some(&authority.identity())), HeaderMode::Simple);
    assert_eq!(certified.read(0, 1).unwrap(), [0], "the world still serves");
}

/// A shutdown does not wait for a handshake.
#[test]
fn a_shutdown_ends_handshakes() {
    let world = world(Authority::new().tls(false), Limits::default());
    let (mut stream, ended): (UnixStream, _) = world.connect();
    ask_for_tls(&mut stream);
    let began = Instant::now();
    world.service.shutdown();
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(ended.join().unwrap().is_err());
}
