//! The guest's side of the command protocol: one command line at a time.
//!
//! A command that does not end is killed with all that it started; if it cannot be killed, it is abandoned,
//! and the response reports a time-out. The client outside has a time-out of its own for
//! a guest that is gone.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::termios::{OptionalActions, isatty, tcgetattr, tcsetattr};

use crate::clock;
use crate::protocol::{Decoder, Message, OUTPUT_BYTES_MAX, Request, Response, VERSION, encode};

/// A frame whose rest does not come for this long is given up.
const FRAME_GAP: Duration = Duration::from_secs(5);
/// For output of a command that has exited, and for one that was killed.
const GRACE: Duration = Duration::from_millis(500);

/// Opens a port (a virtio port, or a terminal, which becomes raw), says hello, and serves requests until
/// an error.
///
/// # Errors
/// I/O on the port.
pub fn serve(port: &Path) -> io::Result<()> {
    let port = File::options().read(true).write(true).open(port)?;
    if isatty(&port) {
        let mut attributes = tcgetattr(&port)?;
        attributes.make_raw();
        tcsetattr(&port, OptionalActions::Now, &attributes)?;
    }
    serve_on(Port(port.try_clone()?), port)
}

/// A virtio port reports its end while it is not open outside, and continues afterwards.
struct Port(File);

impl Read for Port {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(bytes)? {
                0 => thread::sleep(Duration::from_millis(20)),
                count => return Ok(count),
            }
        }
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Serves on any pair of streams until `input` ends.
///
/// # Errors
/// I/O on the streams.
pub fn serve_on(mut input: impl Read + AsFd, mut output: impl Write) -> io::Result<()> {
    output.write_all(&encode(0, &Message::Hello(VERSION)))?;
    output.flush()?;
    let mut decoder = Decoder::default();
    let mut bytes = vec![0; 64 << 10];
    loop {
        if decoder.is_inside() && !readable(input.as_fd(), FRAME_GAP)? {
            decoder.give_up();
        } else {
            let count = match input.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(error) => return Err(error),
            };
            decoder.push(&bytes[..count]);
        }
        while let Some((identity, message)) = decoder.next_frame() {
            if let Message::Request(request) = message {
                let response = execute(&request);
                output.write_all(&encode(identity, &Message::Response(response)))?;
                output.flush()?;
            }
        }
    }
}

fn readable(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(timeout).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
        Ok(count) => Ok(count > 0),
        // The read that follows waits again.
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Runs a command line, after the clock was set; what cannot be started is status 127, as shells have it.
pub fn execute(request: &Request) -> Response {
    let failed = |what: &str, error: io::Error| Response {
        status: 127,
        stderr: format!("{what}: {error}\n").into_bytes(),
        ..Response::default()
    };
    if let Some(Err(error)) = request.clock_s.map(clock::set) {
        return failed("the clock", error);
    }
    let command = String::from_utf8_lossy(&request.command);
    let child = Command::new("sh")
        .arg("-c")
        .arg(&*command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    match child {
        Ok(child) => collect(child, Duration::from_millis(request.timeout_ms.into())),
        Err(error) => failed("sh", error),
    }
}

enum Event {
    Output(Stream, Vec<u8>),
    End,
    Exit(Option<ExitStatus>),
}

#[derive(Clone, Copy)]
enum Stream {
    Out,
    Err,
}

fn collect(mut child: Child, timeout: Duration) -> Response {
    let (sender, events) = mpsc::channel();
    let pid = Pid::from_child(&child);
    if let Some(stdout) = child.stdout.take() {
        read_all(Stream::Out, stdout, sender.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        read_all(Stream::Err, stderr, sender.clone());
    }
    thread::spawn(move || sender.send(Event::Exit(child.wait().ok())));
    let mut response = Response { status: -1, ..Response::default() };
    if !gather(&events, &mut response, timeout) {
        response.timed_out = true;
        // Nothing to be done if it is gone by now.
        let _ = kill_process_group(pid, Signal::KILL);
        gather(&events, &mut response, GRACE);
    }
    response
}

/// True if the command has exited, and its output has ended or had its grace.
fn gather(events: &Receiver<Event>, response: &mut Response, timeout: Duration) -> bool {
    let mut deadline = Instant::now() + timeout;
    let (mut exited, mut ended) = (false, 0);
    while !(exited && ended == 2) {
        match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::Output(stream, bytes)) => {
                let kept = match stream {
                    Stream::Out => &mut response.stdout,
                    Stream::Err => &mut response.stderr,
                };
                let room = OUTPUT_BYTES_MAX - kept.len();
                response.cut |= bytes.len() > room;
                kept.extend(&bytes[..bytes.len().min(room)]);
            }
            Ok(Event::End) => ended += 1,
            Ok(Event::Exit(status)) => {
                exited = true;
                response.status = status
                    .map_or(-1, |status| status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
                // What it left in the background may keep its output open.
                deadline = deadline.min(Instant::now() + GRACE);
            }
            Err(_) => return exited,
        }
    }
    true
}

fn read_all(stream: Stream, mut from: impl Read + Send + 'static, to: Sender<Event>) {
    thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if to.send(Event::Output(stream, bytes[..count].to_vec())).is_err() {
                return;
            }
        }
        let _ = to.send(Event::End);
    });
}
