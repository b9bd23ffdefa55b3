//! Listening sockets: who may connect, and what a dead server leaves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use fastness_nbd::{BindError, Client, Endpoint, Limits, MemoryExport, Server, SingleExport};

fn bind(endpoint: &Endpoint) -> Result<Server, BindError> {
    let exports = SingleExport::new("disk", Arc::new(MemoryExport::new(1 << 20)));
    Server::bind(endpoint, Arc::new(exports), Limits::default())
}

fn unix(path: &Path) -> Endpoint {
    Endpoint::Unix(path.to_owned())
}

fn serves(server: Server) {
    let server = Arc::new(server);
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve());
        let mut client = Client::connect(server.endpoint(), "disk").unwrap();
        client.write(0, b"x", true).unwrap();
        assert_eq!(client.read(0, 1).unwrap(), b"x");
        assert_eq!(server.shutdown().cut, 0);
        serving.join().unwrap().unwrap();
        assert_eq!(server.stats().accepted, 1);
    });
}

#[test]
fn a_unix_socket_is_private_and_goes_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = bind(&unix(&path)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(bind(&unix(&path)), Err(BindError::InUse { .. })));
    serves(server);
    assert!(!path.exists());
    serves(bind(&unix(&path)).unwrap());
}

#[test]
fn a_stale_socket_is_replaced_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "as a killed server leaves it");
    serves(bind(&unix(&path)).unwrap());

    let alive = UnixListener::bind(&path).unwrap();
    assert!(matches!(bind(&unix(&path)), Err(BindError::InUse { .. })));
    drop(alive);
    fs::remove_file(&path).unwrap();

    fs::write(&path, "precious").unwrap();
    assert!(matches!(bind(&unix(&path)), Err(BindError::NotASocket { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

/// A socket that somebody else put in place of ours is theirs.
#[test]
fn a_server_removes_only_its_own_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = bind(&unix(&path)).unwrap();
    fs::remove_file(&path).unwrap();
    let _theirs = UnixListener::bind(&path).unwrap();
    drop(server);
    assert!(path.exists());
}

#[test]
fn tcp_serves_this_machine_only() {
    serves(bind(&Endpoint::Tcp("127.0.0.1:0".parse().unwrap())).unwrap());
    let everyone = Endpoint::Tcp("0.0.0.0:0".parse().unwrap());
    assert!(matches!(bind(&everyone), Err(BindError::NotLoopback { .. })));
}

#[test]
fn limits_that_make_no_sense() {
    let exports = SingleExport::new("disk", Arc::new(MemoryExport::new(1 << 20)));
    let limits = Limits { server_bytes_max: 1 << 20, ..Limits::default() };
    let outcome = Server::bind(&Endpoint::Tcp("127.0.0.1:0".parse().unwrap()), Arc::new(exports), limits);
    assert!(matches!(outcome, Err(BindError::Limit { name: "server_bytes_max", .. })));
}
