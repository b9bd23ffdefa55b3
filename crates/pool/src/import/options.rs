//! What is asked for when a pool is created or imported.

use std::sync::Arc;

use crate::devices::config::{DeviceState, VdevClass};
use crate::devices::label::{DEVICE_BYTES_MIN, data_units};
use crate::devices::vdev::{Device, Side, Vdev};
use crate::error::{PoolError, Result};
use crate::ids::Guid;
#[cfg(doc)]
use crate::pool::Pool;

/// A top-level vdev to be created.
#[derive(Debug, Clone)]
pub struct VdevSpec {
    /// What it is for.
    pub class: VdevClass,
    /// One device, or the sides of a mirror.
    pub devices: Vec<Device>,
}

impl VdevSpec {
    /// A vdev of one device.
    pub fn single(device: Device) -> VdevSpec {
        VdevSpec { class: VdevClass::Normal, devices: vec![device] }
    }

    /// A mirror.
    pub fn mirror(devices: impl IntoIterator<Item = Device>) -> VdevSpec {
        VdevSpec { class: VdevClass::Normal, devices: devices.into_iter().collect() }
    }

    /// The same, for logs.
    #[must_use]
    pub fn log(mut self) -> VdevSpec {
        self.class = VdevClass::Log;
        self
    }

    /// The vdev, with new GUIDs.
    pub(crate) fn build(&self, id: u16) -> Result<Vdev> {
        let mut units = u64::MAX;
        for Device { path, device } in &self.devices {
            let len_bytes = device.len_bytes();
            if len_bytes < DEVICE_BYTES_MIN {
                let least_bytes = DEVICE_BYTES_MIN;
                return Err(PoolError::TooSmall { path: path.clone(), len_bytes, least_bytes });
            }
            if !(4096u32).is_multiple_of(device.logical_block_bytes()) {
                let block_bytes = device.logical_block_bytes();
                return Err(PoolError::BlockSize { path: path.clone(), block_bytes });
            }
            units = units.min(data_units(len_bytes));
        }
        if self.devices.is_empty() {
            return Err(PoolError::EmptyVdev);
        }
        let side = |device: &Device| {
            let state = DeviceState::Online;
            Arc::new(Side::new(Guid::random(), device.path.clone(), Some(device.device.clone()), state))
        };
        Ok(Vdev::new(id, self.class, units, self.devices.iter().map(side).collect()))
    }
}

/// This host, as labels name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Number that is unique to this host.
    pub id: u64,
    /// Name for messages.
    pub name: String,
}

impl Host {
    /// The host that this program runs on: systemd's machine id, if there is one, and the node name.
    pub fn current() -> Host {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let seed = if machine.trim().is_empty() { name.clone() } else { machine.trim().to_owned() };
        Host { id: crate::codec::checksum(seed.as_bytes()), name }
    }
}

/// What an import does about a log vdev that has no current side. It may hold what its owner acknowledged
/// since the last synced txg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingLog {
    /// Refuses, with the device: [`PoolError::MissingLog`].
    #[default]
    Refuse,
    /// Goes on without it. The vdev stays in the configuration, unavailable: nothing is allocated on it, and
    /// [`Pool::remove`] removes it. Later imports do not ask again. If it comes back, it is stale until it is
    /// [resilvered](Pool::resilver), and empty but for what the owner claims.
    Drop,
}

/// How to import.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Which host imports.
    pub host: Host,
    /// Import a pool that another host has not exported. If that host is alive, the two will destroy it.
    pub is_forced: bool,
    /// Import a pool although a side of a mirror is missing that the others know as current. That side may
    /// have gone on alone; what only it knows is then lost. A side that is known to be stale is not missed.
    pub allows_degraded: bool,
    /// What to do about a log vdev that has no current side.
    pub missing_log: MissingLog,
    /// Only a pool of this name.
    pub name: Option<String>,
    /// Import a pool that was destroyed.
    pub allows_destroyed: bool,
    /// The pool's name from now on.
    pub rename: Option<String>,
}

impl Default for ImportOptions {
    fn default() -> ImportOptions {
        ImportOptions {
            host: Host::current(),
            is_forced: false,
            allows_degraded: false,
            missing_log: MissingLog::Refuse,
            name: None,
            allows_destroyed: false,
            rename: None,
        }
    }
}
