//! A front end made of bare messages, with a queue that a test fills by hand.

use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastness_pmem::ForeignMemory;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

pub(crate) const MEMORY_BYTES: u64 = 1 << 20;
/// Where the front end says that it has the memory.
pub(crate) const USER: u64 = 0x7f00_0000_0000;
pub(crate) const SIZE: u16 = 16;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
/// First byte that no ring is in.
pub(crate) const DATA: u64 = 0x1_0000;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;
/// VERSION_1, PROTOCOL_FEATURES and FLUSH.
pub(crate) const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 9;
/// REPLY_ACK, BACKEND_REQ, CONFIG and INFLIGHT.
pub(crate) const PROTOCOL: u64 = 1 << 3 | 1 << 5 | 1 << 9 | 1 << 12;

pub(crate) struct Front {
    pub(crate) stream: UnixStream,
    pub(crate) memory: ForeignMemory,
    file: OwnedFd,
    pub(crate) kick: OwnedFd,
    pub(crate) call: OwnedFd,
}

impl Front {
    pub(crate) fn connect(path: &Path) -> Front {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let file = memfd_create("front", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, MEMORY_BYTES).unwrap();
        let memory = ForeignMemory::map(&File::from(file.try_clone().unwrap()), 0, MEMORY_BYTES).unwrap();
        let event = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        Front { stream, memory, file, kick: event(), call: event() }
    }

    /// Sends a request that asks for an acknowledgement if there is no other answer.
    pub(crate) fn send(&self, request: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> std::io::Result<()> {
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

    /// The payload of the answer; `None` if the server has closed.
    pub(crate) fn answer(&self) -> Option<(Vec<u8>, Option<OwnedFd>)> {
        let mut header = [0; 12];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [std::io::IoSliceMut::new(&mut header)];
        let got = recvmsg(&self.stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
        if got.bytes < 12 {
            return None;
        }
        let mut file = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut rights) = message {
                file = rights.next();
            }
        }
        let len = u32::from_ne_bytes(header[8..].try_into().unwrap());
        let mut payload = vec![0; len as usize];
        (&self.stream).read_exact(&mut payload).ok()?;
        Some((payload, file))
    }

    /// Asks, and returns the answer as a number.
    pub(crate) fn ask(&self, request: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> Option<u64> {
        self.send(request, payload, files).ok()?;
        let (payload, _) = self.answer()?;
        Some(u64::from_ne_bytes(payload.get(..8)?.try_into().unwrap()))
    }

    fn must(&self, request: u32, payload: &[u8], files: &[BorrowedFd<'_>]) {
        assert_eq!(self.ask(request, payload, files), Some(0), "request {request}");
    }

    pub(crate) fn memory_file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn negotiate(&self) {
        // No acknowledgements before they are negotiated.
        self.send(2, &FEATURES.to_ne_bytes(), &[]).unwrap();
        self.send(16, &PROTOCOL.to_ne_bytes(), &[]).unwrap();
        self.must(3, &[], &[]);
        let region = [1, 0, MEMORY_BYTES, USER, 0].map(u64::to_ne_bytes).concat();
        self.must(5, &region, &[self.file.as_fd()]);
    }

    /// Sets up queue 0 and starts it.
    pub(crate) fn start(&self, base: u32) {
        let state = |number: u32| [0, number].map(u32::to_ne_bytes).concat();
        self.must(8, &state(SIZE.into()), &[]);
        self.must(10, &state(base), &[]);
        let addresses = [0, USER, USER + USED, USER + AVAILABLE, 0].map(u64::to_ne_bytes).concat();
        self.must(9, &addresses, &[]);
        self.must(13, &0_u64.to_ne_bytes(), &[self.call.as_fd()]);
        self.must(12, &0_u64.to_ne_bytes(), &[self.kick.as_fd()]);
        self.must(18, &state(1), &[]);
    }

    /// Fills a descriptor.
    pub(crate) fn describe(&self, index: u16, address: u64, len: u32, flags: u16, next: u16) {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend([flags, next].map(u16::to_le_bytes).concat());
        self.memory.write(16 * u64::from(index), &bytes).unwrap();
    }

    /// A request of one data buffer, in descriptors `head` to `head + 2`. Its status is at the returned
    /// place.
    pub(crate) fn request(&self, head: u16, kind: u32, sector: u64, byte: u8) -> u64 {
        let at = DATA + u64::from(head) * 4096;
        let mut header = [kind, 0].map(u32::to_le_bytes).concat();
        header.extend(sector.to_le_bytes());
        self.memory.write(at, &header).unwrap();
        self.memory.write(at + 1024, &[byte; 512]).unwrap();
        self.memory.write(at + 2048, &[0xff]).unwrap();
        let direction = if kind == 0 { WRITE } else { 0 };
        self.describe(head, at, 16, NEXT, head + 1);
        self.describe(head + 1, at + 1024, 512, NEXT | direction, head + 2);
        self.describe(head + 2, at + 2048, 1, WRITE, 0);
        at + 2048
    }

    /// Makes `heads` available, from entry `from` on, and kicks.
    pub(crate) fn offer(&self, from: u16, heads: &[u16]) {
        for (entry, head) in (from..).zip(heads) {
            self.memory.write(AVAILABLE + 4 + 2 * u64::from(entry % SIZE), &head.to_le_bytes()).unwrap();
        }
        self.offer_up_to(from.wrapping_add(heads.len() as u16));
    }

    pub(crate) fn offer_up_to(&self, index: u16) {
        self.memory.half(AVAILABLE + 2).unwrap().store(index.to_le(), Ordering::Release);
        rustix::io::write(&self.kick, &1_u64.to_ne_bytes()).unwrap();
    }

    pub(crate) fn used_index(&self) -> u16 {
        self.memory.load_half(USED + 2).unwrap()
    }

    /// Waits for a call.
    pub(crate) fn called(&self) -> bool {
        let mut ready = [PollFd::new(&self.call, PollFlags::IN)];
        let timeout = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
        let is_ready = poll(&mut ready, Some(&timeout)).unwrap() == 1;
        is_ready && rustix::io::read(&self.call, &mut [0; 8]).is_ok()
    }

    /// Waits until so many entries are used.
    pub(crate) fn wait_used(&self, index: u16) {
        while self.used_index() != index {
            assert!(self.called(), "{} of {index} entries are used", self.used_index());
        }
    }

    pub(crate) fn byte(&self, at: u64) -> u8 {
        self.memory.byte(at).unwrap().load(Ordering::Acquire)
    }
}
