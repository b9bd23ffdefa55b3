//! Generated records: each contains its number, its length, and bytes computed from these.

use std::io::Write;

const PREFIX: &[u8] = b"fastness record ";
/// Shortest generated record: the head, and 16 bytes computed from the number.
pub(crate) const LEN_MIN: usize = 64;

/// Fills `record` with the generated record of this number and of the buffer's length.
pub(crate) fn fill(number: u64, record: &mut [u8]) {
    let len = record.len();
    let mut head = record;
    writeln!(&mut head, "fastness record {number:020} {len:010}").expect("the record has room for its head");
    let mut state = number ^ 0x9e37_79b9_7f4a_7c15;
    for (index, byte) in head.iter_mut().enumerate() {
        if index.is_multiple_of(8) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        }
        // Printable, so that a dump can be read.
        *byte = b' ' + ((state >> (index % 8 * 7)) % 95) as u8;
    }
}

/// What a record contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// The generated record of this number, intact.
    Generated(u64),
    /// It begins like a generated record, but the rest is wrong.
    Broken,
    /// Something else, such as a line of text.
    Other,
}

/// Examines a record; `scratch` is a buffer to reuse.
pub(crate) fn check(record: &[u8], scratch: &mut Vec<u8>) -> Content {
    let Some(rest) = record.strip_prefix(PREFIX) else { return Content::Other };
    let digits = rest.get(..20).and_then(|digits| std::str::from_utf8(digits).ok());
    let Some(number) = digits.and_then(|digits| digits.parse().ok()) else { return Content::Broken };
    if record.len() < LEN_MIN {
        return Content::Broken;
    }
    scratch.resize(record.len(), 0);
    fill(number, scratch);
    if scratch == record { Content::Generated(number) } else { Content::Broken }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_records_are_recognised_and_every_flipped_bit_is_seen() {
        let mut scratch = Vec::new();
        for len in [LEN_MIN, 65, 300] {
            let mut record = vec![0; len];
            fill(u64::MAX - 3, &mut record);
            assert_eq!(check(&record, &mut scratch), Content::Generated(u64::MAX - 3));
            for bit in 0..len * 8 {
                record[bit / 8] ^= 1 << (bit % 8);
                assert!(!matches!(check(&record, &mut scratch), Content::Generated(_)), "bit {bit}");
                record[bit / 8] ^= 1 << (bit % 8);
            }
            assert_eq!(check(&record[..len - 1], &mut scratch), Content::Broken);
        }
        assert_eq!(check(b"a line of text", &mut scratch), Content::Other);
    }
}
