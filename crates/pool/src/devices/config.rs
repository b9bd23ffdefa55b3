//! What a pool is made of, as recorded in every label.

use crate::codec::{Reader, Writer};
use crate::ids::{Guid, Txg};

/// Version of the media format that this program writes and reads.
pub const FORMAT_VERSION: u32 = 3;

/// What a top-level vdev is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum VdevClass {
    /// Data and metadata, striped over all vdevs of this class.
    Normal,
    /// Recorded for an intent log; the pool itself writes nothing there but labels.
    Log,
}

/// Whether its last user exported the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolState {
    /// Exported: anyone may import it.
    Exported,
    /// In use by the host in the label, or it was when that host died.
    Active,
    /// Destroyed: imported only by who says so. Its devices are free for others.
    Destroyed,
}

/// Whether what a device holds can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceState {
    /// All blocks are current.
    Online,
    /// Missed a write: written to, but not read until it is resilvered.
    Stale,
    /// Of a vdev for logs: stale, and nothing that it has, or may have had, counts.
    GivenUp,
}

/// A device in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceConfig {
    /// The device's own name.
    pub guid: Guid,
    /// Where it was last; a hint.
    pub path: String,
    /// Whether it can be read.
    pub state: DeviceState,
}

/// A top-level vdev: one device, or a mirror of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VdevConfig {
    /// Number in the pool. The next one that is added may get that of one that was removed: only a vdev for
    /// logs without a block is, and nothing that is stored names it then. Sides have a GUID for ever.
    pub id: u16,
    /// What it is for.
    pub class: VdevClass,
    /// Units in its data area, fixed when it is added; each side has as many or more.
    pub units: u64,
    /// Its sides: one for a plain vdev.
    pub devices: Vec<DeviceConfig>,
}

/// The configuration of a pool: the payload of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// The pool.
    pub guid: Guid,
    /// Its name.
    pub name: String,
    /// Counts up with each change of the configuration; the newest label counts.
    pub generation: u64,
    /// The txg that was syncing, or had synced last, when the label was written.
    pub txg: Txg,
    /// Whether the pool is in use.
    pub state: PoolState,
    /// The host that uses it, or used it last.
    pub host_id: u64,
    /// Name of that host.
    pub host_name: String,
    /// The top-level vdevs.
    pub vdevs: Vec<VdevConfig>,
}

impl PoolConfig {
    /// The vdev and the side of a device.
    pub(crate) fn find(&self, guid: Guid) -> Option<(usize, usize)> {
        self.vdevs.iter().enumerate().find_map(|(index, vdev)| {
            vdev.devices.iter().position(|device| device.guid == guid).map(|side| (index, side))
        })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u64(self.guid.0).text(&self.name).u64(self.generation).u64(self.txg.0);
        out.u8(match self.state {
            PoolState::Exported => 0,
            PoolState::Active => 1,
            PoolState::Destroyed => 2,
        });
        out.u64(self.host_id).text(&self.host_name).u16(self.vdevs.len() as u16);
        for vdev in &self.vdevs {
            out.u16(vdev.id).u8(match vdev.class {
                VdevClass::Normal => 0,
                VdevClass::Log => 1,
            });
            out.u64(vdev.units).u16(vdev.devices.len() as u16);
            for device in &vdev.devices {
                out.u64(device.guid.0).text(&device.path).u8(match device.state {
                    DeviceState::Online => 0,
                    DeviceState::Stale => 1,
                    DeviceState::GivenUp => 2,
                });
            }
        }
        out.bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<PoolConfig> {
        let mut input = Reader::new(bytes);
        let (guid, name) = (Guid(input.u64()?), input.text()?);
        let (generation, txg) = (input.u64()?, Txg(input.u64()?));
        let state = match input.u8()? {
            0 => PoolState::Exported,
            1 => PoolState::Active,
            2 => PoolState::Destroyed,
            _ => return None,
        };
        let (host_id, host_name) = (input.u64()?, input.text()?);
        let count = input.u16()?;
        let vdevs = (0..count).map(|_| decode_vdev(&mut input)).collect::<Option<Vec<_>>>()?;
        input.end()?;
        let config = PoolConfig { guid, name, generation, txg, state, host_id, host_name, vdevs };
        config.is_sound().then_some(config)
    }

    /// No number and no GUID twice, no vdev without a side, no more units than an address can express.
    fn is_sound(&self) -> bool {
        let mut ids: Vec<_> = self.vdevs.iter().map(|vdev| vdev.id).collect();
        let mut guids: Vec<_> =
            self.vdevs.iter().flat_map(|vdev| vdev.devices.iter().map(|d| d.guid)).collect();
        let (all_ids, all_guids) = (ids.len(), guids.len());
        ids.sort_unstable();
        ids.dedup();
        guids.sort_unstable();
        guids.dedup();
        ids.len() == all_ids
            && guids.len() == all_guids
            && self.guid.0 != 0
            && self.vdevs.iter().all(|vdev| !vdev.devices.is_empty() && vdev.units < 1 << 48)
    }
}

fn decode_vdev(input: &mut Reader<'_>) -> Option<VdevConfig> {
    let id = input.u16()?;
    let class = match input.u8()? {
        0 => VdevClass::Normal,
        1 => VdevClass::Log,
        _ => return None,
    };
    let (units, count) = (input.u64()?, input.u16()?);
    let device = |input: &mut Reader<'_>| {
        let (guid, path) = (Guid(input.u64()?), input.text()?);
        let state = match input.u8()? {
            0 => DeviceState::Online,
            1 => DeviceState::Stale,
            2 => DeviceState::GivenUp,
            _ => return None,
        };
        Some(DeviceConfig { guid, path, state })
    };
    let devices = (0..count).map(|_| device(input)).collect::<Option<Vec<_>>>()?;
    Some(VdevConfig { id, class, units, devices })
}
