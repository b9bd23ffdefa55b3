//! `fastness metrics`: what Prometheus scrapes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::process::{Child, Stdio};

use support::Bench;

mod support;

/// A running `fastness metrics --listen`.
struct Scraped {
    child: Child,
    address: String,
}

impl Scraped {
    fn begin(bench: &Bench, arguments: &str) -> Scraped {
        let mut command = bench.command(&format!("metrics --listen 0 {arguments}"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").and_then(|line| line.strip_suffix("/metrics"));
        Scraped { address: address.expect("where it listens").to_owned(), child }
    }

    fn page(&self) -> String {
        let mut client = TcpStream::connect(&self.address).unwrap();
        client.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        let (head, page) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
        page.to_owned()
    }
}

impl Drop for Scraped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value of a sample.
fn value(page: &str, sample: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in\n{page}")).parse().unwrap()
}

#[test]
fn what_iostat_and_status_know_is_served() {
    let bench = Bench::new();
    let up = bench.up("tank --size 64M --emulate-pm --pm-size 16M");
    let scraped = Scraped::begin(&bench, "");
    let volume = r#"pool="tank",kind="volume",name="tank/volume",operation="sync_write""#;
    let writes = format!("fastness_operations_total{{{volume}}}");
    assert_eq!(value(&scraped.page(), &writes), 0.0);
    let mut client = bench.client("tank/volume.sock", "tank/volume");
    for block in 0..10 {
        client.write(block * 4096, &[1; 4096], true).unwrap();
    }
    let page = scraped.page();
    assert_eq!(value(&page, &writes), 10.0);
    assert_eq!(value(&page, &format!("fastness_operation_bytes_total{{{volume}}}")), 40960.0);
    assert_eq!(value(&page, &format!("fastness_operation_seconds_count{{{volume}}}")), 10.0);
    assert_eq!(value(&page, &format!("fastness_operation_seconds_bucket{{{volume},le=\"+Inf\"}}")), 10.0);
    assert_eq!(value(&page, r#"fastness_up{pool="tank"}"#), 1.0);
    assert_eq!(value(&page, r#"fastness_pool_state{pool="tank",state="online"}"#), 1.0);
    assert_eq!(value(&page, r#"fastness_log_info{pool="tank",kind="pmem"}"#), 1.0);
    assert!(value(&page, r#"fastness_log_medium_events_total{pool="tank",event="entries"}"#) >= 10.0);
    let status = bench.json("status tank");
    let (device, region) =
        (&status[0]["vdevs"][0]["devices"][0]["path"], &status[0]["log"]["regions"][0]["path"]);
    let (device, region) = (device.as_str().unwrap(), region.as_str().unwrap());
    let online = format!("fastness_device_state{{pool=\"tank\",device=\"{device}\",state=\"online\"}}");
    assert_eq!(value(&page, &online), 1.0);
    assert_eq!(
        value(&page, &format!("fastness_log_region_faults_total{{pool=\"tank\",region=\"{region}\"}}")),
        0.0
    );
    let uri = status[0]["served"][0]["uri"].as_str().unwrap();
    let clients = format!("fastness_clients{{pool=\"tank\",name=\"tank/volume\",address=\"{uri}\"}}");
    assert_eq!(value(&page, &clients), 1.0);
    is_well_formed(&page);
    // Printed, they are the same metrics.
    let printed = bench.ok("metrics");
    let names = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("# TYPE")).map(str::to_owned).collect()
    };
    assert_eq!(names(&printed), names(&page));
    drop(client);
    assert_eq!(up.interrupt(), Some(0));
    let page = scraped.page();
    assert!(!page.contains("tank"), "an exported pool is gone: {page}");
}

/// Every sample belongs to the metric named before it, and comes once.
fn is_well_formed(page: &str) {
    let mut metric = "";
    let mut seen = std::collections::HashSet::new();
    for line in page.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            metric = head.split(' ').next().unwrap();
            assert!(seen.insert(metric), "{metric} comes twice");
        } else if !line.starts_with('#') {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            let suffix = name.strip_prefix(metric).unwrap_or_else(|| panic!("{name} is not of {metric}"));
            assert!(["", "_bucket", "_sum", "_count"].contains(&suffix), "{name} is not of {metric}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(seen.insert(sample), "{sample} comes twice");
        }
    }
}

#[test]
fn a_pool_that_was_killed_or_does_not_answer_is_not_up() {
    let bench = Bench::new();
    let killed = bench.up("killed --size 64M");
    let alive = bench.up("alive --size 64M");
    // It accepts, and says nothing.
    let silent = UnixListener::bind(bench.path("run/silent.control")).unwrap();
    // It does not even accept, and its backlog is full.
    let full = UnixListener::bind(bench.path("run/full.control")).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let _first = std::os::unix::net::UnixStream::connect(bench.path("run/full.control")).unwrap();
    let scraped = Scraped::begin(&bench, "");
    let only = Scraped::begin(&bench, "killed");
    assert_eq!(value(&only.page(), r#"fastness_up{pool="killed"}"#), 1.0);
    killed.kill();
    let page = scraped.page();
    for (pool, is_up) in [("killed", 0.0), ("silent", 0.0), ("full", 0.0), ("alive", 1.0)] {
        assert_eq!(value(&page, &format!("fastness_up{{pool=\"{pool}\"}}")), is_up, "{pool}");
    }
    assert!(page.contains(r#"fastness_pool_used_bytes{pool="alive"}"#));
    assert!(!page.contains(r#"fastness_pool_used_bytes{pool="killed"}"#));
    let page = only.page();
    assert_eq!(value(&page, r#"fastness_up{pool="killed"}"#), 0.0);
    assert!(!page.contains("alive"), "{page}");
    drop((silent, full, alive));
}

#[test]
fn mistakes_are_said() {
    let bench = Bench::new();
    assert!(bench.fails("metrics --listen nowhere", 2).contains("ADDRESS:PORT"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let said = bench.fails(&format!("metrics --listen {address}"), 13);
    assert!(said.contains(&address.to_string()), "{said}");
    bench.fails("metrics tank", 11);
}
