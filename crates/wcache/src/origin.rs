//! The origin: the block device that a cache is in front of; what it is recognised by.

use std::io;
use std::sync::Arc;

use fastness_blkdev::BlockDevice;
use fastness_remote::OpenError;

use crate::id::CacheId;

/// What an origin is recognised by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Its block in bytes: a power of two from 512 to 4096.
    pub block_bytes: u32,
    /// Number of the device that its file system is on; of a device a fingerprint of what it is, or its
    /// number if nothing else is known.
    pub device: u64,
    /// Its inode; 0: it is a device.
    pub inode: u64,
}

impl Identity {
    pub(crate) fn is_possible(&self) -> bool {
        let block = self.block_bytes;
        let is_block = block.is_power_of_two() && (512..=4096).contains(&block);
        is_block && self.len_bytes > 0 && self.len_bytes.is_multiple_of(u64::from(block))
    }
}

/// A number that stands for a name of a device: the same in every version of this program, and never that of
/// a device of the kernel.
pub(crate) fn fingerprint(name: &[u8]) -> u64 {
    // FNV-1a.
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash | 1 << 63
}

/// What an origin says of its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Whose origin it is.
    pub cache: CacheId,
    /// The last opening of that: an older copy of the region does not know it.
    pub opening: u64,
}

/// A block device that can be opened again, and can carry a mark.
pub trait Origin: Send + Sync {
    /// Opens it, for this process alone. After a failed flush, reads show what is on the medium.
    ///
    /// # Errors
    /// [`OpenError`].
    fn open(&self) -> Result<Arc<dyn BlockDevice>, OpenError>;

    /// What it is, as [`Identity`] has it: `device` and `inode`. It is open.
    ///
    /// # Errors
    /// Of the system call.
    fn number(&self) -> io::Result<(u64, u64)>;

    /// Where it is, for people, and for [`Superblock::origin_path`](crate::Superblock::origin_path).
    fn path(&self) -> Vec<u8>;

    /// The mark; `None` if there is none. `Err` of kind Unsupported: it cannot have one.
    ///
    /// # Errors
    /// Those of reading it.
    fn mark(&self) -> io::Result<Option<Mark>>;

    /// Sets or removes the mark, durably.
    ///
    /// # Errors
    /// Those of writing it.
    fn set_mark(&self, mark: Option<Mark>) -> io::Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_stays_what_it_is() {
        // It is stored: these must never change.
        assert_eq!(fingerprint(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fingerprint(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
