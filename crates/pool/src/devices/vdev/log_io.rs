//! I/O of log blocks on one vdev. They are in no table: their owner knows their checksums, this module does
//! not.

use std::sync::atomic::Ordering;

use fastness_blkdev::BlockError;

use crate::devices::config::DeviceState;
use crate::devices::vdev::sides::Outcome;
use crate::devices::vdev::{Side, Vdev};
use fastness_sync::order::{lock, read};

impl Vdev {
    /// Whether a current side is writable. Waits for no I/O.
    pub(crate) fn can_be_written(&self) -> bool {
        lock(&self.listed).iter().any(|side| !side.is_stale() && side.writable().is_some())
    }

    /// Whether nothing on it counts any more.
    pub(crate) fn is_given_up(&self) -> bool {
        read(&self.sides).iter().all(|side| side.state() == DeviceState::GivenUp)
    }

    /// Whether a side that is there is being brought up to date, or will be.
    pub(crate) fn catches_up(&self) -> bool {
        lock(&self.listed).iter().any(|side| side.is_stale() && side.writable().is_some())
    }

    pub(crate) fn has_stale_side(&self) -> bool {
        lock(&self.listed).iter().any(|side| side.is_stale())
    }

    /// Flushes all sides. The caller holds `log_io`.
    pub(crate) fn flush_log(&self, at_once: bool) -> Outcome {
        self.change(1, at_once, |_, device| vec![device.flush()]).remove(0)
    }

    /// Reads whole units from one side after the other, current ones first, until `check` accepts the bytes.
    /// With `heal`, sides that had something else are rewritten.
    ///
    /// `Ok(false)`: no side has it, and a current side could be read. A stale side's answer alone is not
    /// conclusive.
    pub(crate) fn read_log(
        &self,
        unit: u64,
        buf: &mut [u8],
        check: &mut dyn FnMut(&mut [u8]) -> bool,
        heal: bool,
    ) -> Result<bool, Option<BlockError>> {
        let sides = read(&self.sides);
        let current = sides.iter().filter(|side| !side.is_stale());
        let order: Vec<_> = current.chain(sides.iter().filter(|side| side.is_stale())).collect();
        let (mut is_denied, mut last, mut wrong) = (false, None, Vec::<&Side>::new());
        for side in order {
            let Some(device) = &side.device else { continue };
            match device.read_at(self.offset(unit), buf) {
                Ok(()) if check(buf) => {
                    wrong.iter().filter(|_| heal).for_each(|side| {
                        side.counters.checksum.fetch_add(1, Ordering::Relaxed);
                        self.heal(side, unit, buf);
                    });
                    return Ok(true);
                }
                Ok(()) => is_denied |= !side.is_stale(),
                Err(error) => {
                    side.counters.read.fetch_add(1, Ordering::Relaxed);
                    last = Some(error);
                }
            }
            wrong.push(side);
        }
        if is_denied { Ok(false) } else { Err(last) }
    }

    /// Shows what each current side has in these units. An error if none could be read.
    pub(crate) fn read_log_current(
        &self,
        unit: u64,
        buf: &mut [u8],
        look: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Option<BlockError>> {
        let (mut is_read, mut last) = (false, None);
        for side in read(&self.sides).iter().filter(|side| !side.is_stale()) {
            let Some(device) = &side.device else { continue };
            match device.read_at(self.offset(unit), buf) {
                Ok(()) => {
                    is_read = true;
                    look(buf);
                }
                Err(error) => {
                    side.counters.read.fetch_add(1, Ordering::Relaxed);
                    last = Some(error);
                }
            }
        }
        if is_read { Ok(()) } else { Err(last) }
    }

    /// Copies a log block from a current side that `has_it` onto `side`. The caller holds `log_io`
    /// exclusively.
    pub(crate) fn copy_log(
        &self,
        side: &Side,
        unit: u64,
        buf: &mut [u8],
        has_it: impl Fn(&Side) -> bool,
    ) -> crate::Result<()> {
        let sides = read(&self.sides);
        let sources =
            sides.iter().filter(|other| other.guid != side.guid && !other.is_stale() && has_it(other));
        let mut last = None;
        for device in sources.filter_map(|source| source.device.as_ref()) {
            match device.read_at(self.offset(unit), buf) {
                Ok(()) => return self.write_side(side, unit, buf),
                Err(error) => last = Some(error),
            }
        }
        Err(super::failed(last))
    }
}
