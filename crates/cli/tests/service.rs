//! `fastness start`: pools as a service manager runs them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::Bench;

mod support;

/// The service manager's end.
struct Manager(UnixDatagram);

impl Manager {
    fn new(bench: &Bench) -> Manager {
        let socket = UnixDatagram::bind(bench.path("manager")).unwrap();
        // A service that says nothing fails the test instead of stopping it.
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Manager(socket)
    }

    fn next(&self) -> String {
        let mut bytes = [0; 4096];
        let len = self.0.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }

    /// Waits for a message; returns those before it, without the ones of the watchdog.
    fn until(&self, is_it: impl Fn(&str) -> bool) -> Vec<String> {
        let mut before = Vec::new();
        loop {
            match self.next() {
                message if is_it(&message) => return before,
                message if message == "WATCHDOG=1" => {}
                message => before.push(message),
            }
        }
    }
}

/// A running `fastness start`.
struct Service {
    child: Child,
}

impl Service {
    fn begin(bench: &Bench, arguments: &str, environment: &[(&str, &str)]) -> Service {
        let mut command = bench.command(&format!("start --config config.toml {arguments}"));
        command.env("NOTIFY_SOCKET", bench.path("manager")).envs(environment.iter().copied());
        let log = fs::File::create(bench.path("said")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("Ctrl-C") || line.is_empty(), "{line}");
        Service { child }
    }

    fn signal(&self, signal: &str) {
        kill(signal, self.child.id());
    }

    fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kill(signal: &str, process: u32) {
    let process = process.to_string();
    assert!(Command::new("kill").args(["-s", signal, &process]).status().unwrap().success());
}

/// A pool on a file, exported.
fn pool(bench: &Bench, name: &str) {
    let image = bench.path(&format!("{name}.img"));
    fs::File::create(&image).unwrap().set_len(128 << 20).unwrap();
    bench.ok(&format!("pool create {name} {}", image.display()));
    bench.ok(&format!("volume create {name}/disk 16M"));
    bench.ok(&format!("pool export {name}"));
}

fn config(bench: &Bench, text: &str) {
    let text = text.replace("DIR", bench.dir.path().to_str().unwrap());
    fs::write(bench.path("config.toml"), text).unwrap();
    bench.ok("config check config.toml");
}

#[test]
fn a_service_serves_what_its_file_names_and_exports_it_at_the_end() {
    let bench = Bench::new();
    pool(&bench, "tank");
    pool(&bench, "lake");
    config(
        &bench,
        r#"
        metrics.listen = 0
        [pools.tank]
        devices = ["DIR/tank.img"]
        [pools.lake]
        devices = ["DIR"]
        [[volumes]]
        name = "tank/disk"
        socket = "DIR/tank.sock"
        [[volumes]]
        name = "lake/disk"
        read-only = true
        [[volumes]]
        name = "lake/none"
        "#,
    );
    let manager = Manager::new(&bench);
    let mut service = Service::begin(&bench, "", &[]);
    let before = manager.until(|message| message == "READY=1");
    assert!(before.iter().all(|message| message.starts_with("STATUS=") || message.starts_with("EXTEND")));
    assert_eq!(manager.next(), "STATUS=lake: running; tank: running");
    bench.client("tank.sock", "tank/disk").write(0, &[7; 4096], true).unwrap();
    let mut client = bench.client("run/lake:disk.nbd", "lake/disk");
    assert!(client.write(0, &[7; 4096], true).is_err());
    drop(client);
    service.signal("TERM");
    manager.until(|message| message == "STOPPING=1");
    assert_eq!(service.exit_code(), Some(0));
    let said = fs::read_to_string(bench.path("said")).unwrap();
    for part in [
        "INFO counters are at http://127.0.0.1:",
        "ERROR lake/none is not served: ",
        "INFO pool tank is exported",
    ] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    // Each line has its time.
    assert!(said.lines().all(|line| line.starts_with("20") && line[10..].starts_with('T')), "{said}");
    bench.ok("pool import tank -d tank.img");
    let status = bench.json("status tank");
    assert!(status[0]["found"].as_str().unwrap().contains("export"), "{status}");
    assert!(status[0]["served"].as_array().unwrap().is_empty(), "the file's volumes are the file's alone");
}

#[test]
fn a_pool_that_is_not_there_holds_up_no_other_and_is_taken_when_it_comes() {
    let bench = Bench::new();
    pool(&bench, "tank");
    pool(&bench, "lake");
    fs::rename(bench.path("lake.img"), bench.path("away")).unwrap();
    config(
        &bench,
        "[pools.tank]\ndevices = [\"DIR/tank.img\"]\n[pools.lake]\ndevices = [\"DIR/lake.img\"]\nwait = 0\n",
    );
    let manager = Manager::new(&bench);
    let mut service = Service::begin(&bench, "--retry 1", &[]);
    manager.until(|message| message.starts_with("STATUS=lake: no pool lake was found in:"));
    bench.wait_for("tank");
    fs::rename(bench.path("away"), bench.path("lake.img")).unwrap();
    manager.until(|message| message == "STATUS=lake: running; tank: running");
    // One that is exported by hand stays so; with the last one the service ends.
    // The end of the connection is that of the pool, though the process goes on: half of the time after which
    // an idle one is closed is enough.
    let mut control = UnixStream::connect(bench.path("run/lake.control")).unwrap();
    control.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    control.write_all(b"{\"command\":\"export\",\"is_forced\":false}\n").unwrap();
    let mut answer = String::new();
    control.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("done"), "{answer}");
    manager.until(|message| message == "STATUS=lake: exported; tank: running");
    bench.ok("pool export tank");
    assert_eq!(service.exit_code(), Some(0));
    let said = fs::read_to_string(bench.path("said")).unwrap();
    assert_eq!(said.matches("pool lake is not imported").count(), 1, "said once: {said}");
}

#[test]
fn all_pools_that_were_known_are_taken_if_the_file_says_so() {
    let bench = Bench::new();
    pool(&bench, "tank");
    pool(&bench, "lake");
    config(&bench, "[import]\nall = true\n[pools.tank]\nread-only = true\n");
    let manager = Manager::new(&bench);
    let mut service = Service::begin(&bench, "", &[]);
    manager.until(|message| message == "READY=1");
    for (pool, is_read_only) in [("tank", true), ("lake", false)] {
        let status = bench.json(&format!("status {pool}"));
        assert_eq!(status[0]["log"].is_null(), is_read_only, "{pool}: {status}");
    }
    service.signal("TERM");
    assert_eq!(service.exit_code(), Some(0));
}

#[test]
fn a_service_without_a_pool_fails_as_the_import_did() {
    let bench = Bench::new();
    config(&bench, "[pools.tank]\ndevices = [\"DIR\"]\nwait = 0\n");
    let said = bench.fails("start --config config.toml", 3);
    assert!(said.contains("no pool tank was found"), "{said}");
    config(&bench, "metrics.listen = 0");
    assert!(bench.fails("start --config config.toml", 3).contains("names no pool"));
    assert!(bench.fails("start --config config.toml --pool lake", 3).contains("no [pools.lake]"));
    fs::write(bench.path("config.toml"), "[pools.tank]\ncach = 1\nwait = \"\"\n").unwrap();
    for command in ["config check", "start --config"] {
        let said = bench.fails(&format!("{command} config.toml"), 3);
        for part in ["config.toml:2: cach is no key", "config.toml:3: wait is", "config.toml has 2 mistakes"]
        {
            assert!(said.contains(part), "{command}: no {part:?} in {said}");
        }
    }
    bench.fails("start --config none.toml", 10);
}

#[test]
fn hangup_exports_and_so_does_a_signal_while_nobody_reads_what_is_told() {
    let bench = Bench::new();
    pool(&bench, "tank");
    config(&bench, "[pools.tank]\ndevices = [\"DIR/tank.img\"]\n");
    let manager = Manager::new(&bench);
    // Its queue is full before the service begins.
    let other = UnixDatagram::unbound().unwrap();
    other.set_nonblocking(true).unwrap();
    let mut count = 0;
    while other.send_to(b"FULL=1", bench.path("manager")).is_ok() {
        count += 1;
    }
    let mut service = Service::begin(&bench, "", &[("WATCHDOG_USEC", "200000")]);
    bench.wait_for("tank");
    for _ in 0..count {
        assert_eq!(manager.next(), "FULL=1");
    }
    // What waited comes now.
    manager.until(|message| message == "READY=1");
    manager.until(|message| message == "WATCHDOG=1");
    while other.send_to(b"FULL=1", bench.path("manager")).is_ok() {}
    service.signal("HUP");
    assert_eq!(service.exit_code(), Some(0));
    let said = fs::read_to_string(bench.path("said")).unwrap();
    assert!(said.contains("pool tank is exported"), "{said}");
}

#[test]
fn a_pool_in_the_background_has_a_file_with_times_and_levels() {
    let bench = Bench::new();
    pool(&bench, "tank");
    bench.ok("pool import tank -d tank.img");
    bench.ok("pool export tank");
    let said = fs::read_to_string(bench.path("run/tank.log")).unwrap();
    let line = said.lines().next_back().unwrap();
    assert!(line.starts_with("20") && line.ends_with("Z INFO pool tank is exported"), "{said}");
}

#[test]
fn what_an_import_cannot_serve_is_an_error_in_the_log() {
    let bench = Bench::new();
    pool(&bench, "tank");
    fs::create_dir(bench.path("sockets")).unwrap();
    bench.ok("pool import tank -d tank.img");
    bench.ok(&format!("volume serve tank/disk --socket {}", bench.text("sockets/disk")));
    bench.ok("pool export tank");
    fs::remove_dir_all(bench.path("sockets")).unwrap();
    bench.ok("pool import tank -d tank.img");
    let said = fs::read_to_string(bench.path("run/tank.log")).unwrap();
    assert!(said.contains("Z ERROR tank/disk is not served: "), "{said}");
}

#[test]
fn the_journal_gets_levels_and_no_times() {
    let bench = Bench::new();
    pool(&bench, "tank");
    config(
        &bench,
        "[pools.tank]\ndevices = [\"DIR/tank.img\"]\n[pools.lake]\ndevices = [\"DIR/none\"]\nwait = 0\n",
    );
    let manager = Manager::new(&bench);
    fs::write(bench.path("said"), "").unwrap();
    let file = fs::metadata(bench.path("said")).unwrap();
    let stream = format!("{}:{}", file.dev(), file.ino());
    let mut service = Service::begin(&bench, "", &[("JOURNAL_STREAM", &stream)]);
    manager.until(|message| message == "READY=1");
    service.signal("INT");
    assert_eq!(service.exit_code(), Some(0));
    let said = fs::read_to_string(bench.path("said")).unwrap();
    assert!(said.contains("<6>pool tank is imported\n"), "{said}");
    assert!(said.contains("<3>pool lake is not imported: no pool lake was found"), "{said}");
    assert!(said.lines().all(|line| line.starts_with("<")), "{said}");
    // A stream that is not the one of standard error is not the journal.
    let mut service = Service::begin(&bench, "--pool tank", &[("JOURNAL_STREAM", "1:1")]);
    manager.until(|message| message == "READY=1");
    service.signal("INT");
    assert_eq!(service.exit_code(), Some(0));
    assert!(fs::read_to_string(bench.path("said")).unwrap().contains("Z INFO pool tank is imported\n"));
}

/// The pool lies in a directory whose server is stopped: its writes hang, as those to a disk that does not
/// answer.
#[test]
fn a_thread_that_is_stuck_stops_the_watchdog_and_nothing_else_does() {
    let Some(bench) = Bench::for_mounts() else { return };
    fs::create_dir(bench.path("under")).unwrap();
    fs::create_dir(bench.path("over")).unwrap();
    let mut command = bench.command("responder mount under over --pm region --size 64M --emulate-pm");
    let mut responder = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let mut lines = BufReader::new(responder.stdout.take().unwrap()).lines();
    let _ = lines.next().unwrap().unwrap();
    while fs::metadata(bench.path("over")).unwrap().dev() == fs::metadata(bench.path("under")).unwrap().dev()
    {
        std::thread::sleep(Duration::from_millis(10));
    }
    let image = bench.path("over/tank.img");
    fs::File::create(&image).unwrap().set_len(128 << 20).unwrap();
    bench.ok(&format!("pool create tank {}", image.display()));
    bench.ok("volume create tank/disk 16M");
    bench.ok("pool export tank");
    config(
        &bench,
        r#"
        [pools.tank]
        devices = ["DIR/over/tank.img"]
        txg-timeout = 0.1
        [[volumes]]
        name = "tank/disk"
        socket = "DIR/disk.sock"
        "#,
    );
    let manager = Manager::new(&bench);
    let mut service = Service::begin(&bench, "", &[("WATCHDOG_USEC", "1000000")]);
    manager.until(|message| message == "READY=1");
    for _ in 0..3 {
        manager.until(|message| message == "WATCHDOG=1");
    }
    kill("STOP", responder.id());
    let mut client = bench.client("disk.sock", "tank/disk");
    client.write(0, &[1; 4096], false).unwrap();
    // Half of the time later at the latest it is silent; until then it may have been told a few times.
    manager.0.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let mut bytes = [0; 4096];
    let mut told = 0;
    while manager.0.recv(&mut bytes).is_ok() {
        told += 1;
        assert!(told < 10, "the manager is told that a thread moves, which is stuck");
    }
    kill("CONT", responder.id());
    manager.0.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    manager.until(|message| message == "WATCHDOG=1");
    drop(client);
    service.signal("TERM");
    assert_eq!(service.exit_code(), Some(0));
    kill("INT", responder.id());
    responder.wait().unwrap();
}
