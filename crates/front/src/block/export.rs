//! A write cache as an NBD export: only translates requests and errors.

use std::sync::Arc;

use fastness_base::{ErrorKind, chain};
use fastness_nbd::{BlockSizes, Export, ExportError, Features, ZeroOptions};
use fastness_pmem::PmRange;
use fastness_sync::{Mutex, lock};
use fastness_wcache::{Cache, Error};

pub(super) struct CacheExport {
    pub(super) cache: Arc<Cache<PmRange>>,
    pub(super) description: String,
    /// The last request that failed, in words, for the status.
    pub(super) last_error: Arc<Mutex<Option<String>>>,
}

impl CacheExport {
    fn told(&self, result: Result<(), Error>) -> Result<(), ExportError> {
        let Err(error) = result else { return Ok(()) };
        *lock(&self.last_error) = Some(chain(&error));
        Err(match (&error, error.kind()) {
            (Error::Ended, _) => ExportError::ShuttingDown,
            (_, ErrorKind::NoSpace) => ExportError::NoSpace,
            (_, ErrorKind::Invalid) => ExportError::Invalid,
            _ => ExportError::Io,
        })
    }
}

impl Export for CacheExport {
    fn size_bytes(&self) -> u64 {
        self.cache.len_bytes()
    }

    fn block_sizes(&self) -> BlockSizes {
        BlockSizes { minimum: self.cache.block_bytes(), ..BlockSizes::default() }
    }

    fn features(&self) -> Features {
        Features {
            // What is acknowledged is durable; clients that flush learn whether the region has failed.
            flush: true,
            fua: true,
            trim: true,
            write_zeroes: true,
            // One entry of the log.
            fast_zero: true,
            multi_conn: true,
            ..Features::default()
        }
    }

    fn description(&self) -> Option<String> {
        Some(self.description.clone())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        self.told(self.cache.read(offset, buffer))
    }

    fn write(&self, offset: u64, data: &[u8], _fua: bool) -> Result<(), ExportError> {
        self.told(self.cache.write(offset, data))
    }

    fn flush(&self) -> Result<(), ExportError> {
        self.told(self.cache.sync())
    }

    fn trim(&self, offset: u64, length: u64, _fua: bool) -> Result<(), ExportError> {
        self.told(self.cache.write_zeroes(offset, length, true))
    }

    fn write_zeroes(&self, offset: u64, length: u64, options: ZeroOptions) -> Result<(), ExportError> {
        self.told(self.cache.write_zeroes(offset, length, options.may_punch_hole))
    }
}
