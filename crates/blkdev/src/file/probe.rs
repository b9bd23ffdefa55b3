//! Finds out what an open file or block device is and can do.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags};

use crate::aligned::AlignedBuf;
use crate::file::sys;
use crate::health::Identity;
use crate::info::{DeviceKind, WriteCache};

/// What the kernel reports, before any choice is made.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) kind: DeviceKind,
    pub(crate) identity: Identity,
    pub(crate) len_bytes: u64,
    /// Smallest unit that the medium accepts: 512 for a file.
    pub(crate) logical_block_bytes: u32,
    pub(crate) physical_block_bytes: u32,
    pub(crate) is_read_only: bool,
    /// For a block device: whether the kernel knows of no volatile cache.
    pub(crate) is_write_through: bool,
    pub(crate) can_discard: bool,
    pub(crate) discard_zeroes: bool,
}

/// Alignment that direct I/O needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirectAlign {
    pub(crate) memory_bytes: usize,
    pub(crate) offset_bytes: u32,
}

/// Why a file cannot be a device: what it is instead.
pub(crate) fn unsupported_type(metadata: &fs::Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() || kind.is_block_device() => None,
        () if kind.is_dir() => Some("directory"),
        () if kind.is_char_device() => Some("character device"),
        () if kind.is_fifo() => Some("pipe"),
        () if kind.is_socket() => Some("socket"),
        () => Some("file of an unknown type"),
    }
}

pub(crate) fn probe(file: &File, is_read_only: bool) -> io::Result<Found> {
    let metadata = file.metadata()?;
    if metadata.file_type().is_block_device() {
        return probe_block(file, &metadata, is_read_only);
    }
    let len_bytes = metadata.len();
    Ok(Found {
        kind: DeviceKind::File,
        identity: Identity::File { device: metadata.dev(), inode: metadata.ino() },
        len_bytes,
        logical_block_bytes: 512,
        physical_block_bytes: u32::try_from(metadata.blksize()).unwrap_or(4096),
        is_read_only,
        is_write_through: false,
        can_discard: !is_read_only && can_punch(file, len_bytes),
        discard_zeroes: true,
    })
}

/// Whether the file system supports holes: tried past the end, where nothing can be lost.
fn can_punch(file: &File, len_bytes: u64) -> bool {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, len_bytes, 4096).is_ok()
}

fn probe_block(file: &File, metadata: &fs::Metadata, is_read_only: bool) -> io::Result<Found> {
    let rdev = metadata.rdev();
    let queue = |attribute| queue_attribute(rdev, attribute);
    Ok(Found {
        kind: DeviceKind::Block,
        identity: Identity::Block { device: rdev },
        len_bytes: sys::block_len_bytes(file.as_fd())?,
        logical_block_bytes: rustix::fs::ioctl_blksszget(file)?,
        physical_block_bytes: rustix::fs::ioctl_blkpbszget(file)?,
        is_read_only: is_read_only || sys::block_is_read_only(file.as_fd())?,
        // If the attribute is missing, there may be a cache.
        is_write_through: queue("write_cache").is_some_and(|value| value == "write through"),
        can_discard: !is_read_only && queue("discard_max_bytes").is_some_and(|value| value != "0"),
        // The kernel no longer promises it (`discard_zeroes_data` is always 0 since 4.12).
        discard_zeroes: false,
    })
}

/// An attribute of the queue of a block device; of the whole disk, if the device is a partition.
fn queue_attribute(rdev: u64, attribute: &str) -> Option<String> {
    let (major, minor) = (libc::major(rdev), libc::minor(rdev));
    ["queue", "../queue"].iter().find_map(|queue| {
        let path = format!("/sys/dev/block/{major}:{minor}/{queue}/{attribute}");
        Some(fs::read_to_string(path).ok()?.trim().to_owned())
    })
}

/// Alignment for direct I/O, or why there is none.
///
/// Source: statx(2), `STATX_DIOALIGN` (Linux 6.1). Without it, a guess: the logical block size of a block
/// device, 4096 for a file.
pub(crate) fn direct_align(file: &File, found: &Found) -> Result<DirectAlign, String> {
    let guess = match found.kind {
        DeviceKind::Block => found.logical_block_bytes,
        _ => 4096,
    };
    let statx = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let align = match statx {
        Ok(statx) if StatxFlags::from_bits_retain(statx.stx_mask).contains(StatxFlags::DIOALIGN) => {
            if statx.stx_dio_mem_align == 0 || statx.stx_dio_offset_align == 0 {
                return Err("the file system says that this file has none".to_owned());
            }
            let memory_bytes = usize::try_from(statx.stx_dio_mem_align).expect("64-bit Linux");
            DirectAlign { memory_bytes, offset_bytes: statx.stx_dio_offset_align }
        }
        _ => DirectAlign { memory_bytes: guess as usize, offset_bytes: guess },
    };
    if align.memory_bytes.is_power_of_two() && align.offset_bytes.is_power_of_two() {
        Ok(align)
    } else {
        Err(format!("alignments {} and {} are no powers of two", align.memory_bytes, align.offset_bytes))
    }
}

/// Switches direct I/O on or off.
pub(crate) fn set_direct(file: &File, is_direct: bool) -> io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, is_direct);
    Ok(rustix::fs::fcntl_setfl(file, flags)?)
}

/// Whether direct reads of one block work: some file systems accept the flag but refuse the transfer.
pub(crate) fn try_direct_read(file: &File, block_bytes: u32, memory_bytes: usize) -> io::Result<()> {
    let mut buf = AlignedBuf::zeroed(block_bytes as usize, memory_bytes);
    rustix::io::pread(file, &mut buf[..], 0)?;
    Ok(())
}

/// Which volatile cache may hold an acknowledged write.
pub(crate) fn write_cache(found: &Found, is_direct: bool) -> WriteCache {
    match (is_direct, found.is_write_through) {
        (false, _) => WriteCache::PageCache,
        (true, true) => WriteCache::WriteThrough,
        (true, false) => WriteCache::DeviceCache,
    }
}
