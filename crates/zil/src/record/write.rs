//! The write record on the hot path: its head and fields without the data.

use super::head::{HEAD_BYTES, Head, RECORD_BYTES_MAX, RecordType};

/// Bytes of an inline write record before its data: one cache line.
pub const WRITE_HEAD_BYTES: usize = 64;

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

/// The same, of `len_bytes` of data that are in their place in the buffer, from [`WRITE_HEAD_BYTES`] on.
///
/// # Panics
/// As there.
#[inline]
pub fn encode_write_around(head: Head, offset: u64, len_bytes: usize, buffer: &mut [u8]) -> usize {
    let end = WRITE_HEAD_BYTES + len_bytes;
    let len = end.next_multiple_of(8);
    assert!(len <= RECORD_BYTES_MAX && len <= buffer.len(), "a record of {len} bytes does not fit");
    buffer[..HEAD_BYTES].copy_from_slice(&head.to_bytes(RecordType::Write, len as u32));
    buffer[32..40].copy_from_slice(&offset.to_le_bytes());
    buffer[40..48].copy_from_slice(&(len_bytes as u64).to_le_bytes());
    buffer[48..WRITE_HEAD_BYTES].fill(0);
    buffer[end..len].fill(0);
    len
}
