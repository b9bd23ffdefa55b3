//! Entry points for fuzzing the decoders: media are never trusted, so no decoder panics, allocates without
//! bound, or accepts what would not be written back as the same bytes.

use std::sync::{Arc, OnceLock};

use fastness_blkdev::{BlockDevice, MemDevice, MemImage};
use fastness_sync::order::Mutex;

use crate::codec::{Writer, checksum};
use crate::devices::config::{DeviceState, PoolConfig, VdevClass};
use crate::devices::label::{self, DEVICE_BYTES_MIN, data_units, read_labels};
use crate::devices::vdev::{Device, Side, Vdev, Vdevs};
use crate::ids::{Guid, UNIT_BYTES};
use crate::import::options::{ImportOptions, VdevSpec};
use crate::log_space::space::LogSpace;
use crate::metadata::file::MetaFile;
use crate::metadata::tables::DatasetRow;
use crate::namespace::settings::Settings;
use crate::objects::extent::{BLOCK_BYTES_MAX, decode_group, decode_pieces, encode_group, unpack};
use crate::objects::stored::{Address, ENTRY_BYTES, HEAD_BYTES};
use crate::pool::Pool;
use crate::rows::limits::{ROW_KEY_BYTES_MAX, ROW_VALUE_BYTES_MAX};
use crate::rows::stored::Joiner;
use crate::space::alloc::{Allocator, BITMAP_BYTES};
use crate::state::options::PoolOptions;

fn device(image: MemImage) -> Arc<dyn BlockDevice> {
    Arc::new(MemDevice::from_image("fuzzed", image, 512))
}

/// What is in a slot of a label.
#[derive(Debug)]
pub struct FuzzedSlot<'a> {
    /// Index over both labels' configurations, uberblocks and marks.
    pub number: u8,
    /// Whether head and checksum are right, so that the payload is decoded; otherwise `payload` is the whole
    /// slot.
    pub is_sealed: bool,
    /// GUIDs of device and pool in the head.
    pub guids: (u64, u64),
    /// The payload.
    pub payload: &'a [u8],
}

/// Reads labels made of slots.
pub fn labels(slots: &[FuzzedSlot<'_>]) {
    let mut image = MemImage::zeroed(DEVICE_BYTES_MIN);
    for slot in slots {
        let FuzzedSlot { number, is_sealed, guids, payload } = slot;
        let (offset, bytes) = label::slot_for_fuzzing(*number, guids.0, guids.1, payload);
        if *is_sealed {
            image.write(offset, &bytes);
        } else {
            image.write(offset, &payload[..payload.len().min(bytes.len())]);
        }
    }
    if let Ok(labels) = read_labels("fuzzed", &device(image)) {
        config(&labels.config.encode());
        let again = |uberblock: &label::Uberblock| label::Uberblock::decode(&uberblock.encode());
        assert_eq!(labels.uberblock.as_ref().and_then(again), labels.uberblock);
        assert!(labels.marks.len() <= 4);
    }
}

/// Round trip of a configuration.
pub fn config(bytes: &[u8]) {
    if let Some(config) = PoolConfig::decode(bytes) {
        assert_eq!(PoolConfig::decode(&config.encode()), Some(config));
    }
}

/// Round trip of a row of datasets.
pub fn dataset(bytes: &[u8]) {
    if let Ok(row) = DatasetRow::decode(bytes) {
        assert_eq!(DatasetRow::decode(&row.encode()).expect("our own row"), row);
    }
}

/// Round trip of settings, with a matching checksum, so that the rest is decoded.
pub fn settings(body: &[u8]) {
    let mut bytes = Writer::default();
    bytes.bytes.extend(body);
    bytes.u64(checksum(body));
    if let Some(settings) = Settings::decode(&bytes.bytes) {
        assert_eq!(settings.encode(), bytes.bytes);
        let _ = settings.check("fuzzed", true);
    }
}

/// Rows of tables made of any fragments; a value that is taken is its fragments, one after the other.
pub fn fragments(rows: &[(u8, Vec<u8>, u16, Vec<u8>)]) {
    let (mut joiner, mut taken) = (Joiner::default(), Vec::new());
    for (table, key, number, fragment) in rows {
        taken.push(fragment);
        match joiner.add((1, *table, key, *number), fragment) {
            Ok(Some(value)) => {
                let start = taken.len() - 1 - usize::from(*number);
                assert_eq!(
                    value,
                    taken[start..].iter().flat_map(|part| part.iter().copied()).collect::<Vec<_>>()
                );
                assert!(value.len() <= ROW_VALUE_BYTES_MAX && (1..=ROW_KEY_BYTES_MAX).contains(&key.len()));
            }
            Ok(None) => {}
            Err(_) => return,
        }
    }
    let _ = joiner.end();
}

/// Round trip of a row of extents; its extents say how `stored` and `pieces` are read.
pub fn extents(row: &[u8], pieces: &[u8], stored: &[u8]) {
    let Ok(group) = decode_group(row) else { return };
    assert_eq!(decode_group(&encode_group(&group)).expect("our own row"), group);
    for extent in group.iter().flatten().take(2) {
        if let Ok(pieces) = decode_pieces(extent, Some(pieces)) {
            let total: u64 = pieces.iter().map(|piece| u64::from(piece.stored_bytes)).sum();
            assert_eq!(total, u64::from(extent.stored_bytes));
        }
        let mut block = vec![0; 16 << 10];
        let _ = unpack(&stored[..stored.len().min(extent.stored_bytes as usize)], extent, &mut block);
    }
}

/// Round trip of a record's address; a pool on which it is claimed takes all of it or nothing, and never what
/// is in use. With `sum_of_zeroes`, each block's checksum becomes that of zeroes, so that places without data
/// are accepted.
pub fn address(bytes: &[u8], len_bytes: u64, sum_of_zeroes: bool) {
    static POOL: OnceLock<(LogSpace, Pool)> = OnceLock::new();
    let mut bytes = bytes.to_vec();
    if sum_of_zeroes {
        for entry in bytes.get_mut(HEAD_BYTES..).unwrap_or_default().chunks_exact_mut(ENTRY_BYTES) {
            let stored_bytes = u32::from_le_bytes([entry[16], entry[17], entry[18], entry[19]]);
            let sum = checksum(&vec![0; stored_bytes.min(BLOCK_BYTES_MAX) as usize]);
            entry[8..16].copy_from_slice(&sum.to_le_bytes());
        }
    }
    if let Ok(address) = Address::decode(&bytes, len_bytes) {
        assert_eq!(address.encode(), bytes);
    }
    let (space, pool) = POOL.get_or_init(|| {
        let device = Device::new("fuzzed", device(MemImage::zeroed(9 << 20)));
        let options = PoolOptions { has_txg_thread: false, ..PoolOptions::default() };
        let spec = VdevSpec::single(device.clone());
        Pool::create("fuzzed", &[spec], options.clone()).and_then(|pool| pool.export()).expect("a new pool");
        let pool = Pool::import_paused(&[device], &ImportOptions::default(), options).expect("what was made");
        (pool.log_space(), pool)
    });
    let checked = space.check_stored(&bytes, len_bytes);
    let claimed = space.claim_stored(&bytes, len_bytes);
    assert!(claimed.is_err() || checked.is_ok(), "what is claimed could be");
    if claimed.is_ok() {
        assert!(pool.check().expect("it can be read").is_clean(), "nothing is used twice");
        space.free_stored(&bytes, len_bytes);
    }
    assert!(space.extents().is_empty(), "all or nothing");
}

/// Bitmaps of regions of two vdevs, in any order; units they claim are not allocated again.
pub fn space(rows: &[(u8, u8, Vec<u8>)]) {
    let mut allocator = Allocator::default();
    allocator.add_vdev(0, 5000);
    allocator.add_vdev(1, 4096);
    let total = allocator.total_bytes();
    let mut used = 0;
    for (vdev, region, bytes) in rows.iter().take(6) {
        let mut bitmap = vec![bytes.first().copied().unwrap_or(0); BITMAP_BYTES];
        bitmap.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        if allocator.load((*vdev).into(), (*region).into(), &bitmap).is_ok() {
            used += bitmap.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
        }
    }
    assert_eq!(allocator.free_bytes() + used * 4096, total);
    let before: std::collections::BTreeSet<_> = allocator.data_units().collect();
    while let Some(place) = allocator.allocate_data(64) {
        assert!(!before.contains(&place), "a unit in use was given out");
    }
}

/// Loads a page map whose checksums are right but whose places are not to be trusted. `nodes` are units with
/// entries (index, place); `root` are places; `tail` is appended to the root.
pub fn page_map(len_bytes: u64, nodes: &[(u16, Vec<(u8, u64)>)], root: &[u64], tail: &[u8]) {
    let units = data_units(DEVICE_BYTES_MIN);
    let mut image = MemImage::zeroed(DEVICE_BYTES_MIN);
    let offset = |unit: u64| label::DATA_START_BYTES + unit * UNIT_BYTES;
    let sum = |image: &MemImage, packed: u64| {
        let unit = packed.wrapping_sub(1);
        let mut bytes = [0; UNIT_BYTES as usize];
        if unit < units {
            image.read(offset(unit), &mut bytes);
        }
        checksum(&bytes)
    };
    for (unit, entries) in nodes.iter().take(20) {
        let mut bytes = vec![0; UNIT_BYTES as usize];
        for (index, packed) in entries {
            let at = usize::from(*index) * 16;
            bytes[at..at + 8].copy_from_slice(&packed.to_le_bytes());
            bytes[at + 8..at + 16].copy_from_slice(&sum(&image, *packed).to_le_bytes());
        }
        image.write(offset(u64::from(*unit) % units), &bytes);
    }
    let mut bytes = Writer::default();
    // More entries only repeat what a few can do.
    let root = &root[..root.len().min(4)];
    bytes.u64(len_bytes).u32(root.len() as u32);
    for packed in root {
        bytes.u64(*packed).u64(sum(&image, *packed));
    }
    bytes.bytes.extend(tail);
    let side = Side::new(Guid(7), "fuzzed".to_owned(), Some(device(image)), DeviceState::Online);
    let vdev = Vdev::new(0, VdevClass::Normal, units, vec![Arc::new(side)]);
    let mut allocator = Allocator::default();
    allocator.add_vdev(0, units);
    let file = MetaFile::new(Arc::new(Vdevs::new([Arc::new(vdev)])), Arc::new(Mutex::new(allocator)), false);
    if file.load(&bytes.bytes).is_ok() {
        let mut places: Vec<_> = file.entries().iter().map(|entry| entry.place).collect();
        assert!(places.iter().all(|place| place.vdev == 0 && place.unit < units));
        let all = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), all, "no unit twice");
    }
}
