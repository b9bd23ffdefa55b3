//! The guest's NVMe disks: registers that it writes, into events.

use std::sync::{Mutex, PoisonError};

use fastness_trace::{BlockEvent, Device};

use super::nvme::{Action, Controller, Memory, NvmeError, REGISTERS_BYTES, What};
use crate::args::{ArgumentError, disk};

/// Disks as they were named, and the controllers that were found so far, which are theirs in the same order.
#[derive(Debug, Default)]
pub(super) struct Disks {
    pub(super) devices: Vec<Device>,
    controllers: Mutex<Vec<(u64, Controller)>>,
}

/// Why a register's write cannot be followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiskError {
    #[error("the guest uses an NVMe controller at {0:#x}, for which there is no disk=")]
    Unknown(u64),
    #[error(transparent)]
    Nvme(#[from] NvmeError),
}

impl Disks {
    pub(super) fn parse(arguments: &[String]) -> Result<Disks, ArgumentError> {
        let device = |(index, text): (usize, &String)| {
            let (len_bytes, block_bytes) = disk(text)?;
            Ok(Device { name: format!("nvme{index}"), len_bytes, block_bytes })
        };
        let devices = arguments.iter().enumerate().map(device).collect::<Result<_, _>>()?;
        Ok(Disks { devices, controllers: Mutex::default() })
    }

    pub(super) fn are_traced(&self) -> bool {
        !self.devices.is_empty()
    }

    /// A register of a controller was written. Returns the disk, and what that did. Without `is_on` it is only followed, and
    /// completions of what was submitted are none later.
    pub(super) fn write(
        &self,
        physical: u64,
        value: &[u8],
        is_on: bool,
        memory: Memory<'_>,
    ) -> Result<(u32, Vec<Action>), DiskError> {
        let start = physical / REGISTERS_BYTES * REGISTERS_BYTES;
        let mut controllers = self.controllers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = controllers.iter().position(|(other, _)| *other == start);
        let index = known.unwrap_or(controllers.len());
        if known.is_none() {
            let device = self.devices.get(index).ok_or(DiskError::Unknown(start))?;
            controllers.push((start, Controller::new(device.block_bytes.into())));
        }
        let controller = &mut controllers[index].1;
        let mut actions = controller.write(physical - start, value, memory)?;
        if !is_on {
            controller.forget();
            actions.clear();
        }
        Ok((index as u32, actions))
    }
}

/// As the trace has it.
pub(super) fn event(what: &What) -> BlockEvent<'_> {
    match *what {
        What::Write { offset, ref data, is_fua } => BlockEvent::Write { offset, data, is_fua },
        What::Zeroes { offset, len_bytes, is_fua } => BlockEvent::WriteZeroes { offset, len_bytes, is_fua },
        What::Discard { offset, len_bytes } => BlockEvent::Discard { offset, len_bytes },
        What::Flush => BlockEvent::Flush,
        What::Completion { is_ok } => BlockEvent::Completion { is_ok },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_disks_in_the_order_of_their_use() {
        let disks = Disks::parse(&["64M".to_owned(), "1G/4096".to_owned()]).unwrap();
        assert_eq!(disks.devices[1].block_bytes, 4096);
        let write = |at| disks.write(at, &[0; 4], true, &|_, _| false);
        assert_eq!(write(0xfe00_8014).unwrap(), (0, Vec::new()));
        assert_eq!(write(0xfe00_0014).unwrap(), (1, Vec::new()));
        assert_eq!(write(0xfe00_8024).unwrap(), (0, Vec::new()));
        assert!(matches!(write(0xfe00_4014), Err(DiskError::Unknown(0xfe00_4000))));
        assert!(Disks::parse(&["64M/0".to_owned()]).is_err() && Disks::parse(&["x".to_owned()]).is_err());
    }
}
