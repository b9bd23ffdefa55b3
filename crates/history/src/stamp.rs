//! Contents of sectors that say which write they are from.
//!
//! Shape: a sector is 16 lines of 32 bytes, little-endian:
//!
//! | offset | bytes | |
//! |--:|--:|---|
//! | 0 | 4 | seed of the run |
//! | 4 | 4 | connection |
//! | 8 | 4 | number of the operation on that connection |
//! | 12 | 4 | sector |
//! | 16 | 1 | volume |
//! | 17 | 1 | line in the sector |
//! | 18 | 6 | zero |
//! | 24 | 8 | checksum of the 24 bytes before |
//!
//! Writes of an odd number are scrambled: the first 24 bytes are combined with numbers that follow from the
//! checksum, so that no compression makes them shorter. The others compress well.

use std::fmt;
use std::ops::Range;

/// The unit in which contents are judged.
pub const SECTOR_BYTES: usize = 512;
const LINE_BYTES: usize = 32;

/// A write of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId {
    /// Connections count up over the whole run.
    pub connection: u32,
    /// Number of the operation on its connection.
    pub number: u32,
}

impl fmt::Display for WriteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.connection, self.number)
    }
}

/// What a sector has that is as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Content {
    /// Zeroes: never written, zeroed or trimmed.
    Zeroes,
    /// All of it from this write, which was for this sector.
    Write(WriteId),
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Zeroes => f.write_str("zeroes"),
            Content::Write(id) => write!(f, "write {id}"),
        }
    }
}

/// Where a sector is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Of the run.
    pub seed: u32,
    /// Number of the volume.
    pub volume: u8,
    /// Number of the sector.
    pub sector: u32,
}

/// What a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Zeroes.
    Zeroes,
    /// A write, and the place that it was for.
    Write(WriteId, Place),
    /// No write: no stamp, or a wrong checksum.
    Nowhere,
}

/// Contents of a sector that no write and no zeroing left there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Parts of the sector in bytes, and where each is from; neighbours differ.
    pub parts: Vec<(Range<usize>, Source)>,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.parts.len() > 1 {
            f.write_str("a mixture: ")?;
        }
        for (index, (bytes, source)) in self.parts.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}bytes {}..{} ", bytes.start, bytes.end)?;
            match source {
                Source::Zeroes => f.write_str("zeroes")?,
                Source::Nowhere => f.write_str("from nowhere")?,
                Source::Write(id, Place { seed, volume, sector }) => {
                    write!(f, "of write {id} to sector {sector} of volume {volume} (seed {seed})")?;
                }
            }
        }
        Ok(())
    }
}

fn mixed(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Every change of one of the words changes it.
fn checksum(words: [u64; 3]) -> u64 {
    words.into_iter().fold(0x6661_7374_6e65_7373, |sum, word| mixed(sum ^ word))
}

fn scrambled(words: [u64; 3], sum: u64) -> [u64; 3] {
    let mut salt = sum;
    words.map(|word| {
        salt = salt.wrapping_add(0x9e37_79b9_7f4a_7c15);
        word ^ mixed(salt)
    })
}

fn words_of(id: WriteId, place: Place, line: usize) -> [u64; 3] {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let last = u64::from(place.volume) | (line as u64) << 8;
    [pair(place.seed, id.connection), pair(id.number, place.sector), last]
}

/// Fills whole sectors from `place` on with what write `id` writes there.
pub fn fill(buffer: &mut [u8], id: WriteId, place: Place) {
    for (index, bytes) in buffer.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        let place = Place { sector: place.sector + index as u32, ..place };
        for (line, bytes) in bytes.chunks_exact_mut(LINE_BYTES).enumerate() {
            let words = words_of(id, place, line);
            let sum = checksum(words);
            let [a, b, c] = if id.number % 2 == 1 { scrambled(words, sum) } else { words };
            for (to, word) in bytes.chunks_exact_mut(8).zip([a, b, c, sum]) {
                to.copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

/// What a line says that stands at `line` of its sector.
fn read_line(bytes: &[u8], line: usize) -> Source {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    let [a, b, c, sum] = words;
    if words == [0; 4] {
        return Source::Zeroes;
    }
    let plain = [[a, b, c], scrambled([a, b, c], sum)].into_iter().find(|words| checksum(*words) == sum);
    let Some([a, b, c]) = plain.filter(|words| words[2] >> 8 == line as u64) else {
        return Source::Nowhere;
    };
    let id = WriteId { connection: (a >> 32) as u32, number: b as u32 };
    Source::Write(id, Place { seed: a as u32, volume: c as u8, sector: (b >> 32) as u32 })
}

/// What a sector has that was read at `place`.
///
/// # Errors
/// [`Wrong`]: it is not as one write or a zeroing left it.
///
/// # Panics
/// Caller bug only: `bytes` is not a sector.
pub fn read(bytes: &[u8], place: Place) -> Result<Content, Wrong> {
    assert_eq!(bytes.len(), SECTOR_BYTES);
    let mut parts: Vec<(Range<usize>, Source)> = Vec::new();
    for (line, bytes) in bytes.chunks_exact(LINE_BYTES).enumerate() {
        let (source, at) = (read_line(bytes, line), line * LINE_BYTES);
        match parts.last_mut() {
            Some((bytes, last)) if *last == source => bytes.end = at + LINE_BYTES,
            _ => parts.push((at..at + LINE_BYTES, source)),
        }
    }
    match &parts[..] {
        [(_, Source::Zeroes)] => Ok(Content::Zeroes),
        [(_, Source::Write(id, for_place))] if *for_place == place => Ok(Content::Write(*id)),
        _ => Err(Wrong { parts }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { seed: 7, volume: 2, sector: 40 };

    fn id(number: u32) -> WriteId {
        WriteId { connection: 3, number }
    }

    fn sectors(number: u32, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count * SECTOR_BYTES];
        fill(&mut bytes, id(number), PLACE);
        bytes
    }

    #[test]
    fn a_sector_names_its_write() {
        for number in [8, 9] {
            let bytes = sectors(number, 3);
            for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                let place = Place { sector: 40 + index as u32, ..PLACE };
                assert_eq!(read(sector, place), Ok(Content::Write(id(number))));
            }
        }
        assert_eq!(read(&[0; SECTOR_BYTES], PLACE), Ok(Content::Zeroes));
    }

    #[test]
    fn a_sector_of_another_place_is_wrong_and_says_where_it_belongs() {
        let bytes = sectors(8, 1);
        let others =
            [Place { sector: 41, ..PLACE }, Place { volume: 1, ..PLACE }, Place { seed: 8, ..PLACE }];
        for other in others {
            let wrong = read(&bytes, other).unwrap_err();
            assert_eq!(wrong.parts, [(0..512, Source::Write(id(8), PLACE))]);
        }
    }

    #[test]
    fn a_mixture_is_wrong_and_says_of_what() {
        let mut bytes = sectors(8, 1);
        bytes[128..].copy_from_slice(&sectors(9, 1)[128..]);
        bytes[480..].fill(0);
        let text = read(&bytes, PLACE).unwrap_err().to_string();
        assert!(text.starts_with("a mixture: bytes 0..128 of write 3.8"), "{text}");
        assert!(
            text.contains("bytes 128..480 of write 3.9") && text.ends_with("bytes 480..512 zeroes"),
            "{text}"
        );
    }

    #[test]
    fn a_flipped_bit_anywhere_is_from_nowhere() {
        for number in [8, 9] {
            let bytes = sectors(number, 1);
            for bit in 0..SECTOR_BYTES * 8 {
                let mut bytes = bytes.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let wrong = read(&bytes, PLACE).unwrap_err();
                assert!(wrong.parts.iter().any(|(_, source)| *source == Source::Nowhere), "bit {bit}");
            }
        }
    }

    /// Lines that are right and in the wrong order are no line of this sector.
    #[test]
    fn a_line_knows_its_place_in_the_sector() {
        let mut bytes = sectors(8, 1);
        bytes.rotate_left(LINE_BYTES);
        assert_eq!(read(&bytes, PLACE).unwrap_err().parts, [(0..512, Source::Nowhere)]);
    }
}
