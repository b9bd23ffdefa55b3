//! An NBD export as an origin, which goes and comes back. Needs libnbd, which is loaded at run time.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastness_nbd::{Endpoint, Export, Limits, MemoryExport, Server, SingleExport};

use crate::Served;
use crate::support::Bench;

const LEN: u64 = 8 << 20;

/// A server of the export, until it is dropped.
struct Exported {
    server: Arc<Server>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Exported {
    fn start(memory: &Arc<MemoryExport>, socket: &Path) -> Exported {
        let exports = Arc::new(SingleExport::new("disk", memory.clone()));
        let endpoint = Endpoint::Unix(socket.to_owned());
        let server = Arc::new(Server::bind(&endpoint, exports, Limits::default()).unwrap());
        let serving = server.clone();
        Exported { server, thread: Some(std::thread::spawn(move || serving.serve())) }
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        self.server.shutdown();
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

fn bytes_of(memory: &MemoryExport, offset: u64) -> u8 {
    let mut bytes = [0];
    memory.read(offset, &mut bytes).unwrap();
    bytes[0]
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "a test that is skipped says why")]
fn an_export_is_an_origin_that_may_go_and_come_back() {
    let bench = Bench::new();
    fs::create_dir(bench.path("run")).unwrap();
    let (memory, peer) = (Arc::new(MemoryExport::new(LEN)), bench.path("peer"));
    let exported = Exported::start(&memory, &peer);
    let uri = format!("nbd+unix:///disk?socket={}", peer.display());
    let made = bench.run(&format!("cache create --pm pm --size 4M --origin {uri}"));
    if !made.status.success() && String::from_utf8_lossy(&made.stderr).contains("libnbd0") {
        println!("SKIPPED: {made:?}");
        return;
    }
    assert!(made.status.success(), "{made:?}");
    let mut served = Served { bench, disk: tempfile::tempdir().unwrap(), child: None, region: "pm" };
    served.serve("");
    let mut client = served.bench.client("socket", "disk");
    client.write(0, &[1; 4096], false).unwrap();
    until("it is written back", || bytes_of(&memory, 0) == 1);
    assert_eq!(served.bench.json("cache status pm")["origin"], uri.as_str());

    drop(exported);
    client.write(8192, &[2; 4096], false).unwrap();
    client.write(0, &[0; 4096], false).unwrap();
    assert_eq!(client.read(8192, 4096).unwrap(), [2; 4096]);
    until("the status says why", || {
        let status = served.bench.run("cache status pm --json");
        let report: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        status.status.code() == Some(1) && report["failure"].is_string()
    });
    let exported = Exported::start(&memory, &peer);
    until("the write-back goes on", || bytes_of(&memory, 8192) == 2 && bytes_of(&memory, 0) == 0);
    until("and all is well", || served.bench.run("cache status pm").status.code() == Some(0));

    // Killed with something in the log; taken up while the server is away, and then while it is there.
    client.write(4 << 20, &[3; 512], true).unwrap();
    served.kill();
    drop(exported);
    let said = served.bench.fails("cache flush pm", 3);
    assert!(said.contains("cannot open the origin"), "{said}");
    let _exported = Exported::start(&memory, &peer);
    served.bench.ok("cache detach pm");
    assert_eq!(bytes_of(&memory, 4 << 20), 3);
}
