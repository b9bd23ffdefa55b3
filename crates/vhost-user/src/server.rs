//! Serves a disk to front ends, one after the other.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastness_sync::{Mutex, lock};

use crate::disk::Disk;
use crate::message::ProtocolError;
use crate::options::Options;
use crate::session::{Channel, Session, config_changed};
use crate::stats::{Counters, RequestStats, sum};
use crate::thread::Note;

/// A disk, and the front end that is connected.
///
/// Concurrency: one thread calls [`run_client`](Self::run_client), any thread the others.
pub struct Server {
    disk: Arc<dyn Disk>,
    options: Options,
    note: Note,
    /// To disconnect the front end.
    client: Mutex<Option<UnixStream>>,
    channel: Channel,
    /// Of each queue, whichever front end uses it.
    counters: Vec<Arc<Counters>>,
    is_down: AtomicBool,
}

impl Server {
    /// Serves `disk`; `note` is called with what an operator should know.
    pub fn new(
        disk: Arc<dyn Disk>,
        options: Options,
        note: impl Fn(String) + Send + Sync + 'static,
    ) -> Server {
        let options = Options { queues: options.queues.clamp(1, 64), ..options };
        Server {
            disk,
            options,
            note: Arc::new(note),
            client: Mutex::default(),
            channel: Channel::default(),
            counters: (0..options.queues).map(|_| Arc::default()).collect(),
            is_down: AtomicBool::new(false),
        }
    }

    /// Serves a front end until it closes the connection, or [`shutdown`](Self::shutdown) is called.
    ///
    /// # Errors
    /// It broke a rule, or the connection.
    pub fn run_client(&self, stream: UnixStream) -> Result<(), ProtocolError> {
        *lock(&self.client) = Some(stream.try_clone()?);
        let outcome = if self.is_down.load(Ordering::SeqCst) {
            Ok(())
        } else {
            let (disk, note) = (self.disk.clone(), self.note.clone());
            let (channel, counters) = (self.channel.clone(), self.counters.clone());
            Session::new(stream, disk, self.options, note, channel, counters).run()
        };
        (*lock(&self.channel), *lock(&self.client)) = (None, None);
        if self.is_down.load(Ordering::SeqCst) { Ok(()) } else { outcome }
    }

    /// Whether a front end is connected.
    pub fn has_client(&self) -> bool {
        lock(&self.client).is_some()
    }

    /// What front ends have asked for since the server was made, for each kind of request that there was.
    pub fn stats(&self) -> Vec<RequestStats> {
        sum(self.counters.iter().map(|counters| &**counters))
    }

    /// Tells a virtual machine that the size of its disk has changed.
    pub fn config_changed(&self) {
        config_changed(&self.channel);
    }

    /// Disconnects the front end, after its requests in work, and every later one.
    pub fn shutdown(&self) {
        self.is_down.store(true, Ordering::SeqCst);
        if let Some(stream) = &*lock(&self.client) {
            // A front end that is gone is not connected either.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
