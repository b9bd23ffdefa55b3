//! The write record on the hot path: its head and fields without the data.

use super::head::{HEAD_BYTES, Head, RECORD_BYTES_MAX, RecordType};

/// Bytes of an inline write record before its data: one cache line.
pub const WRITE_HEAD_BYTES: usize = 64;

/// Head and fields of a write of `len_bytes` bytes, a multiple of 8: followed by the data, this is the
/// record.
///
/// # Panics
/// Caller bug only: the length is not a multiple of 8, or is too large.
#[inline]
pub fn encode_write_head(head: Head, offset: u64, len_bytes: usize) -> [u8; WRITE_HEAD_BYTES] {
    let len = WRITE_HEAD_BYTES + len_bytes;
    assert!(len.is_multiple_of(8) && len <= RECORD_BYTES_MAX, "a record of {len} bytes does not exist");
    let mut front = [0; WRITE_HEAD_BYTES];
    fill_head(&mut front, head, offset, len_bytes, len);
    front
}

#[inline]
fn fill_head(front: &mut [u8], head: Head, offset: u64, data_len: usize, record_len: usize) {
    front[..HEAD_BYTES].copy_from_slice(&head.to_bytes(RecordType::Write, record_len as u32));
    front[32..40].copy_from_slice(&offset.to_le_bytes());
    front[40..48].copy_from_slice(&(data_len as u64).to_le_bytes());
    front[48..WRITE_HEAD_BYTES].fill(0);
}

/// Encodes a write of `data` into the front of `buffer`, as [`Record::encode`](super::Record::encode) does;
/// returns the length. Writes each byte once, and allocates nothing.
///
/// # Panics
/// Caller bug only: the buffer is shorter than head, data and padding to 8 bytes, or data is too long.
#[inline]
pub fn encode_write(head: Head, offset: u64, data: &[u8], buffer: &mut [u8]) -> usize {
    let end = WRITE_HEAD_BYTES + data.len();
    assert!(end <= buffer.len(), "a record with {} bytes of data does not fit", data.len());
    buffer[WRITE_HEAD_BYTES..end].copy_from_slice(data);
    encode_write_around(head, offset, data.len(), buffer)
}

/// The same, for `len_bytes` of data already in place in the buffer, from [`WRITE_HEAD_BYTES`] on.
///
/// # Panics
/// As there.
#[inline]
pub fn encode_write_around(head: Head, offset: u64, len_bytes: usize, buffer: &mut [u8]) -> usize {
    let end = WRITE_HEAD_BYTES + len_bytes;
    let len = end.next_multiple_of(8);
    assert!(len <= RECORD_BYTES_MAX && len <= buffer.len(), "a record of {len} bytes does not fit");
    fill_head(buffer, head, offset, len_bytes, len);
    buffer[end..len].fill(0);
    len
}
