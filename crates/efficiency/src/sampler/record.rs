//! Records of the kernel's buffer.
//!
//! Shape: a header of 8 bytes (type, flags, size of the whole record), then the fields that [`SAMPLE_TYPE`]
//! asked for, in the order of `perf_event_open(2)`.

/// Instruction, process and thread, address, period, source of the data.
pub(super) const SAMPLE_TYPE: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 8 | 1 << 15;

const HEADER_BYTES: usize = 8;
const LOST: u32 = 2;
const THROTTLE: u32 = 5;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;

/// Flags of a record.
const CPU_MODE: u16 = 7;
const MODE_USER: u16 = 2;
const EXACT_IP: u16 = 1 << 14;

/// What the source of the data says about the operation.
const OP_LOAD: u64 = 2;
const OP_STORE: u64 = 4;

/// Which instruction a sample's address means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpIs {
    /// The one that stored.
    Exact,
    /// The one after it.
    Next,
}

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub thread: u32,
    /// An instruction.
    pub ip: u64,
    /// Which one that is.
    pub ip_is: IpIs,
    /// Where it stored to.
    pub address: u64,
    /// Events that the sample stands for.
    pub period: u64,
}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// A sample of a program.
    Sample(Sample),
    /// A sample of something else: of the kernel, or of an operation that only loads.
    NotAStore,
    /// So many records found no room in the buffer.
    Lost(u64),
    /// The kernel has stopped the event for a while, because it took too much of its time.
    Throttled,
}

/// The records in `bytes`; what is no whole record ends them, and one of another type is left out.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Record> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let header = rest.get(..HEADER_BYTES)?;
        let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        let record = rest.get(..size).filter(|_| size >= HEADER_BYTES)?;
        rest = &rest[size..];
        Some(parse(record))
    })
    .flatten()
}

fn parse(record: &[u8]) -> Option<Record> {
    let kind = u32::from_ne_bytes(record[..4].try_into().ok()?);
    let flags = u16::from_ne_bytes([record[4], record[5]]);
    let word = |at: usize| -> Option<u64> {
        let bytes = record.get(HEADER_BYTES + at * 8..)?.get(..8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    match kind {
        SAMPLE => {
            // Process in the lower half, thread in the upper one, as the kernel stores two 32-bit numbers.
            let both = word(1)?.to_ne_bytes();
            let half = |at: usize| u32::from_ne_bytes(both[at..at + 4].try_into().expect("4 bytes"));
            let sample = Sample {
                pid: half(0),
                thread: half(4),
                ip: word(0)?,
                ip_is: if flags & EXACT_IP != 0 { IpIs::Exact } else { IpIs::Next },
                address: word(2)?,
                period: word(3)?,
            };
            let only_loads = word(4)? & (OP_LOAD | OP_STORE) == OP_LOAD;
            let is_ours = flags & CPU_MODE == MODE_USER && !only_loads;
            Some(if is_ours { Record::Sample(sample) } else { Record::NotAStore })
        }
        LOST => word(1).map(Record::Lost),
        LOST_SAMPLES => word(0).map(Record::Lost),
        THROTTLE => Some(Record::Throttled),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::synthetic::{record_of, with_flags};

    const STORE: Sample =
        Sample { pid: 7, thread: 8, ip: 0x1000, ip_is: IpIs::Exact, address: 0x2000, period: 9973 };

    #[test]
    fn samples_of_stores_are_told_from_others() {
        let all = |bytes: &[u8]| records(bytes).collect::<Vec<_>>();
        assert_eq!(all(&record_of(&STORE)), [Record::Sample(STORE)]);
        let next = Sample { ip_is: IpIs::Next, ..STORE };
        assert_eq!(all(&record_of(&next)), [Record::Sample(next)]);
        assert_eq!(all(&with_flags(&STORE, 1, OP_STORE)), [Record::NotAStore], "of the kernel");
        assert_eq!(all(&with_flags(&STORE, MODE_USER, OP_LOAD)), [Record::NotAStore]);
        for op in [OP_LOAD | OP_STORE, OP_STORE, 1, 0] {
            assert!(matches!(all(&with_flags(&STORE, MODE_USER, op))[..], [Record::Sample(_)]), "{op}");
        }
    }

    #[test]
    fn lost_records_are_counted_and_others_are_left_out() {
        let record = |kind: u32, words: &[u64]| {
            let mut bytes = kind.to_ne_bytes().to_vec();
            bytes.extend([0, 0]);
            bytes.extend((8 + 8 * words.len() as u16).to_ne_bytes());
            words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
            bytes
        };
        let bytes = [
            record(LOST, &[1, 500]),
            record(1, &[0; 9]),
            record_of(&STORE),
            record(LOST_SAMPLES, &[7]),
            record(THROTTLE, &[0; 3]),
        ]
        .concat();
        let found: Vec<_> = records(&bytes).collect();
        assert_eq!(found, [Record::Lost(500), Record::Sample(STORE), Record::Lost(7), Record::Throttled]);
    }

    #[test]
    fn what_is_no_record_ends_them() {
        let whole = record_of(&STORE);
        for len in 0..whole.len() {
            assert_eq!(records(&whole[..len]).count(), 0, "{len} bytes");
        }
        let endless = [0_u8; 64];
        assert_eq!(records(&endless).count(), 0, "a size of 0");
        let mut short = whole.clone();
        short[6..8].copy_from_slice(&16_u16.to_ne_bytes());
        assert_eq!(records(&short[..16]).count(), 0, "a sample without its fields");
    }
}
