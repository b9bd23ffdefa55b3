//! The guest's NVMe disks: registers that it writes, into events.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fastness_crashcheck_trace::{BlockEvent, Device};

use super::before::{Before, BeforeError, Contents};
use super::nvme::{Action, Controller, Memory, NvmeError, REGISTERS_BYTES, What};
use crate::args::{ArgumentError, disk};

/// Disks as they were named.
#[derive(Debug)]
pub(super) struct Disks {
    pub(super) devices: Vec<Device>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The controllers that were found so far, and where: theirs in the same order.
    controllers: Vec<(u64, Controller)>,
    /// Each disk, until the trace begins.
    before: Vec<Before>,
}

/// Why a register's write cannot be followed, or the trace not begun.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiskError {
    #[error("the guest uses an NVMe controller at {0:#x}, for which there is no disk=")]
    Unknown(u64),
    #[error(transparent)]
    Nvme(#[from] NvmeError),
    #[error(transparent)]
    Before(#[from] BeforeError),
}

impl Disks {
    pub(super) fn parse(arguments: &[String]) -> Result<Disks, ArgumentError> {
        let (mut devices, mut before) = (Vec::new(), Vec::new());
        for (index, text) in arguments.iter().enumerate() {
            let (len_bytes, block_bytes, image) = disk(text)?;
            devices.push(Device { name: format!("nvme{index}"), len_bytes, block_bytes });
            before.push(Before::new(image, len_bytes));
        }
        Ok(Disks { devices, state: Mutex::new(State { controllers: Vec::new(), before }) })
    }

    pub(super) fn are_traced(&self) -> bool {
        !self.devices.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A register of a controller was written. Returns the disk, and what that did, once the trace has begun.
    pub(super) fn write(
        &self,
        physical: u64,
        value: &[u8],
        memory: Memory<'_>,
    ) -> Result<(u32, Vec<Action>), DiskError> {
        let start = physical / REGISTERS_BYTES * REGISTERS_BYTES;
        let mut state = self.lock();
        let State { controllers, before } = &mut *state;
        let known = controllers.iter().position(|(other, _)| *other == start);
        let index = known.unwrap_or(controllers.len());
        if known.is_none() {
            let device = self.devices.get(index).ok_or(DiskError::Unknown(start))?;
            controllers.push((start, Controller::new(device.block_bytes.into())));
            before.get_mut(index).map_or(Ok(()), Before::read)?;
        }
        let mut actions = controllers[index].1.write(physical - start, value, memory)?;
        if let Some(before) = before.get_mut(index) {
            actions.drain(..).for_each(|action| before.add(action));
        }
        Ok((index as u32, actions))
    }

    /// What each disk holds for certain, and what was done to it since; from now on it is events.
    pub(super) fn begin(&self) -> Result<Vec<(Contents, Vec<Action>)>, DiskError> {
        let before = std::mem::take(&mut self.lock().before);
        Ok(before.into_iter().map(Before::end).collect::<Result<_, _>>()?)
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
        let write = |at| disks.write(at, &[0; 4], &|_, _| false);
        assert_eq!(write(0xfe00_8014).unwrap(), (0, Vec::new()));
        assert_eq!(write(0xfe00_0014).unwrap(), (1, Vec::new()));
        assert_eq!(write(0xfe00_8024).unwrap(), (0, Vec::new()));
        assert!(matches!(write(0xfe00_4014), Err(DiskError::Unknown(0xfe00_4000))));
        assert!(Disks::parse(&["64M/0".to_owned()]).is_err() && Disks::parse(&["x".to_owned()]).is_err());
        assert_eq!(disks.begin().unwrap().len(), 2);
        let missing = Disks::parse(&["64M@/no/such/file".to_owned()]).unwrap();
        let refused = missing.write(0xfe00_8014, &[0; 4], &|_, _| false);
        assert!(matches!(refused, Err(DiskError::Before(BeforeError::Image(..)))), "{refused:?}");
    }
}
