//! Numbers and texts as bytes: LEB128, zigzag, lengths that are checked before anything is taken.

use std::io::{self, Read};

/// Reads until the buffer is full or there is nothing left; how much was there.
pub(crate) fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Appends a number, 7 bits a byte, the lowest first.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a difference; small ones are short in both directions.
pub(crate) fn put_difference(out: &mut Vec<u8>, from: u64, to: u64) {
    let difference = to.wrapping_sub(from) as i64;
    put(out, (difference.wrapping_shl(1) ^ (difference >> 63)) as u64);
}

/// Appends a length and the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Bytes that are taken from the front. An error is what was wrong.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        if len > self.0.len() {
            return Err(format!("{len} bytes are wanted, {} are left", self.0.len()));
        }
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn number(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for at in 0..10 {
            let byte = self.byte()?;
            if at == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return if at > 0 && byte == 0 {
                    Err("a number that is longer than it must be".to_owned())
                } else {
                    Ok(value)
                };
            }
        }
        Err("a number of more than 64 bits".to_owned())
    }

    pub(crate) fn small(&mut self, what: &str) -> Result<u32, String> {
        let value = self.number()?;
        u32::try_from(value).map_err(|_| format!("{what} is {value}"))
    }

    pub(crate) fn difference(&mut self, from: u64) -> Result<u64, String> {
        let coded = self.number()?;
        let difference = (coded >> 1) ^ (coded & 1).wrapping_neg();
        Ok(from.wrapping_add(difference))
    }

    /// A length of at most `max`, and that many bytes.
    pub(crate) fn bytes(&mut self, max: usize, what: &str) -> Result<&'a [u8], String> {
        let len = self.number()?;
        if len > max as u64 {
            return Err(format!("{what} of {len} bytes, the longest is {max}"));
        }
        self.take(len as usize)
    }

    pub(crate) fn text(&mut self, max: usize, what: &str) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes(max, what)?).map_err(|_| format!("{what} is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_there_and_back_and_have_one_form() {
        let edges = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for value in edges.chain([u64::MAX]) {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(Input(&out).number(), Ok(value));
            for from in [0, value, u64::MAX] {
                let mut out = Vec::new();
                put_difference(&mut out, from, value);
                assert_eq!(Input(&out).difference(from), Ok(value));
            }
            assert!(Input(&out[..out.len() - 1]).number().is_err());
        }
        assert!(Input(&[0x80, 0]).number().is_err(), "0 in two bytes");
        assert!(Input(&[0xff; 10]).number().is_err());
        assert!(Input(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number().is_err());
    }

    #[test]
    fn a_length_is_checked_before_it_is_believed() {
        let mut out = Vec::new();
        put(&mut out, u64::MAX);
        assert!(Input(&out).bytes(10, "data").is_err());
        assert!(Input(&[5, 1, 2]).bytes(10, "data").is_err());
        assert_eq!(Input(&[2, 1, 2]).bytes(2, "data"), Ok(&[1, 2][..]));
        assert!(Input(&[1, 0xff]).text(10, "a name").is_err());
    }
}
