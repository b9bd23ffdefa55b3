//! What a server serves: the interface to the layers below.

use std::sync::Arc;

use crate::error::{ExportError, OpenError};

/// A range of bytes that clients read and write.
///
/// Requests are checked before they reach it: within [`Export::size_bytes`], aligned to
/// [`BlockSizes::minimum`], with a payload of at most 32 MiB, and only those that its [`Features`] include.
///
/// Concurrency: called by many threads at once, even for overlapping ranges. What overlapping writes leave is
/// up to the export, as on a disk.
pub trait Export: Send + Sync {
    /// Size in bytes. Asked once per connection; bytes after the last whole minimum block are not exported.
    fn size_bytes(&self) -> u64;

    /// Which offsets and lengths it accepts.
    fn block_sizes(&self) -> BlockSizes {
        BlockSizes::default()
    }

    /// Whether writes are refused (`EPERM`) before they reach the export.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Whether it is not served any more: connections to it end, and no new ones begin.
    fn is_ended(&self) -> bool {
        false
    }

    /// What it supports; advertised unchanged.
    fn features(&self) -> Features;

    /// Human-readable; `None` if there is nothing to say.
    fn description(&self) -> Option<String> {
        None
    }

    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// # Errors
    /// On an error the contents of `buffer` are not sent.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ExportError>;

    /// Writes. Persistence: with `fua`, durable on return; without, after a [`Export::flush`] that begins
    /// later.
    ///
    /// # Errors
    /// On an error the range may hold old data, new data, or a mixture.
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), ExportError>;

    /// Makes every write that returned before the call durable; with [`Features::multi_conn`], those of all
    /// connections.
    fn flush(&self) -> Result<(), ExportError>;

    /// Discards the contents of a range, which are no longer needed; may do nothing.
    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), ExportError> {
        let _ = (offset, length, fua);
        Err(ExportError::Unsupported)
    }

    /// Makes the range read as zeroes.
    fn write_zeroes(&self, offset: u64, length: u64, options: ZeroOptions) -> Result<(), ExportError> {
        let _ = (offset, length, options);
        Err(ExportError::Unsupported)
    }

    /// Announces that the range will be read soon.
    fn cache(&self, offset: u64, length: u64) -> Result<(), ExportError> {
        let _ = (offset, length);
        Err(ExportError::Unsupported)
    }

    /// Appends the extents from `offset` on, in order and without gaps; at least one. It may stop early, and
    /// the last extent may reach past the range. Not called without [`Features::extents`].
    fn block_status(&self, offset: u64, length: u64, extents: &mut Vec<Extent>) -> Result<(), ExportError> {
        let _ = offset;
        extents.push(Extent { length, kind: ExtentKind::Data });
        Ok(())
    }
}

/// The exports of a server, by name.
pub trait Exports: Send + Sync {
    /// The export called `name`; the empty name asks for the default one. Called once per `INFO` or `GO`.
    ///
    /// # Errors
    /// The error is sent to the client; the connection continues.
    fn open(&self, name: &str) -> Result<Arc<dyn Export>, OpenError>;

    /// Name and description of each export; `None` if they are not disclosed.
    fn list(&self) -> Option<Vec<ExportEntry>>;
}

/// A line of [`Exports::list`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportEntry {
    /// At most 4096 bytes.
    pub name: String,
    /// Human-readable; may be empty.
    pub description: String,
}

/// One export under one name, which is also the default.
#[derive(Clone)]
pub struct SingleExport {
    name: String,
    export: Arc<dyn Export>,
}

impl SingleExport {
    /// `export` under `name`, and under the empty name.
    pub fn new(name: impl Into<String>, export: Arc<dyn Export>) -> Self {
        Self { name: name.into(), export }
    }
}

impl Exports for SingleExport {
    fn open(&self, name: &str) -> Result<Arc<dyn Export>, OpenError> {
        if name.is_empty() || name == self.name { Ok(self.export.clone()) } else { Err(OpenError::Unknown) }
    }

    fn list(&self) -> Option<Vec<ExportEntry>> {
        let description = self.export.description().unwrap_or_default();
        Some(vec![ExportEntry { name: self.name.clone(), description }])
    }
}

/// Sizes in bytes. Shape: powers of two, `minimum <= preferred <= maximum`; the maximum may be any multiple
/// of the minimum. Source: `proto.md`, "Block size constraints".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of it; up to 64 KiB.
    pub minimum: u32,
    /// Requests of this size are cheapest.
    pub preferred: u32,
    /// Longest payload; the server lowers it to 32 MiB.
    pub maximum: u32,
}

impl Default for BlockSizes {
    fn default() -> Self {
        Self { minimum: 1, preferred: 4096, maximum: crate::wire::PAYLOAD_BYTES_MAX }
    }
}

impl BlockSizes {
    /// Whether the sizes follow the protocol's rules.
    pub fn is_valid(&self) -> bool {
        self.minimum.is_power_of_two()
            && self.minimum <= 64 << 10
            && self.preferred.is_power_of_two()
            && self.preferred >= 512.max(self.minimum)
            && self.maximum >= self.preferred
            && self.maximum.is_multiple_of(self.minimum)
    }
}

/// What an export can do. The default is an export with a volatile cache and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the protocol")]
pub struct Features {
    /// [`Export::flush`] has an effect; without it, every write is as durable on return as it will get.
    pub flush: bool,
    /// `fua` is honoured.
    pub fua: bool,
    /// [`Export::trim`].
    pub trim: bool,
    /// [`Export::write_zeroes`].
    pub write_zeroes: bool,
    /// [`ZeroOptions::fast`] is honoured.
    pub fast_zero: bool,
    /// [`Export::cache`].
    pub cache: bool,
    /// [`Export::block_status`] reports more than "all is data".
    pub extents: bool,
    /// A flush covers the writes of all connections, and all connections read what one wrote.
    pub multi_conn: bool,
    /// Seeks are expensive.
    pub rotational: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            flush: true,
            fua: false,
            trim: false,
            write_zeroes: false,
            fast_zero: false,
            cache: false,
            extents: false,
            multi_conn: false,
            rotational: false,
        }
    }
}

/// How to write zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ZeroOptions {
    /// Durable on return.
    pub fua: bool,
    /// The range may become a hole; otherwise it must stay allocated, or become so.
    pub may_punch_hole: bool,
    /// Fail with [`ExportError::Unsupported`] at once rather than be as slow as a write.
    pub fast: bool,
}

/// A run of bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Not zero.
    pub length: u64,
    /// What it is.
    pub kind: ExtentKind,
}

/// What a range is (`base:allocation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Allocated, or not known.
    Data,
    /// Not allocated, reads as zeroes.
    Hole,
    /// Allocated, reads as zeroes.
    Zero,
}

impl ExtentKind {
    /// Bits of [`crate::wire::state`].
    pub fn state(self) -> u32 {
        use crate::wire::state::{HOLE, ZERO};
        match self {
            ExtentKind::Data => 0,
            ExtentKind::Hole => HOLE | ZERO,
            ExtentKind::Zero => ZERO,
        }
    }
}
