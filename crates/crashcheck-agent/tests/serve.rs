//! The command protocol: binary safe, bounded, and it outlives garbage and commands that hang.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use fastness_agent::protocol::{Decoder, Message, OUTPUT_BYTES_MAX, Request, Response, VERSION, encode};
use fastness_agent::serve::serve_on;
use proptest::prelude::*;

struct Client {
    stream: UnixStream,
    decoder: Decoder,
}

impl Client {
    fn new() -> Self {
        let (stream, guest) = UnixStream::pair().unwrap();
        std::thread::spawn(move || serve_on(guest.try_clone().unwrap(), guest));
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut client = Self { stream, decoder: Decoder::default() };
        assert_eq!(client.next(), (0, Message::Hello(VERSION)));
        client
    }

    fn next(&mut self) -> (u32, Message) {
        loop {
            if let Some(frame) = self.decoder.next_frame() {
                return frame;
            }
            let mut bytes = [0; 4096];
            let count = match self.stream.read(&mut bytes) {
                // A socket with a time-out is not restarted after a signal.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.unwrap(),
            };
            assert_ne!(count, 0);
            self.decoder.push(&bytes[..count]);
        }
    }

    fn run(&mut self, identity: u32, command: &str, timeout_ms: u32) -> Response {
        self.run_at(identity, None, command, timeout_ms)
    }

    fn run_at(&mut self, identity: u32, clock_s: Option<i64>, command: &str, timeout_ms: u32) -> Response {
        let request = Message::Request(Request { timeout_ms, clock_s, command: command.into() });
        self.stream.write_all(&encode(identity, &request)).unwrap();
        match self.next() {
            (answered, Message::Response(response)) if answered == identity => response,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn commands_run_and_their_outputs_come_back() {
    let mut client = Client::new();
    let done = client.run(7, "printf 'a\\000\\377\\177FAGb'; echo no >&2; exit 3", 10_000);
    assert_eq!((done.status, done.timed_out, done.cut), (3, false, false));
    assert_eq!(done.stdout, b"a\0\xff\x7fFAGb");
    assert_eq!(done.stderr, b"no\n");
    assert_eq!(client.run(8, "kill -9 $$", 10_000).status, 137);
    assert_eq!(client.run(9, "no-such-program-here", 10_000).status, 127);
}

#[test]
fn garbage_and_frames_that_are_cut_off_are_skipped() {
    let mut client = Client::new();
    let request = Request { timeout_ms: 1000, clock_s: None, command: b"echo 1".to_vec() };
    let request = encode(1, &Message::Request(request));
    let mut damaged = request.clone();
    damaged[25] ^= 1;
    client.stream.write_all(b"[    0.1] a kernel says \x7fFA\x7fFAG\x7f").unwrap();
    client.stream.write_all(&damaged).unwrap();
    assert_eq!(client.run(2, "echo 2", 10_000).stdout, b"2\n");
    // Its rest never comes; what follows is taken for it, until that cannot be.
    client.stream.write_all(&request[..22]).unwrap();
    assert_eq!(client.run(3, "echo 3", 10_000).stdout, b"3\n");
}

#[test]
fn a_command_that_hangs_is_killed_with_its_children() {
    let mut client = Client::new();
    let start = Instant::now();
    let hung = client.run(1, "echo early; sleep 100 & sleep 100", 300);
    assert!(hung.timed_out && hung.stdout == b"early\n", "{hung:?}");
    assert!(start.elapsed() < Duration::from_secs(5));
    // A command that leaves a process running has exited all the same.
    let left = client.run(2, "sleep 5 & echo done", 10_000);
    assert!(!left.timed_out && left.status == 0 && left.stdout == b"done\n", "{left:?}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_command_does_not_run_at_another_time_than_asked_for() {
    // Not in a guest; and no clock has this time.
    let done = Client::new().run_at(1, Some(i64::MAX), "echo ran", 10_000);
    assert_eq!((done.status, done.stdout.len()), (127, 0), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stderr).contains("only in a guest"), "{done:?}");
}

#[test]
fn output_is_bounded() {
    let response = Client::new().run(1, "head -c 20000000 /dev/zero", 20_000);
    assert!(response.cut && response.stdout.len() == OUTPUT_BYTES_MAX && response.status == 0);
}

#[test]
fn the_instruction_of_hypercalls_is_in_the_program() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_fastness-agent")).unwrap();
    let instruction = [0x0f, 0x1f, 0x84, 0x00, 0x01, 0x00, 0x5c, 0x7a];
    assert!(!cfg!(target_arch = "x86_64") || program.windows(8).any(|window| window == instruction));
    for (arguments, code) in [
        (&["hypercall", "start"][..], 0),
        (&["hypercall", "checkpoint", "5"], 0),
        (&["hypercall", "checkpoint"], 2),
        (&["what"], 2),
        (&["run", "/nowhere"], 3),
        (&["fs-dump", "/nowhere"], 1),
        (&["--help"], 0),
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_fastness-agent"))
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    }
}

fn message() -> impl Strategy<Value = Message> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..100);
    prop_oneof![
        any::<u32>().prop_map(Message::Hello),
        (any::<u32>(), any::<Option<i64>>(), bytes()).prop_map(|(timeout_ms, clock_s, command)| {
            Message::Request(Request { timeout_ms, clock_s, command })
        }),
        (any::<i32>(), any::<bool>(), any::<bool>(), bytes(), bytes()).prop_map(
            |(status, timed_out, cut, stdout, stderr)| {
                Message::Response(Response { status, timed_out, cut, stdout, stderr })
            }
        ),
    ]
}

proptest! {
    #[test]
    fn frames_are_found_among_garbage(
        parts in prop::collection::vec((any::<u32>(), message(), prop::collection::vec(any::<u8>(), 0..30)), 0..8),
        piece in 1..50usize,
    ) {
        let mut stream = Vec::new();
        for (identity, message, garbage) in &parts {
            stream.extend(encode(*identity, message));
            stream.extend(garbage);
        }
        // What garbage may have begun is given up.
        let mut decoder = Decoder::default();
        let mut found = Vec::new();
        for bytes in stream.chunks(piece) {
            decoder.push(bytes);
            found.extend(std::iter::from_fn(|| decoder.next_frame()));
        }
        while decoder.is_inside() {
            decoder.give_up();
            found.extend(std::iter::from_fn(|| decoder.next_frame()));
        }
        let sent: Vec<_> = parts.into_iter().map(|(identity, message, _)| (identity, message)).collect();
        prop_assert_eq!(found, sent);
    }

    #[test]
    fn hostile_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut decoder = Decoder::default();
        decoder.push(&[b"\x7fFAG", &bytes[..]].concat());
        while decoder.next_frame().is_some() {}
    }
}
