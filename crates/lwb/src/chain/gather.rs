//! Reassembles records from pieces: a record counts once its last piece is found.

use crate::format::{PieceHeader, Reject};
use crate::ids::{Lsn, Place, Txg};

/// A record being reassembled.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// The pieces so far of the incomplete record.
    bytes: Vec<u8>,
    open: Option<Open>,
    /// The previous record.
    last: Lsn,
    /// The chain may begin with the rest of a record whose first blocks were released.
    is_past_start: bool,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    lsn: Lsn,
    txg: Txg,
    record_bytes: u32,
    place: Place,
}

/// A whole record; its bytes are in the gatherer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whole {
    pub(super) lsn: Lsn,
    pub(super) txg: Txg,
    /// Block with its first piece.
    pub(super) place: Place,
}

/// A record to replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number.
    pub lsn: Lsn,
    /// Transaction group of the change.
    pub txg: Txg,
    /// The block that it begins in.
    pub place: Place,
    /// What was appended.
    pub bytes: &'a [u8],
}

impl Gather {
    /// Bytes of the last whole record.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The last whole record; 0 if there was none.
    pub(super) fn last(&self) -> Lsn {
        self.last
    }

    /// Takes the next piece of the chain; returns the record that it completes.
    pub(super) fn push(
        &mut self,
        piece: &PieceHeader,
        data: &[u8],
        place: Place,
    ) -> Result<Option<Whole>, Reject> {
        // Pieces and records follow each other without a gap, so the position needs no check.
        let malformed = Err(Reject::Malformed { offset: 0 });
        if piece.from == 0 {
            if self.open.is_some() || piece.lsn <= self.last {
                return malformed;
            }
            let PieceHeader { lsn, txg, record_bytes, .. } = *piece;
            self.open = Some(Open { lsn, txg, record_bytes, place });
            self.is_past_start = true;
            self.bytes.clear();
        }
        let Some(open) = self.open else {
            // The rest of a record of a synced txg; no log has one anywhere else.
            return if self.is_past_start { malformed } else { Ok(None) };
        };
        let goes_on = (piece.lsn, piece.txg, piece.record_bytes) == (open.lsn, open.txg, open.record_bytes)
            && piece.from as usize == self.bytes.len();
        if !goes_on {
            return malformed;
        }
        self.bytes.extend_from_slice(data);
        if !piece.is_last() {
            return Ok(None);
        }
        self.open = None;
        self.last = open.lsn;
        Ok(Some(Whole { lsn: open.lsn, txg: open.txg, place: open.place }))
    }
}
