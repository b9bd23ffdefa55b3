//! Addresses of stored blocks as bytes.
//!
//! Shape: bytes of a block (4), zero (4); then for each block of the run: packed place (8), checksum of the
//! stored bytes (8), stored bytes (4), compression in the upper 8 bits and logical bytes in the lower 24 (4),
//! all as in the table of extents.

use crate::codec::{Reader, Writer};
use crate::error::{PoolError, Result};
use crate::ids::{Place, Txg};
use crate::objects::extent::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Extent, IN_PIECES};

/// Bytes before the first block.
pub(crate) const HEAD_BYTES: usize = 8;
/// Bytes of a block.
pub(crate) const ENTRY_BYTES: usize = 24;

/// Where the bytes of a record are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) block_bytes: u32,
    /// At least one, in order.
    pub(crate) extents: Vec<Extent>,
}

impl Address {
    /// Begins an address without blocks.
    pub(super) fn begin(block_bytes: u32) -> Vec<u8> {
        let mut out = Writer::default();
        out.u32(block_bytes).u32(0);
        out.bytes
    }

    /// Appends a block.
    pub(super) fn add(address: &mut Vec<u8>, extent: &Extent) {
        let mut out = Writer { bytes: std::mem::take(address) };
        out.u64(extent.place.pack()).u64(extent.sum).u32(extent.stored_bytes);
        out.u32(u32::from(extent.codec) << 24 | extent.logical_bytes);
        *address = out.bytes;
    }

    /// The address as bytes.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Address::begin(self.block_bytes);
        self.extents.iter().for_each(|extent| Address::add(&mut bytes, extent));
        bytes
    }

    /// Decodes the address of `len_bytes` bytes. It comes from a medium: no value in it is trusted, and the
    /// memory it takes is proportional to its length.
    pub(crate) fn decode(bytes: &[u8], len_bytes: u64) -> Result<Address> {
        let strange = |what| PoolError::bad_value("address of a record", what);
        let short = || strange("it ends too early");
        let mut input = Reader::new(bytes);
        let (block_bytes, zero) = (input.u32().ok_or_else(short)?, input.u32().ok_or_else(short)?);
        if !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes)
            || !block_bytes.is_power_of_two()
            || zero != 0
        {
            return Err(strange("no such block size"));
        }
        let count = (bytes.len() - HEAD_BYTES) / ENTRY_BYTES;
        if count == 0 || (count as u64).checked_mul(u64::from(block_bytes)) != Some(len_bytes) {
            return Err(strange("it does not fit the length of the write"));
        }
        let mut extents = Vec::with_capacity(count);
        for _ in 0..count {
            let mut one = || {
                let (place, sum) = (Place::unpack(input.u64()?), input.u64()?);
                let (stored_bytes, rest) = (input.u32()?, input.u32()?);
                let (codec, logical_bytes) = ((rest >> 24) as u8, rest & 0xff_ffff);
                Some(Extent { place, sum, birth: Txg(0), stored_bytes, logical_bytes, codec })
            };
            let extent = one().ok_or_else(short)?;
            let is_sound = extent.stored_bytes > 0
                && extent.stored_bytes <= extent.logical_bytes
                && extent.logical_bytes <= block_bytes
                && extent.codec & IN_PIECES == 0;
            if !is_sound {
                return Err(strange("a block with an impossible length or compression"));
            }
            extents.push(extent);
        }
        input.end().ok_or_else(|| strange("it is too long"))?;
        Ok(Address { block_bytes, extents })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (Vec<u8>, Address) {
        let extent = |unit| Extent {
            place: Place { vdev: 3, unit },
            sum: 0x1122_3344_5566_7788 + unit,
            birth: Txg(0),
            stored_bytes: 5000,
            logical_bytes: 8192,
            codec: 1,
        };
        let address = Address { block_bytes: 8192, extents: vec![extent(77), extent(0x1_0000_0004)] };
        (address.encode(), address)
    }

    #[test]
    fn golden_bytes() {
        let (bytes, address) = example();
        assert_eq!(Address::decode(&bytes, 16384).unwrap(), address);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "0020000000000000\
             4d00000000000300d577665544332211881300000020000104000000010003008c77665545332211\
             8813000000200001"
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let (good, _) = example();
        for len in 0..good.len() {
            assert!(Address::decode(&good[..len], 16384).is_err(), "{len} bytes");
        }
        assert!(Address::decode(&[good.clone(), vec![0]].concat(), 16384).is_err(), "too long");
        for len_bytes in [0, 8192, 16383, 24576, u64::MAX] {
            assert!(Address::decode(&good, len_bytes).is_err(), "{len_bytes} bytes of data");
        }
        // Place in the address, what is put there.
        for (at, value) in [(0, 1), (1, 0), (3, 0x7f), (4, 1), (24, 0), (26, 0xff), (29, 0xff), (31, 0x81)] {
            let mut bad = good.clone();
            bad[at] = value;
            if at == 24 {
                bad[25] = 0;
            }
            assert!(Address::decode(&bad, 16384).is_err(), "byte {at} is {value:#x}");
        }
    }
}
