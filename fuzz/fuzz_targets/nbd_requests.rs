//! What a client sends to the NBD server: anything, or requests with strange numbers behind a right
//! handshake.
#![no_main]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

use arbitrary::Arbitrary;
use fastness_nbd::wire::{HeaderMode, RequestHeader};
use fastness_nbd::{Limits, MemoryExport, Service, SingleExport};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input {
    handshake: Handshake,
    requests: Vec<Request>,
    tail: Vec<u8>,
}

#[derive(Debug, Arbitrary)]
enum Handshake {
    Simple,
    Structured,
    Extended,
    /// Options (kind, data), of which none may be known.
    Options(u32, Vec<(u8, Vec<u8>)>),
    Bytes(Vec<u8>),
}

#[derive(Debug, Arbitrary)]
struct Request {
    flags: u8,
    kind: u8,
    cookie: u64,
    offset: u32,
    /// Short as a rule, so that payloads fit.
    length: u16,
    huge: Option<u64>,
    payload: Vec<u8>,
}

fn service() -> &'static Service {
    static SERVICE: OnceLock<Service> = OnceLock::new();
    SERVICE.get_or_init(|| {
        let exports = SingleExport::new("disk", Arc::new(MemoryExport::new(1 << 20)));
        Service::new(Arc::new(exports), Limits { workers: 1, ..Limits::default() }).unwrap()
    })
}

fn option(bytes: &mut Vec<u8>, kind: u32, data: &[u8]) {
    bytes.extend(b"IHAVEOPT");
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
}

/// The handshake's bytes, and how requests look behind it.
fn handshake(handshake: &Handshake) -> (Vec<u8>, HeaderMode) {
    let mut bytes = 3u32.to_be_bytes().to_vec();
    let mode = match handshake {
        Handshake::Simple => HeaderMode::Simple,
        Handshake::Structured => {
            option(&mut bytes, 8, &[]);
            HeaderMode::Structured
        }
        Handshake::Extended => {
            option(&mut bytes, 11, &[]);
            HeaderMode::Extended
        }
        Handshake::Options(flags, options) => {
            bytes = flags.to_be_bytes().to_vec();
            options.iter().for_each(|(kind, data)| option(&mut bytes, (*kind).into(), data));
            HeaderMode::Simple
        }
        Handshake::Bytes(raw) => return (raw.clone(), HeaderMode::Simple),
    };
    if mode != HeaderMode::Simple {
        option(&mut bytes, 10, b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation");
    }
    option(&mut bytes, 7, b"\0\0\0\x04disk\0\x01\0\x03");
    (bytes, mode)
}

fuzz_target!(|input: Input| {
    let (mut bytes, mode) = handshake(&input.handshake);
    for request in input.requests.iter().take(20) {
        let length = request.huge.unwrap_or(request.length.into());
        let (flags, kind) = (request.flags.into(), request.kind.into());
        let offset = u64::from(request.offset) % (2 << 20);
        RequestHeader { flags, kind, cookie: request.cookie, offset, length }.encode(mode, &mut bytes);
        bytes.extend(&request.payload);
    }
    bytes.extend(&input.tail);
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        // Both ways at once: neither side waits for the other to take what it sends.
        let mut reading = ours.try_clone().unwrap();
        scope.spawn(move || std::io::copy(&mut reading, &mut std::io::sink()));
        scope.spawn(move || {
            let _ = (&ours).write_all(&bytes);
            let _ = ours.shutdown(std::net::Shutdown::Write);
        });
        let _ = service().serve_connection(theirs);
    });
    assert_eq!(service().stats().connections, 0);
    assert_eq!(service().stats().timed_out, 0, "a client that is done is not waited for");
});
