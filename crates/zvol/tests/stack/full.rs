//! New pools, and pools that are full but for a little: beside the volumes there is an object that takes the
//! rest. They are made once for each shape, and copied.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use fastness_blkdev::MemImage;
use fastness_pool::{LogData, ObjectId, Pool, PoolError, Property, VdevSpec};
use fastness_testkit::media::{Disk, Power};

use crate::shape::{Layout, Shape};
use crate::world::{World, manual};

type Made = Mutex<BTreeMap<(Layout, u64, Option<u64>, bool), Vec<MemImage>>>;
/// What is written at a time, and less near the end.
const PART_BYTES: u64 = 256 << 10;

/// The disks of a new pool of this shape, which was exported.
pub fn images(shape: &Shape) -> Vec<MemImage> {
    static MADE: OnceLock<Made> = OnceLock::new();
    let mut made = MADE.get_or_init(Made::default).lock().unwrap_or_else(PoisonError::into_inner);
    let key = (shape.layout, shape.disk_bytes, shape.leaves_bytes, shape.is_one_copy);
    made.entry(key).or_insert_with(|| make(shape)).clone()
}

fn make(shape: &Shape) -> Vec<MemImage> {
    let power = std::sync::Arc::new(Power::default());
    let count: usize = shape.layout.vdevs().iter().sum();
    let disk = |n| Disk::new(&format!("disk{n}"), MemImage::zeroed(shape.disk_bytes), &power, 0);
    let disks: Vec<Disk> = (0..count).map(disk).collect();
    let mut devices = disks.iter().map(Disk::device);
    let vdevs = shape.layout.vdevs().iter().map(|sides| VdevSpec::mirror(devices.by_ref().take(*sides)));
    let pool = Pool::create("tank", &vdevs.collect::<Vec<_>>(), manual()).unwrap();
    if shape.is_one_copy {
        pool.transact(|tx| pool.set_log_data(tx, LogData::Pm)).unwrap();
    }
    if let Some(leaves_bytes) = shape.leaves_bytes {
        fill(&pool, leaves_bytes);
    }
    pool.export().unwrap();
    disks.iter().map(Disk::image).collect()
}

/// Leaves no more than `leaves_bytes` to others.
fn fill(pool: &Pool, leaves_bytes: u64) {
    let tx = pool.begin_tx().unwrap();
    let root = pool.dataset("tank").unwrap();
    root.set(&tx, Property::RecordSize, Some(4096)).unwrap();
    let object = root.create_object(&tx).unwrap();
    drop(tx);
    let (mut at, mut part_bytes) = (0, PART_BYTES);
    while part_bytes >= 4096 {
        let free_bytes = pool.status().free_bytes;
        let more = free_bytes.saturating_sub(leaves_bytes).min(part_bytes) / 4096 * 4096;
        if more == 0 {
            return;
        }
        let tx = pool.begin_tx().unwrap();
        let written = object.write(&tx, at, &pattern(at, more as usize));
        drop(tx);
        pool.sync().unwrap();
        match written {
            Ok(()) => at += more,
            // Tables take a part of what is free.
            Err(PoolError::NoSpace { .. }) => part_bytes /= 2,
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn pattern(at: u64, len: usize) -> Vec<u8> {
    let words = (at / 8..).map(|word| (word + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    words.flatten().take(len).collect()
}

impl World<'_> {
    /// What fills the pool is as it was.
    pub fn judge_filling(&mut self) {
        if !self.is_full() {
            return;
        }
        let object = self.pool().dataset("tank").unwrap().object(ObjectId(1)).unwrap();
        let at = self.rng.below(object.size_bytes().saturating_sub(5000).max(1));
        let mut found = vec![0; 4096];
        object.read(at / 8 * 8, &mut found).unwrap();
        assert!(found == pattern(at / 8 * 8, 4096), "what fills the pool is wrong from {at} on");
    }
}
