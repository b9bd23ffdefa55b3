//! A volume as an NBD export: only translates requests and errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastness_base::{ErrorKind, chain};
use fastness_nbd::{BlockSizes, Export, ExportError, Extent, ExtentKind, Features, ZeroOptions};
use fastness_store::{Attached, DatasetId, Outcome, PoolError, Segment};
use fastness_sync::{Mutex, lock};
use fastness_zvol::{Volume, VolumeError};

use crate::journal::Journal;

/// Maximum number of segments in one block status reply.
const SEGMENTS_MAX: usize = 1024;

pub(crate) struct VolumeExport {
    volume: Arc<Attached<Volume>>,
    is_read_only: bool,
    journal: Arc<Journal>,
    is_ended: AtomicBool,
    /// The last known shape, for clients that connect while there is no volume.
    last: Mutex<Shape>,
}

/// What a client learns when it connects.
#[derive(Clone, Copy)]
struct Shape {
    size_bytes: u64,
    block_bytes: u32,
    is_read_only: bool,
}

impl VolumeExport {
    pub(crate) fn new(
        volume: Arc<Attached<Volume>>,
        is_read_only: bool,
        journal: Arc<Journal>,
    ) -> VolumeExport {
        let last = Mutex::new(Shape { size_bytes: 0, block_bytes: 4096, is_read_only });
        let export = VolumeExport { volume, is_read_only, journal, is_ended: AtomicBool::new(false), last };
        export.shape();
        export
    }

    pub(crate) fn dataset(&self) -> DatasetId {
        self.volume.dataset()
    }

    /// The name that the volume has now.
    pub(crate) fn name(&self) -> String {
        self.volume.name()
    }

    /// No connection to it begins from now on.
    pub(crate) fn end(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
    }

    fn shape(&self) -> Shape {
        let mut last = lock(&self.last);
        if let Some(volume) = self.volume.get() {
            *last = Shape {
                size_bytes: volume.size_bytes(),
                block_bytes: volume.block_bytes(),
                is_read_only: self.is_read_only || volume.is_read_only(),
            };
        }
        *last
    }

    /// Carries out a request. Returns the error for the client; its causes go to the journal.
    fn run(&self, request: impl FnMut(&Volume) -> Result<(), VolumeError>) -> Result<(), ExportError> {
        let error = match self.volume.run(request) {
            Outcome::Done(Ok(())) => return Ok(()),
            Outcome::Done(Err(error)) => error,
            Outcome::Ended => return Err(ExportError::ShuttingDown),
        };
        let told = match (&error, error.kind()) {
            (VolumeError::Pool(PoolError::Closed), _) => ExportError::ShuttingDown,
            (VolumeError::Pool(PoolError::ReadOnly(_)), _) => ExportError::NotPermitted,
            (_, ErrorKind::NoSpace) => ExportError::NoSpace,
            (_, ErrorKind::Invalid) => ExportError::Invalid,
            _ => ExportError::Io,
        };
        if told != ExportError::ShuttingDown {
            self.journal.warn(format!("{}: {told}: {}", self.volume.name(), chain(&error)));
        }
        Err(told)
    }
}

impl Export for VolumeExport {
    fn size_bytes(&self) -> u64 {
        self.shape().size_bytes
    }

    fn block_sizes(&self) -> BlockSizes {
        BlockSizes { preferred: self.shape().block_bytes.max(4096), ..BlockSizes::default() }
    }

    fn is_read_only(&self) -> bool {
        self.shape().is_read_only
    }

    fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::SeqCst)
    }

    fn features(&self) -> Features {
        Features {
            flush: true,
            fua: true,
            trim: true,
            write_zeroes: true,
            // Zeroes become holes: only the two blocks at the ends are written.
            fast_zero: true,
            extents: true,
            // All connections share one volume object, and a flush waits for all of its changes.
            multi_conn: true,
            ..Features::default()
        }
    }

    fn description(&self) -> Option<String> {
        Some(format!("volume {}", self.volume.name()))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError> {
        self.run(|volume| volume.read(offset, buffer))
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), ExportError> {
        self.run(|volume| volume.write(offset, data, fua))
    }

    fn flush(&self) -> Result<(), ExportError> {
        self.run(|volume| volume.flush())
    }

    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), ExportError> {
        self.run(|volume| volume.discard(offset, length, fua))
    }

    fn write_zeroes(&self, offset: u64, length: u64, options: ZeroOptions) -> Result<(), ExportError> {
        self.run(|volume| volume.write_zeroes(offset, length, options.fua))
    }

    fn block_status(&self, offset: u64, length: u64, extents: &mut Vec<Extent>) -> Result<(), ExportError> {
        let mut segments = Vec::new();
        self.run(|volume| {
            segments.clear();
            volume.segments(offset, length, SEGMENTS_MAX, &mut segments)
        })?;
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
