//! The folder, the files in it, and pools on them.

use std::path::PathBuf;
use std::time::Duration;

use fastness_blkdev::{AlignedBuf, BlockDevice, FileDevice, OpenOptions};
use fastness_store::{
    DatasetKind, Device, Kinds, Object, Pool, PoolOptions, Property, StoreOptions, Tuning, VdevSpec,
};
use fastness_zpl::FileReplay;
use fastness_zvol::VolumeReplay;

use crate::error::Result;
use crate::folder::Folder;

/// Bytes of one request of the floor.
pub(super) const CHUNK_BYTES: usize = 1 << 20;

/// A folder of its own, removed when dropped.
pub(crate) struct Place {
    folder: Folder,
    medium: String,
}

impl Place {
    pub(crate) fn new() -> Result<Self> {
        let mut place = Self { folder: Folder::new()?, medium: String::new() };
        let probe = place.written_file("probe", CHUNK_BYTES as u64)?;
        let direct = if probe.info().is_direct { "O_DIRECT" } else { "no O_DIRECT" };
        place.medium = format!("file on {}, {direct}, written before", place.folder.file_system());
        Ok(place)
    }

    /// For the rows.
    pub(crate) fn medium(&self) -> String {
        self.medium.clone()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A new file whose every byte was written once.
    pub(crate) fn written_file(&self, name: &str, len_bytes: u64) -> Result<FileDevice> {
        let device = OpenOptions::new().create(self.path(name), len_bytes)?;
        write_through(&device, len_bytes)?;
        Ok(device)
    }

    /// A pool of one written file.
    pub(super) fn pool(&self, name: &str, len_bytes: u64, options: PoolOptions) -> Result<Pool> {
        drop(self.written_file(name, len_bytes)?);
        let vdev = VdevSpec::single(Device::open(self.path(name))?);
        Ok(Pool::create("bench", &[vdev], options)?)
    }

    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        Ok(std::fs::remove_file(self.path(name))?)
    }
}

/// The floor of a sync: all bytes one after the other, then durable.
pub(super) fn write_through(device: &FileDevice, len_bytes: u64) -> Result<()> {
    let mut chunk = AlignedBuf::zeroed(CHUNK_BYTES, 4096);
    chunk.copy_from_slice(&noise(CHUNK_BYTES, 1));
    for offset in (0..len_bytes).step_by(CHUNK_BYTES) {
        device.write_at(offset, &chunk)?;
    }
    device.flush()?;
    Ok(())
}

/// Options of a pool that syncs only on request.
pub(super) fn told_to(dirty_max_bytes: u64) -> PoolOptions {
    PoolOptions { txg_timeout: Duration::from_secs(3600), dirty_max_bytes, ..PoolOptions::default() }
}

/// The first object of a new volume, uncompressed.
pub(super) fn volume(pool: &Pool, name: &str, block_bytes: u64) -> Result<Object> {
    let tx = pool.begin_tx()?;
    let block = [(Property::VolBlockSize, block_bytes)];
    let dataset = pool.create_dataset(&tx, &format!("bench/{name}"), DatasetKind::Volume, &block)?;
    Ok(dataset.create_object(&tx)?)
}

/// One transaction with one write.
pub(super) fn write_one(pool: &Pool, object: &Object, offset: u64, data: &[u8]) -> Result<()> {
    let tx = pool.begin_tx()?;
    object.write(&tx, offset, data)?;
    tx.commit();
    Ok(())
}

/// Settings of a store of volumes and files.
pub(crate) fn store_options(pool: PoolOptions, tuning: Tuning) -> StoreOptions {
    let kinds = Kinds::default().with(DatasetKind::Volume, VolumeReplay);
    let kinds = kinds.with(DatasetKind::Filesystem, FileReplay::default());
    StoreOptions { pool, tuning, kinds, ..StoreOptions::default() }
}

/// Bytes that are neither zero nor equal.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    (0..len / 8).flat_map(|_| numbers.next().to_le_bytes()).collect()
}

/// The numbers below `count`, a power of two, each once, in a scattered order.
pub(super) fn scattered(count: u64) -> impl Iterator<Item = u64> {
    assert!(count.is_power_of_two());
    (0..count).map(move |at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % count)
}

/// Pseudo-random numbers, the same every time.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 ^ self.0 >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }
}
