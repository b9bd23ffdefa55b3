//! Properties of a device.

use std::sync::Arc;

/// The kind of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceKind {
    /// A regular file.
    File,
    /// A block device.
    Block,
    /// Memory of this process; keeps nothing.
    Memory,
    /// Persistent memory, or a stand-in for it.
    PersistentMemory,
    /// Storage that a client library reaches.
    Remote,
}

/// How requests reach the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// One system call per request.
    Psync,
    /// Batches through io_uring, single requests as `Psync`.
    Uring,
    /// Copies in memory.
    Memory,
    /// Calls of a client library; the requests of a batch in flight at once.
    Library,
}

/// Which cache may still hold a write that was acknowledged but not flushed.
///
/// Whatever it is, a write is durable only after [`flush`](crate::BlockDevice::flush) or with
/// [`write_fua`](crate::BlockDevice::write_fua); with `WriteThrough`, a flush is cheap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteCache {
    /// The device reports no volatile cache, and direct I/O bypasses the page cache.
    WriteThrough,
    /// The device has, or may have, a volatile cache, which it loses in a power cut.
    DeviceCache,
    /// The kernel's page cache, and whatever is below it. It survives a crash of the process, but not of the
    /// kernel.
    PageCache,
    /// The device is memory of this process.
    Memory,
}

/// Properties found when a device was opened; they do not change while it is open.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Name for messages: a path, or a name given by a test.
    pub name: Arc<str>,
    /// Length in bytes, a multiple of the logical block size;
    /// [`BlockDevice::len_bytes`](crate::BlockDevice::len_bytes) follows a device that grows.
    pub len_bytes: u64,
    /// Unit of offsets and lengths: a power of two, at least 512.
    pub logical_block_bytes: u32,
    /// Unit that the medium writes without a read-modify-write; a multiple of the logical block size.
    pub physical_block_bytes: u32,
    /// Buffer alignment that avoids a copy ([`AlignedBuf`](crate::AlignedBuf)); 1 if none is needed.
    pub memory_align_bytes: usize,
    /// Whether writes are refused.
    pub is_read_only: bool,
    /// Whether a discard reaches the medium; otherwise it does nothing.
    pub can_discard: bool,
    /// Whether a discarded range is known to read as zeroes; otherwise its contents are undefined.
    pub discard_zeroes: bool,
    /// Whether no other client, on whatever machine, can change the device while this handle is open: one
    /// that had it before is fenced, and a write of its that arrives late is refused.
    pub fences_others: bool,
    /// Whether the page cache is bypassed (`O_DIRECT`).
    pub is_direct: bool,
    /// Volatile caches above the medium.
    pub write_cache: WriteCache,
    /// The kind of device.
    pub kind: DeviceKind,
    /// How requests are made.
    pub engine: Engine,
    /// Why a preferred option is not in use: "io_uring refused: ...", "no O_DIRECT: ...".
    pub notes: Vec<String>,
}

impl DeviceInfo {
    /// A device that another crate implements: in memory, writable, with logical blocks of 512 bytes and
    /// physical ones of 4096, without discard. Fields that differ can be set afterwards.
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
            fences_others: false,
            is_direct: true,
            write_cache,
            kind,
            engine: Engine::Memory,
            notes: Vec::new(),
        }
    }
}
