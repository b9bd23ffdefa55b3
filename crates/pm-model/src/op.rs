//! Operations of a program, as far as PM can notice them.

/// Instruction that writes a cache line back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlushKind {
    /// `clwb`: weakly ordered, keeps the line in the cache (R4).
    Clwb,
    /// `clflushopt`: weakly ordered, drops the line from the cache (R4).
    Clflushopt,
    /// `clflush`: ordered with later cached stores (R5).
    Clflush,
}

/// Fence instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FenceKind {
    /// `sfence`.
    Sfence,
    /// `mfence`: the same as `sfence` here.
    Mfence,
    /// `lfence`: orders loads, and therefore nothing here (R7).
    Lfence,
}

/// One operation of a program. Addresses are byte offsets from the start of PM.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// A store; its pieces are not ordered with each other (R1), whatever its length.
    Store {
        /// First byte written.
        addr: u64,
        /// Bytes written.
        data: Vec<u8>,
        /// Non-temporal: goes through a write-combining buffer (R6).
        nt: bool,
        /// `movdir64b`: 64 bytes at a 64-byte boundary that never tear.
        atomic64: bool,
    },
    /// A LOCKed operation, or `xchg` with memory, that leaves `data` at `addr` (R10).
    Rmw {
        /// First byte written.
        addr: u64,
        /// Bytes left by the operation.
        data: Vec<u8>,
    },
    /// Writes back the line that contains `addr`.
    Flush {
        /// Instruction used.
        kind: FlushKind,
        /// Any byte of the line.
        addr: u64,
    },
    /// A fence.
    Fence(FenceKind),
    /// Annotation without effect on memory: the program has promised something (an acknowledgement).
    Mark(u64),
}

impl Op {
    /// Cached store of `data` at `addr`.
    pub fn store(addr: u64, data: impl Into<Vec<u8>>) -> Self {
        Self::Store { addr, data: data.into(), nt: false, atomic64: false }
    }

    /// Non-temporal store of `data` at `addr`.
    pub fn nt_store(addr: u64, data: impl Into<Vec<u8>>) -> Self {
        Self::Store { addr, data: data.into(), nt: true, atomic64: false }
    }

    /// `movdir64b` of a whole line.
    pub fn movdir64b(addr: u64, data: [u8; 64]) -> Self {
        Self::Store { addr, data: data.to_vec(), nt: true, atomic64: true }
    }

    /// LOCKed operation that leaves `data` at `addr`.
    pub fn rmw(addr: u64, data: impl Into<Vec<u8>>) -> Self {
        Self::Rmw { addr, data: data.into() }
    }

    /// `clwb` of the line of `addr`.
    pub fn clwb(addr: u64) -> Self {
        Self::Flush { kind: FlushKind::Clwb, addr }
    }

    /// `clflush` of the line of `addr`.
    pub fn clflush(addr: u64) -> Self {
        Self::Flush { kind: FlushKind::Clflush, addr }
    }

    /// `sfence`.
    pub fn sfence() -> Self {
        Self::Fence(FenceKind::Sfence)
    }

    /// Whether the operation completes earlier flushes and non-temporal stores (R7).
    pub fn is_fence(&self) -> bool {
        matches!(self, Self::Fence(FenceKind::Sfence | FenceKind::Mfence) | Self::Rmw { .. })
    }
}
