//! Volumes that are served to virtual machines, over vhost-user.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fastness_base::{ErrorKind, chain};
use fastness_nbd::{Endpoint, Listener};
use fastness_store::{Attached, DatasetId, Outcome};
use fastness_vhost_user::{Disk, DiskError, Options, RequestStats, Server};
use fastness_zvol::{Volume, VolumeError};
use rustix::event::{PollFd, PollFlags, poll};

use crate::error::bind_kind;
use crate::io_report::{IoRow, RequestCounters};
use crate::journal::Journal;
use crate::protocol::Failure;
use crate::report::{Address, OperationReport, ServedReport};
use crate::service::Service;
use crate::status::{operation_row, request_row, volume_row};

/// A volume as a disk: only translates requests and errors.
struct VolumeDisk {
    volume: Arc<Attached<Volume>>,
    is_asked_read_only: bool,
    journal: Arc<Journal>,
    size_bytes: AtomicU64,
    block_bytes: AtomicU64,
    is_read_only: AtomicBool,
}

impl VolumeDisk {
    fn new(volume: Arc<Attached<Volume>>, is_read_only: bool, journal: Arc<Journal>) -> VolumeDisk {
        let disk = VolumeDisk {
            volume,
            is_asked_read_only: is_read_only,
            journal,
            size_bytes: AtomicU64::new(0),
            block_bytes: AtomicU64::new(4096),
            is_read_only: AtomicBool::new(is_read_only),
        };
        disk.look();
        disk
    }

    /// Takes the shape from the volume, while there is one.
    fn look(&self) {
        if let Some(volume) = self.volume.get() {
            self.size_bytes.store(volume.size_bytes(), Ordering::SeqCst);
            self.block_bytes.store(volume.block_bytes().into(), Ordering::SeqCst);
            self.is_read_only.store(self.is_asked_read_only || volume.is_read_only(), Ordering::SeqCst);
        }
    }

    fn run(&self, request: impl FnMut(&Volume) -> Result<(), VolumeError>) -> Result<(), DiskError> {
        match self.volume.run(request) {
            Outcome::Done(Ok(())) => Ok(()),
            Outcome::Done(Err(error)) => {
                self.journal.warn(format!("{}: {}", self.volume.name(), chain(&error)));
                Err(DiskError::Io)
            }
            Outcome::Ended => Err(DiskError::Io),
        }
    }
}

impl Disk for VolumeDisk {
    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes.load(Ordering::Relaxed) as u32
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Relaxed)
    }

    fn serial(&self) -> String {
        // The same after a rename: guests find the disk by it.
        format!("fastness-{}", self.volume.dataset())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
        self.run(|volume| volume.read(offset, buffer))
    }

    fn write(&self, offset: u64, data: &[u8], is_durable: bool) -> Result<(), DiskError> {
        self.run(|volume| volume.write(offset, data, is_durable))
    }

    fn flush(&self) -> Result<(), DiskError> {
        self.run(Volume::flush)
    }

    fn discard(&self, offset: u64, length: u64, is_durable: bool) -> Result<(), DiskError> {
        self.run(|volume| volume.discard(offset, length, is_durable))
    }

    fn write_zeroes(&self, offset: u64, length: u64, is_durable: bool) -> Result<(), DiskError> {
        self.run(|volume| volume.write_zeroes(offset, length, is_durable))
    }
}

/// One volume at one socket.
pub(crate) struct VhostService {
    disk: Arc<VolumeDisk>,
    path: String,
    server: Arc<Server>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl VhostService {
    /// Listens at `path`, and serves one virtual machine at a time until [`stop`](Service::stop).
    pub(crate) fn start(
        volume: Arc<Attached<Volume>>,
        path: &str,
        is_read_only: bool,
        journal: &Arc<Journal>,
    ) -> Result<VhostService, Failure> {
        let listener = Listener::bind(&Endpoint::Unix(PathBuf::from(path)))
            .map_err(|error| Failure::new(bind_kind(&error), &error))?;
        let disk = Arc::new(VolumeDisk::new(volume.clone(), is_read_only, journal.clone()));
        let (name, notes) = (volume.name(), journal.clone());
        let note = move |text| notes.note(format!("{name}: {text}"));
        let server = Arc::new(Server::new(disk.clone(), Options::default(), note));
        let system = |error: io::Error| Failure::new(ErrorKind::Retry, &error);
        let (wake, woken) = UnixStream::pair().map_err(system)?;
        let (serving, notes, name) = (server.clone(), journal.clone(), volume.name());
        let thread = std::thread::Builder::new().name("vhost-listener".to_owned()).spawn(move || {
            accept(&listener, &woken, &serving, &|text| notes.note(format!("{name}: {text}")));
        });
        let thread = Some(thread.map_err(system)?);
        Ok(VhostService { disk, path: path.to_owned(), server, wake, thread })
    }
}

/// Serves one client after the other, until it is woken.
fn accept(listener: &Listener, woken: &UnixStream, server: &Server, note: &dyn Fn(String)) {
    loop {
        let mut waits =
            [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        match poll(&mut waits, None) {
            Ok(_) if !waits[1].revents().is_empty() => return,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        let Ok(socket) = listener.accept() else {
            // The client is gone again, or no descriptors are left: others wait in the backlog.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let stream = UnixStream::from(socket);
        let outcome = stream.set_nonblocking(false).map_err(Into::into);
        if let Err(error) = outcome.and_then(|()| server.run_client(stream)) {
            note(format!("a virtual machine was disconnected: {}", chain(&error)));
        }
    }
}

fn request(stats: &RequestStats) -> RequestCounters {
    request_row(stats.request.to_owned(), &stats.counts)
}

fn operation(stats: &RequestStats) -> OperationReport {
    operation_row(stats.request.to_owned(), &stats.counts)
}

impl Service for VhostService {
    fn dataset(&self) -> Option<DatasetId> {
        Some(self.disk.volume.dataset())
    }

    fn volume(&self) -> Option<&Arc<Attached<Volume>>> {
        Some(&self.disk.volume)
    }

    fn io(&self) -> Option<IoRow> {
        let requests = self.server.stats().iter().map(request).collect();
        Some(IoRow { requests, ..volume_row(&*self.disk.volume.get()?) })
    }

    fn users(&self) -> Option<String> {
        self.server.has_client().then(|| format!("a virtual machine at {}", self.path))
    }

    fn resized(&self) {
        self.disk.look();
        self.server.config_changed();
    }

    fn stop(mut self: Box<Self>) {
        self.disk.volume.end();
        self.server.shutdown();
        // If the pipe is full, the thread is awake.
        let _ = (&self.wake).write(&[0]);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
    }

    fn report(&self) -> ServedReport {
        ServedReport {
            size_bytes: self.disk.size_bytes(),
            volume: self.disk.volume.name(),
            address: Address::VhostUser(self.path.clone()),
            uri: format!("vhost-user:{}", self.path),
            is_read_only: self.disk.is_read_only(),
            clients: u64::from(self.server.has_client()),
            tls: None,
            operations: self.server.stats().iter().map(operation).collect(),
        }
    }
}
