//! Requests about volumes, and which of them are served.

use fastness_base::{ErrorKind, chain};
use fastness_store::DatasetKind;
use fastness_zvol::{Volume, VolumeOptions};
use serde::{Deserialize, Serialize};

use crate::nbd::NbdService;
use crate::node::Node;
use crate::protocol::{AccessRequest, Failure};
use crate::report::{Address, ServedReport};
use crate::thick::of_new_volume;
use crate::vhost::VhostService;

/// Key stored with a volume's dataset: the addresses where an import serves it.
const KEPT: &[u8] = b"serve";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    address: Address,
    is_read_only: bool,
    #[serde(default)]
    access: AccessRequest,
}

impl Node {
    pub(crate) fn create_volume(
        &self,
        name: &str,
        size_bytes: u64,
        properties: &[(String, String)],
        with_parents: bool,
    ) -> Result<(), Failure> {
        let properties = &of_new_volume(properties, size_bytes)?;
        let options = VolumeOptions { properties: self.prepare(name, properties, with_parents)? };
        Volume::create(&self.store, name, size_bytes, &options)?;
        self.set_user_properties(name, properties)
    }

    pub(crate) fn resize_volume(&self, name: &str, size_bytes: u64, is_forced: bool) -> Result<(), Failure> {
        let volume = Volume::open(&self.store, name)?;
        if volume.is_read_only() {
            return Err(fastness_store::PoolError::ReadOnly(name.to_owned()).into());
        }
        if size_bytes < volume.size_bytes() {
            self.refuse_in_use(Some(name), is_forced)?;
        }
        let thick = self.thick_after_resize(volume.dataset(), size_bytes);
        let grows = size_bytes > volume.size_bytes();
        // A volume that is larger has its room before.
        thick.filter(|_| grows).map_or(Ok(()), |bytes| self.set_thick(volume.dataset(), bytes))?;
        volume.resize(size_bytes)?;
        thick.filter(|_| !grows).map_or(Ok(()), |bytes| self.set_thick(volume.dataset(), bytes))?;
        self.services.resized(volume.dataset().id());
        self.journal.note(format!(
            "{name} resized to {size_bytes} bytes; NBD clients see it when they connect again"
        ));
        Ok(())
    }

    /// Serves a volume; with `is_kept`, after each import. Others that are served at the address, in the same
    /// way, are no obstacle.
    ///
    /// # Errors
    /// The address is in use or invalid, or certificates are; errors of opening the volume.
    pub fn serve(
        &self,
        name: &str,
        address: &Address,
        access: &AccessRequest,
        is_read_only: bool,
        is_kept: bool,
    ) -> Result<ServedReport, Failure> {
        let volume = Volume::open(&self.store, name)?;
        // One for all addresses: they share its counters.
        let attached = match self.services.volume(volume.dataset().id()) {
            Some(attached) => attached,
            None => self.store.attach(name)?,
        };
        let report = match address {
            Address::VhostUser(_) if *access != AccessRequest::default() => {
                let text =
                    "a virtual machine is served without TLS, and through a socket of this machine only";
                return Err(Failure::refuse(ErrorKind::Invalid, text));
            }
            Address::VhostUser(path) => {
                self.services.add(VhostService::start(attached, path, is_read_only, &self.journal)?)
            }
            _ => self.services.add(NbdService::start(
                &self.listeners,
                attached,
                (address, access),
                is_read_only,
                &self.journal,
            )?),
        };
        if is_kept {
            let mut kept = self.kept(&volume);
            let new = Kept { address: report.address.clone(), is_read_only, access: access.clone() };
            kept.retain(|kept| kept.address != new.address);
            kept.push(new);
            self.keep(&volume, &kept)?;
        }
        Ok(report)
    }

    pub(crate) fn unserve(&self, name: &str, is_forced: bool) -> Result<(), Failure> {
        let volume = Volume::open(&self.store, name)?;
        self.refuse_in_use(Some(name), is_forced)?;
        self.services.stop(volume.dataset().id());
        self.keep(&volume, &[])
    }

    /// Serves the volumes that are set to be served after each import; notes those that cannot be.
    pub(crate) fn serve_kept(&self) {
        let volumes = self.pool().datasets().into_iter().filter(|info| info.kind == DatasetKind::Volume);
        let snapshots = self.pool().snapshots().into_iter().map(|info| info.name);
        for name in volumes.map(|info| info.name).chain(snapshots) {
            let Ok(volume) = Volume::open(&self.store, &name) else { continue };
            for Kept { address, is_read_only, access } in self.kept(&volume) {
                if let Err(error) = self.serve(&name, &address, &access, is_read_only, false) {
                    self.journal.fail(format!("{name} is not served: {}", chain(&error)));
                }
            }
        }
    }

    fn kept(&self, volume: &Volume) -> Vec<Kept> {
        let stored = volume.dataset().synced_aux(KEPT).ok().flatten();
        stored.and_then(|stored| serde_json::from_slice(&stored).ok()).unwrap_or_default()
    }

    fn keep(&self, volume: &Volume, kept: &[Kept]) -> Result<(), Failure> {
        if self.kept(volume) == kept {
            return Ok(());
        }
        let value = serde_json::to_vec(kept).expect("text and flags");
        let tx = self.pool().begin_tx()?;
        volume.dataset().put_aux(&tx, KEPT, (!kept.is_empty()).then_some(&value[..]));
        Ok(self.pool().wait_synced(tx.commit())?)
    }
}
