//! A small client, for tests and comparisons.

mod halves;
mod reply;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

pub use self::halves::{Receiver, Sender};
pub use self::reply::{Chunk, Reply};
use crate::listen::Endpoint;
use crate::wire::{
    BASE_ALLOCATION, HeaderMode, INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, command, command_flag, info,
    option, reply as option_reply, u16_at, u32_at, u64_at,
};

/// A connection in transmission.
pub struct Client {
    sender: Sender,
    receiver: Receiver,
    hello: Hello,
}

/// What was negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Hello {
    /// Size of the export.
    pub size_bytes: u64,
    /// [`crate::wire::flag`]
    pub flags: u16,
    /// Minimum, preferred and maximum block size, if the server sent them.
    pub blocks: Option<[u32; 3]>,
    /// Headers in use.
    pub mode: HeaderMode,
    /// Id of `base:allocation`, if selected.
    pub allocation_id: Option<u32>,
}

/// A request, which a test may make as invalid as it likes.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// [`command`]
    pub kind: u16,
    /// [`command_flag`]
    pub flags: u16,
    /// First byte.
    pub offset: u64,
    /// Length in bytes; that of the payload if there is one.
    pub length: u64,
    /// Sent after the header.
    pub payload: &'a [u8],
}

/// Why a client failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection failed.
    #[error("connection failed")]
    Io(#[from] io::Error),
    /// The server refused an option.
    #[error("option {option} refused with {code:#x}: {why}")]
    Refused {
        /// [`option`]
        option: u32,
        /// [`crate::wire::reply`]
        code: u32,
        /// The server's words.
        why: String,
    },
    /// A request failed.
    #[error("request failed with error {0}")]
    Failed(u32),
    /// The server broke a rule.
    #[error("the server broke a rule: {0}")]
    Broken(&'static str),
}

type Result<T> = std::result::Result<T, ClientError>;

impl Client {
    /// Connects with structured replies and `base:allocation`, if the server supports them.
    ///
    /// # Errors
    /// The connection fails, or there is no such export.
    pub fn connect(endpoint: &Endpoint, name: &str) -> Result<Self> {
        Self::connect_with(endpoint, name, HeaderMode::Structured)
    }

    /// The same with other headers; falls back to what the server supports.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_with(endpoint: &Endpoint, name: &str, mode: HeaderMode) -> Result<Self> {
        match endpoint {
            Endpoint::Unix(path) => Self::handshake(UnixStream::connect(path)?, name, mode),
            Endpoint::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Self::handshake(stream, name, mode)
            }
        }
    }

    /// Does the handshake over a connected socket.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn handshake(socket: impl Into<OwnedFd>, name: &str, mode: HeaderMode) -> Result<Self> {
        // Any stream socket will do for reading and writing.
        let (sender, receiver) = halves::halves(UnixStream::from(socket.into()));
        let mut client = Self { sender, receiver, hello: Hello::default() };
        let greeting = client.receiver.receive(18)?;
        if u64_at(&greeting, 0) != INIT_MAGIC || u64_at(&greeting, 8) != OPTION_MAGIC {
            return Err(ClientError::Broken("wrong magic"));
        }
        let flags = u32::from(u16_at(&greeting, 16) & 3);
        (&*client.sender.stream).write_all(&flags.to_be_bytes())?;
        client.negotiate(name, mode)?;
        Ok(client)
    }

    fn negotiate(&mut self, name: &str, mode: HeaderMode) -> Result<()> {
        let wanted = match mode {
            HeaderMode::Simple => &[][..],
            HeaderMode::Structured => &[(option::STRUCTURED_REPLY, HeaderMode::Structured)],
            HeaderMode::Extended => &[
                (option::EXTENDED_HEADERS, HeaderMode::Extended),
                (option::STRUCTURED_REPLY, HeaderMode::Structured),
            ],
        };
        for (kind, mode) in wanted {
            if self.option(*kind, &[]).is_ok() {
                (self.hello.mode, self.sender.mode, self.receiver.mode) = (*mode, *mode, *mode);
                break;
            }
        }
        let name_with_length = [&(name.len() as u32).to_be_bytes(), name.as_bytes()].concat();
        if self.hello.mode != HeaderMode::Simple {
            let mut query = name_with_length.clone();
            query.extend_from_slice(&1u32.to_be_bytes());
            query.extend_from_slice(&(BASE_ALLOCATION.len() as u32).to_be_bytes());
            query.extend_from_slice(BASE_ALLOCATION.as_bytes());
            if let Ok(replies) = self.option(option::SET_META_CONTEXT, &query) {
                let context = replies.iter().find(|(code, _)| *code == option_reply::META_CONTEXT);
                self.hello.allocation_id = context.map(|(_, data)| u32_at(data, 0));
            }
        }
        let mut go = name_with_length;
        go.extend_from_slice(&1u16.to_be_bytes());
        go.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
        for (code, data) in self.option(option::GO, &go)? {
            if code == option_reply::INFO && u16_at(&data, 0) == info::EXPORT {
                (self.hello.size_bytes, self.hello.flags) = (u64_at(&data, 2), u16_at(&data, 10));
            } else if code == option_reply::INFO && u16_at(&data, 0) == info::BLOCK_SIZE {
                self.hello.blocks = Some([u32_at(&data, 2), u32_at(&data, 6), u32_at(&data, 10)]);
            }
        }
        Ok(())
    }

    /// Sends an option and returns its replies up to the acknowledgement, which is left out.
    fn option(&mut self, kind: u32, data: &[u8]) -> Result<Vec<(u32, Vec<u8>)>> {
        let mut message = OPTION_MAGIC.to_be_bytes().to_vec();
        message.extend_from_slice(&kind.to_be_bytes());
        message.extend_from_slice(&(data.len() as u32).to_be_bytes());
        message.extend_from_slice(data);
        (&*self.sender.stream).write_all(&message)?;
        let mut replies = Vec::new();
        loop {
            let header = self.receiver.receive(20)?;
            if u64_at(&header, 0) != OPTION_REPLY_MAGIC || u32_at(&header, 8) != kind {
                return Err(ClientError::Broken("not a reply to the option"));
            }
            let code = u32_at(&header, 12);
            let data = self.receiver.receive(u64::from(u32_at(&header, 16)))?;
            if code & option_reply::ERR != 0 {
                let why = String::from_utf8_lossy(&data).into_owned();
                return Err(ClientError::Refused { option: kind, code, why });
            }
            if code == option_reply::ACK {
                return Ok(replies);
            }
            replies.push((code, data));
        }
    }

    /// What was negotiated.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The two directions, for several requests in flight and two threads.
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }

    /// See [`Sender::send`].
    ///
    /// # Errors
    /// The connection failed.
    pub fn send(&mut self, request: &Request<'_>) -> Result<u64> {
        self.sender.send(request)
    }

    /// See [`Receiver::receive_chunk`].
    ///
    /// # Errors
    /// The connection failed, or the server broke a rule.
    pub fn receive_chunk(&mut self, simple_bytes: impl FnOnce(u64) -> u64) -> Result<Chunk> {
        self.receiver.receive_chunk(simple_bytes)
    }

    /// Sends a request, and waits for its whole reply; nothing else may be in flight.
    ///
    /// # Errors
    /// The connection failed, or the server broke a rule; an error of the request is in the reply.
    pub fn call(&mut self, request: &Request<'_>) -> Result<Reply> {
        let cookie = self.sender.send(request)?;
        let read_bytes = if request.kind == command::READ { request.length } else { 0 };
        let mut reply = Reply::default();
        let mut covered = 0;
        loop {
            let chunk = self.receiver.receive_chunk(|_| read_bytes)?;
            if chunk.cookie != cookie {
                return Err(ClientError::Broken("reply to something else"));
            }
            let is_done = chunk.is_done;
            covered += reply.add(chunk, request.offset, read_bytes)?;
            if is_done {
                break;
            }
        }
        if reply.error == 0 && covered != read_bytes {
            return Err(ClientError::Broken("a read that is not covered"));
        }
        Ok(reply)
    }

    /// Reads.
    ///
    /// # Errors
    /// As for all requests: the connection failed, or the server returned an error.
    pub fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>> {
        Ok(self.succeed(command::READ, 0, offset, u64::from(length), &[])?.data)
    }

    /// Writes, durably with `fua`.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub fn write(&mut self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        let mut flags = if fua { command_flag::FUA } else { 0 };
        if self.hello.mode == HeaderMode::Extended {
            flags |= command_flag::PAYLOAD_LEN;
        }
        self.succeed(command::WRITE, flags, offset, data.len() as u64, data).map(drop)
    }

    /// Makes all answered writes durable.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub fn flush(&mut self) -> Result<()> {
        self.succeed(command::FLUSH, 0, 0, 0, &[]).map(drop)
    }

    /// Length and state of the extents from `offset` on.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub fn block_status(&mut self, offset: u64, length: u64) -> Result<Vec<(u64, u32)>> {
        Ok(self.succeed(command::BLOCK_STATUS, 0, offset, length, &[])?.extents)
    }

    fn succeed(&mut self, kind: u16, flags: u16, offset: u64, length: u64, payload: &[u8]) -> Result<Reply> {
        let reply = self.call(&Request { kind, flags, offset, length, payload })?;
        if reply.error == 0 { Ok(reply) } else { Err(ClientError::Failed(reply.error)) }
    }

    /// Disconnects; the server closes the connection after answering everything.
    ///
    /// # Errors
    /// The connection failed.
    pub fn disconnect(mut self) -> Result<()> {
        self.sender.send(&Request { kind: command::DISC, flags: 0, offset: 0, length: 0, payload: &[] })?;
        match (&*self.sender.stream).read(&mut [0])? {
            0 => Ok(()),
            _ => Err(ClientError::Broken("a reply to a disconnect")),
        }
    }
}
