//! The handshake, byte by byte.

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use fastness_nbd::{BlockSizes, Limits};
use support::{Recorder, SIZE, World};

const ACK: u32 = 1;
const ERR_UNSUP: u32 = 0x8000_0001;
const ERR_INVALID: u32 = 0x8000_0003;
const ERR_UNKNOWN: u32 = 0x8000_0006;
const ERR_BLOCK_SIZE_REQD: u32 = 0x8000_0008;
const ERR_TOO_BIG: u32 = 0x8000_0009;

fn option(kind: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT", &kind.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
}

/// A string with its length.
fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn go(name: &str, asked: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(asked.len() as u16).to_be_bytes());
    asked.iter().for_each(|kind| data.extend_from_slice(&kind.to_be_bytes()));
    data
}

fn context(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend_from_slice(&string(query)));
    data
}

fn greeted(world: &World, flags: u32) -> UnixStream {
    let (mut stream, _) = world.connect();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
    stream.write_all(&flags.to_be_bytes()).unwrap();
    stream
}

/// Code and data of each reply, up to an acknowledgement or an error.
fn ask(stream: &mut UnixStream, kind: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
    stream.write_all(&option(kind, data)).unwrap();
    let mut replies = Vec::new();
    loop {
        let mut header = [0; 20];
        stream.read_exact(&mut header).unwrap();
        assert_eq!(header[..8], 0x0003_e889_0455_65a9u64.to_be_bytes());
        assert_eq!(header[8..12], kind.to_be_bytes());
        let code = u32::from_be_bytes(header[12..16].try_into().unwrap());
        let mut data = vec![0; u32::from_be_bytes(header[16..].try_into().unwrap()) as usize];
        stream.read_exact(&mut data).unwrap();
        replies.push((code, data));
        if code == ACK || code & 1 << 31 != 0 {
            return replies;
        }
    }
}

fn last(stream: &mut UnixStream, kind: u32, data: &[u8]) -> u32 {
    ask(stream, kind, data).last().unwrap().0
}

fn is_closed(stream: &mut UnixStream) -> bool {
    matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_))
}

/// Each option in its malformed and untimely forms; the connection goes on after each.
#[test]
fn options_that_are_refused() {
    let world = World::new();
    let mut stream = greeted(&world, 3);
    let long = "x".repeat(4097);
    let table: Vec<(&str, u32, Vec<u8>, u32)> = vec![
        ("unknown", 77, vec![], ERR_UNSUP),
        ("TLS", 5, vec![], ERR_UNSUP),
        ("PEEK_EXPORT", 4, vec![], ERR_UNSUP),
        ("LIST with data", 3, vec![0], ERR_INVALID),
        ("STRUCTURED_REPLY with data", 8, vec![0], ERR_INVALID),
        ("EXTENDED_HEADERS with data", 11, vec![0], ERR_INVALID),
        (
            "SET_META_CONTEXT before structured replies",
            10,
            context("disk", &["base:allocation"]),
            ERR_INVALID,
        ),
        ("LIST_META_CONTEXT before structured replies", 9, context("disk", &[]), ERR_INVALID),
        ("GO without data", 7, vec![], ERR_INVALID),
        ("GO with a cut name", 7, vec![0, 0, 0, 9, b'd'], ERR_INVALID),
        ("GO with a huge name length", 7, vec![0xff, 0xff, 0xff, 0xff, b'd'], ERR_INVALID),
        ("GO with a long name", 7, go(&long, &[]), ERR_INVALID),
        ("GO with fewer requests than told", 7, [string("disk"), vec![0, 2, 0, 0]].concat(), ERR_INVALID),
        ("GO with more requests than told", 7, [string("disk"), vec![0, 0, 0, 0]].concat(), ERR_INVALID),
        ("GO with a name that is not UTF-8", 7, vec![0, 0, 0, 1, 0xff, 0, 0], ERR_INVALID),
        ("GO of nothing", 7, go("nothing", &[]), ERR_UNKNOWN),
        ("INFO of nothing", 6, go("nothing", &[]), ERR_UNKNOWN),
        ("too long", 7, vec![0; 100_000], ERR_TOO_BIG),
        ("unknown and too long", 99, vec![0; 100_000], ERR_TOO_BIG),
    ];
    for (name, kind, data, code) in &table {
        assert_eq!(last(&mut stream, *kind, data), *code, "{name}");
    }
    assert_eq!(last(&mut stream, 8, &[]), ACK);
    for (name, kind, data, code) in [
        ("STRUCTURED_REPLY again", 8, vec![], ERR_INVALID),
        ("contexts of nothing", 10, context("nothing", &["base:allocation"]), ERR_UNKNOWN),
        ("contexts without a number", 10, string("disk"), ERR_INVALID),
        ("fewer contexts than told", 10, [string("disk"), vec![0, 0, 0, 1]].concat(), ERR_INVALID),
        ("a huge number of contexts", 10, [string("disk"), vec![0xff; 4]].concat(), ERR_INVALID),
        ("more contexts than told", 10, [context("disk", &[]), vec![1]].concat(), ERR_INVALID),
        ("EXTENDED_HEADERS after structured", 11, vec![], ACK),
        ("EXTENDED_HEADERS again", 11, vec![], ERR_INVALID),
        ("STRUCTURED_REPLY after extended", 8, vec![], ERR_INVALID),
        ("GO after all that", 7, go("disk", &[3]), ACK),
    ] {
        assert_eq!(last(&mut stream, kind, &data), code, "{name}");
    }
}

#[test]
fn what_clients_are_told() {
    let world = World::new();
    let mut stream = greeted(&world, 1);
    let list = ask(&mut stream, 3, &[]);
    assert_eq!(list, [(2, string("disk")), (ACK, vec![])]);
    let told = ask(&mut stream, 6, &go("", &[1, 2, 3, 77]));
    let kinds: Vec<(u32, u8)> = told.iter().map(|(code, data)| (*code, *data.get(1).unwrap_or(&0))).collect();
    assert_eq!(kinds, [(3, 0), (3, 3), (3, 1), (ACK, 0)]);
    assert_eq!(told[0].1[2..10], SIZE.to_be_bytes());
    assert_eq!(told[1].1[2..], [0, 0, 0, 1, 0, 0, 0x10, 0, 2, 0, 0, 0]);

    assert_eq!(last(&mut stream, 8, &[]), ACK);
    let base = |id: u8| (4, [&[0, 0, 0, id], &b"base:allocation"[..]].concat());
    for (kind, queries, found) in [
        (9, &[][..], vec![base(0)]),
        (9, &["base:"][..], vec![base(0)]),
        (9, &["qemu:", "base:allocation", "base:allocation"][..], vec![base(0)]),
        (9, &["base:nothing"][..], vec![]),
        (10, &[][..], vec![]),
        (10, &["base:"][..], vec![]),
        (10, &["x-y:z", "base:allocation"][..], vec![base(1)]),
    ] {
        let mut expected = found;
        expected.push((ACK, vec![]));
        assert_eq!(ask(&mut stream, kind, &context("disk", queries)), expected, "{kind} {queries:?}");
    }
    assert_eq!(last(&mut stream, 2, &[]), ACK);
    assert!(is_closed(&mut stream));
}

#[test]
fn the_old_way_to_choose_an_export() {
    let world = World::new();
    for (flags, zeroes) in [(0, 124), (1, 124), (3, 0)] {
        let mut stream = greeted(&world, flags);
        stream.write_all(&option(1, b"disk")).unwrap();
        let mut answer = vec![0; 10 + zeroes];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..8], SIZE.to_be_bytes());
        // The connection is in transmission: a read of one byte.
        let read = [&[0x25, 0x60, 0x95, 0x13][..], &[0; 4], b"cookie 1", &[0; 8], &[0, 0, 0, 1]].concat();
        stream.write_all(&read).unwrap();
        let mut reply = [9; 17];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply, *b"\x67\x44\x66\x98\0\0\0\0cookie 1\0");
    }
    for (name, message) in [
        ("unknown", option(1, b"nothing")),
        ("too long", option(1, &[b'x'; 5000])),
        ("not UTF-8", option(1, &[0xff])),
    ] {
        let mut stream = greeted(&world, 3);
        stream.write_all(&message).unwrap();
        assert!(is_closed(&mut stream), "{name}");
    }
}

#[test]
fn clients_that_are_cut_off() {
    let world = World::new();
    let mut too_many = Vec::new();
    (0..300).for_each(|_| too_many.extend_from_slice(&option(3, &[])));
    for (name, flags, message) in [
        ("unknown client flag", 4, vec![]),
        ("all client flags", u32::MAX, vec![]),
        ("wrong magic", 3, b"IHAVEOPX\0\0\0\x03\0\0\0\0".to_vec()),
        ("option without fixed newstyle", 0, option(3, &[])),
        ("option far too long", 3, [b"IHAVEOPT", &[0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff][..]].concat()),
        ("more options than anyone needs", 3, too_many),
    ] {
        let mut stream = greeted(&world, flags);
        let _ = stream.write_all(&message);
        let mut rest = Vec::new();
        // Ends, whether with an end or a reset.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 300 * 64, "{name}");
    }
    while world.service.stats().connections > 0 {
        std::thread::yield_now();
    }
    assert_eq!(world.service.stats().protocol_errors, 6);
}

#[test]
fn large_blocks_must_be_asked_for() {
    let mut recorder = Recorder::new();
    recorder.blocks = BlockSizes { minimum: 4096, preferred: 4096, maximum: 1 << 20 };
    let world = World::with(recorder, Limits::default());
    let mut stream = greeted(&world, 3);
    assert_eq!(last(&mut stream, 7, &go("disk", &[])), ERR_BLOCK_SIZE_REQD);
    assert_eq!(last(&mut stream, 7, &go("disk", &[3])), ACK);
    let mut stream = greeted(&world, 3);
    stream.write_all(&option(1, b"disk")).unwrap();
    assert!(is_closed(&mut stream));
}

/// A context is selected for one export and one kind of header.
#[test]
fn contexts_do_not_outlive_what_they_were_selected_for() {
    let world = World::new();
    let status = |stream: &mut UnixStream| {
        let header =
            [&[0x25, 0x60, 0x95, 0x13][..], &[0, 0, 0, 7], b"cookie 1", &[0; 8], &[0, 0, 2, 0]].concat();
        stream.write_all(&header).unwrap();
        let mut reply = [0; 20];
        stream.read_exact(&mut reply).unwrap();
        u16::from_be_bytes([reply[6], reply[7]])
    };
    for (names, kind) in
        [(["disk", "disk"], 5), (["disk", ""], 0x8001), (["", "disk"], 0x8001), (["", ""], 5)]
    {
        let mut stream = greeted(&world, 3);
        assert_eq!(last(&mut stream, 8, &[]), ACK);
        assert_eq!(last(&mut stream, 10, &context(names[0], &["base:allocation"])), ACK);
        assert_eq!(last(&mut stream, 7, &go(names[1], &[])), ACK);
        assert_eq!(status(&mut stream), kind, "{names:?}");
    }
}
