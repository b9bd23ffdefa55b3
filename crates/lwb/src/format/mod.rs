//! The bytes of a log-write block: `docs/format.md`, section "Log-write block".

mod block;
mod record;
mod sector;

pub(crate) use block::{BLOCK_HEADER_BYTES, BlockHeader, Reject, get_ahead, put_ahead};
pub use record::RECORD_BYTES_MAX;
pub(crate) use record::{PIECE_HEADER_BYTES, PieceHeader, padded, pieces};
pub(crate) use sector::{Contents, Tags, capacity, stored_bytes};

pub(crate) fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(bytes, at))
}

pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(bytes, at))
}

pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

#[cfg(test)]
mod tests;
