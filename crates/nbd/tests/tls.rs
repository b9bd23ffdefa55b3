//! Transmission through TLS: the same requests, whatever pieces they arrive in, and an end that is told.

mod support;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastness_nbd::wire::{HeaderMode, RequestHeader, command, command_flag, option, reply};
use fastness_nbd::{ConnectionError, Limits, Request};
use rustls::ClientConfig;
use support::tls::{Authority, TlsStream, client, code, option_bytes, secured, world};
use support::{GATED, SIZE, World};

fn plain() -> (World, Arc<ClientConfig>) {
    with(Limits::default())
}

fn with(limits: Limits) -> (World, Arc<ClientConfig>) {
    let authority = Authority::new();
    (world(authority.tls(false), limits), authority.client(None))
}

/// Bytes that differ from place to place.
fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 + at / 4099) as u8 ^ seed).collect()
}

fn go() -> Vec<u8> {
    option_bytes(option::GO, b"\0\0\0\x04disk\0\x01\0\x03")
}

fn read_request(offset: u64, length: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = RequestHeader { flags: 0, kind: command::READ, cookie: 1, offset, length };
    header.encode(HeaderMode::Simple, &mut bytes);
    bytes
}

/// A client in transmission, simple replies.
fn in_transmission(world: &World, config: &Arc<ClientConfig>) -> (TlsStream, support::Ended) {
    let (stream, ended) = world.connect();
    let mut stream = secured(stream, config);
    stream.write_all(&go()).unwrap();
    while code(&mut stream) != reply::ACK {}
    (stream, ended)
}

#[test]
fn requests_of_all_sizes_in_all_modes() {
    let (world, config) = plain();
    for mode in [HeaderMode::Simple, HeaderMode::Structured, HeaderMode::Extended] {
        let (mut client, goodbye) = client(&world, &config, mode);
        assert_eq!((client.hello().mode, client.hello().size_bytes), (mode, SIZE));
        for (index, bytes) in
            [1, 511, 4096, 16 << 10, (16 << 10) + 1, 200_000, 3 << 20].into_iter().enumerate()
        {
            let data = pattern(index as u8 + 1, bytes);
            client.write(77, &data, index % 2 == 0).unwrap();
            assert!(client.read(77, bytes as u32).unwrap() == data, "{mode:?}: {bytes} bytes");
        }
        client.flush().unwrap();
        assert_eq!(world.service.stats().secure, 1);
        client.disconnect().unwrap();
        assert!(goodbye.join().unwrap(), "the end is told");
    }
    let stats = world.service.stats();
    assert_eq!((stats.accepted, stats.protocol_errors, stats.tls_failures), (3, 0, 0), "{stats:?}");
}

/// Replies that the socket does not take at once: the rest follows, and nothing twice.
#[test]
fn a_client_that_reads_late_gets_every_byte_once() {
    let (world, config) = plain();
    let (mut client, goodbye) = client(&world, &config, HeaderMode::Structured);
    let data = pattern(3, SIZE as usize);
    client.write(0, &data, false).unwrap();
    let (mut sender, mut receiver) = client.split();
    let piece = 96 << 10;
    let requests: Vec<u64> = (0..40).map(|index| index * piece).collect();
    for &offset in &requests {
        let flags = command_flag::DF;
        sender.send(&Request { kind: command::READ, flags, offset, length: piece, payload: &[] }).unwrap();
    }
    // The server has more to send than the sockets hold.
    std::thread::sleep(Duration::from_millis(300));
    for _ in &requests {
        let chunk = receiver.receive_chunk(|_| 0).unwrap();
        let offset = u64::from_be_bytes(chunk.payload[..8].try_into().unwrap());
        assert_eq!(chunk.error, 0);
        assert!(chunk.payload[8..] == data[offset as usize..][..piece as usize], "the piece at {offset}");
    }
    sender.send(&Request { kind: command::DISC, flags: 0, offset: 0, length: 0, payload: &[] }).unwrap();
    assert!(goodbye.join().unwrap());
}

/// A request in many records, and many requests in one.
#[test]
fn records_and_requests_need_not_match() {
    let (world, config) = plain();
    let (mut stream, ended) = in_transmission(&world, &config);
    world.recorder.inner_write(0, b"abc");
    let request = read_request(0, 3);
    for byte in &request {
        stream.write_all(&[*byte]).unwrap();
        stream.flush().unwrap();
    }
    stream.write_all(&request.repeat(3)).unwrap();
    for _ in 0..4 {
        let mut reply = [0; 19];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply[16..], b"abc");
    }
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the server says goodbye, too");
    ended.join().unwrap().unwrap();
}

/// The end of input alone is what anybody on the way can make.
#[test]
fn a_connection_that_is_cut_is_not_one_that_ended() {
    let (world, config) = plain();
    let (stream, ended) = in_transmission(&world, &config);
    stream.sock.shutdown(Shutdown::Write).unwrap();
    let outcome = ended.join().unwrap();
    assert!(matches!(outcome, Err(ConnectionError::Lost(_))), "{outcome:?}");
}

/// A bit flipped on the way is no request.
#[test]
fn damaged_records_end_the_connection() {
    let (world, config) = plain();
    let (mut stream, ended) = in_transmission(&world, &config);
    let mut record = Vec::new();
    stream.conn.writer().write_all(&read_request(0, 1)).unwrap();
    stream.conn.write_tls(&mut record).unwrap();
    *record.last_mut().unwrap() ^= 1;
    stream.sock.write_all(&record).unwrap();
    let outcome = ended.join().unwrap();
    assert!(matches!(outcome, Err(ConnectionError::Tls { .. })), "{outcome:?}");
    assert!(world.recorder.take().is_empty());
    assert_eq!(world.service.stats().tls_failures, 1);
}

/// A record that stops in the middle is not an idle client.
#[test]
fn a_record_must_be_finished() {
    let soon = Duration::from_millis(200);
    let (world, config) = with(Limits { request_timeout: soon, ..Limits::default() });
    let (mut stream, ended) = in_transmission(&world, &config);
    std::thread::sleep(2 * soon);
    assert!(!ended.is_finished(), "an idle client stays");
    let mut record = Vec::new();
    stream.conn.writer().write_all(&read_request(0, 1)).unwrap();
    stream.conn.write_tls(&mut record).unwrap();
    stream.sock.write_all(&record[..record.len() - 1]).unwrap();
    std::thread::sleep(10 * soon);
    assert!(ended.is_finished(), "one that has stopped in the middle does not");
    let outcome = ended.join().unwrap();
    assert!(matches!(outcome, Err(ConnectionError::TimedOut { .. })), "{outcome:?}");
}

/// A byte now and then is no more than none.
#[test]
fn a_record_must_not_take_for_ever() {
    let soon = Duration::from_millis(300);
    let (world, config) = with(Limits { request_timeout: soon, ..Limits::default() });
    let (mut stream, ended) = in_transmission(&world, &config);
    let mut record = Vec::new();
    stream.conn.writer().write_all(&[0; 10_000]).unwrap();
    stream.conn.write_tls(&mut record).unwrap();
    let began = Instant::now();
    for byte in record.chunks(1) {
        let is_too_late = began.elapsed() > Duration::from_secs(5);
        if is_too_late || ended.is_finished() || stream.sock.write_all(byte).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(ended.is_finished() || began.elapsed() < Duration::from_secs(5), "the client may go on for ever");
    assert!(matches!(ended.join().unwrap(), Err(ConnectionError::TimedOut { .. })));
}

/// What is in flight is answered, and then the end is told.
#[test]
fn a_shutdown_is_a_clean_end() {
    let (world, config) = plain();
    let (mut stream, ended) = in_transmission(&world, &config);
    stream.write_all(&read_request(GATED, 1)).unwrap();
    stream.flush().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let stopping = std::thread::spawn({
        let service = world.service.clone();
        move || service.shutdown()
    });
    std::thread::sleep(Duration::from_millis(100));
    world.recorder.open_gate();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), 17, "one reply");
    assert_eq!(stopping.join().unwrap().cut, 0);
    ended.join().unwrap().unwrap();
}

/// Neither tickets nor anything else to begin a later session with.
#[test]
fn sessions_are_not_resumed() {
    let (world, config) = plain();
    let (mut stream, _ended) = in_transmission(&world, &config);
    stream.write_all(&read_request(0, 1)).unwrap();
    stream.read_exact(&mut [0; 17]).unwrap();
    assert_eq!(stream.conn.tls13_tickets_received(), 0);
}
