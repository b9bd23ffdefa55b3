//! Volumes as disks of virtual machines: what is shown of them. `scripts/test-vm` boots a machine.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fastness_vhost_user::client::{Client, DATA};
use fastness_vhost_user::{Descriptor, NEXT, WRITE};
use serde_json::Value;
use support::Bench;

mod support;

/// VERSION_1, PROTOCOL_FEATURES and FLUSH.
const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 9;
/// REPLY_ACK and CONFIG.
const PROTOCOL: u64 = 1 << 3 | 1 << 9;
const BLOCK: u32 = 4096;

/// A machine with one request at a time.
struct Machine {
    client: Client,
    requests: u16,
}

impl Machine {
    fn new(bench: &Bench, socket: &str) -> Machine {
        let client = Client::connect(&bench.path(socket), 1 << 20, 16).unwrap();
        client.negotiate(FEATURES, PROTOCOL).unwrap();
        client.start(0).unwrap();
        Machine { client, requests: 0 }
    }

    /// Returns the status.
    fn ask(&mut self, kind: u32, offset: u64, data: &[u32]) -> u8 {
        let client = &self.client;
        let mut header = [kind, 0].map(u32::to_le_bytes).concat();
        header.extend((offset / 512).to_le_bytes());
        client.memory().write(DATA, &header).unwrap();
        let direction = if kind == 0 { WRITE } else { 0 };
        let mut parts = vec![(DATA, 16, 0)];
        parts.extend(data.iter().map(|len| (DATA + 4096, *len, direction)));
        parts.push((DATA + 64, 1, WRITE));
        for (next, (address, len, flags)) in (1..).zip(parts.clone()) {
            let flags = if usize::from(next) < parts.len() { flags | NEXT } else { flags };
            client.describe(next - 1, Descriptor { address, len, flags, next }).unwrap();
        }
        client.put_available(self.requests, 0).unwrap();
        self.requests += 1;
        client.publish(self.requests).unwrap();
        client.kick().unwrap();
        while client.used_index().unwrap() != self.requests {
            assert!(client.sleep_for(Duration::from_secs(20)).unwrap(), "no answer");
        }
        client.memory().byte(DATA + 64).unwrap().load(Ordering::Acquire)
    }
}

fn of<'a>(rows: &'a Value, key: &str, name: &str) -> &'a Value {
    let rows = rows.as_array().unwrap();
    rows.iter().find(|row| row[key] == name).unwrap_or_else(|| panic!("no {name} in {rows:?}"))
}

#[test]
fn what_machines_ask_for_is_shown_beside_the_clients_of_nbd() {
    let bench = Bench::new();
    let up = bench.up("tank --size 64M --emulate-pm --pm-size 16M");
    for socket in ["a.sock", "b.sock"] {
        bench.ok(&format!("volume serve tank/volume --vhost-user {}", bench.path(socket).display()));
    }
    let mut nbd = bench.client("tank/volume.sock", "tank/volume");
    let (mut first, mut second) = (Machine::new(&bench, "a.sock"), Machine::new(&bench, "b.sock"));
    nbd.write(0, &[1; BLOCK as usize], true).unwrap();
    for block in 0..3 {
        assert_eq!(first.ask(1, block * 4096, &[BLOCK]), 0);
    }
    assert_eq!(second.ask(1, 0, &[BLOCK]), 0);
    assert_eq!(second.ask(1, 1 << 40, &[BLOCK]), 1, "past the end");
    assert_eq!(second.ask(0, 0, &[512]), 0);
    assert_eq!(first.ask(4, 0, &[]), 0);

    // All sockets of the volume together; what came over NBD is among its operations alone.
    let io: Value = serde_json::from_str(bench.ok("iostat --json").trim()).unwrap();
    let row = of(&io["volumes"], "name", "tank/volume");
    let request = |name: &str| {
        let of = of(&row["requests"], "request", name);
        ["ops", "bytes", "errors", "timed_ops"].map(|key| of[key].as_u64().unwrap())
    };
    assert_eq!(request("write"), [5, 4 * 4096, 1, 2]);
    assert_eq!(request("read"), [1, 512, 0, 1]);
    assert_eq!(request("flush"), [1, 0, 0, 1]);
    assert_eq!(row["sync_write"]["ops"], 1);
    assert_eq!(row["write"]["ops"], 4);
    let latencies = bench.ok("iostat -l");
    for name in ["vhost write", "vhost read", "vhost flush"] {
        let line = latencies.lines().find(|line| line.contains(name));
        assert!(line.is_some_and(|line| line.contains("tank/volume")), "{name}: {latencies}");
    }

    let text = bench.ok("metrics");
    for (sample, value) in [
        ("fastness_vhost_requests_total", 5),
        ("fastness_vhost_request_bytes_total", 4 * 4096),
        ("fastness_vhost_request_errors_total", 1),
        ("fastness_vhost_request_seconds_count", 2),
    ] {
        let line = format!("{sample}{{pool=\"tank\",name=\"tank/volume\",request=\"write\"}} {value}");
        assert_eq!(text.lines().filter(|other| *other == line).count(), 1, "{line}\n{text}");
    }
    assert!(!text.contains("fastness_mount_request_seconds_count{"), "nothing is mounted: {text}");

    // Each socket by itself.
    let status = bench.json("status tank");
    let served = |socket: &str| {
        let uri = format!("vhost-user:{}", bench.path(socket).display());
        of(&status[0]["served"], "uri", &uri).clone()
    };
    let (a, b) = (served("a.sock"), served("b.sock"));
    assert_eq!((&a["clients"], &b["clients"]), (&1.into(), &1.into()));
    let writes = |served: &Value| {
        let of = of(&served["operations"], "operation", "write");
        ["ops", "bytes", "errors", "timed_ops"].map(|key| of[key].as_u64().unwrap())
    };
    assert_eq!((writes(&a), writes(&b)), ([3, 3 * 4096, 0, 1], [2, 4096, 1, 1]));
    let latency = of(&a["operations"], "operation", "flush")["latency_ns_sum"].as_u64().unwrap();
    assert!(latency > 0);
    drop((first, second, nbd));
    assert_eq!(up.interrupt(), Some(0));
}
