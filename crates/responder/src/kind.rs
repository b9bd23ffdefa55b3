//! The protocols by their numbers.

use crate::operation::OPERATION_LOGS;

/// How a write becomes consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum ProtocolKind {
    /// First Responder: pairs of chunks with tags.
    Fr = 1,
    /// MeLo@V: operations are logged with their data, then made in place.
    Melo = 2,
    /// Log: syncs are absorbed by a log; writes stay in the page cache of the backing store.
    Log = 3,
    /// PMAL: writes are made in place under a journal, then given to the backing store at once.
    Pmal = 4,
    /// PMAL-O: as PMAL, but times reach the backing store with a flush alone.
    PmalOrdered = 5,
}

impl ProtocolKind {
    /// That of a number.
    pub(crate) fn of(number: u8) -> Option<ProtocolKind> {
        use ProtocolKind::{Fr, Log, Melo, Pmal, PmalOrdered};
        [Fr, Melo, Log, Pmal, PmalOrdered].into_iter().find(|&kind| kind as u8 == number)
    }
}

/// Operation logs, or journals, of a region with that protocol.
pub(crate) fn operation_logs(protocol: ProtocolKind) -> usize {
    match protocol {
        ProtocolKind::Fr | ProtocolKind::Log => 0,
        ProtocolKind::Melo | ProtocolKind::Pmal | ProtocolKind::PmalOrdered => OPERATION_LOGS,
    }
}
