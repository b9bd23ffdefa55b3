//! Commands whose pool process goes away in the middle: exit code 8, and words that say so.

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use support::Bench;

/// A command of each kind: looks, changes, long work, the end.
const COMMANDS: [&str; 9] = [
    "status tank",
    "iostat tank",
    "log show tank",
    "dataset list tank",
    "dataset set compression=lz4 tank",
    "volume serve tank/disk",
    "pool scrub tank --wait",
    "pool export tank",
    "pool destroy tank",
];

const PROGRESS: &[u8] =
    b"{\"progress\":{\"what\":\"scrub\",\"state\":\"running\",\"done_bytes\":1,\"total_bytes\":2,\
    \"wrong_copies\":0,\"lost\":[],\"elapsed_s\":0,\"error\":null}}\n";

/// Stands in for the process of pool `tank`, and does this to every client.
fn peer(bench: &Bench, act: fn(UnixStream)) {
    fs::create_dir_all(bench.path("run")).unwrap();
    let listener = UnixListener::bind(bench.path("run/tank.control")).unwrap();
    // Ends with the test's process.
    std::thread::spawn(move || listener.incoming().for_each(|socket| act(socket.unwrap())));
}

fn read_request(socket: &UnixStream) {
    BufReader::new(socket).read_line(&mut String::new()).unwrap();
}

/// Answers with these bytes, and goes.
fn say(mut socket: UnixStream, bytes: &[u8]) {
    read_request(&socket);
    socket.write_all(bytes).unwrap();
}

fn all_end_with_8(bench: &Bench) {
    for line in COMMANDS {
        let said = bench.fails(line, 8);
        assert!(said.contains("has gone") && !said.contains("defect"), "{line}: {said}");
    }
    // A command that names no pool reports those that are there.
    for line in ["status", "pool list", "iostat", "dataset list", "volume list"] {
        bench.ok(line);
    }
}

#[test]
fn a_process_that_goes_without_a_word() {
    let bench = Bench::new();
    peer(&bench, |socket| read_request(&socket));
    all_end_with_8(&bench);
}

#[test]
fn a_process_that_goes_in_the_middle_of_a_line() {
    let bench = Bench::new();
    peer(&bench, |socket| say(socket, b"{\"done\":{\"name\":\"ta"));
    all_end_with_8(&bench);
}

#[test]
fn a_process_that_goes_in_the_middle_of_long_work() {
    let bench = Bench::new();
    peer(&bench, |socket| say(socket, PROGRESS));
    let said = bench.fails("pool scrub tank --wait", 8);
    assert!(said.contains("has gone"), "{said}");
}

/// The request is there and not read: the kernel says ECONNRESET.
#[test]
fn a_process_that_resets_the_connection() {
    let bench = Bench::new();
    peer(&bench, |socket| {
        std::thread::sleep(Duration::from_millis(30));
        drop(socket);
    });
    all_end_with_8(&bench);
}

/// Which comes first, the request or the end, is up to the scheduler: EPIPE, ECONNRESET or an end of file.
/// EPIPE is what a closed standard output gives, too, and that one is not an error.
#[test]
fn a_process_that_goes_before_it_was_asked() {
    let bench = Bench::new();
    peer(&bench, |socket| socket.shutdown(Shutdown::Both).unwrap());
    for _ in 0..3 {
        all_end_with_8(&bench);
    }
}

#[test]
fn a_socket_that_a_dead_process_left() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("run")).unwrap();
    drop(UnixListener::bind(bench.path("run/tank.control")).unwrap());
    for line in COMMANDS {
        let said = bench.fails(line, 11);
        assert!(said.contains("not running") && said.contains("pool import"), "{line}: {said}");
    }
}

/// A request that was answered was carried out, whatever happens then.
#[test]
fn a_process_that_goes_after_its_answer() {
    let bench = Bench::new();
    peer(&bench, |socket| say(socket, b"{\"done\":null}\n"));
    bench.ok("pool export tank");
    bench.ok("dataset set compression=lz4 tank");
}

/// An answer that none of our processes gives is something else than an end.
#[test]
fn a_process_that_is_none_of_ours() {
    let bench = Bench::new();
    peer(&bench, |socket| say(socket, b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    let said = bench.fails("status tank", 9);
    assert!(said.contains("something else"), "{said}");
}

fn signal(pid: impl std::fmt::Display, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -{name} {pid}");
}

/// What a command comes to whose process is stopped, and killed when the command waits for it.
fn killed_while_it_waits(bench: &Bench, pid: u64, line: &str) -> Output {
    signal(pid, "STOP");
    let command = bench.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // That it waits in a read or a connect is likely after this; each of both ends with 8.
    std::thread::sleep(Duration::from_millis(100));
    signal(pid, "KILL");
    command.wait_with_output().unwrap()
}

#[test]
fn a_process_that_is_killed_while_a_command_waits() {
    let bench = Bench::new();
    bench.ok("pool create tank a --file-size 64M");
    for line in ["status tank", "pool sync tank", "volume create tank/disk 16M", "pool export tank"] {
        let pid = bench.json("status tank")[0]["pid"].as_u64().unwrap();
        let output = killed_while_it_waits(&bench, pid, line);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(8), "{line}: {said}");
        assert!(said.contains("has gone") && said.contains("pool import"), "{line}: {said}");
        bench.ok("pool import tank");
    }
}

/// The only child of a process, as soon as it has one.
fn child_of(parent: &Child) -> String {
    let pid = parent.id();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        if let Some(child) = children.split_whitespace().next() {
            return child.to_owned();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{pid} has started no process");
}

/// The device is in use, so that the new process waits for it and can be killed meanwhile.
#[test]
fn a_process_that_is_killed_while_it_starts() {
    let bench = Bench::new();
    bench.ok("pool create tank a --file-size 64M --no-import");
    let device = File::open(bench.path("a")).unwrap();
    device.lock().unwrap();
    let mut import = bench.command(&format!("pool import tank -d {}", bench.text("a")));
    let import = import.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    signal(child_of(&import), "KILL");
    let output = import.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(8), "{said}");
    assert!(said.contains("signal: 9") && said.contains("tank.log"), "{said}");
    drop(device);
    bench.ok(&format!("pool import tank -d {}", bench.text("a")));
}

/// The parent of the new process may end before it is ready: the pool is imported all the same.
#[test]
fn a_command_that_is_killed_while_its_process_starts() {
    let bench = Bench::new();
    bench.ok("pool create tank a --file-size 64M --no-import");
    let device = File::open(bench.path("a")).unwrap();
    device.lock().unwrap();
    let mut import = bench.command(&format!("pool import tank -d {}", bench.text("a"))).spawn().unwrap();
    child_of(&import);
    import.kill().unwrap();
    import.wait().unwrap();
    drop(device);
    bench.wait_for("tank");
    assert_eq!(bench.json("status tank")[0]["state"], "online");
}

/// The process is called by the pool's name, whatever the import called it.
#[test]
fn an_import_by_guid_finds_its_process() {
    let bench = Bench::new();
    bench.ok("pool create tank a --file-size 64M --no-import");
    let found = bench.ok(&format!("pool import -d {}", bench.text("a")));
    let guid = found.split_whitespace().skip_while(|word| *word != "tank").nth(1).unwrap();
    let said = bench.ok(&format!("pool import {guid} -d {}", bench.text("a")));
    assert!(said.contains("tank"), "{said}");
    assert_eq!(bench.json("status tank")[0]["state"], "online");
}

/// More clients than a process serves are told to come again, and not that it has gone.
#[test]
fn a_process_with_too_many_clients_says_so() {
    let bench = Bench::new();
    bench.ok("pool create tank a --file-size 64M");
    let connect = || UnixStream::connect(bench.path("run/tank.control")).unwrap();
    let mut clients: Vec<_> = (0..32).map(|_| connect()).collect();
    // Some were refused if clients of commands that have ended were not gone yet.
    while bench.run("status tank").status.success() && clients.len() < 1000 {
        clients.push(connect());
    }
    let said = bench.fails("status tank", 4);
    assert!(said.contains("clients"), "{said}");
    drop(clients);
    let begun = Instant::now();
    while bench.run("status tank").status.code() == Some(4) && begun.elapsed() < Duration::from_secs(60) {}
    bench.ok("status tank");
}

#[test]
fn a_pool_that_was_exported_can_be_imported_at_once() {
    let bench = Bench::new();
    bench.ok("pool create tank a --file-size 64M");
    for _ in 0..20 {
        bench.ok("pool export tank");
        bench.ok("pool import tank -d a");
    }
}
