//! What is known about a device.

use std::sync::Arc;

/// What a device is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceKind {
    /// A regular file.
    File,
    /// A block device.
    Block,
    /// Memory of this process; keeps nothing.
    Memory,
    /// Persistent memory, or what stands in for it.
    PersistentMemory,
}

/// How requests reach the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// One system call a request.
    Psync,
    /// Batches through io_uring, single requests as `Psync`.
    Uring,
    /// Copies in memory.
    Memory,
}

/// What may still hold a write that was acknowledged and not flushed.
///
/// Whatever it is, a write is durable only after [`flush`](crate::BlockDevice::flush) or with
/// [`write_fua`](crate::BlockDevice::write_fua); with `WriteThrough`, a flush is cheap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteCache {
    /// The device says that it has no volatile cache, and direct I/O keeps the page cache out of the way.
    WriteThrough,
    /// The device has, or may have, a volatile cache; it loses it with the power.
    DeviceCache,
    /// The kernel's page cache, and whatever is below it. It survives the process, not the kernel.
    PageCache,
    /// The device is memory of this process.
    Memory,
}

/// What was found when a device was opened; it does not change while it is open.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Name for messages: a path, or what the test called it.
    pub name: Arc<str>,
    /// Length in bytes, a multiple of the logical block size.
    pub len_bytes: u64,
    /// Unit of offsets and lengths: a power of two, 512 at least.
    pub logical_block_bytes: u32,
    /// Unit that the medium writes without reading first; a multiple of the logical block size.
    pub physical_block_bytes: u32,
    /// Alignment of buffers that spares a copy ([`AlignedBuf`](crate::AlignedBuf)); 1 if none is needed.
    pub memory_align_bytes: usize,
    /// Whether writing is refused.
    pub is_read_only: bool,
    /// Whether a discard reaches the medium; otherwise it does nothing.
    pub can_discard: bool,
    /// Whether a discarded range is known to read as zeroes; otherwise it reads as anything.
    pub discard_zeroes: bool,
    /// Whether the page cache is bypassed (`O_DIRECT`).
    pub is_direct: bool,
    /// Volatile caches on the way.
    pub write_cache: WriteCache,
    /// What the device is.
    pub kind: DeviceKind,
    /// How requests are made.
    pub engine: Engine,
    /// Why something that was preferred is not in use: "io_uring refused: ...", "no O_DIRECT: ...".
    pub notes: Vec<String>,
}

impl DeviceInfo {
    /// A device that another crate makes of memory: writable, with logical blocks of 512 bytes and physical
    /// ones of 4096, without discard. What differs can be set.
    pub fn of_memory(name: &str, len_bytes: u64, kind: DeviceKind, write_cache: WriteCache) -> DeviceInfo {
        DeviceInfo {
            name: name.into(),
            len_bytes,
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            memory_align_bytes: 1,
            is_read_only: false,
            can_discard: false,
            discard_zeroes: false,
            is_direct: true,
            write_cache,
            kind,
            engine: Engine::Memory,
            notes: Vec::new(),
        }
    }
}
