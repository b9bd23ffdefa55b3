//! A pool on a device that a client library reaches: an NBD export of the project's own server.

mod support;

use std::sync::Arc;

use fastness_nbd::{Endpoint, Limits, MemoryExport, Server, SingleExport};
use fastness_pool::{Device, ErrorKind, Pool, PoolError, PoolOptions, VdevSpec};
use support::{host, manual};

const LEN_BYTES: u64 = 64 << 20;

#[test]
#[allow(clippy::print_stderr)]
fn a_pool_on_an_export_is_found_by_the_exports_name() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let exports = Arc::new(SingleExport::new("disk", Arc::new(MemoryExport::new(LEN_BYTES))));
    let server = Server::bind(&Endpoint::Unix(socket.clone()), exports, Limits::default()).unwrap();
    let server = Arc::new(server);
    let serving = server.clone();
    std::thread::spawn(move || serving.serve());
    let uri = format!("nbd+unix:///disk?socket={}", socket.display());
    let device = match Device::open(&uri) {
        Err(PoolError::Open(error)) if error.to_string().contains("libnbd0") => {
            eprintln!("SKIPPED a_pool_on_an_export_is_found_by_the_exports_name: {error}");
            return;
        }
        device => device.unwrap(),
    };
    let pool = Pool::create("tank", &[VdevSpec::single(device)], PoolOptions { ..manual() }).unwrap();
    assert_eq!(pool.status().vdevs[0].2[0].path, uri);
    assert_eq!(Device::open(&uri).unwrap_err().kind(), ErrorKind::Retry, "one writer");
    let mut elsewhere = host();
    elsewhere.host.id ^= 1;
    drop(pool);
    let open = || [Device::open(&uri).unwrap()];
    assert_eq!(Device::open_to_look(&uri).unwrap().probe().unwrap().config.name, "tank");
    // An export fences nobody.
    let error = Pool::import(&open(), &elsewhere, manual()).unwrap_err();
    assert!(matches!(error, PoolError::InUseByHost { .. }), "{error:?}");
    let pool = Pool::import(&open(), &host(), manual()).unwrap();
    // The server goes away: the pool stops, and says so.
    server.shutdown();
    let tx = pool.begin_tx().unwrap();
    drop(tx);
    assert!(pool.sync().is_err());
}
