//! Creating, opening and resizing volumes.

use std::sync::Arc;

use fastness_intent::{Demand, OpenDataset, PoolLog, Records};
use fastness_pool::{Dataset, DatasetKind, ObjectId, Pool, PoolError, Property, Tx};

use fastness_zil::record::Truncate;

use crate::error::{Result, VolumeError};
use crate::volume::{DATA, LOGGED, VOLUME_BYTES_MAX, Volume};

/// Properties of a new volume.
#[derive(Debug, Clone, Default)]
pub struct VolumeOptions {
    /// The dataset's own values; `volblocksize` cannot change later.
    pub properties: Vec<(Property, u64)>,
}

/// Refuses sizes that a disk cannot have.
fn check_size(size_bytes: u64, block_bytes: u64) -> Result<()> {
    let why = if size_bytes == 0 {
        "it would be empty"
    } else if size_bytes > VOLUME_BYTES_MAX {
        "the largest is 1 EiB"
    } else if !size_bytes.is_multiple_of(block_bytes) {
        "it is not a multiple of its block size (volblocksize)"
    } else {
        return Ok(());
    };
    Err(VolumeError::BadSize { size_bytes, why })
}

fn block_bytes(dataset: &Dataset) -> u64 {
    dataset.get(Property::VolBlockSize).0
}

impl Volume {
    /// Creates a sparse volume of zeroes below an existing dataset; `log` is the pool's log device, if it has
    /// one.
    ///
    /// Persistence: durable on return. A crash during the call leaves the whole volume or none.
    ///
    /// # Errors
    /// [`VolumeError::BadSize`], those of [`Pool::create_dataset`].
    pub fn create(
        pool: &Arc<Pool>,
        log: Option<&PoolLog>,
        name: &str,
        size_bytes: u64,
        options: &VolumeOptions,
    ) -> Result<Volume> {
        let own = options.properties.iter().find(|(property, _)| *property == Property::VolBlockSize);
        let block_bytes = own.map_or(Property::VolBlockSize.default_value(), |(_, value)| *value);
        check_size(size_bytes, block_bytes.max(1))?;
        let members = log.map(|log| (log, log.members()));
        let (made, txg) = pool.transact(|tx| {
            let dataset = pool.create_dataset(tx, name, DatasetKind::Volume, &options.properties)?;
            // Before there is data: a volume that has no log yet cannot be opened.
            if let Some(Err(error)) = members.as_ref().map(|(log, guard)| log.create_log(tx, &dataset, guard))
            {
                pool.destroy_dataset(tx, name)?;
                return Ok(Err(error));
            }
            let made = dataset.create_object(tx).and_then(|data| {
                assert_eq!(data.id(), DATA, "the first object of a new dataset");
                data.truncate(tx, size_bytes)?;
                Ok(data)
            });
            if made.is_err() {
                // In the same txg: no volume is ever visible without its data.
                let destroyed = members.as_ref().map(|(log, guard)| log.destroy_log(tx, dataset.id(), guard));
                pool.destroy_dataset(tx, name)?;
                if let Some(Err(error)) = destroyed {
                    return Ok(Err(error));
                }
            }
            Ok(Ok((dataset, made?)))
        })?;
        drop(members);
        let (dataset, data) = made?;
        let volume = Volume::new(OpenDataset::new(pool, dataset, log), data);
        pool.wait_synced(txg)?;
        Ok(volume)
    }

    /// Opens a volume; it can be opened several times at once.
    ///
    /// # Errors
    /// [`VolumeError::NotAVolume`]; [`PoolError::NoDataset`].
    pub fn open(pool: &Arc<Pool>, log: Option<&PoolLog>, name: &str) -> Result<Volume> {
        let dataset = pool.dataset(name)?;
        if dataset.kind() != DatasetKind::Volume {
            return Err(VolumeError::NotAVolume { name: name.to_owned() });
        }
        let data = dataset.object(DATA).map_err(|error| match error {
            PoolError::NoObject { object: ObjectId(_), .. } => VolumeError::NoData { name: name.to_owned() },
            other => other.into(),
        })?;
        Ok(Volume::new(OpenDataset::new(pool, dataset, log), data))
    }

    /// Sets the size; what is truncated is lost, what is added reads as zeroes.
    ///
    /// Persistence: durable on return.
    ///
    /// # Errors
    /// [`VolumeError::BadSize`], those of a write.
    pub fn resize(&self, size_bytes: u64) -> Result<()> {
        check_size(size_bytes, block_bytes(self.dataset()))?;
        let cut = Truncate { offset: size_bytes, len_bytes: u64::MAX };
        let truncate = |tx: &Tx| self.data.truncate(tx, size_bytes);
        let record = |records: Records<'_>| records.truncate(LOGGED, cut);
        // Writes and their records come entirely before it, or after it.
        Ok(self.open.change(Demand::Flush, 0..u64::MAX, truncate, record)?.wait_txg()?)
    }
}
