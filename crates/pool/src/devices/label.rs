//! Labels: they name a device's pool and hold its newest txg.
//!
//! Design: there is a label of 256 KiB at each end of a device. Each has two slots for the configuration,
//! written in turn (slot = generation mod 2), a ring of 32 slots for uberblocks (slot = txg mod 32), and two
//! for *marks* (slot = txg mod 2). A slot has its own checksum and records its own place, so that a
//! misdirected write is rejected.
//!
//! A mark says that the device has everything of a txg, as a certain import wrote it. It is written before
//! the flush that precedes any uberblock of that txg, and overwritten by the mark of the next txg but one. So
//! a current device has a mark of the pool's newest uberblock, whatever a crash leaves; an older copy of the
//! device, put back, has none.
//!
//! Crash cases. A write tears at sectors, so the slot being written may be lost; nothing else.
//! 1. During a change of the configuration: the slot of the previous generation is intact in each label or,
//!    on a device that missed generations, in one of them; each label is flushed before the next is written.
//! 2. During an uberblock write: the previous txg's uberblock is in another slot, and was flushed.
//! 3. During a mark write: the previous txg's mark is in the other slot, and no device has an uberblock of
//!    the newer txg.
//!
//! In each case a reader finds either the new one or the previous one, as it must.

use std::sync::Arc;

use fastness_blkdev::{AlignedBuf, BlockDevice};

use crate::codec::{Reader, Writer, checksum};
use crate::devices::config::{FORMAT_VERSION, PoolConfig};
use crate::error::{PoolError, Result};
use crate::ids::{Guid, ImportId, Mark, Txg, UNIT_BYTES};

/// Length of a label.
pub const LABEL_BYTES: u64 = 256 << 10;
/// Where the data area begins: after the front label, rounded up.
pub const DATA_START_BYTES: u64 = LABEL_BYTES;
/// Length of the smallest device that a pool accepts.
pub const DEVICE_BYTES_MIN: u64 = 8 << 20;

const SLOT_BYTES: usize = 32 << 10;
const SLOT_START: u64 = 16 << 10;
const MARK_START: u64 = 96 << 10;
const MARK_SLOTS: u64 = 2;
const MARK_BYTES: usize = 4096;
const RING_START: u64 = 128 << 10;
const RING_SLOTS: u64 = 32;
/// Length of an uberblock's slot.
pub(crate) const UBERBLOCK_BYTES: usize = 4096;
const HEAD_BYTES: usize = 48;
const MAGIC_CONFIG: u64 = u64::from_le_bytes(*b"FASTLABL");
const MAGIC_UBERBLOCK: u64 = u64::from_le_bytes(*b"FASTUBER");
const MAGIC_MARK: u64 = u64::from_le_bytes(*b"FASTMARK");

/// Units of the data area of a device with this length.
pub(crate) fn data_units(len_bytes: u64) -> u64 {
    len_bytes.saturating_sub(DATA_START_BYTES + LABEL_BYTES + UNIT_BYTES) / UNIT_BYTES
}

/// Starts of the labels: at the front, and at the end rounded down to a unit.
fn label_starts(len_bytes: u64) -> [u64; 2] {
    let end = len_bytes - len_bytes % UNIT_BYTES;
    [0, end - LABEL_BYTES]
}

/// Head of a slot, 48 bytes: magic, checksum, place, version, payload length, device, pool.
fn seal(magic: u64, place: u64, device: Guid, pool: Guid, payload: &[u8], slot_bytes: usize) -> AlignedBuf {
    let mut head = Writer::default();
    head.u64(magic).u64(0).u64(place).u32(FORMAT_VERSION).u32(payload.len() as u32);
    head.u64(device.0).u64(pool.0);
    debug_assert_eq!(head.bytes.len(), HEAD_BYTES);
    let mut slot = AlignedBuf::zeroed(slot_bytes, 4096);
    slot[..HEAD_BYTES].copy_from_slice(&head.bytes);
    slot[HEAD_BYTES..HEAD_BYTES + payload.len()].copy_from_slice(payload);
    let sum = checksum(&slot);
    slot[8..16].copy_from_slice(&sum.to_le_bytes());
    slot
}

/// What a slot holds.
#[derive(Debug, PartialEq, Eq)]
enum Slot {
    Empty,
    /// Something that no pool has written.
    Foreign,
    Damaged,
    Other(u32),
    Whole {
        device: Guid,
        pool: Guid,
        payload: Vec<u8>,
    },
}

fn open_slot(magic: u64, place: u64, slot: &[u8]) -> Slot {
    if slot.iter().all(|byte| *byte == 0) {
        return Slot::Empty;
    }
    let parse = || {
        let mut head = Reader::new(slot);
        let (found_magic, sum, found_place) = (head.u64()?, head.u64()?, head.u64()?);
        let (version, len) = (head.u32()?, head.u32()? as usize);
        let (device, pool) = (Guid(head.u64()?), Guid(head.u64()?));
        let mut copy = slot.to_vec();
        copy[8..16].fill(0);
        if found_magic != magic || checksum(&copy) != sum || found_place != place {
            return None;
        }
        if version != FORMAT_VERSION {
            return Some(Slot::Other(version));
        }
        Some(Slot::Whole { device, pool, payload: head.take(len)?.to_vec() })
    };
    parse().unwrap_or_else(|| {
        // One that no longer has either of these was overwritten, whatever it was before.
        let is_ours = slot[..8] == magic.to_le_bytes() || slot[16..24] == place.to_le_bytes();
        if is_ours { Slot::Damaged } else { Slot::Foreign }
    })
}

/// What the labels of a device say.
#[derive(Debug, Clone)]
pub(crate) struct Labels {
    pub(crate) device: Guid,
    pub(crate) config: PoolConfig,
    /// The newest uberblock of the same pool.
    pub(crate) uberblock: Option<Uberblock>,
    /// Marks: the device has everything of these txgs, as these imports wrote them.
    pub(crate) marks: Vec<Mark>,
}

fn encode_mark(mark: Mark) -> Vec<u8> {
    let mut out = Writer::default();
    out.u64(mark.txg.0).u64(mark.import.0);
    out.bytes
}

fn decode_mark(payload: &[u8]) -> Option<Mark> {
    let mut input = Reader::new(payload);
    let mark = Mark { txg: Txg(input.u64()?), import: ImportId(input.u64()?) };
    input.end()?;
    Some(mark)
}

/// What an uberblock says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Uberblock {
    pub(crate) txg: Txg,
    /// Of the configuration.
    pub(crate) generation: u64,
    pub(crate) import: ImportId,
    /// Vdevs for logs that did not take its mark, and the last mark that each one took.
    pub(crate) lacking: Vec<(u16, Mark)>,
    /// Root of the page map.
    pub(crate) root: Vec<u8>,
}

/// Any beyond this number are not recorded: an import takes them for older copies.
const LACKING_MAX: usize = 8;
const MARK_PAYLOAD_BYTES: usize = 16;

impl Uberblock {
    /// The mark of every device that has everything that this uberblock refers to.
    pub(crate) fn mark(&self) -> Mark {
        Mark { txg: self.txg, import: self.import }
    }

    /// Whether it records that a vdev whose marks are these lacks its txg.
    pub(crate) fn lacks(&self, vdev: u16, marks: &[Mark]) -> bool {
        // A mark of a later txg is from an import that found this uberblock and accepted the vdev as it was.
        let is_of_later = |mark: &Mark| mark.import == self.import || mark.txg > self.txg;
        let is_last = |last: &Mark, mark: &Mark| mark == last || mark.txg > last.txg && is_of_later(mark);
        self.lacking.iter().any(|(id, last)| *id == vdev && marks.iter().any(|mark| is_last(last, mark)))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u64(self.txg.0).u64(self.generation).u64(self.import.0);
        let lacking = &self.lacking[..self.lacking.len().min(LACKING_MAX)];
        out.u8(lacking.len() as u8);
        for (vdev, mark) in lacking {
            out.u16(*vdev).bytes.extend(encode_mark(*mark));
        }
        out.bytes.extend(&self.root);
        out.bytes
    }

    pub(crate) fn decode(payload: &[u8]) -> Option<Uberblock> {
        let mut input = Reader::new(payload);
        let (txg, generation, import) = (Txg(input.u64()?), input.u64()?, ImportId(input.u64()?));
        let count = input.u8().filter(|count| usize::from(*count) <= LACKING_MAX)?;
        let mut lacking = Vec::new();
        for _ in 0..count {
            lacking.push((input.u16()?, decode_mark(input.take(MARK_PAYLOAD_BYTES)?)?));
        }
        Some(Uberblock { txg, generation, import, lacking, root: input.rest().to_vec() })
    }
}

/// Reads both labels of a device.
pub(crate) fn read_labels(path: &str, device: &Arc<dyn BlockDevice>) -> Result<Labels> {
    let len_bytes = device.len_bytes();
    if len_bytes < DEVICE_BYTES_MIN {
        return Err(PoolError::NoLabel { path: path.to_owned() });
    }
    let (mut best, mut other, mut damaged) = (None::<(Guid, PoolConfig)>, None, 0);
    let (mut uberblock, mut marks) = (None::<Uberblock>, Vec::new());
    let mut last_error = None;
    for start in label_starts(len_bytes) {
        let mut label = AlignedBuf::zeroed(LABEL_BYTES as usize, 4096);
        if let Err(error) = device.read_at(start, &mut label) {
            // The other label may be intact.
            last_error = Some(error);
            damaged += 1;
            continue;
        }
        for index in 0..2 {
            let at = SLOT_START + index * SLOT_BYTES as u64;
            match open_slot(MAGIC_CONFIG, start + at, &label[at as usize..][..SLOT_BYTES]) {
                Slot::Empty | Slot::Foreign => {}
                Slot::Damaged => damaged += 1,
                Slot::Other(version) => other = Some(version),
                Slot::Whole { device, payload, .. } => match PoolConfig::decode(&payload) {
                    // At the end of a device that has grown there may be the label of a pool from before.
                    Some(config)
                        if best.as_ref().is_none_or(|(guid, b)| {
                            *guid == device && b.guid == config.guid && b.generation < config.generation
                        }) =>
                    {
                        best = Some((device, config));
                    }
                    Some(_) => {}
                    None => damaged += 1,
                },
            }
        }
        for index in 0..MARK_SLOTS {
            let at = MARK_START + index * MARK_BYTES as u64;
            let slot = open_slot(MAGIC_MARK, start + at, &label[at as usize..][..MARK_BYTES]);
            if let Slot::Whole { device, pool, payload } = slot
                && best.as_ref().is_none_or(|(guid, config)| *guid == device && config.guid == pool)
            {
                marks.extend(decode_mark(&payload));
            }
        }
        for index in 0..RING_SLOTS {
            let at = RING_START + index * UBERBLOCK_BYTES as u64;
            let slot = &label[at as usize..][..UBERBLOCK_BYTES];
            match open_slot(MAGIC_UBERBLOCK, start + at, slot) {
                Slot::Whole { payload, pool, .. } => {
                    let Some(found) = Uberblock::decode(&payload) else { continue };
                    let is_ours = best.as_ref().is_none_or(|(_, config)| config.guid == pool);
                    if is_ours && uberblock.as_ref().is_none_or(|newest| newest.txg < found.txg) {
                        uberblock = Some(found);
                    }
                }
                Slot::Damaged => damaged += 1,
                Slot::Empty | Slot::Foreign | Slot::Other(_) => {}
            }
        }
    }
    match (best, other, damaged) {
        (_, Some(version), _) => {
            Err(PoolError::OtherVersion { path: path.to_owned(), version, known: FORMAT_VERSION })
        }
        (Some((device, config)), None, _) => Ok(Labels { device, config, uberblock, marks }),
        (None, None, 0) => Err(PoolError::NoLabel { path: path.to_owned() }),
        (None, None, _) => match last_error {
            Some(error) => Err(error.into()),
            None => Err(PoolError::DamagedLabels { path: path.to_owned() }),
        },
    }
}

/// A device with less space than a vdev of that many units needs.
pub(crate) fn too_small(path: String, len_bytes: u64, units: u64) -> PoolError {
    let least_bytes = DATA_START_BYTES + (units + 1) * UNIT_BYTES + LABEL_BYTES;
    PoolError::TooSmall { path, len_bytes, least_bytes }
}

/// Writes a configuration into its slot of both labels, durably, one label after the other: on a device that
/// missed the last generations, the slot being overwritten holds the newest configuration it has, and it
/// needs the other label's copy of that until the first label is whole.
pub(crate) fn write_config(device: &dyn BlockDevice, guid: Guid, config: &PoolConfig) -> Result<()> {
    let payload = config.encode();
    if payload.len() > SLOT_BYTES - HEAD_BYTES {
        return Err(PoolError::ConfigTooLarge {
            needed_bytes: payload.len(),
            slot_bytes: SLOT_BYTES - HEAD_BYTES,
        });
    }
    for start in label_starts(device.len_bytes()) {
        let place = start + SLOT_START + config.generation % 2 * SLOT_BYTES as u64;
        device.write_at(place, &seal(MAGIC_CONFIG, place, guid, config.guid, &payload, SLOT_BYTES))?;
        device.flush()?;
    }
    Ok(())
}

/// Writes a mark into its slot of both labels; durable after the next flush.
pub(crate) fn write_mark(
    device: &dyn BlockDevice,
    guid: Guid,
    pool: Guid,
    mark: Mark,
) -> Result<(), fastness_blkdev::BlockError> {
    for start in label_starts(device.len_bytes()) {
        let place = start + MARK_START + mark.txg.0 % MARK_SLOTS * MARK_BYTES as u64;
        device.write_at(place, &seal(MAGIC_MARK, place, guid, pool, &encode_mark(mark), MARK_BYTES))?;
    }
    Ok(())
}

/// Writes an uberblock into its slot of both labels; durable after the next flush.
pub(crate) fn write_uberblock(
    device: &dyn BlockDevice,
    guid: Guid,
    pool: Guid,
    uberblock: &Uberblock,
) -> Result<(), fastness_blkdev::BlockError> {
    let payload = uberblock.encode();
    assert!(payload.len() <= UBERBLOCK_BYTES - HEAD_BYTES, "an uberblock fits into its slot");
    for start in label_starts(device.len_bytes()) {
        let place = start + RING_START + uberblock.txg.0 % RING_SLOTS * UBERBLOCK_BYTES as u64;
        device.write_at(place, &seal(MAGIC_UBERBLOCK, place, guid, pool, &payload, UBERBLOCK_BYTES))?;
    }
    Ok(())
}

/// Empties both labels, so that nothing of an earlier pool is found; durable after the next flush.
pub(crate) fn erase(device: &dyn BlockDevice) -> Result<()> {
    for start in label_starts(device.len_bytes()) {
        device.write_zeroes(start, LABEL_BYTES)?;
    }
    Ok(())
}

/// A whole slot with this payload, and its offset on the smallest device.
#[cfg(fuzzing)]
pub(crate) fn slot_for_fuzzing(number: u8, device: u64, pool: u64, payload: &[u8]) -> (u64, AlignedBuf) {
    let start = label_starts(DEVICE_BYTES_MIN)[usize::from(number % 2)];
    let (device, pool, number) = (Guid(device), Guid(pool), u64::from(number / 2));
    if number < 8 {
        let place = start + SLOT_START + number % 2 * SLOT_BYTES as u64;
        let payload = &payload[..payload.len().min(SLOT_BYTES - HEAD_BYTES)];
        (place, seal(MAGIC_CONFIG, place, device, pool, payload, SLOT_BYTES))
    } else if number >= 120 {
        let place = start + MARK_START + number % MARK_SLOTS * MARK_BYTES as u64;
        let payload = &payload[..payload.len().min(MARK_BYTES - HEAD_BYTES)];
        (place, seal(MAGIC_MARK, place, device, pool, payload, MARK_BYTES))
    } else {
        let place = start + RING_START + number % RING_SLOTS * UBERBLOCK_BYTES as u64;
        let payload = &payload[..payload.len().min(UBERBLOCK_BYTES - HEAD_BYTES)];
        (place, seal(MAGIC_UBERBLOCK, place, device, pool, payload, UBERBLOCK_BYTES))
    }
}

#[cfg(test)]
mod tests;
