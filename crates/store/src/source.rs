//! Where an import finds the parts of a store.

use fastness_pool::{Device, Pool};

use crate::config::LogConfig;
use crate::error::StoreError;
use crate::import::LogImportStep;
use crate::region::RegionParts;

/// Where an import finds the parts of a store; asked again when a suspended pool is imported again.
pub trait Source {
    /// The pool's devices, opened. `known`: their paths, if this process had the pool before. Those that
    /// cannot be opened are left out: the import decides whether it can do without them.
    ///
    /// # Errors
    /// The import fails with it.
    fn devices(&mut self, known: Option<&[String]>) -> Result<Vec<Device>, StoreError>;

    /// The regions that the pool says its log is on, as far as they can be found, in any order; `config` is
    /// what the pool says.
    ///
    /// # Errors
    /// The import fails with it.
    fn regions(
        &mut self,
        pool: &Pool,
        config: &LogConfig,
    ) -> Result<Vec<Result<RegionParts, StoreError>>, StoreError>;

    /// The import of this pool has come so far.
    fn tell(&mut self, _pool: &Pool, _step: LogImportStep<'_>) {}
}

/// Parts that are there already, such as media of tests.
#[derive(Debug, Default)]
pub struct Given {
    /// The pool's devices.
    pub devices: Vec<Device>,
    /// The regions of its log.
    pub regions: Vec<RegionParts>,
}

impl Source for Given {
    fn devices(&mut self, _known: Option<&[String]>) -> Result<Vec<Device>, StoreError> {
        Ok(std::mem::take(&mut self.devices))
    }

    fn regions(
        &mut self,
        _pool: &Pool,
        _config: &LogConfig,
    ) -> Result<Vec<Result<RegionParts, StoreError>>, StoreError> {
        Ok(std::mem::take(&mut self.regions).into_iter().map(Ok).collect())
    }
}
