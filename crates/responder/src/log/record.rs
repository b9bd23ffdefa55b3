//! A record: what one sync of a file makes durable, or that earlier ones do not count any more.
//!
//! Shape: 64 bytes, little endian, then 16 bytes for each range, zeroes up to a multiple of 64, and the bytes
//! of all ranges one after the other:
//! ```text
//! offset size field
//!      0    8 what: 1 data, 2 settled
//!      8    8 inode
//!     16    8 generation of the inode
//!     24    8 number of the record, from 1 on; of 2: the last record of the file that does not count
//!     32    8 length of the file; of 2: zero
//!     40    8 when the file was modified, in ns since 1970; of 2: zero
//!     48    8 number of ranges; of 2: zero
//!     56    8 zero
//!     64 16*n where each range begins in the file, and its length
//! ```
//! No range ends after the file. The entry of the log that holds the record has its checksum.

use std::ops::Range;

use crate::backing::FileId;
use crate::ranges::Ranges;

const LINE: usize = 64;
/// No file of any system is longer.
const SIZE_MAX: u64 = i64::MAX as u64;

/// What a record says, without the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) file: FileId,
    pub(crate) number: u64,
    pub(crate) what: What,
}

/// What it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// These ranges have these bytes.
    Data { size: u64, modified_ns: u64, ranges: Vec<Range<u64>> },
    /// Records of the file up to this one do not count.
    Settled,
}

/// Bytes in front of the data of so many ranges.
fn front_bytes(ranges: usize) -> usize {
    (LINE + 16 * ranges).next_multiple_of(LINE)
}

/// Bytes of a record with these ranges.
pub(crate) fn record_bytes(ranges: &Ranges) -> u64 {
    front_bytes(ranges.count()) as u64 + ranges.bytes()
}

impl Record {
    /// What stands in front of the data.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (what, size, modified_ns, ranges) = match &self.what {
            What::Data { size, modified_ns, ranges } => (1_u64, *size, *modified_ns, &ranges[..]),
            What::Settled => (2, 0, 0, &[][..]),
        };
        let FileId { inode, generation } = self.file;
        let words = [what, inode, generation, self.number, size, modified_ns, ranges.len() as u64, 0];
        let of_ranges = ranges.iter().flat_map(|range| [range.start, range.end - range.start]);
        let mut bytes = Vec::with_capacity(front_bytes(ranges.len()));
        words.into_iter().chain(of_ranges).for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.resize(front_bytes(ranges.len()), 0);
        bytes
    }

    /// Reads a record and finds its data; the bytes are not trusted. `None`: it contradicts itself.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Record, &[u8])> {
        let word = |at: usize| {
            let bytes = bytes.get(at..at + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
        };
        let file = FileId { inode: word(8)?, generation: word(16)? };
        let (size, modified_ns, count) = (word(32)?, word(40)?, word(48)?);
        if word(56)? != 0 {
            return None;
        }
        let record = |what| Record { file, number: 0, what };
        let number = word(24)?;
        match word(0)? {
            1 if number > 0 && size <= SIZE_MAX => {
                let count = usize::try_from(count).ok().filter(|&count| count <= bytes.len() / 16)?;
                let data = bytes.get(front_bytes(count)..)?;
                let (mut ranges, mut rest) = (Vec::with_capacity(count), data.len() as u64);
                for at in (LINE..).step_by(16).take(count) {
                    let (start, len) = (word(at)?, word(at + 8)?);
                    rest = rest.checked_sub(len)?;
                    let end = start.checked_add(len).filter(|&end| end <= size)?;
                    ranges.push(start..end);
                }
                let what = What::Data { size, modified_ns, ranges };
                (rest == 0).then_some((Record { number, ..record(what) }, data))
            }
            2 if (size, modified_ns, count) == (0, 0, 0) && bytes.len() == LINE => {
                Some((Record { number, ..record(What::Settled) }, &[]))
            }
            _ => None,
        }
    }
}

/// Which file a record is of, and its number, from its first bytes.
pub(crate) fn owner(bytes: &[u8]) -> Option<(FileId, u64)> {
    Record::decode(bytes).map(|(record, _)| (record.file, record.number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Record {
        let what = What::Data { size: 5000, modified_ns: 7, ranges: vec![3..5, 4000..4001, 4999..5000] };
        Record { file: FileId { inode: 17, generation: 19 }, number: 23, what }
    }

    #[test]
    fn records_go_there_and_back() {
        let mut bytes = example().encode();
        assert_eq!(bytes.len(), 128);
        bytes.extend(b"data");
        assert_eq!(Record::decode(&bytes), Some((example(), &b"data"[..])));
        assert_eq!(owner(&bytes), Some((example().file, 23)));
        let settled = Record { what: What::Settled, ..example() };
        assert_eq!(Record::decode(&settled.encode()), Some((settled.clone(), &[][..])));
        let golden: String = bytes[..72].iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "0100000000000000110000000000000013000000000000001700000000000000\
            8813000000000000070000000000000003000000000000000000000000000000\
            0300000000000000";
        assert_eq!(golden, expected);
    }

    /// Any bytes: an error or a record whose data are there, and no panic.
    #[test]
    fn no_bytes_are_trusted() {
        let mut rng = fastness_testkit::Rng(3);
        let whole = [example().encode(), b"data".to_vec()].concat();
        let (mut refused, mut taken) = (0, 0);
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            bytes.truncate(if rng.one_in(4) { rng.index(whole.len()) } else { whole.len() });
            for _ in 0..rng.index(3) {
                if !bytes.is_empty() {
                    let (at, value) = (rng.index(bytes.len()), rng.pick(&[0, 1, 2, 0x7f, 0xff]));
                    bytes[at] = value;
                }
            }
            match Record::decode(&bytes) {
                Some((Record { what: What::Data { size, ranges, .. }, .. }, data)) => {
                    taken += 1;
                    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
                    assert_eq!(bytes, data.len() as u64);
                    assert!(ranges.iter().all(|range| range.end <= size));
                }
                Some(_) => taken += 1,
                None => refused += 1,
            }
        }
        assert!(refused > 1000 && taken > 1000, "{refused} {taken}");
    }
}
