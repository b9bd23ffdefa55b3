//! Checksums of entry bodies and headers, summed while the bytes are copied.
//!
//! The kind is recorded in every entry header, so logs of different kinds can be read side by side.

mod fletcher4;
#[cfg(test)]
mod tests;

use fastness_pmem::Summer;
use fletcher4::Fletcher4;
use twox_hash::xxhash3_128::{DEFAULT_SECRET_LENGTH, RawHasher, SecretBuffer};

/// A checksum as stored in an entry header: 32 bytes, unused ones zero.
pub type Checksum = [u8; 32];

/// Which checksum protects bodies and headers.
///
/// Shape: the value is the byte at offset 20 of the entry header (`docs/format.md`). Two values differ in two
/// bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ChecksumKind {
    /// Four running 64-bit sums over little-endian 32-bit words, as in ZFS; 32 bytes.
    Fletcher4 = 1,
    /// CRC-32C (Castagnoli); 4 bytes, little endian.
    Crc32c = 2,
    /// XXH3 with 128 bits, seed 0; its low 14 bytes, little endian: they fill two words of a header.
    Xxh3 = 4,
}

impl ChecksumKind {
    /// Every kind, weakest first.
    pub const ALL: [Self; 3] = [Self::Fletcher4, Self::Crc32c, Self::Xxh3];

    /// The kind with this number on the medium.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u8 == byte)
    }

    /// Bytes of the checksum; the rest is zero.
    pub(crate) fn len_bytes(self) -> usize {
        match self {
            Self::Fletcher4 => 32,
            Self::Crc32c => 4,
            Self::Xxh3 => 14,
        }
    }

    /// True if it is strong enough (112 bits) that torn bodies do not go undetected, which the insertion with
    /// one fence relies on. Source: zil-pmem thesis, 5.12.3.
    pub fn is_strong(self) -> bool {
        self == Self::Xxh3
    }

    /// Name for command lines and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fletcher4 => "fletcher4",
            Self::Crc32c => "crc32c",
            Self::Xxh3 => "xxh3-128",
        }
    }

    /// Checksum of `bytes` in one go.
    pub fn of(self, bytes: &[u8]) -> Checksum {
        match self {
            Self::Fletcher4 => {
                let mut sum = Fletcher4Sum::default();
                fastness_pmem::sum(bytes, &mut sum);
                sum.finish()
            }
            Self::Crc32c => widen(&crc32c::crc32c(bytes).to_le_bytes()),
            Self::Xxh3 => truncate(twox_hash::XxHash3_128::oneshot(bytes)),
        }
    }
}

/// A summer that yields a checksum for the header.
pub trait BodySum: Summer + Default {
    /// For a body that comes in several copies: every part except the last is whole lines, and may be shorter
    /// than a block.
    fn in_parts() -> Self {
        Self::default()
    }

    /// The checksum of all bytes taken.
    fn finish(&self) -> Checksum;
}

/// Fletcher-4 in eight lanes.
#[derive(Default)]
pub struct Fletcher4Sum(Fletcher4);

impl Summer for Fletcher4Sum {
    #[inline(always)]
    fn update(&mut self, block: &[u8]) {
        self.0.update(block);
    }
}

impl BodySum for Fletcher4Sum {
    #[inline]
    fn finish(&self) -> Checksum {
        self.0.finish()
    }
}

/// CRC-32C by the `crc32c` crate.
#[derive(Default)]
pub struct Crc32cSum(u32);

impl Summer for Crc32cSum {
    // Five rounds of the crate's loop over three streams of 256 bytes.
    const BLOCK_BYTES: usize = 3840;

    #[inline(always)]
    fn update(&mut self, block: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, block);
    }
}

impl BodySum for Crc32cSum {
    #[inline]
    fn finish(&self) -> Checksum {
        widen(&self.0.to_le_bytes())
    }
}

/// XXH3-128 by the `twox-hash` crate, without allocation.
///
/// A body of less than a block is hashed in one go; a longer one, or one in parts, is streamed.
#[derive(Default)]
pub struct Xxh3Sum(Xxh3);

#[derive(Default)]
#[allow(clippy::large_enum_variant)] // It lives on the stack of one insertion and is never moved.
enum Xxh3 {
    #[default]
    Nothing,
    Whole(u128),
    Stream(RawHasher<&'static [u8; DEFAULT_SECRET_LENGTH]>),
}

impl Summer for Xxh3Sum {
    // Few enough stores to fit into the CPU's store buffer: then it sums while they drain.
    const BLOCK_BYTES: usize = 8 << 10;

    #[inline(always)]
    fn update(&mut self, block: &[u8]) {
        match &mut self.0 {
            Xxh3::Nothing if block.len() < Self::BLOCK_BYTES => {
                self.0 = Xxh3::Whole(twox_hash::XxHash3_128::oneshot(block));
            }
            Xxh3::Nothing => {
                let mut hasher = RawHasher::new(SecretBuffer::default());
                hasher.write(block);
                self.0 = Xxh3::Stream(hasher);
            }
            Xxh3::Stream(hasher) => hasher.write(block),
            Xxh3::Whole(_) => unreachable!("only the last block is short"),
        }
    }
}

impl BodySum for Xxh3Sum {
    #[inline]
    fn in_parts() -> Self {
        Self(Xxh3::Stream(RawHasher::new(SecretBuffer::default())))
    }

    #[inline]
    fn finish(&self) -> Checksum {
        let hash = match &self.0 {
            Xxh3::Nothing => twox_hash::XxHash3_128::oneshot(&[]),
            Xxh3::Whole(hash) => *hash,
            Xxh3::Stream(hasher) => hasher.finish_128(),
        };
        truncate(hash)
    }
}

/// The part of a hash that a header stores.
fn truncate(hash: u128) -> Checksum {
    widen(&hash.to_le_bytes()[..ChecksumKind::Xxh3.len_bytes()])
}

fn widen(bytes: &[u8]) -> Checksum {
    let mut sum = [0; 32];
    sum[..bytes.len()].copy_from_slice(bytes);
    sum
}
