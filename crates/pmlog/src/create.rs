//! Creating a log in a region.

use std::sync::Arc;

use fastness_prb::{Alignment, ChecksumKind, Entropy, HdlHeader, Prb, Txg};

use crate::error::CreateError;
use crate::front::{Front, divide, read_superblocks};
use crate::geometry::Geometry;
use crate::log::RecordLog;
use crate::medium::LogMedium;
use crate::open::OpenOptions;
use crate::slot::HeaderSlot;
use crate::superblock::{Superblock, Uuid};

/// How to create a log; the default suits a region of 64 MiB on Optane.
///
/// Chunk size, alignment and checksum are fixed for the life of the log.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    pub(crate) chunk_bytes: u64,
    pub(crate) alignment: Alignment,
    pub(crate) checksum: ChecksumKind,
    pub(crate) overwrite: bool,
    pub(crate) open: OpenOptions,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            chunk_bytes: 1 << 20,
            alignment: Alignment::Optane,
            checksum: ChecksumKind::Xxh3,
            overwrite: false,
            open: OpenOptions::new(),
        }
    }
}

impl CreateOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the length of a chunk: a multiple of 256 bytes, which bounds the length of a record.
    #[must_use]
    pub fn chunk_bytes(mut self, bytes: u64) -> Self {
        self.chunk_bytes = bytes;
        self
    }

    /// Sets the alignment of records.
    #[must_use]
    pub fn alignment(mut self, alignment: Alignment) -> Self {
        self.alignment = alignment;
        self
    }

    /// Sets the checksum of records.
    #[must_use]
    pub fn checksum(mut self, checksum: ChecksumKind) -> Self {
        self.checksum = checksum;
        self
    }

    /// Sets whether an existing log in the region may be destroyed.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Sets the options that are not stored on the medium.
    #[must_use]
    pub fn open(mut self, open: OpenOptions) -> Self {
        self.open = open;
        self
    }
}

fn random_uuid(entropy: &dyn Entropy) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&entropy.next_u64().to_le_bytes());
    bytes[8..].copy_from_slice(&entropy.next_u64().to_le_bytes());
    // RFC 9562: version 4, variant 10.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid(bytes)
}

impl<R: LogMedium> RecordLog<R> {
    /// Creates an empty log in all of `range`, which starts at the region's first byte.
    ///
    /// Persistence: the log exists durably on return; after a crash inside, it exists and is empty, or the
    /// region holds no log, or its old contents are untouched.
    ///
    /// # Errors
    /// [`CreateError`], which says what the region holds afterwards.
    ///
    /// # Panics
    /// Caller bug only: `range` starts elsewhere.
    pub fn create(range: R, options: &CreateOptions) -> Result<Self, CreateError> {
        assert_eq!(range.region_offset(), 0, "a log takes the whole of a region");
        let CreateOptions { chunk_bytes, alignment, checksum, overwrite, ref open } = *options;
        let geometry = Geometry::dividing(range.len_bytes() as u64, chunk_bytes, alignment, checksum)?;
        if !overwrite && !read_superblocks(&range).iter().all(|copy| matches!(copy, Err(e) if e.is_absent()))
        {
            return Err(CreateError::Exists);
        }
        let (mut front, chunks) = divide(range, &geometry);
        Front::wipe(&mut front)?;
        let config = open.config(&geometry);
        let uuid = random_uuid(&*config.entropy);
        let committers = config.ncommitters;
        let prb = Prb::format(config, chunks)?;
        let hdl = prb.setup_hdl(&HdlHeader::NoZil).expect("a log without a header can always be set up");
        let unsafe_shutdowns = front.region_info().and_then(|info| info.unsafe_shutdowns);
        let slot = HeaderSlot {
            uuid,
            sequence: 0,
            synced: Txg(0),
            log_number: 0,
            committers,
            unsafe_shutdowns,
            header: HdlHeader::NoZil,
        };
        let mut log = RecordLog::new(Arc::clone(&prb), hdl, Front::new(front, 1, slot), geometry, committers);
        log.start_log(Txg(0))?;
        log.front.write_superblocks(&Superblock { uuid, geometry })?;
        Ok(log)
    }
}
