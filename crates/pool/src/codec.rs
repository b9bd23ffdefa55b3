//! Little-endian fields, one after the other. Input is never trusted: a short or invalid value reads as
//! `None`.

use twox_hash::XxHash3_64;

/// XXH3-64 with seed 0: the checksum of everything in a pool.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// The checksum that a block gets which stands for one that a log has lost: its bytes do not have it. The
/// other way, the checksum that its bytes do have.
pub(crate) fn sum_of_lost(sum: u64) -> u64 {
    !sum
}

#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Writer {
        self.bytes.push(value);
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Writer {
        self.bytes.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Writer {
        self.bytes.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Writer {
        self.bytes.extend(value.to_le_bytes());
        self
    }

    /// Length (16 bits) and bytes; longer text is truncated, because it is for messages only.
    pub(crate) fn text(&mut self, value: &str) -> &mut Writer {
        let mut end = value.len().min(4096);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        self.u16(end as u16);
        self.bytes.extend(&value.as_bytes()[..end]);
        self
    }

    pub(crate) fn option(&mut self, value: Option<u64>) -> &mut Writer {
        self.u8(u8::from(value.is_some())).u64(value.unwrap_or(0))
    }
}

#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(len)?;
        self.rest = tail;
        Some(head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        let len = self.u16()?;
        String::from_utf8(self.take(usize::from(len))?.to_vec()).ok()
    }

    pub(crate) fn option(&mut self) -> Option<Option<u64>> {
        let is_some = self.u8()?;
        let value = self.u64()?;
        match is_some {
            0 => Some(None),
            1 => Some(Some(value)),
            _ => None,
        }
    }

    /// Everything not read yet.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// `Some` if everything was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn end(self) -> Option<()> {
        self.rest.is_empty().then_some(())
    }
}
