//! A small front end, for tests and comparisons: bare messages, and one queue in memory of its own.
//!
//! Why not the crate `virtio-driver`, which tests use as well: it sends no message that breaks a rule, and
//! what it shares with a server can only be had by unsafe code of its user.

mod queue;

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use fastness_pmem::{ForeignMemory, OutOfRange};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::message::{HEADER_BYTES, PAYLOAD_MAX, front, header};

/// Where the front end says that it has the memory.
pub const USER: u64 = 0x7f00_0000_0000;
/// First byte that no part of the queue is in.
pub const DATA: u64 = 0x1_0000;

/// How long a server may take for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a front end failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection failed, or the server has closed it.
    #[error("the connection failed")]
    Io(#[from] io::Error),
    /// An answer that is no number, or too long.
    #[error("the answer to request {request} has {bytes} bytes")]
    Answer {
        /// Number of the request.
        request: u32,
        /// Length of the answer.
        bytes: usize,
    },
    /// The server refused a request.
    #[error("request {request} was refused")]
    Refused {
        /// Its number.
        request: u32,
    },
    /// Outside of the front end's own memory.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

impl From<rustix::io::Errno> for ClientError {
    fn from(errno: rustix::io::Errno) -> ClientError {
        ClientError::Io(errno.into())
    }
}

type Result<T> = std::result::Result<T, ClientError>;

/// A connection, with memory that the server is told of: for the guest it begins at address 0.
///
/// Layout of the memory: the queue's descriptors at 0, its available ring at 0x1000, its used ring at
/// 0x2000, anything from [`DATA`] on.
pub struct Client {
    stream: UnixStream,
    memory: ForeignMemory,
    file: File,
    kick: OwnedFd,
    call: OwnedFd,
    size: u16,
}

impl Client {
    /// Connects, with a queue of `size` entries (at most 128) and so much memory.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn connect(path: &Path, memory_bytes: u64, size: u16) -> Result<Client> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let file = File::from(memfd_create("front-end", MemfdFlags::CLOEXEC)?);
        file.set_len(memory_bytes)?;
        let memory = ForeignMemory::map(&file, 0, memory_bytes)?;
        let event = || eventfd(0, EventfdFlags::CLOEXEC);
        Ok(Client { stream, memory, file, kick: event()?, call: event()?, size })
    }

    /// What both sides see.
    pub fn memory(&self) -> &ForeignMemory {
        &self.memory
    }

    /// The file of the memory.
    pub fn memory_file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// What the server is woken with.
    pub fn kick_event(&self) -> BorrowedFd<'_> {
        self.kick.as_fd()
    }

    /// Sends a request that asks for an acknowledgement if there is no other answer; it may be as invalid as
    /// a test likes.
    ///
    /// # Errors
    /// The connection failed.
    pub fn send(&self, request: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> Result<()> {
        // Version 1; an acknowledgement is wanted.
        let mut bytes = [request, 1 | 1 << 3, payload.len() as u32].map(u32::to_ne_bytes).concat();
        bytes.extend(payload);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(files));
        }
        sendmsg(&self.stream, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The payload of the next answer, with a descriptor if there is one.
    ///
    /// # Errors
    /// The connection failed; the answer is too long.
    pub fn answer(&self) -> Result<(Vec<u8>, Option<OwnedFd>)> {
        let mut bytes = [0; HEADER_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got = recvmsg(&self.stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        if got.bytes < HEADER_BYTES {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut file = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut rights) = message {
                file = rights.next();
            }
        }
        let (request, _, len) = header(bytes);
        if len > PAYLOAD_MAX {
            return Err(ClientError::Answer { request, bytes: len });
        }
        let mut payload = vec![0; len];
        (&self.stream).read_exact(&mut payload)?;
        Ok((payload, file))
    }

    /// Asks, and returns the answer as a number.
    ///
    /// # Errors
    /// The connection failed; the answer is no number.
    pub fn ask(&self, request: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> Result<u64> {
        self.send(request, payload, files)?;
        let (payload, _) = self.answer()?;
        match payload.first_chunk() {
            Some(number) => Ok(u64::from_ne_bytes(*number)),
            None => Err(ClientError::Answer { request, bytes: payload.len() }),
        }
    }

    fn must(&self, request: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> Result<()> {
        match self.ask(request, payload, files)? {
            0 => Ok(()),
            _ => Err(ClientError::Refused { request }),
        }
    }

    /// Agrees on features and hands over the memory.
    ///
    /// # Errors
    /// The connection failed, or the server refused.
    pub fn negotiate(&self, features: u64, protocol: u64) -> Result<()> {
        // No acknowledgements before they are negotiated.
        self.send(front::SET_FEATURES, &features.to_ne_bytes(), &[])?;
        self.send(front::SET_PROTOCOL_FEATURES, &protocol.to_ne_bytes(), &[])?;
        self.must(front::SET_OWNER, &[], &[])?;
        let region = [1, 0, self.memory.len_bytes(), USER, 0].map(u64::to_ne_bytes).concat();
        self.must(front::SET_MEM_TABLE, &region, &[self.file.as_fd()])
    }

    /// Has the server note its requests in a table that outlives it, as QEMU does; before
    /// [`start`](Self::start).
    ///
    /// # Errors
    /// As [`negotiate`](Self::negotiate).
    pub fn keep_inflight(&self) -> Result<()> {
        let request = front::GET_INFLIGHT_FD;
        // No table yet; one queue.
        let mut wanted = [0; 16].to_vec();
        wanted.extend([1, self.size].map(u16::to_ne_bytes).concat());
        wanted.extend([0; 4]);
        self.send(request, &wanted, &[])?;
        let (described, file) = self.answer()?;
        let file = file.ok_or(ClientError::Answer { request, bytes: described.len() })?;
        self.must(front::SET_INFLIGHT_FD, &described, &[file.as_fd()])
    }

    /// Sets up queue 0 and starts it; `base` entries were available before.
    ///
    /// # Errors
    /// As [`negotiate`](Self::negotiate).
    pub fn start(&self, base: u32) -> Result<()> {
        let state = |number: u32| [0, number].map(u32::to_ne_bytes).concat();
        self.must(front::SET_VRING_NUM, &state(self.size.into()), &[])?;
        self.must(front::SET_VRING_BASE, &state(base), &[])?;
        let addresses = [0, USER, USER + queue::USED, USER + queue::AVAILABLE, 0];
        self.must(front::SET_VRING_ADDR, &addresses.map(u64::to_ne_bytes).concat(), &[])?;
        self.must(front::SET_VRING_CALL, &0_u64.to_ne_bytes(), &[self.call.as_fd()])?;
        self.must(front::SET_VRING_KICK, &0_u64.to_ne_bytes(), &[self.kick.as_fd()])?;
        self.must(front::SET_VRING_ENABLE, &state(1), &[])
    }
}
