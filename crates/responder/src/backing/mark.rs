//! The file in a directory that says which cache it belongs to.
//!
//! Shape: 52 bytes: magic "FSTNRDIR", the id of the cache, number and id of its last opening, the CRC-32C of
//! these 48 bytes; little endian. Without an opening (28 bytes) it is that of an earlier version.

use std::{fmt, io};

use super::CacheId;

const MAGIC: [u8; 8] = *b"FSTNRDIR";
const SUMMED_BYTES: usize = 48;
const BYTES: usize = SUMMED_BYTES + 4;
const EARLIER_BYTES: usize = 28;

/// What a directory says of the cache that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// That cache.
    pub cache: CacheId,
    /// When that was opened last.
    pub opening: Opening,
}

/// One time that a cache was opened, or created.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// Later ones have higher numbers.
    pub number: u64,
    /// Drawn at random.
    pub id: [u8; 16],
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opening({}, ", self.number)?;
        self.id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

pub(super) fn encode(mark: &Mark) -> Vec<u8> {
    let Mark { cache, opening } = mark;
    let mut bytes = [MAGIC.as_slice(), &cache.0, &opening.number.to_le_bytes(), &opening.id].concat();
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// The bytes are not trusted.
pub(super) fn decode(bytes: &[u8]) -> io::Result<Mark> {
    let bad = |text| io::Error::new(io::ErrorKind::InvalidData, text);
    if bytes.len() == EARLIER_BYTES && bytes[..8] == MAGIC {
        let text = ".fastness-responder is of an earlier version: flush and detach the region that it names with \
                    the program that made it";
        return Err(bad(text));
    }
    let is_whole = bytes.len() == BYTES
        && bytes[..8] == MAGIC
        && crc32c::crc32c(&bytes[..SUMMED_BYTES]).to_le_bytes() == bytes[SUMMED_BYTES..];
    if !is_whole {
        return Err(bad(".fastness-responder is damaged"));
    }
    let id = |at: usize| bytes[at..at + 16].try_into().expect("sixteen bytes");
    let number = u64::from_le_bytes(bytes[24..32].try_into().expect("eight bytes"));
    Ok(Mark { cache: CacheId(id(8)), opening: Opening { number, id: id(32) } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_and_every_flipped_bit_is_noticed() {
        let mark = Mark { cache: CacheId([7; 16]), opening: Opening { number: 3, id: [5; 16] } };
        let bytes = encode(&mark);
        let hex: String = bytes[..48].iter().map(|byte| format!("{byte:02x}")).collect();
        let (cache, id) = ("07".repeat(16), "05".repeat(16));
        assert_eq!(hex, format!("4653544e52444952{cache}0300000000000000{id}"));
        assert_eq!(decode(&bytes).unwrap(), mark);
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bytes).unwrap_err().kind(), io::ErrorKind::InvalidData, "bit {bit}");
        }
        for len in 0..bytes.len() {
            let error = decode(&bytes[..len]).unwrap_err();
            assert_eq!(error.to_string().contains("earlier version"), len == EARLIER_BYTES, "{error}");
        }
    }
}
