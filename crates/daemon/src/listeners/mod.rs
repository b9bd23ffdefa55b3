//! Listeners: one for each address, with all volumes that are served there.
//!
//! A listener begins with its first volume and ends with its last. Who joins and who leaves does so under one
//! lock, so no volume joins a listener that is ending.

mod address;
mod shelf;

use std::sync::Arc;
use std::thread::JoinHandle;

use fastness_base::ErrorKind;
use fastness_nbd::{Endpoint, Export, Limits, Server, Tls};
use fastness_sync::{Mutex, lock};

pub use self::address::check_address;
use self::address::{access, endpoint, refusal};
use self::shelf::Shelf;
use crate::export::VolumeExport;
use crate::journal::Journal;
use crate::protocol::{AccessRequest, Failure};
use crate::report::Address;

/// The addresses where something is served.
#[derive(Default)]
pub(crate) struct Listeners(Mutex<Vec<Arc<NbdListener>>>);

/// An address where clients are served.
pub(crate) struct NbdListener {
    /// With the actual port.
    address: Address,
    access: AccessRequest,
    tls: Option<Tls>,
    shelf: Arc<Shelf>,
    server: Arc<Server>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Listeners {
    /// Serves an export at an address. Where others are served already, who may come is not changed by it.
    ///
    /// # Errors
    /// The address is in use or invalid; the certificates are no good; it is served there already, or others
    /// are in another way.
    pub(crate) fn join(
        &self,
        address: &Address,
        access: &AccessRequest,
        export: &Arc<VolumeExport>,
        journal: &Arc<Journal>,
    ) -> Result<Arc<NbdListener>, Failure> {
        let at = endpoint(address)?;
        let mut all = lock(&self.0);
        let Some(known) = all.iter().find(|known| *known.server.endpoint() == at) else {
            let listener = NbdListener::start(&at, access, export, journal)?;
            all.push(listener.clone());
            return Ok(listener);
        };
        if known.access != *access {
            let text = format!(
                "other volumes are served at {} {}: serve this one in the same way, or at another address",
                known.address,
                known.access.in_words()
            );
            return Err(Failure::refuse(ErrorKind::Invalid, text));
        }
        if !known.shelf.add(export) {
            let text = format!("{} is in use: it serves {} already", known.address, export.name());
            return Err(Failure::refuse(ErrorKind::AddressInUse, text));
        }
        Ok(known.clone())
    }

    /// Ends an export there, and the connections to it. With the last one, the listener ends.
    pub(crate) fn leave(&self, listener: &Arc<NbdListener>, export: &Arc<VolumeExport>) {
        let mut all = lock(&self.0);
        let is_used = listener.shelf.remove(export);
        if !is_used {
            all.retain(|known| !Arc::ptr_eq(known, listener));
        }
        drop(all);
        export.end();
        if is_used {
            let export: Arc<dyn Export> = export.clone();
            listener.server.end_export(&export);
            return;
        }
        listener.server.shutdown();
        if let Some(thread) = lock(&listener.thread).take() {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
    }
}

impl NbdListener {
    /// Listens, and serves from a thread of its own.
    fn start(
        at: &Endpoint,
        request: &AccessRequest,
        export: &Arc<VolumeExport>,
        journal: &Arc<Journal>,
    ) -> Result<Arc<NbdListener>, Failure> {
        let access = access(request)?;
        let tls = access.tls.clone();
        let shelf = Arc::new(Shelf::default());
        shelf.add(export);
        let server = Server::bind_with(at, shelf.clone(), Limits::default(), access);
        let server = Arc::new(server.map_err(|error| refusal(&error))?);
        let address = match server.endpoint() {
            Endpoint::Unix(path) => Address::Unix(path.display().to_string()),
            Endpoint::Tcp(address) => Address::Tcp(address.to_string()),
        };
        let (serve, notes, place) = (server.clone(), journal.clone(), address.to_string());
        let thread = std::thread::Builder::new().name("nbd-listener".to_owned()).spawn(move || {
            if let Err(error) = serve.serve() {
                notes.note(format!("{place}: takes no clients any more: {error}"));
            }
        });
        let thread = Mutex::new(Some(thread.map_err(|error| Failure::new(ErrorKind::Retry, &error))?));
        tls.iter().flat_map(Tls::warnings).for_each(|warning| journal.warn(warning.clone()));
        Ok(Arc::new(NbdListener { address, access: request.clone(), tls, shelf, server, thread }))
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Where clients find a volume.
    pub(crate) fn uri(&self, volume: &str) -> String {
        let at = self.server.endpoint();
        if self.tls.is_some() { at.tls_uri(volume) } else { at.uri(volume) }
    }
}
