//! QMP: QEMU's control socket, one JSON object a line.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{GuestError, Result};
use crate::process::Group;

/// Longest line that QEMU may send.
const LINE_BYTES_MAX: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Qmp {
    stream: UnixStream,
    received: Vec<u8>,
}

/// Why there is no answer; the caller adds what the console says.
#[derive(Debug)]
pub(super) enum Silence {
    Closed,
    TimedOut,
    Refused { command: &'static str, reason: String },
    Garbage(String),
}

impl Qmp {
    /// Takes the greeting and says which version is spoken.
    pub(super) fn new(stream: UnixStream, deadline: Instant) -> Result<Self, Silence> {
        let mut qmp = Self { stream, received: Vec::new() };
        while qmp.line(deadline)?.get("QMP").is_none() {}
        qmp.execute("qmp_capabilities", json!({}), deadline)?;
        Ok(qmp)
    }

    /// One command; events that come before its answer are dropped.
    pub(super) fn execute(
        &mut self,
        command: &'static str,
        arguments: Value,
        by: Instant,
    ) -> Result<Value, Silence> {
        let line = json!({"execute": command, "arguments": arguments}).to_string() + "\n";
        self.stream.set_write_timeout(Some(left(by))).map_err(closed)?;
        self.stream.write_all(line.as_bytes()).map_err(closed)?;
        loop {
            let mut answer = self.line(by)?;
            if let Some(error) = answer.get("error") {
                let reason = error["desc"].as_str().unwrap_or("no reason").to_owned();
                return Err(Silence::Refused { command, reason });
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
        }
    }

    /// Repeats a command until its answer is the expected one.
    pub(super) fn wait(
        &mut self,
        command: &'static str,
        by: Instant,
        mut is_done: impl FnMut(&Value) -> Result<bool, Silence>,
    ) -> Result<(), Silence> {
        loop {
            let answer = self.execute(command, json!({}), by)?;
            if is_done(&answer)? {
                return Ok(());
            }
            if Instant::now() >= by {
                return Err(Silence::TimedOut);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn line(&mut self, deadline: Instant) -> Result<Value, Silence> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                let text = || String::from_utf8_lossy(&line).chars().take(200).collect();
                return serde_json::from_slice(&line).map_err(|_| Silence::Garbage(text()));
            }
            if self.received.len() > LINE_BYTES_MAX {
                return Err(Silence::Garbage("a line without end".to_owned()));
            }
            receive(&mut self.stream, &mut self.received, deadline)?;
        }
    }
}

/// At least something, as a time-out of zero would be none.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

fn closed(error: io::Error) -> Silence {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Silence::TimedOut,
        _ => Silence::Closed,
    }
}

/// Connects to a socket that a process makes.
pub(super) fn connect(socket: &Path, process: &mut Group, deadline: Instant) -> Result<UnixStream, Silence> {
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(_) if process.has_ended() => return Err(Silence::Closed),
            Err(_) if Instant::now() > deadline => return Err(Silence::TimedOut),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Waits for bytes of a socket, and appends them.
pub(super) fn receive(stream: &mut UnixStream, to: &mut Vec<u8>, deadline: Instant) -> Result<(), Silence> {
    if Instant::now() >= deadline {
        return Err(Silence::TimedOut);
    }
    let mut bytes = [0; 16 << 10];
    stream.set_read_timeout(Some(left(deadline))).map_err(closed)?;
    match stream.read(&mut bytes) {
        Ok(0) => Err(Silence::Closed),
        Ok(count) => {
            to.extend_from_slice(&bytes[..count]);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        Err(error) => Err(closed(error)),
    }
}

impl Silence {
    /// As an error of the guest.
    pub(super) fn during(
        self,
        during: &'static str,
        after: Duration,
        qemu: String,
        console: String,
    ) -> GuestError {
        match self {
            Silence::Closed => GuestError::Ended { during, qemu, console },
            Silence::TimedOut => GuestError::TimedOut { during, after, console },
            Silence::Refused { command, reason } => GuestError::Qmp { command, reason },
            Silence::Garbage(text) => GuestError::Protocol { during, text },
        }
    }
}
