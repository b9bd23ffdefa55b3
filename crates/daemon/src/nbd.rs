//! Volumes that are served over NBD: several at one address, if they are served there.

use std::sync::Arc;

use fastness_nbd::Export;
use fastness_store::{Attached, DatasetId};
use fastness_zvol::Volume;

use crate::export::VolumeExport;
use crate::io_report::IoRow;
use crate::journal::Journal;
use crate::listeners::{Listeners, NbdListener};
use crate::protocol::{AccessRequest, Failure};
use crate::report::{Address, ServedReport, TlsReport};
use crate::service::Service;
use crate::status::volume_row;

/// One volume at one address.
pub(crate) struct NbdService {
    volume: Arc<Attached<Volume>>,
    export: Arc<VolumeExport>,
    is_read_only: bool,
    listener: Arc<NbdListener>,
    listeners: Arc<Listeners>,
}

impl NbdService {
    /// Serves a volume at an address, beside those that are served there already, until
    /// [`stop`](Service::stop).
    pub(crate) fn start(
        listeners: &Arc<Listeners>,
        volume: Arc<Attached<Volume>>,
        (address, access): (&Address, &AccessRequest),
        is_read_only: bool,
        journal: &Arc<Journal>,
    ) -> Result<NbdService, Failure> {
        let export = Arc::new(VolumeExport::new(volume.clone(), is_read_only, journal.clone()));
        let listener = listeners.join(address, access, &export, journal)?;
        Ok(NbdService { volume, export, is_read_only, listener, listeners: listeners.clone() })
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

    fn stop(self: Box<Self>) {
        self.volume.end();
        self.listeners.leave(&self.listener, &self.export);
    }

    fn report(&self) -> ServedReport {
        let opened = self.volume.get();
        let export: Arc<dyn Export> = self.export.clone();
        let clients = self.listener.server().clients(&export);
        let tls = self.listener.tls().map(|tls| TlsReport {
            verifies_clients: tls.verifies_clients(),
            certified: clients.certified as u64,
            warnings: tls.warnings(),
        });
        ServedReport {
            size_bytes: opened.as_ref().map_or(0, |volume| volume.size_bytes()),
            uri: self.listener.uri(&self.volume.name()),
            volume: self.volume.name(),
            address: self.listener.address().clone(),
            is_read_only: self.is_read_only || opened.is_some_and(|volume| volume.is_read_only()),
            clients: clients.all as u64,
            tls,
            operations: Vec::new(),
        }
    }
}
