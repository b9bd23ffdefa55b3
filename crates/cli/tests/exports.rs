//! Volumes at addresses: several at one port, and clients of other machines through TLS.

#[path = "exports/secure.rs"]
mod secure;
mod support;
#[path = "exports/tls.rs"]
mod tls;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use fastness_nbd::wire::{option, reply};
use fastness_nbd::{Client, ClientError, Endpoint};
use support::Bench;

const IN_USE: i32 = 13;
const INVALID: i32 = 3;

/// A pool with three volumes, and nothing served.
fn pool() -> Bench {
    let bench = Bench::new();
    bench.ok("pool create tank d --file-size 64M");
    for volume in ["a", "b", "c"] {
        bench.ok(&format!("volume create tank/{volume} 8M"));
    }
    bench
}

/// The address in a URI of NBD.
fn address(uri: &str) -> SocketAddr {
    let rest = uri.trim().split_once("://").unwrap().1;
    rest.split_once('/').unwrap().0.parse().unwrap()
}

fn connect(at: SocketAddr, name: &str) -> Result<Client, ClientError> {
    Client::connect(&Endpoint::Tcp(at), name)
}

/// What a server lists, in its order.
fn listed(at: SocketAddr) -> Vec<String> {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(&3u32.to_be_bytes()).unwrap();
    stream.write_all(&[b"IHAVEOPT", &option::LIST.to_be_bytes()[..], &[0; 4]].concat()).unwrap();
    let mut names = Vec::new();
    loop {
        let mut header = [0; 20];
        stream.read_exact(&mut header).unwrap();
        let code = u32::from_be_bytes(header[12..16].try_into().unwrap());
        let mut data = vec![0; u32::from_be_bytes(header[16..].try_into().unwrap()) as usize];
        stream.read_exact(&mut data).unwrap();
        if code != reply::SERVER {
            assert_eq!(code, reply::ACK);
            return names;
        }
        let bytes = u32::from_be_bytes(data[..4].try_into().unwrap()) as usize;
        names.push(String::from_utf8(data[4..][..bytes].to_vec()).unwrap());
    }
}

fn uris(bench: &Bench) -> Vec<String> {
    let status = bench.json("status tank");
    status[0]["served"]
        .as_array()
        .unwrap()
        .iter()
        .map(|served| served["uri"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn several_volumes_share_a_port() {
    let bench = pool();
    let said = bench.ok("volume serve tank/a tank/b --tcp 127.0.0.1:0");
    let at = address(said.lines().next().unwrap());
    assert_eq!(said, format!("nbd://{at}/tank/a\nnbd://{at}/tank/b\n"));
    let (mut a, mut b) = (connect(at, "tank/a").unwrap(), connect(at, "tank/b").unwrap());
    a.write(0, b"this is a", true).unwrap();
    b.write(0, b"this is b", true).unwrap();
    assert_eq!(bench.ok(&format!("volume serve tank/c --tcp {at}")), format!("nbd://{at}/tank/c\n"));
    assert_eq!(connect(at, "tank/c").unwrap().read(0, 9).unwrap(), [0; 9]);
    assert_eq!(listed(at), ["tank/a", "tank/b", "tank/c"]);
    assert_eq!(uris(&bench), ["a", "b", "c"].map(|name| format!("nbd://{at}/tank/{name}")));
    // Which one would an empty name mean?
    let refused = connect(at, "").map(drop);
    assert!(matches!(refused, Err(ClientError::Refused { code: reply::ERR_POLICY, .. })), "{refused:?}");
    let refused = connect(at, "tank/d").map(drop);
    assert!(matches!(refused, Err(ClientError::Refused { code: reply::ERR_UNKNOWN, .. })), "{refused:?}");

    let said = bench.fails(&format!("volume serve tank/a --tcp {at}"), IN_USE);
    assert!(said.contains("serves tank/a already"), "{said}");
    let said = bench.fails("volume unserve tank/b", 4);
    assert!(said.contains("1 client"), "its own client, and no other: {said}");

    bench.ok("volume unserve tank/b --force");
    assert!(matches!(b.read(0, 1), Err(ClientError::Io(_))), "its connections have ended");
    assert_eq!(a.read(0, 9).unwrap(), b"this is a", "the others go on");
    assert_eq!(listed(at), ["tank/a", "tank/c"]);
    assert!(connect(at, "tank/b").is_err());
    bench.ok("volume unserve tank/a --force");
    assert_eq!(connect(at, "").unwrap().read(0, 9).unwrap(), [0; 9], "the only one has the empty name, too");
    bench.ok("volume unserve tank/c --force");
    // The port is closed, and can have another owner.
    let begun = Instant::now();
    while TcpListener::bind(at).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(90), "{at} is still in use");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_import_serves_them_at_the_same_port_again() {
    let bench = pool();
    let said = bench.ok("volume serve tank/a tank/b --tcp 127.0.0.1:0");
    let at = address(said.lines().next().unwrap());
    bench.ok(&format!("volume serve tank/c --tcp {at} --once --read-only"));
    bench.ok("volume unserve tank/b");
    let mut c = connect(at, "tank/c").unwrap();
    assert!(c.write(0, b"x", false).is_err(), "read-only is said of each");
    connect(at, "tank/a").unwrap().write(0, b"kept", true).unwrap();
    drop(c);
    bench.ok("pool export tank --force");
    bench.ok("pool import tank");
    assert_eq!(uris(&bench), [format!("nbd://{at}/tank/a")]);
    assert_eq!(connect(at, "").unwrap().read(0, 4).unwrap(), b"kept");
}

#[test]
fn a_socket_can_have_several_too() {
    let bench = pool();
    bench.ok("volume serve tank/a tank/b --socket s");
    bench.client("s", "tank/a").write(0, b"a", true).unwrap();
    assert_eq!(bench.client("s", "tank/b").read(0, 1).unwrap(), [0]);
    // A name goes with its volume.
    bench.ok("dataset rename tank/b tank/other");
    assert_eq!(bench.client("s", "tank/other").read(0, 1).unwrap(), [0]);
    bench.ok("volume unserve tank/a");
    assert!(bench.path("s").exists());
    bench.ok("volume unserve tank/other");
    assert!(!bench.path("s").exists());
    // Without an address, each has its own.
    let said = bench.ok("volume serve tank/a tank/c --once");
    let sockets: Vec<_> = said.lines().map(|uri| uri.split_once("socket=").unwrap().1).collect();
    assert_ne!(sockets[0], sockets[1]);
}
