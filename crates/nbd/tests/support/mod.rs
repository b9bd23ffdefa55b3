//! An export that records what reaches it, and connections to an in-process service.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

pub mod tls;

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fastness_nbd::wire::HeaderMode;
use fastness_nbd::{
    BlockSizes, Client, ConnectionError, Export, ExportError, Exports, Extent, Features, Limits,
    MemoryExport, Service, SingleExport, ZeroOptions,
};

/// What reached the export, in order of completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Read(u64, usize),
    Write(u64, usize, bool),
    Flush,
    Trim(u64, u64, bool),
    Zeroes(u64, u64, ZeroOptions),
    Cache(u64, u64),
}

/// Memory that records, and does odd things at odd offsets.
pub struct Recorder {
    pub inner: MemoryExport,
    pub features: Features,
    pub blocks: BlockSizes,
    pub is_read_only: bool,
    pub seen: Mutex<Vec<Seen>>,
    pub fail_with: Mutex<Option<ExportError>>,
    gate: (Mutex<bool>, Condvar),
}

/// Reads that begin at this odd place wait until the gate is opened.
pub const GATED: u64 = (1 << 20) + 3;
/// Reads that begin here panic.
pub const PANICS: u64 = (2 << 20) + 3;
pub const SIZE: u64 = 4 << 20;

impl Recorder {
    pub fn new() -> Self {
        let inner = MemoryExport::new(SIZE);
        Self {
            features: inner.features(),
            blocks: BlockSizes::default(),
            is_read_only: false,
            inner,
            seen: Mutex::default(),
            fail_with: Mutex::default(),
            gate: (Mutex::new(false), Condvar::new()),
        }
    }

    pub fn open_gate(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }

    pub fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    /// Writes without a client.
    pub fn inner_write(&self, offset: u64, data: &[u8]) {
        self.inner.write(offset, data, false).unwrap();
    }

    fn note(&self, seen: Seen) -> Result<(), ExportError> {
        match *self.fail_with.lock().unwrap() {
            Some(error) => Err(error),
            None => {
                self.seen.lock().unwrap().push(seen);
                Ok(())
            }
        }
    }
}

impl Export for Recorder {
    fn size_bytes(&self) -> u64 {
        SIZE
    }
    fn block_sizes(&self) -> BlockSizes {
        self.blocks
    }
    fn is_read_only(&self) -> bool {
        self.is_read_only
    }
    fn features(&self) -> Features {
        self.features
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        if offset == GATED {
            let mut is_open = self.gate.0.lock().unwrap();
            while !*is_open {
                is_open = self.gate.1.wait(is_open).unwrap();
            }
        }
        assert_ne!(offset, PANICS, "planted");
        self.inner.read(offset, buffer)?;
        self.note(Seen::Read(offset, buffer.len()))
    }
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), ExportError> {
        self.inner.write(offset, data, fua)?;
        self.note(Seen::Write(offset, data.len(), fua))
    }
    fn flush(&self) -> Result<(), ExportError> {
        self.note(Seen::Flush)
    }
    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), ExportError> {
        self.inner.trim(offset, length, fua)?;
        self.note(Seen::Trim(offset, length, fua))
    }
    fn write_zeroes(&self, offset: u64, length: u64, options: ZeroOptions) -> Result<(), ExportError> {
        self.inner.write_zeroes(offset, length, options)?;
        self.note(Seen::Zeroes(offset, length, options))
    }
    fn cache(&self, offset: u64, length: u64) -> Result<(), ExportError> {
        self.note(Seen::Cache(offset, length))
    }
    fn block_status(&self, offset: u64, length: u64, extents: &mut Vec<Extent>) -> Result<(), ExportError> {
        self.inner.block_status(offset, length, extents)
    }
}

/// A service, and the recorder behind it.
pub struct World {
    pub service: Arc<Service>,
    pub recorder: Arc<Recorder>,
}

pub type Ended = JoinHandle<Result<(), ConnectionError>>;

impl World {
    pub fn new() -> Self {
        Self::with(Recorder::new(), Limits::default())
    }

    pub fn with(recorder: Recorder, limits: Limits) -> Self {
        let recorder = Arc::new(recorder);
        let exports: Arc<dyn Exports> = Arc::new(SingleExport::new("disk", recorder.clone()));
        Self { service: Arc::new(Service::new(exports, limits).unwrap()), recorder }
    }

    /// The client's end of a new connection.
    pub fn connect(&self) -> (UnixStream, Ended) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        ours.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        let service = self.service.clone();
        (ours, thread::spawn(move || service.serve_connection(theirs)))
    }

    pub fn client(&self, mode: HeaderMode) -> Client {
        Client::handshake(self.connect().0, "disk", mode).unwrap()
    }
}
