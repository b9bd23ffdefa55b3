//! Snapshots sent from one pool to another, by the program: streams in files and pipes, kills on both sides.

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use support::Bench;

/// Two pools; the first one has a volume with two snapshots.
fn world() -> Bench {
    let bench = Bench::new();
    bench.ok("pool create tank a --file-size 128M");
    bench.ok("pool create dozer b --file-size 128M");
    bench.ok("volume create tank/v 32M -b 4K");
    bench.ok(&format!("volume serve tank/v --socket {}", bench.text("v.sock")));
    let mut client = bench.client("v.sock", "tank/v");
    for at in 0..16 {
        client.write(at << 20, &[at as u8 + 1; 1 << 20], false).unwrap();
    }
    bench.ok("volume snapshot tank/v@one");
    client.write(5 << 20, &[99; 8192], true).unwrap();
    bench.ok("volume snapshot tank/v@two");
    bench
}

fn send(bench: &Bench, arguments: &str, file: &str) {
    let mut command = bench.command(&format!("volume send {arguments}"));
    let output = command.stdout(File::create(bench.path(file)).unwrap()).output().unwrap();
    assert!(output.status.success(), "{arguments}: {output:?}");
}

fn receive(bench: &Bench, arguments: &str, file: &str) -> Output {
    let mut command = bench.command(&format!("volume receive {arguments}"));
    command.stdin(File::open(bench.path(file)).unwrap()).output().unwrap()
}

fn received(bench: &Bench, arguments: &str, file: &str) -> String {
    let output = receive(bench, arguments, file);
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(bench: &Bench, arguments: &str, file: &str, code: i32) -> String {
    let output = receive(bench, arguments, file);
    assert_eq!(output.status.code(), Some(code), "{arguments}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// First bytes of MiBs of a volume.
fn firsts(bench: &Bench, name: &str) -> Vec<u8> {
    let socket = name.replace(['/', '@'], "-");
    bench.ok(&format!("volume serve {name} --once --socket {}", bench.text(&socket)));
    let mut client = bench.client(&socket, name);
    let firsts = (0..17).map(|at| client.read(at << 20, 1).unwrap()[0]).collect();
    drop(client);
    bench.ok(&format!("volume unserve {name}"));
    firsts
}

fn expected(changed: bool) -> Vec<u8> {
    let of = |at| match at {
        5 if changed => 99,
        16 => 0,
        at => at + 1,
    };
    (0..17).map(of).collect()
}

#[test]
fn streams_go_through_files() {
    let bench = world();
    send(&bench, "tank/v@one", "full");
    send(&bench, "-i @one tank/v@two", "increment");
    let len = |file: &str| bench.path(file).metadata().unwrap().len();
    assert!(len("full") > 16 << 20 && len("full") < 17 << 20 && len("increment") < 10_000);
    let said = bench.ok("volume send -n -i tank/v@one tank/v@two");
    let expected_size =
        format!("tank/v@two since tank/v@one: {} bytes, 8192 of them data\n", len("increment"));
    assert_eq!(said, expected_size);
    assert!(refused(&bench, "dozer/copy", "increment", 3).contains("does not exist"));
    assert_eq!(received(&bench, "dozer/copy", "full"), "dozer/copy@one received, with 16 MiB of data\n");
    assert!(refused(&bench, "dozer/copy", "full", 3).contains("exists already"));
    assert_eq!(
        received(&bench, "dozer/copy@other", "increment"),
        "dozer/copy@other received, with 8 KiB of data\n"
    );
    assert_eq!(firsts(&bench, "dozer/copy@one"), expected(false));
    assert_eq!(firsts(&bench, "dozer/copy"), expected(true));
    // A chain from machine to machine: what was received is sent on.
    send(&bench, "-i dozer/copy@one dozer/copy@other", "on");
    assert_eq!(len("on"), len("increment") + "dozer/copy@other".len() as u64 - "tank/v@two".len() as u64);
    assert!(
        refused(&bench, "dozer/copy", "increment", 3)
            .contains("dozer/copy@other is the snapshot of the stream already")
    );
    bench.ok("dataset destroy dozer/copy@other");
    let said = refused(&bench, "dozer/copy", "increment", 4);
    assert!(said.contains("has changed since") && said.contains("--force"), "{said}");
    bench.ok(&format!("volume serve dozer/copy --socket {}", bench.text("copy.sock")));
    assert!(refused(&bench, "-F dozer/copy", "increment", 4).contains("unserve"));
    bench.client("copy.sock", "dozer/copy").write(0, &[77; 4096], true).unwrap();
    bench.ok("volume unserve dozer/copy");
    received(&bench, "-F dozer/copy", "increment");
    assert_eq!(firsts(&bench, "dozer/copy"), expected(true));
    bench.ok("pool check dozer");
    bench.ok("pool check tank");
    let history = bench.ok("pool history dozer");
    assert!(history.contains("receive") && history.contains("name=dozer/copy"), "{history}");
}

#[test]
fn what_is_no_stream_and_what_is_no_snapshot_is_refused() {
    let bench = world();
    send(&bench, "tank/v@one", "full");
    let whole = std::fs::read(bench.path("full")).unwrap();
    let mut changed = whole.clone();
    changed[5 << 20] ^= 1;
    for (name, bytes, code) in [
        ("short", &whole[..3 << 20], 4),
        ("changed", &changed[..], 6),
        ("text", b"something else that is long enough to be looked at", 3),
        ("empty", b"", 4),
    ] {
        std::fs::write(bench.path(name), bytes).unwrap();
        refused(&bench, "dozer/copy", name, code);
        assert_eq!(bench.ok("dataset list dozer -H -o name"), "dozer\n", "{name}");
    }
    for (line, code) in [
        ("volume send tank/v", 3),
        ("volume send tank/v@none", 3),
        ("volume send -i @two tank/v@one", 3),
        ("volume send -i dozer/x@one tank/v@one", 3),
        ("volume send -t 1-00", 3),
        ("volume send -t X tank/v@one", 2),
        ("volume receive -A dozer/copy", 3),
        ("volume receive dozer/copy", 4),
        ("volume list -t folder", 3),
    ] {
        bench.fails(line, code);
    }
}

/// Starts to receive, and feeds part of a stream.
fn feed(bench: &Bench, arguments: &str, part: &[u8]) -> Child {
    let mut command = bench.command(&format!("volume receive {arguments}"));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(part).unwrap();
    child
}

/// Until so much has come that something is stored.
fn wait_for_part(bench: &Bench) {
    let begun = Instant::now();
    loop {
        bench.ok("pool sync dozer");
        let used = bench.ok("dataset list dozer -t receiving -Hp -o used");
        if used.trim().parse::<u64>().is_ok_and(|used| used >= 2 << 20) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing comes");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn kill_pool(bench: &Bench, pool: &str) {
    let status = bench.ok(&format!("status {pool}"));
    let process = status.split("process ").nth(1).unwrap();
    let process: String = process.chars().take_while(char::is_ascii_digit).collect();
    assert!(Command::new("kill").args(["-9", &process]).status().unwrap().success());
    let begun = Instant::now();
    while bench.run(&format!("pool import {pool}")).status.code() != Some(0) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{pool} does not come back");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The client is killed, then the server; what came stays each time, and nobody takes it for a volume.
#[test]
fn a_stream_goes_on_after_kills_on_either_side() {
    let bench = world();
    send(&bench, "tank/v@one", "full");
    let whole = std::fs::read(bench.path("full")).unwrap();
    let mut client = feed(&bench, "-s dozer/copy", &whole[..6 << 20]);
    wait_for_part(&bench);
    client.kill().unwrap();
    client.wait().unwrap();
    let token = || {
        let begun = Instant::now();
        loop {
            let listed = bench.ok("volume list -t receiving -H -o volume,token");
            if let Some(token) = listed.strip_prefix("dozer/copy\t") {
                return token.trim().to_owned();
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{listed}");
        }
    };
    let first = token();
    assert_eq!(bench.ok("volume list -H -o volume"), "tank/v\n", "it is no volume yet");
    bench.fails("volume serve dozer/copy", 3);
    bench.fails("volume snapshot dozer/copy@x", 3);
    send(&bench, &format!("-t {first}"), "rest");
    let rest = std::fs::read(bench.path("rest")).unwrap();
    assert!(rest.len() <= whole.len() - (2 << 20), "{}", rest.len());
    let mut client = feed(&bench, "-s dozer/copy", &rest[..6 << 20]);
    let begun = Instant::now();
    while token() == first {
        bench.ok("pool sync dozer");
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing comes");
    }
    kill_pool(&bench, "dozer");
    assert!(!client.wait().unwrap().success());
    let second = token();
    assert!(refused(&bench, "-s dozer/copy", "full", 4).contains(&second));
    send(&bench, &format!("--token {second}"), "last");
    assert!(bench.path("last").metadata().unwrap().len() < bench.path("rest").metadata().unwrap().len());
    received(&bench, "dozer/copy", "last");
    assert_eq!(firsts(&bench, "dozer/copy"), expected(false));
    assert_eq!(bench.ok("volume list -t receiving -H -o volume"), "");
    // The next state of it: interrupted, the volume is as it was, and is discarded.
    send(&bench, "-i @one tank/v@two", "increment");
    let increment = std::fs::read(bench.path("increment")).unwrap();
    std::fs::write(bench.path("half"), &increment[..increment.len() - 50]).unwrap();
    assert!(refused(&bench, "-s dozer/copy", "half", 4).contains("go on with the token"));
    assert_eq!(firsts(&bench, "dozer/copy"), expected(false));
    // By the name that the next command takes.
    assert_eq!(bench.ok("volume list -t receiving -H -o volume"), "dozer/copy\n");
    let said = bench.fails("dataset destroy dozer/copy@one", 4);
    assert!(said.contains("what came of a stream for dozer/copy"), "{said}");
    bench.ok("volume receive -A dozer/copy");
    received(&bench, "dozer/copy", "increment");
    assert_eq!(firsts(&bench, "dozer/copy"), expected(true));
    bench.ok("pool check dozer");
}

/// Without `-s` nothing is left, whoever is killed.
#[test]
fn what_is_not_to_be_kept_is_gone_after_a_kill() {
    let bench = world();
    send(&bench, "tank/v@one", "full");
    let whole = std::fs::read(bench.path("full")).unwrap();
    let mut client = feed(&bench, "dozer/copy", &whole[..6 << 20]);
    wait_for_part(&bench);
    assert_eq!(bench.ok("volume list -t receiving -H -o volume,token"), "dozer/copy\t-\n");
    let said = refused(&bench, "dozer/copy", "full", 4);
    assert!(said.contains("dozer/copy is being received already"), "one at a time: {said}");
    let said = bench.fails("volume receive -A dozer/copy", 4);
    assert!(said.contains("dozer/copy is being received already"), "{said}");
    // Both pools are in use.
    let mut sends = bench.command("volume send tank/v@one").stdout(Stdio::piped()).spawn().unwrap();
    sends.stdout.as_mut().unwrap().read_exact(&mut [0; 1000]).unwrap();
    let said = bench.fails("pool export tank", 4);
    assert!(said.contains("tank/v@one is being sent"), "{said}");
    sends.kill().unwrap();
    sends.wait().unwrap();
    for command in ["export", "destroy"] {
        let said = bench.fails(&format!("pool {command} dozer"), 4);
        assert!(said.contains("dozer/copy is being received"), "{said}");
    }
    client.kill().unwrap();
    client.wait().unwrap();
    let begun = Instant::now();
    while bench.ok("dataset list dozer -H -o name") != "dozer\n" {
        assert!(begun.elapsed() < Duration::from_secs(60), "it stays");
    }
    let mut client = feed(&bench, "dozer/copy", &whole[..6 << 20]);
    wait_for_part(&bench);
    kill_pool(&bench, "dozer");
    client.wait().unwrap();
    assert_eq!(bench.ok("dataset list dozer -H -o name"), "dozer\n");
    bench.ok("pool check dozer");
    received(&bench, "dozer/copy", "full");
}
