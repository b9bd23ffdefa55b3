//! The handshake: fixed newstyle, option by option.
//!
//! Source: `proto.md`, "Fixed newstyle negotiation", "Option types".

use std::sync::Arc;
use std::time::Instant;

use crate::error::{ConnectionError, OpenError};
use crate::execute::ALLOCATION_CONTEXT_ID;
use crate::export::{Export, Exports};
use crate::input::{Filled, Input};
use crate::rules::Rules;
use crate::socket::Socket;
use crate::tls::Tls;
use crate::wire::{
    BASE_ALLOCATION, HeaderMode, INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, STRING_BYTES_MAX, handshake,
    info, option, reply, u16_at, u32_at, u64_at,
};

/// Longest option data that is parsed.
const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Longest option data that is skipped; a client that sends more is disconnected.
const OPTION_SKIP_BYTES_MAX: u32 = 1 << 20;
/// Options in one handshake; clients need about five.
const OPTIONS_MAX: u32 = 256;
/// Largest minimum block size that a client need not ask for: every disk client aligns to sectors.
const UNASKED_MINIMUM_MAX: u32 = 512;

/// What the client and the server negotiated.
pub(crate) struct Session {
    pub(crate) export: Arc<dyn Export>,
    pub(crate) rules: Rules,
}

pub(crate) struct Negotiation<'a> {
    pub(crate) exports: &'a dyn Exports,
    pub(crate) socket: &'a Socket,
    pub(crate) input: &'a mut Input,
    /// With it, nothing but the way to TLS is answered before TLS.
    pub(crate) tls: Option<&'a Tls>,
    pub(crate) deadline: Instant,
    pub(crate) is_draining: &'a dyn Fn() -> bool,
    pub(crate) mode: HeaderMode,
    /// The export for which `base:allocation` was selected.
    pub(crate) allocation_of: Option<String>,
    pub(crate) no_zeroes: bool,
}

/// What an option leads to.
enum Next {
    Option,
    Transmission(Session),
    Goodbye,
}

/// An option's data was malformed.
struct Malformed;

impl Negotiation<'_> {
    /// Runs the handshake; `None` if the client aborted it.
    pub(crate) fn run(mut self) -> Result<Option<Session>, ConnectionError> {
        let is_fixed = match self.greet()? {
            Some(is_fixed) => is_fixed,
            None => return Ok(None),
        };
        for _ in 0..OPTIONS_MAX {
            if self.input.fill(16)? != Filled::Ready {
                return Ok(None);
            }
            let header = self.input.peek(16);
            let (magic, kind, length) = (u64_at(header, 0), u32_at(header, 8), u32_at(header, 12));
            self.input.consume(16);
            if magic != OPTION_MAGIC {
                return protocol("wrong magic of an option");
            }
            if !is_fixed && kind != option::EXPORT_NAME {
                return protocol("an option without fixed newstyle");
            }
            match self.option(kind, length)? {
                Next::Option => {}
                Next::Transmission(session) => return Ok(Some(session)),
                Next::Goodbye => return Ok(None),
            }
        }
        protocol("too many options")
    }

    /// Exchanges greetings; returns whether the client speaks fixed newstyle.
    fn greet(&mut self) -> Result<Option<bool>, ConnectionError> {
        let mut hello = Vec::with_capacity(18);
        hello.extend_from_slice(&INIT_MAGIC.to_be_bytes());
        hello.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        hello.extend_from_slice(&(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES).to_be_bytes());
        self.socket.send_all(&hello, self.deadline)?;
        if self.input.fill(4)? != Filled::Ready {
            return Ok(None);
        }
        let flags = u32_at(self.input.peek(4), 0);
        self.input.consume(4);
        let (fixed, no_zeroes) = (u32::from(handshake::FIXED_NEWSTYLE), u32::from(handshake::NO_ZEROES));
        if flags & !(fixed | no_zeroes) != 0 {
            return protocol("unknown client flags");
        }
        self.no_zeroes = flags & no_zeroes != 0;
        Ok(Some(flags & fixed != 0))
    }

    fn option(&mut self, kind: u32, length: u32) -> Result<Next, ConnectionError> {
        if length > OPTION_SKIP_BYTES_MAX {
            return protocol("option far too long");
        }
        if self.tls.is_some() && !self.socket.is_secure() && !matches!(kind, option::STARTTLS | option::ABORT)
        {
            if kind == option::EXPORT_NAME {
                return Err(ConnectionError::Refused { why: "the client does not use TLS" });
            }
            self.input.skip(u64::from(length))?;
            return self.error(kind, reply::ERR_TLS_REQD, "TLS is required here");
        }
        if length > OPTION_BYTES_MAX || (kind == option::EXPORT_NAME && length as usize > STRING_BYTES_MAX) {
            if kind == option::EXPORT_NAME {
                return protocol("export name too long");
            }
            self.input.skip(u64::from(length))?;
            return self.error(kind, reply::ERR_TOO_BIG, "option too long");
        }
        self.input.fill_rest(length as usize)?;
        let data = self.input.peek(length as usize).to_vec();
        self.input.consume(length as usize);
        if (self.is_draining)() && kind != option::ABORT {
            if kind == option::EXPORT_NAME {
                return Err(ConnectionError::Refused { why: "the server is shutting down" });
            }
            return self.error(kind, reply::ERR_SHUTDOWN, "the server is shutting down");
        }
        match kind {
            option::EXPORT_NAME => self.export_name(&data),
            option::ABORT => {
                // The client may have disconnected without waiting for the answer.
                let _ = self.reply(kind, reply::ACK, &[]);
                Ok(Next::Goodbye)
            }
            option::LIST => self.list(&data),
            option::INFO | option::GO => self.info(kind, &data),
            option::STRUCTURED_REPLY => self.upgrade(kind, &data, HeaderMode::Structured),
            option::EXTENDED_HEADERS => self.upgrade(kind, &data, HeaderMode::Extended),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.meta_context(kind, &data),
            option::STARTTLS => self.start_tls(&data),
            _ => self.error(kind, reply::ERR_UNSUP, "unknown option"),
        }
    }

    fn start_tls(&mut self, data: &[u8]) -> Result<Next, ConnectionError> {
        let Some(tls) = self.tls else {
            return self.error(option::STARTTLS, reply::ERR_UNSUP, "no TLS here");
        };
        if !data.is_empty() {
            return self.error(option::STARTTLS, reply::ERR_INVALID, "this option has no data");
        }
        if self.socket.is_secure() {
            return self.error(option::STARTTLS, reply::ERR_INVALID, "agreed upon already");
        }
        if self.input.buffered() > 0 {
            // Somebody on the way could have put them there, to count as sent through TLS.
            return protocol("bytes before TLS began");
        }
        self.reply(option::STARTTLS, reply::ACK, &[])?;
        self.socket.start_tls(tls, self.deadline)?;
        Ok(Next::Option)
    }

    /// This option has no error reply: on an error the connection ends.
    fn export_name(&mut self, data: &[u8]) -> Result<Next, ConnectionError> {
        let Ok(name) = str::from_utf8(data) else { return protocol("export name is not UTF-8") };
        let export = match self.exports.open(name) {
            Ok(export) => export,
            Err(_) => return Err(ConnectionError::Refused { why: "no such export" }),
        };
        let session = self.session(export, name);
        if session.rules.blocks.minimum > UNASKED_MINIMUM_MAX {
            return Err(ConnectionError::Refused { why: "the client does not know the block sizes" });
        }
        let mut answer = Vec::with_capacity(8 + 2 + 124);
        answer.extend_from_slice(&session.rules.size_bytes.to_be_bytes());
        answer.extend_from_slice(&session.rules.transmission_flags().to_be_bytes());
        if !self.no_zeroes {
            answer.extend_from_slice(&[0; 124]);
        }
        self.socket.send_all(&answer, self.deadline)?;
        Ok(Next::Transmission(session))
    }

    fn session(&self, export: Arc<dyn Export>, name: &str) -> Session {
        let has_context = self.allocation_of.as_deref() == Some(name);
        let rules = Rules::new(&*export, self.mode, has_context);
        Session { export, rules }
    }

    fn list(&mut self, data: &[u8]) -> Result<Next, ConnectionError> {
        if !data.is_empty() {
            return self.error(option::LIST, reply::ERR_INVALID, "this option has no data");
        }
        let Some(entries) = self.exports.list() else {
            return self.error(option::LIST, reply::ERR_POLICY, "exports are not listed");
        };
        for entry in entries.iter().filter(|entry| entry.name.len() <= STRING_BYTES_MAX) {
            let mut body = Vec::new();
            body.extend_from_slice(&(entry.name.len() as u32).to_be_bytes());
            body.extend_from_slice(entry.name.as_bytes());
            body.extend_from_slice(cut(&entry.description).as_bytes());
            self.reply(option::LIST, reply::SERVER, &body)?;
        }
        self.reply(option::LIST, reply::ACK, &[])?;
        Ok(Next::Option)
    }

    /// `INFO` and `GO`: length and name, number of requests, requests.
    fn info(&mut self, kind: u32, data: &[u8]) -> Result<Next, ConnectionError> {
        let parsed = parse_info(data);
        let Ok((name, asked)) = parsed else {
            return self.error(kind, reply::ERR_INVALID, "malformed");
        };
        let export = match self.exports.open(name) {
            Ok(export) => export,
            Err(error) => return self.refuse(kind, &error),
        };
        let session = self.session(export, name);
        let blocks = session.rules.blocks;
        let mut body = info::EXPORT.to_be_bytes().to_vec();
        body.extend_from_slice(&session.rules.size_bytes.to_be_bytes());
        body.extend_from_slice(&session.rules.transmission_flags().to_be_bytes());
        self.reply(kind, reply::INFO, &body)?;
        // Also sent to clients that did not ask for it: they may ignore it.
        let mut body = info::BLOCK_SIZE.to_be_bytes().to_vec();
        for size in [blocks.minimum, blocks.preferred, blocks.maximum] {
            body.extend_from_slice(&size.to_be_bytes());
        }
        self.reply(kind, reply::INFO, &body)?;
        if asked.contains(&info::NAME) {
            self.reply(kind, reply::INFO, &[&info::NAME.to_be_bytes(), name.as_bytes()].concat())?;
        }
        if let Some(text) = session.export.description().filter(|_| asked.contains(&info::DESCRIPTION)) {
            self.reply(
                kind,
                reply::INFO,
                &[&info::DESCRIPTION.to_be_bytes(), cut(&text).as_bytes()].concat(),
            )?;
        }
        if blocks.minimum > UNASKED_MINIMUM_MAX && !asked.contains(&info::BLOCK_SIZE) {
            return self.error(kind, reply::ERR_BLOCK_SIZE_REQD, "ask for the block sizes");
        }
        self.reply(kind, reply::ACK, &[])?;
        Ok(if kind == option::GO { Next::Transmission(session) } else { Next::Option })
    }

    fn upgrade(&mut self, kind: u32, data: &[u8], to: HeaderMode) -> Result<Next, ConnectionError> {
        let is_step = match (self.mode, to) {
            (HeaderMode::Simple, _) | (HeaderMode::Structured, HeaderMode::Extended) => true,
            (HeaderMode::Structured | HeaderMode::Extended, _) => false,
        };
        if !data.is_empty() {
            return self.error(kind, reply::ERR_INVALID, "this option has no data");
        }
        if !is_step {
            return self.error(kind, reply::ERR_INVALID, "agreed upon already");
        }
        self.mode = to;
        // Selected contexts are only valid with the headers in use at the time.
        self.allocation_of = None;
        self.reply(kind, reply::ACK, &[])?;
        Ok(Next::Option)
    }

    fn meta_context(&mut self, kind: u32, data: &[u8]) -> Result<Next, ConnectionError> {
        if kind == option::SET_META_CONTEXT {
            // Each selection replaces the previous one, even if it fails.
            self.allocation_of = None;
        }
        if self.mode == HeaderMode::Simple {
            return self.error(kind, reply::ERR_INVALID, "structured replies come first");
        }
        let parsed = parse_meta_context(data);
        let Ok((name, queries)) = parsed else {
            return self.error(kind, reply::ERR_INVALID, "malformed");
        };
        if let Err(error) = self.exports.open(name) {
            return self.refuse(kind, &error);
        }
        let is_list = kind == option::LIST_META_CONTEXT;
        let names_it = |query: &&str| *query == BASE_ALLOCATION || (is_list && *query == "base:");
        if queries.iter().any(names_it) || (is_list && queries.is_empty()) {
            let id = if is_list { 0 } else { ALLOCATION_CONTEXT_ID };
            self.reply(kind, reply::META_CONTEXT, &[&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()].concat())?;
            if !is_list {
                self.allocation_of = Some(name.to_owned());
            }
        }
        self.reply(kind, reply::ACK, &[])?;
        Ok(Next::Option)
    }

    fn refuse(&mut self, kind: u32, error: &OpenError) -> Result<Next, ConnectionError> {
        self.error(kind, error.reply(), &error.to_string())
    }

    fn error(&mut self, kind: u32, code: u32, why: &str) -> Result<Next, ConnectionError> {
        self.reply(kind, code, cut(why).as_bytes())?;
        Ok(Next::Option)
    }

    /// ```text
    /// magic:8 option:4 reply:4 length:4 data
    /// ```
    fn reply(&mut self, kind: u32, code: u32, data: &[u8]) -> Result<(), ConnectionError> {
        let mut message = Vec::with_capacity(20 + data.len());
        message.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        message.extend_from_slice(&kind.to_be_bytes());
        message.extend_from_slice(&code.to_be_bytes());
        message.extend_from_slice(&(data.len() as u32).to_be_bytes());
        message.extend_from_slice(data);
        self.socket.send_all(&message, self.deadline)
    }
}

fn protocol<T>(what: &'static str) -> Result<T, ConnectionError> {
    Err(ConnectionError::Protocol { what })
}

/// Cuts a text to the longest string that the protocol allows.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(STRING_BYTES_MAX)]
}

/// Takes `count` bytes off the front.
fn split<'a>(data: &mut &'a [u8], count: usize) -> Result<&'a [u8], Malformed> {
    let (front, rest) = data.split_at_checked(count).ok_or(Malformed)?;
    *data = rest;
    Ok(front)
}

/// Takes a length-prefixed string.
fn split_string<'a>(data: &mut &'a [u8]) -> Result<&'a str, Malformed> {
    let length = u32_at(split(data, 4)?, 0) as usize;
    if length > STRING_BYTES_MAX {
        return Err(Malformed);
    }
    str::from_utf8(split(data, length)?).map_err(|_| Malformed)
}

fn parse_info(mut data: &[u8]) -> Result<(&str, Vec<u16>), Malformed> {
    let name = split_string(&mut data)?;
    let count = usize::from(u16_at(split(&mut data, 2)?, 0));
    if data.len() != 2 * count {
        return Err(Malformed);
    }
    Ok((name, data.chunks_exact(2).map(|kind| u16_at(kind, 0)).collect()))
}

fn parse_meta_context(mut data: &[u8]) -> Result<(&str, Vec<&str>), Malformed> {
    let name = split_string(&mut data)?;
    let count = u32_at(split(&mut data, 4)?, 0);
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(split_string(&mut data)?);
    }
    if data.is_empty() { Ok((name, queries)) } else { Err(Malformed) }
}
