//! Records in blocks. A record is one or more pieces: a block takes as much as fits, the next blocks the
//! rest.

use crate::format::{BLOCK_HEADER_BYTES, BlockHeader, Contents, Reject, get_u32, get_u64, put};
use crate::ids::{Lsn, Txg};

/// Longest record, in bytes.
pub const RECORD_BYTES_MAX: usize = 64 << 20;
/// Bytes of the header before the data of a piece.
pub(crate) const PIECE_HEADER_BYTES: usize = 32;

/// The header of a piece of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PieceHeader {
    pub(crate) lsn: Lsn,
    pub(crate) txg: Txg,
    /// Length of the record.
    pub(crate) record_bytes: u32,
    /// Offset of the piece in the record.
    pub(crate) from: u32,
    /// Length of the piece.
    pub(crate) len_bytes: u32,
}

/// Bytes that a piece takes, with padding.
pub(crate) fn padded(len_bytes: usize) -> usize {
    PIECE_HEADER_BYTES + len_bytes.next_multiple_of(8)
}

impl PieceHeader {
    pub(crate) fn is_last(&self) -> bool {
        self.from + self.len_bytes == self.record_bytes
    }

    /// Appends header, data and padding to the block.
    pub(crate) fn put(&self, data: &[u8], contents: &mut Contents<'_>) {
        let mut out = [0; PIECE_HEADER_BYTES];
        put(&mut out, 0, self.len_bytes.to_le_bytes());
        put(&mut out, 4, self.record_bytes.to_le_bytes());
        put(&mut out, 8, self.lsn.0.to_le_bytes());
        put(&mut out, 16, self.txg.0.to_le_bytes());
        put(&mut out, 24, self.from.to_le_bytes());
        contents.put(&out);
        contents.put(data);
        contents.put(&[0; 8][..padded(data.len()) - PIECE_HEADER_BYTES - data.len()]);
    }
}

/// The pieces in the contents of a block, each checked against the block; the first invalid one ends the
/// iteration.
pub(crate) fn pieces<'a>(
    contents: &'a [u8],
    header: &BlockHeader,
) -> impl Iterator<Item = Result<(PieceHeader, &'a [u8]), Reject>> {
    let (used, newest_txg) = (header.used_bytes as usize, header.newest_txg);
    let mut at = BLOCK_HEADER_BYTES;
    std::iter::from_fn(move || {
        if at >= used {
            return None;
        }
        let piece = piece(&contents[at..used], newest_txg);
        let offset = at as u32;
        at = piece.as_ref().map_or(used, |(piece, _)| at + padded(piece.len_bytes as usize));
        Some(piece.ok_or(Reject::Malformed { offset }))
    })
}

fn piece(rest: &[u8], newest_txg: Txg) -> Option<(PieceHeader, &[u8])> {
    if rest.len() < PIECE_HEADER_BYTES {
        return None;
    }
    let header = PieceHeader {
        len_bytes: get_u32(rest, 0),
        record_bytes: get_u32(rest, 4),
        lsn: Lsn(get_u64(rest, 8)),
        txg: Txg(get_u64(rest, 16)),
        from: get_u32(rest, 24),
    };
    let (len, from) = (header.len_bytes as usize, header.from as usize);
    let is_known = header.lsn.0 > 0 && header.txg <= newest_txg && rest[28..32] == [0; 4];
    let is_inside = len <= RECORD_BYTES_MAX && from <= RECORD_BYTES_MAX;
    let record = header.record_bytes as usize;
    // Only an empty record has an empty piece.
    let is_part = record <= RECORD_BYTES_MAX && (len > 0 || record == 0);
    if !is_known || !is_inside || !is_part || from + len > record || padded(len) > rest.len() {
        return None;
    }
    let (data, padding) = rest[PIECE_HEADER_BYTES..padded(len)].split_at(len);
    padding.iter().all(|byte| *byte == 0).then_some((header, data))
}
