//! What of guests can be tested without one: the sockets, the processes, the checks.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fastness_agent::protocol::{Message, VERSION, encode};
use serde_json::json;

use super::agent::Agent;
use super::qmp::{Qmp, Silence, connect};
use super::{GuestConfig, GuestError};
use crate::process::Group;

const SOON: Duration = Duration::from_millis(200);

fn by(after: Duration) -> Instant {
    Instant::now() + after
}

/// A QEMU that greets, agrees to the capabilities, and gives these answers to what it is asked then.
fn qemu(answers: &'static [&'static str]) -> Result<Qmp, Silence> {
    let (client, server) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        let mut lines = BufReader::new(server.try_clone().unwrap()).lines();
        let mut server = server;
        server.write_all(b"{\"QMP\": {}}\n").unwrap();
        for answer in ["{\"return\": {}}\n"].iter().chain(answers) {
            if lines.next().is_none() || server.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
        // Silent, until the client has gone.
        while lines.next().is_some() {}
    });
    Qmp::new(client, by(Duration::from_secs(10)))
}

#[test]
fn answers_are_found_among_events_and_waited_for() {
    let mut qmp = qemu(&[
        "{\"event\": \"STOP\"}\n{\"return\": {\"status\": \"active\"}}\n",
        "{\"return\": {\"status\": \"completed\"}}\n",
        "{\"error\": {\"desc\": \"no\"}}\n",
    ])
    .unwrap();
    qmp.wait("query-migrate", by(SOON), |answer| Ok(answer["status"] == "completed")).unwrap();
    match qmp.execute("quit", json!({}), by(SOON)) {
        Err(Silence::Refused { command: "quit", reason }) => assert_eq!(reason, "no"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(qmp.execute("quit", json!({}), by(SOON)), Err(Silence::TimedOut)));
}

#[test]
fn what_is_no_answer_is_an_error() {
    for garbage in ["what?\n", "{\"return\"\n"] {
        let mut qmp = qemu(Box::leak(Box::new([garbage]))).unwrap();
        assert!(matches!(qmp.execute("quit", json!({}), by(SOON)), Err(Silence::Garbage(_))), "{garbage}");
    }
    let (client, server) = UnixStream::pair().unwrap();
    drop(server);
    assert!(matches!(Qmp::new(client, by(SOON)), Err(Silence::Closed)));
}

#[test]
fn the_agent_of_a_guest_is_spoken_to_in_its_protocol() {
    let (client, guest) = UnixStream::pair().unwrap();
    thread::spawn(move || fastness_agent::serve::serve_on(guest.try_clone().unwrap(), guest));
    let mut agent = Agent::new(client);
    agent.wait_for_hello(by(Duration::from_secs(10))).unwrap();
    // Asked, and not waited for: its answer is not taken for the next one's.
    agent.ask("echo one", None, Duration::from_secs(10)).unwrap();
    agent.ask("echo two; exit 4", None, Duration::from_secs(10)).unwrap();
    let output = agent.answer(by(Duration::from_secs(10))).unwrap();
    assert_eq!((output.text().as_str(), output.status, output.is_success()), ("two\n", 4, false));
    assert!(matches!(agent.answer(by(SOON)), Err(Silence::TimedOut)));
}

#[test]
fn a_process_is_killed_with_its_owner_and_outlives_the_thread_that_asked_for_it() {
    let script = |text: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
    };
    let mut process =
        thread::spawn(move || Group::spawn_bound(script("sleep 100 & wait")).unwrap()).join().unwrap();
    assert!(process.wait(SOON).unwrap().is_none());
    let start = Instant::now();
    drop(process);
    assert!(start.elapsed() < Duration::from_secs(10));
    let mut ended = Group::spawn_bound(script("exit 1")).unwrap();
    assert!(ended.wait(Duration::from_secs(10)).unwrap().is_some());
    let refused = connect(Path::new("/nowhere/socket"), &mut ended, by(SOON));
    assert!(matches!(refused, Err(Silence::Closed)));
    assert!(Group::spawn_bound(Command::new("/no/such/program")).is_err());
}

#[test]
fn machines_that_cannot_be_are_refused() {
    let built = tempfile::tempdir().unwrap();
    for file in ["vmlinuz", "initrd"] {
        std::fs::write(built.path().join(file), "").unwrap();
    }
    let good = GuestConfig::new(built.path());
    good.check().unwrap();
    for wrong in [
        GuestConfig { pm_bytes: 512 << 20, ..good.clone() },
        GuestConfig { pm_bytes: !0x1f_ffff, ..good.clone() },
        GuestConfig { pm_bytes: 0, ..good.clone() },
        GuestConfig { pm_bytes: 1 << 20, ..good.clone() },
        GuestConfig { ram_bytes: 4 << 30, ..good.clone() },
        GuestConfig { ram_bytes: (512 << 20) + 1, ..good.clone() },
        GuestConfig { folder: "/a,b".into(), ..good.clone() },
        GuestConfig { kernel: "/nowhere".into(), ..good.clone() },
    ] {
        assert!(matches!(wrong.check(), Err(GuestError::Config(_))), "{wrong:?}");
    }
}

#[test]
fn an_agent_of_another_version_is_refused() {
    for (hello, is_refused) in [(Message::Hello(VERSION), false), (Message::Hello(VERSION - 1), true)] {
        let (mut guest, client) = UnixStream::pair().unwrap();
        guest.write_all(&encode(0, &hello)).unwrap();
        let said = Agent::new(client).wait_for_hello(by(Duration::from_secs(10)));
        match said {
            Err(Silence::Garbage(text)) => {
                assert!(is_refused && text.contains("scripts/crash-guest"), "{text}");
            }
            other => assert!(!is_refused, "{other:?}"),
        }
    }
}
