//! Volumes that are served over NBD.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use fastness_base::ErrorKind;
use fastness_nbd::{Endpoint, Export, ExportEntry, Exports, Limits, Listener, OpenError, Server};
use fastness_store::{Attached, DatasetId};
use fastness_zvol::Volume;

use crate::error::bind_kind;
use crate::export::VolumeExport;
use crate::io_report::IoRow;
use crate::journal::Journal;
use crate::protocol::Failure;
use crate::report::{Address, ServedReport};
use crate::service::Service;
use crate::status::volume_row;

/// One volume at one address.
pub(crate) struct NbdService {
    volume: Arc<Attached<Volume>>,
    address: Address,
    is_read_only: bool,
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
}

fn endpoint(address: &Address) -> Result<Endpoint, Failure> {
    match address {
        Address::Unix(path) => Ok(Endpoint::Unix(PathBuf::from(path))),
        Address::VhostUser(path) | Address::Mount(path) => {
            let text = format!("{path} is no address of NBD; a volume is served at a socket");
            Err(Failure::refuse(ErrorKind::Invalid, text))
        }
        Address::Tcp(text) => match text.parse::<SocketAddr>() {
            Ok(address) => Ok(Endpoint::Tcp(address)),
            Err(_) => Err(Failure::refuse(
                ErrorKind::Invalid,
                format!("{text} is no address: write 127.0.0.1:10809, or [::1]:10809"),
            )),
        },
    }
}

/// Refuses an address that nothing can listen at now; nothing listens there afterwards. Of a socket, only the
/// path is looked at: to listen at it for a moment would be in the way of another process.
///
/// # Errors
/// It is invalid, or in use.
pub fn check_address(address: &Address) -> Result<(), Failure> {
    match endpoint(address)? {
        Endpoint::Unix(path) => match std::os::unix::net::SocketAddr::from_pathname(&path) {
            Ok(_) => Ok(()),
            Err(error) => {
                let text = format!("{} cannot be a socket: {error}", path.display());
                Err(Failure::refuse(ErrorKind::Invalid, text))
            }
        },
        tcp => {
            let bound = Listener::bind(&tcp);
            bound.map(drop).map_err(|error| Failure::new(bind_kind(&error), &error))
        }
    }
}

/// A volume under the name that it has now, and under the empty one. Not under one that it had: that may be
/// the name of another.
struct NamedNow {
    volume: Arc<Attached<Volume>>,
    export: Arc<VolumeExport>,
}

impl Exports for NamedNow {
    fn open(&self, name: &str) -> Result<Arc<dyn Export>, OpenError> {
        match name.is_empty() || name == self.volume.name() {
            true => Ok(self.export.clone()),
            false => Err(OpenError::Unknown),
        }
    }

    fn list(&self) -> Option<Vec<ExportEntry>> {
        let description = self.export.description().unwrap_or_default();
        Some(vec![ExportEntry { name: self.volume.name(), description }])
    }
}

impl NbdService {
    /// Listens, and serves from a thread of its own until [`stop`](Service::stop).
    pub(crate) fn start(
        volume: Arc<Attached<Volume>>,
        address: &Address,
        is_read_only: bool,
        journal: &Arc<Journal>,
    ) -> Result<NbdService, Failure> {
        let export = VolumeExport::new(volume.clone(), is_read_only, journal.clone());
        let exports = Arc::new(NamedNow { volume: volume.clone(), export: Arc::new(export) });
        let server = Server::bind(&endpoint(address)?, exports, Limits::default());
        let server = Arc::new(server.map_err(|error| Failure::new(bind_kind(&error), &error))?);
        let address = match server.endpoint() {
            Endpoint::Unix(path) => Address::Unix(path.display().to_string()),
            Endpoint::Tcp(address) => Address::Tcp(address.to_string()),
        };
        let (serve, notes, name) = (server.clone(), journal.clone(), volume.name());
        let thread = std::thread::Builder::new().name("nbd-listener".to_owned()).spawn(move || {
            if let Err(error) = serve.serve() {
                notes.note(format!("{name}: takes no clients any more: {error}"));
            }
        });
        let thread = thread.map_err(|error| Failure::new(ErrorKind::Retry, &error))?;
        Ok(NbdService { volume, address, is_read_only, server, thread: Some(thread) })
    }
}

impl Service for NbdService {
    fn dataset(&self) -> Option<DatasetId> {
        Some(self.volume.dataset())
    }

    fn volume(&self) -> Option<&Arc<Attached<Volume>>> {
        Some(&self.volume)
    }

    fn io(&self) -> Option<IoRow> {
        Some(volume_row(&*self.volume.get()?))
    }

    fn users(&self) -> Option<String> {
        let ServedReport { clients, uri, .. } = self.report();
        let word = if clients == 1 { "client" } else { "clients" };
        (clients > 0).then(|| format!("{clients} {word} at {uri}"))
    }

    fn stop(mut self: Box<Self>) {
        self.volume.end();
        self.server.shutdown();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
    }

    fn report(&self) -> ServedReport {
        let volume = self.volume.name();
        let opened = self.volume.get();
        let uri = match &self.address {
            Address::Unix(path) => format!("nbd+unix:///{volume}?socket={path}"),
            Address::Tcp(address) => format!("nbd://{address}/{volume}"),
            Address::VhostUser(path) | Address::Mount(path) => path.clone(),
        };
        ServedReport {
            size_bytes: opened.as_ref().map_or(0, |volume| volume.size_bytes()),
            volume,
            address: self.address.clone(),
            uri,
            is_read_only: self.is_read_only || opened.is_some_and(|volume| volume.is_read_only()),
            clients: self.server.stats().connections as u64,
            operations: Vec::new(),
        }
    }
}
