//! A volume as an NBD export: translates, decides nothing.

use std::sync::Arc;

use fastness_nbd::{BlockSizes, Export, ExportError, Extent, ExtentKind, Features, ZeroOptions};
use fastness_pool::{ErrorKind, PoolError, Segment};
use fastness_zvol::{Volume, VolumeError};

use crate::journal::{Journal, chain};

/// Segments of one answer to a client that asks what is allocated.
const SEGMENTS_MAX: usize = 1024;

pub(crate) struct VolumeExport {
    pub(crate) volume: Arc<Volume>,
    pub(crate) is_read_only: bool,
    pub(crate) journal: Arc<Journal>,
}

impl VolumeExport {
    /// What the client is told; what is behind it goes to the journal.
    fn told(&self, result: Result<(), VolumeError>) -> Result<(), ExportError> {
        let Err(error) = result else { return Ok(()) };
        let told = match (&error, error.kind()) {
            (VolumeError::Pool(PoolError::Closed), _) => ExportError::ShuttingDown,
            (VolumeError::Pool(PoolError::ReadOnly(_)), _) => ExportError::NotPermitted,
            (_, ErrorKind::NoSpace) => ExportError::NoSpace,
            (_, ErrorKind::Invalid) => ExportError::Invalid,
            _ => ExportError::Io,
        };
        if told != ExportError::ShuttingDown {
            self.journal.note(format!("{}: {told}: {}", self.volume.name(), chain(&error)));
        }
        Err(told)
    }
}

impl Export for VolumeExport {
    fn size_bytes(&self) -> u64 {
        self.volume.size_bytes()
    }

    fn block_sizes(&self) -> BlockSizes {
        BlockSizes { preferred: self.volume.block_bytes().max(4096), ..BlockSizes::default() }
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only || self.volume.is_read_only()
    }

    fn features(&self) -> Features {
        Features {
            flush: true,
            fua: true,
            trim: true,
            write_zeroes: true,
            // Zeroes are holes: no longer than the two blocks at the ends.
            fast_zero: true,
            extents: true,
            // All connections share the volume's object, and a flush waits for all of its changes.
            multi_conn: true,
            ..Features::default()
        }
    }

    fn description(&self) -> Option<String> {
        Some(format!("volume {}", self.volume.name()))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        self.told(self.volume.read(offset, buffer))
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), ExportError> {
        self.told(self.volume.write(offset, data, fua))
    }

    fn flush(&self) -> Result<(), ExportError> {
        self.told(self.volume.flush())
    }

    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), ExportError> {
        self.told(self.volume.discard(offset, length, fua))
    }

    fn write_zeroes(&self, offset: u64, length: u64, options: ZeroOptions) -> Result<(), ExportError> {
        self.told(self.volume.write_zeroes(offset, length, options.fua))
    }

    fn block_status(&self, offset: u64, length: u64, extents: &mut Vec<Extent>) -> Result<(), ExportError> {
        let mut segments = Vec::new();
        self.told(self.volume.segments(offset, length, SEGMENTS_MAX, &mut segments))?;
        let kind = |segment: &Segment| if segment.is_hole { ExtentKind::Hole } else { ExtentKind::Data };
        extents
            .extend(segments.iter().map(|segment| Extent { length: segment.len_bytes, kind: kind(segment) }));
        if segments.is_empty() {
            // The volume has shrunk since the client connected.
            extents.push(Extent { length, kind: ExtentKind::Hole });
        }
        Ok(())
    }
}
