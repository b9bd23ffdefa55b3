//! The write record on the hot path: its head and fields without the data.

use super::head::{HEAD_BYTES, Head, RECORD_BYTES_MAX, RecordType};
use super::types::Time;

/// Bytes of an inline write record before its data: one cache line.
pub const WRITE_HEAD_BYTES: usize = 64;

/// Head and fields of a write of `len_bytes` bytes, a multiple of 8: followed by the data, this is the
/// record. With a time it is a [`TimedWrite`](super::TimedWrite).
///
/// # Panics
/// Caller bug only: the length is not a multiple of 8, or is too large.
#[inline]
pub fn encode_write_head(
    head: Head,
    offset: u64,
    len_bytes: usize,
    time: Option<Time>,
) -> [u8; WRITE_HEAD_BYTES] {
    let len = WRITE_HEAD_BYTES + len_bytes;
    assert!(len.is_multiple_of(8) && len <= RECORD_BYTES_MAX, "a record of {len} bytes does not exist");
    let mut front = [0; WRITE_HEAD_BYTES];
    fill_head(&mut front, head, offset, (len_bytes, len), time);
    front
}

#[inline]
fn fill_head(
    front: &mut [u8],
    head: Head,
    offset: u64,
    (data_len, record_len): (usize, usize),
    time: Option<Time>,
) {
    let record_type = if time.is_some() { RecordType::TimedWrite } else { RecordType::Write };
    front[..HEAD_BYTES].copy_from_slice(&head.to_bytes(record_type, record_len as u32));
    front[32..40].copy_from_slice(&offset.to_le_bytes());
    front[40..48].copy_from_slice(&(data_len as u64).to_le_bytes());
    front[48..WRITE_HEAD_BYTES].fill(0);
    if let Some(time) = time {
        front[48..56].copy_from_slice(&time.seconds.to_le_bytes());
        front[56..60].copy_from_slice(&time.nanoseconds.to_le_bytes());
    }
}

/// Encodes a write of `data` into the front of `buffer`, as [`Record::encode`](super::Record::encode) does;
/// returns the length. Writes each byte once, and allocates nothing.
///
/// # Panics
/// Caller bug only: the buffer is shorter than head, data and padding to 8 bytes, or data is too long.
#[inline]
pub fn encode_write(head: Head, offset: u64, data: &[u8], time: Option<Time>, buffer: &mut [u8]) -> usize {
    let end = WRITE_HEAD_BYTES + data.len();
    assert!(end <= buffer.len(), "a record with {} bytes of data does not fit", data.len());
    buffer[WRITE_HEAD_BYTES..end].copy_from_slice(data);
    encode_around(head, offset, data.len(), time, buffer)
}

/// The same, for `len_bytes` of data already in place in the buffer, from [`WRITE_HEAD_BYTES`] on.
///
/// # Panics
/// As there.
#[inline]
pub fn encode_write_around(head: Head, offset: u64, len_bytes: usize, buffer: &mut [u8]) -> usize {
    encode_around(head, offset, len_bytes, None, buffer)
}

#[inline]
fn encode_around(head: Head, offset: u64, len_bytes: usize, time: Option<Time>, buffer: &mut [u8]) -> usize {
    let end = WRITE_HEAD_BYTES + len_bytes;
    let len = end.next_multiple_of(8);
    assert!(len <= RECORD_BYTES_MAX && len <= buffer.len(), "a record of {len} bytes does not fit");
    fill_head(buffer, head, offset, (len_bytes, len), time);
    buffer[end..len].fill(0);
    len
}
