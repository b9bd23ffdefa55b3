//! A listener, and a thread for each client.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use crate::error::BindError;
use crate::export::{Export, Exports};
use crate::limits::Limits;
use crate::listen::{Endpoint, Listener};
use crate::service::{Clients, Service, ShutdownReport, Stats};
use crate::tls::Tls;

/// Pause when the system has no descriptors or threads left.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);

/// Which clients are served.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// With it, only those that use it.
    pub tls: Option<Tls>,
    /// Without TLS, those of other machines too: whoever reaches the address reads and writes.
    pub insecure: bool,
}

impl Access {
    /// Whether clients of other machines can be served.
    pub fn is_open(&self) -> bool {
        self.tls.is_some() || self.insecure
    }
}

/// An NBD server.
///
/// Concurrency: one thread calls [`Server::serve`], any other [`Server::shutdown`].
pub struct Server {
    listener: Listener,
    endpoint: Endpoint,
    service: Arc<Service>,
    is_stopping: AtomicBool,
    wake: (UnixStream, UnixStream),
}

impl Server {
    /// Binds, so that clients can connect; they are served once [`Server::serve`] runs.
    ///
    /// # Errors
    /// See [`BindError`]; nothing that belongs to another server was touched.
    pub fn bind(endpoint: &Endpoint, exports: Arc<dyn Exports>, limits: Limits) -> Result<Self, BindError> {
        Self::bind_with(endpoint, exports, limits, Access::default())
    }

    /// The same, for clients of other machines too.
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub fn bind_with(
        endpoint: &Endpoint,
        exports: Arc<dyn Exports>,
        limits: Limits,
        access: Access,
    ) -> Result<Self, BindError> {
        let is_open = access.is_open();
        let service = Arc::new(Service::with_tls(exports, limits, access.tls)?);
        let listener = if is_open { Listener::bind_anywhere(endpoint)? } else { Listener::bind(endpoint)? };
        let endpoint = listener.endpoint().map_err(BindError::system("look at the listener"))?;
        let wake = UnixStream::pair().map_err(BindError::system("make a socket"))?;
        Ok(Self { listener, endpoint, service, is_stopping: AtomicBool::new(false), wake })
    }

    /// Where it listens, with the actual port.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Serves clients until [`Server::shutdown`] is called.
    ///
    /// # Errors
    /// The listener failed; the connections continue.
    pub fn serve(&self) -> io::Result<()> {
        loop {
            let mut waits = [
                PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
                PollFd::new(&self.wake.1, PollFlags::IN),
            ];
            match poll(&mut waits, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if self.is_stopping.load(Ordering::SeqCst) {
                return Ok(());
            }
            match self.listener.accept() {
                Ok(socket) => self.start(socket),
                Err(error) if is_passing(&error) => {}
                // Out of descriptors or memory: meanwhile clients wait in the backlog.
                Err(_) => thread::sleep(EXHAUSTED_PAUSE),
            }
        }
    }

    fn start(&self, socket: std::os::fd::OwnedFd) {
        let service = self.service.clone();
        let thread = thread::Builder::new().name("nbd-reader".to_owned());
        // The way a connection ends is counted; a failed start closes the socket.
        let started = thread.spawn(move || {
            let _ = service.serve_connection(socket);
        });
        if started.is_err() {
            thread::sleep(EXHAUSTED_PAUSE);
        }
    }

    /// Ends [`Server::serve`], and all connections as [`Service::shutdown`] does.
    pub fn shutdown(&self) -> ShutdownReport {
        self.is_stopping.store(true, Ordering::SeqCst);
        // If the pipe is full, the thread is awake.
        let _ = (&self.wake.0).write(&[0]);
        self.service.shutdown()
    }

    /// As [`Service::end_export`].
    pub fn end_export(&self, export: &Arc<dyn Export>) -> ShutdownReport {
        self.service.end_export(export)
    }

    /// As [`Service::clients`].
    pub fn clients(&self, export: &Arc<dyn Export>) -> Clients {
        self.service.clients(export)
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.service.stats()
    }
}

/// Whether the client disconnected, or there was none.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | WouldBlock)
}
