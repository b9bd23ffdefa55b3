//! The client of the agent in the guest.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use fastness_agent::protocol::{COMMAND_BYTES_MAX, Decoder, Message, Request, VERSION, encode};

use super::qmp::{Silence, receive};

/// The result of a command in the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit status; 128 + n for signal n.
    pub status: i32,
    /// It did not end in time, and was killed; the guest continues.
    pub timed_out: bool,
    /// There was more output than the agent keeps (16 MiB).
    pub cut: bool,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Whether it ended by itself, with status 0.
    pub fn is_success(&self) -> bool {
        self.status == 0 && !self.timed_out
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

#[derive(Debug)]
pub(super) struct Agent {
    stream: UnixStream,
    decoder: Decoder,
    identity: u32,
}

impl Agent {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, decoder: Decoder::default(), identity: 0 }
    }

    /// Waits until the guest has booted.
    pub(super) fn wait_for_hello(&mut self, deadline: Instant) -> Result<(), Silence> {
        loop {
            match self.next(deadline)? {
                (_, Message::Hello(VERSION)) => return Ok(()),
                (_, Message::Hello(version)) => {
                    let of = format!("an agent of version {version}, not {VERSION}: run scripts/crash-guest");
                    return Err(Silence::Garbage(of));
                }
                _ => {}
            }
        }
    }

    /// Asks for a command line to be run, with this clock, in seconds since 1970, if any; the agent kills it
    /// after `timeout`.
    pub(super) fn ask(
        &mut self,
        command: &str,
        clock_s: Option<i64>,
        timeout: Duration,
    ) -> Result<(), Silence> {
        if command.len() > COMMAND_BYTES_MAX {
            return Err(Silence::Garbage(format!("a command of more than {COMMAND_BYTES_MAX} bytes")));
        }
        self.identity = self.identity.wrapping_add(1);
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        let request = Message::Request(Request { timeout_ms, clock_s, command: command.as_bytes().to_vec() });
        self.stream
            .set_write_timeout(Some(timeout.max(Duration::from_secs(1))))
            .map_err(|_| Silence::Closed)?;
        self.stream.write_all(&encode(self.identity, &request)).map_err(|_| Silence::Closed)
    }

    /// Waits for the answer to the last request, until `deadline`: the agent may be gone.
    pub(super) fn answer(&mut self, deadline: Instant) -> Result<Output, Silence> {
        loop {
            // Answers to what was asked before a snapshot may still be on the way.
            if let (identity, Message::Response(done)) = self.next(deadline)?
                && identity == self.identity
            {
                return Ok(Output {
                    status: done.status,
                    timed_out: done.timed_out,
                    cut: done.cut,
                    stdout: done.stdout,
                    stderr: done.stderr,
                });
            }
        }
    }

    fn next(&mut self, deadline: Instant) -> Result<(u32, Message), Silence> {
        loop {
            if let Some(frame) = self.decoder.next_frame() {
                return Ok(frame);
            }
            let mut bytes = Vec::new();
            receive(&mut self.stream, &mut bytes, deadline)?;
            self.decoder.push(&bytes);
        }
    }
}
