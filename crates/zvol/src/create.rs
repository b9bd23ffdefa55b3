//! Creating, opening and resizing volumes.

use fastness_store::record::Truncate;
use fastness_store::{
    Dataset, DatasetKind, Demand, FrontEnd, OpenDataset, PoolError, Property, Records, Store, Tx,
};

use crate::error::{Result, VolumeError};
use crate::volume::{DATA, VOLUME_BYTES_MAX, Volume};

/// Properties of a new volume.
#[derive(Debug, Clone, Default)]
pub struct VolumeOptions {
    /// The dataset's own values; `volblocksize` cannot change later.
    pub properties: Vec<(Property, u64)>,
}

/// Refuses sizes that a disk cannot have.
pub(crate) fn check_size(size_bytes: u64, block_bytes: u64) -> Result<()> {
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

impl FrontEnd for Volume {
    type Kept = ();
    type Error = VolumeError;

    fn open(dataset: OpenDataset) -> Result<Volume> {
        let name = || dataset.dataset().name();
        // A snapshot is a volume that refuses changes.
        let of = dataset.dataset().snapshot_of().unwrap_or(dataset.dataset().kind());
        if of != DatasetKind::Volume {
            return Err(VolumeError::NotAVolume { name: name() });
        }
        let data = dataset.dataset().object(DATA).map_err(|error| match error {
            PoolError::NoObject { .. } => VolumeError::NoData { name: name() },
            other => other.into(),
        })?;
        Ok(Volume::new(dataset, data))
    }
}

impl Volume {
    /// Creates a sparse volume of zeroes below an existing dataset.
    ///
    /// Persistence: durable on return. A crash during the call leaves the whole volume or none.
    ///
    /// # Errors
    /// [`VolumeError::BadSize`], those of [`Store::create_dataset`].
    pub fn create(store: &Store, name: &str, size_bytes: u64, options: &VolumeOptions) -> Result<Volume> {
        let own = options.properties.iter().find(|(property, _)| *property == Property::VolBlockSize);
        let block_bytes = own.map_or(Property::VolBlockSize.default_value(), |(_, value)| *value);
        check_size(size_bytes, block_bytes.max(1))?;
        let fill = |tx: &Tx, dataset: &Dataset| {
            let data = dataset.create_object(tx)?;
            assert_eq!(data.id(), DATA, "the first object of a new dataset");
            data.truncate(tx, size_bytes)?;
            Ok(data)
        };
        let (dataset, data) = store.create_dataset(name, DatasetKind::Volume, &options.properties, fill)?;
        Ok(Volume::new(dataset, data))
    }

    /// Opens a volume, or a snapshot of one, which refuses changes; it can be opened several times at once.
    /// The handle belongs to the current import of the pool; see [`Store::attach`].
    ///
    /// # Errors
    /// [`VolumeError::NotAVolume`]; [`PoolError::NoDataset`].
    pub fn open(store: &Store, name: &str) -> Result<Volume> {
        <Volume as FrontEnd>::open(store.dataset(name)?)
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
        let record = |records: Records<'_>| records.truncate(DATA, cut);
        // Writes and their records come entirely before it, or after it.
        Ok(self.open.change(Demand::Flush, 0..u64::MAX, truncate, record)?.wait_txg()?)
    }
}
