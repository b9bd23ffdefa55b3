//! What a trace says that happened.

/// Longest data of one event on memory: a page, and what a string instruction may do at once.
pub const MEMORY_BYTES_MAX: usize = 64 << 10;
/// Longest data of one event on a disk.
pub const BLOCK_BYTES_MAX: usize = 4 << 20;
/// Most frames of a stack.
pub const STACK_MAX: usize = 64;
/// Longest name or text, in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;

/// Instruction that writes cache lines back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlushKind {
    /// Weakly ordered, keeps the line.
    Clwb,
    /// Weakly ordered, drops the line.
    Clflushopt,
    /// Ordered with later cached stores.
    Clflush,
    /// All lines; its address says nothing.
    Wbinvd,
}

impl FlushKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [FlushKind; 4] =
        [FlushKind::Clwb, FlushKind::Clflushopt, FlushKind::Clflush, FlushKind::Wbinvd];

    /// The instruction as assemblers name it.
    pub fn mnemonic(self) -> &'static str {
        match self {
            FlushKind::Clwb => "clwb",
            FlushKind::Clflushopt => "clflushopt",
            FlushKind::Clflush => "clflush",
            FlushKind::Wbinvd => "wbinvd",
        }
    }
}

/// Instruction that waits for write-backs and non-temporal stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FenceKind {
    /// `sfence`.
    Sfence,
    /// `mfence`.
    Mfence,
    /// `lfence`: orders loads only.
    Lfence,
    /// A LOCKed operation, or `xchg`, on memory that is no PM. One on PM is a [`Kind::Rmw`].
    Locked,
}

impl FenceKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [FenceKind; 4] =
        [FenceKind::Sfence, FenceKind::Mfence, FenceKind::Lfence, FenceKind::Locked];

    /// The instruction as assemblers name it; `lock` for all LOCKed operations.
    pub fn mnemonic(self) -> &'static str {
        match self {
            FenceKind::Sfence => "sfence",
            FenceKind::Mfence => "mfence",
            FenceKind::Lfence => "lfence",
            FenceKind::Locked => "lock",
        }
    }
}

/// A message from the program under test to its tracer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hypercall<'a> {
    /// The test begins: what comes before is preparation.
    Start,
    /// It has ended well.
    Success,
    /// It has failed.
    Fail,
    /// One operation has ended and another begins.
    Checkpoint(u64),
    /// Another one.
    Other {
        /// What is asked for.
        action: &'a str,
        /// With what.
        value: &'a str,
    },
}

/// What happened on a disk. `command` tells commands apart that are in flight together; it is used again
/// after the completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockEvent<'a> {
    /// A write was handed to the disk; it is durable after a flush, or with `is_fua` after its completion.
    Write {
        /// First byte on the disk.
        offset: u64,
        /// What is written.
        data: &'a [u8],
        /// Force unit access.
        is_fua: bool,
    },
    /// A range is to become zeroes; otherwise as a write.
    WriteZeroes {
        /// First byte on the disk.
        offset: u64,
        /// Number of bytes.
        len_bytes: u64,
        /// Force unit access.
        is_fua: bool,
    },
    /// The contents of a range are not needed any more.
    Discard {
        /// First byte on the disk.
        offset: u64,
        /// Number of bytes.
        len_bytes: u64,
    },
    /// Everything that had been completed is to become durable.
    Flush,
    /// The program has seen that a command ended.
    Completion {
        /// Whether it ended well.
        is_ok: bool,
    },
}

/// What happened. Addresses are those of the header's regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind<'a> {
    /// What PM held before the first event on it; bytes that no such event names are zero.
    Initial {
        /// First byte.
        address: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// What a disk held, durably, before the first command to it; bytes that no such event names are zero.
    DiskInitial {
        /// Index into the header's devices.
        device: u32,
        /// First byte on the disk.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// A store to PM.
    Store {
        /// First byte.
        address: u64,
        /// What was stored.
        data: &'a [u8],
        /// Past the caches.
        is_non_temporal: bool,
        /// `movdir64b`: 64 bytes that never tear.
        is_atomic64: bool,
    },
    /// A LOCKed operation, or `xchg`, on PM.
    Rmw {
        /// First byte.
        address: u64,
        /// What it left there.
        data: &'a [u8],
    },
    /// A flush of the line of an address.
    Flush {
        /// The instruction.
        kind: FlushKind,
        /// Any byte of the line.
        address: u64,
    },
    /// A fence.
    Fence(FenceKind),
    /// A load from PM.
    Read {
        /// First byte.
        address: u64,
        /// What was there.
        data: &'a [u8],
    },
    /// Something on a disk.
    Block {
        /// Index into the header's devices.
        device: u32,
        /// Which command.
        command: u32,
        /// What.
        event: BlockEvent<'a>,
    },
    /// A message.
    Hypercall(Hypercall<'a>),
}

/// Which thread did it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Origin<'a> {
    /// Number of the thread, or of the virtual CPU.
    pub thread: u32,
    /// Address of the instruction.
    pub pc: Option<u64>,
    /// Whether it ran in the kernel.
    pub is_kernel: bool,
    /// Return addresses, innermost first; up to [`STACK_MAX`].
    pub stack: Option<&'a [u64]>,
}

/// One event of a trace, in the order in which they happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event<'a> {
    /// What.
    pub kind: Kind<'a>,
    /// Who.
    pub origin: Origin<'a>,
}

impl<'a> Event<'a> {
    /// An event of which nothing is known but what happened.
    pub fn of(kind: Kind<'a>) -> Event<'a> {
        Event { kind, origin: Origin::default() }
    }
}
