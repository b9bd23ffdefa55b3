//! Frames between the program in the guest and the tester outside, over anything that carries bytes.
//!
//! ```text
//! offset  size
//!      0     4  magic "\x7fFAG"
//!      4     4  kind: 0 hello, 1 request, 2 response
//!      8     4  identity: a response has that of its request
//!     12     4  length of the payload in bytes, at most PAYLOAD_BYTES_MAX
//!     16     4  FNV-1a of the 16 bytes before
//!     20     n  payload
//!   20+n     4  FNV-1a of the payload
//! ```
//! Numbers are little endian. Hello: [`VERSION`] (4); nothing in the first one. Request: time-out in ms (4),
//! whether the clock is set (1), to what (8, signed; seconds since 1970), command line. Response: exit status
//! (4, signed), flags (1), length of standard output (4), standard output, standard error.
//!
//! A console may carry other bytes, too: everything that is not a frame with right checksums is skipped, byte
//! by byte, and is not an error.

const MAGIC: [u8; 4] = *b"\x7fFAG";
const HEADER_BYTES: usize = 20;

/// Of this protocol, and of the commands that its client expects to be there.
pub const VERSION: u32 = 3;
/// Before the command line of a request.
const REQUEST_BYTES: usize = 13;

/// Longest command line, in bytes.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;
/// Most that is kept of standard output, and of standard error, in bytes.
pub const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// Longest payload of a frame, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 2 * OUTPUT_BYTES_MAX + 64;

const TIMED_OUT: u8 = 1;
const CUT: u8 = 2;

/// What a frame carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The guest has booted and waits for requests of this version of the protocol.
    Hello(u32),
    /// Run a command.
    Request(Request),
    /// It has run.
    Response(Response),
}

/// A command line for `sh -c`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// After this time the command is killed.
    pub timeout_ms: u32,
    /// The machine's clock when it begins, in seconds since 1970; none leaves it alone.
    pub clock_s: Option<i64>,
    /// At most [`COMMAND_BYTES_MAX`] bytes.
    pub command: Vec<u8>,
}

/// The result of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// Exit status; 128 + n for signal n, as shells have it.
    pub status: i32,
    /// It was killed by its time-out.
    pub timed_out: bool,
    /// There was more output than [`OUTPUT_BYTES_MAX`].
    pub cut: bool,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

fn fnv(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// A frame; outputs that are too long are cut.
pub fn encode(identity: u32, message: &Message) -> Vec<u8> {
    let (kind, payload): (u32, Vec<u8>) = match message {
        Message::Hello(version) => (0, version.to_le_bytes().to_vec()),
        Message::Request(request) => {
            let len = request.command.len().min(COMMAND_BYTES_MAX);
            let (timeout, clock) = (request.timeout_ms.to_le_bytes(), request.clock_s.unwrap_or_default());
            let is_set = [u8::from(request.clock_s.is_some())];
            (1, [&timeout[..], &is_set, &clock.to_le_bytes(), &request.command[..len]].concat())
        }
        Message::Response(response) => {
            let bounded = |bytes: &Vec<u8>| bytes.len().min(OUTPUT_BYTES_MAX);
            let stdout = &response.stdout[..bounded(&response.stdout)];
            let stderr = &response.stderr[..bounded(&response.stderr)];
            let cut =
                response.cut || stdout.len() < response.stdout.len() || stderr.len() < response.stderr.len();
            let flags = if response.timed_out { TIMED_OUT } else { 0 } | if cut { CUT } else { 0 };
            let stdout_len = u32::try_from(stdout.len()).unwrap_or(u32::MAX).to_le_bytes();
            (2, [&response.status.to_le_bytes()[..], &[flags], &stdout_len, stdout, stderr].concat())
        }
    };
    let mut frame = MAGIC.to_vec();
    for number in [kind, identity, u32::try_from(payload.len()).unwrap_or(u32::MAX)] {
        frame.extend(number.to_le_bytes());
    }
    frame.extend(fnv(&frame).to_le_bytes());
    frame.extend(&payload);
    frame.extend(fnv(&payload).to_le_bytes());
    frame
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn decode_payload(kind: u32, payload: &[u8]) -> Option<Message> {
    match kind {
        0 if payload.is_empty() => Some(Message::Hello(1)),
        0 => Some(Message::Hello(number(payload, 0)?)),
        1 => {
            let (head, command) = payload.split_at_checked(REQUEST_BYTES)?;
            let clock_s = i64::from_le_bytes(head[5..].try_into().ok()?);
            let clock_s = (head[4] != 0).then_some(clock_s);
            let command = (command.len() <= COMMAND_BYTES_MAX).then(|| command.to_vec())?;
            Some(Message::Request(Request { timeout_ms: number(head, 0)?, clock_s, command }))
        }
        2 => {
            let status = i32::from_le_bytes(payload.get(..4)?.try_into().ok()?);
            let flags = *payload.get(4)?;
            let stdout_len = number(payload, 5)? as usize;
            let (stdout, stderr) = payload[9..].split_at_checked(stdout_len)?;
            let (timed_out, cut) = (flags & TIMED_OUT != 0, flags & CUT != 0);
            Some(Message::Response(Response {
                status,
                timed_out,
                cut,
                stdout: stdout.to_vec(),
                stderr: stderr.to_vec(),
            }))
        }
        _ => None,
    }
}

/// Finds frames in a stream of bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
}

impl Decoder {
    /// Takes bytes of the stream. Holds at most one frame, and the piece that came with it.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, with its identity.
    pub fn next_frame(&mut self) -> Option<(u32, Message)> {
        loop {
            let start = self.bytes.windows(MAGIC.len()).position(|window| window == MAGIC);
            // A magic may have begun at the end.
            let skip = start.unwrap_or(self.bytes.len().saturating_sub(MAGIC.len() - 1));
            self.bytes.drain(..skip);
            start?;
            if self.bytes.len() < HEADER_BYTES {
                return None;
            }
            let field = |at| number(&self.bytes, at).unwrap_or(0);
            let (kind, identity, len) = (field(4), field(8), field(12) as usize);
            if field(16) == fnv(&self.bytes[..HEADER_BYTES - 4]) && len <= PAYLOAD_BYTES_MAX {
                let end = HEADER_BYTES + len;
                if self.bytes.len() < end + 4 {
                    return None;
                }
                if field(end) == fnv(&self.bytes[HEADER_BYTES..end])
                    && let Some(message) = decode_payload(kind, &self.bytes[HEADER_BYTES..end])
                {
                    self.bytes.drain(..end + 4);
                    return Some((identity, message));
                }
            }
            self.bytes.drain(..1);
        }
    }

    /// Has a frame begun that is not whole?
    pub fn is_inside(&self) -> bool {
        self.bytes.starts_with(&MAGIC)
    }

    /// Gives up the frame that has begun: its rest does not come.
    pub fn give_up(&mut self) {
        self.bytes.drain(..1.min(self.bytes.len()));
    }
}
