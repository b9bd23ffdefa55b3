//! Sizes beyond which a litmus file is refused; far more than a program that a person wrote needs.

/// Bytes of a file.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// Programs in a file.
pub const TESTS_MAX: usize = 10_000;

/// Bytes of a program's name.
pub const NAME_BYTES_MAX: usize = 200;

/// Operations of a program.
pub const OPS_MAX: usize = 1_000;

/// Bytes of one store.
pub const STORE_BYTES_MAX: usize = 4_096;

/// Bytes of all stores of a program; bounds the memory that judging it takes.
pub const STORED_BYTES_MAX: u64 = 64 << 10;

/// Bytes of one locked operation (`cmpxchg16b`).
pub const RMW_BYTES_MAX: usize = 16;

/// Bytes of PM: no operation and no observed range ends beyond this.
pub const PM_BYTES_MAX: u64 = 1 << 20;

/// Observed ranges of a program.
pub const OBSERVE_MAX: usize = 32;

/// Bytes of an observed range.
pub const OBSERVE_BYTES_MAX: u64 = 8;

/// Allowed states of a program.
pub const STATES_MAX: usize = 65_536;

/// Crash images of a program; beyond, it is not enumerated.
pub const IMAGES_MAX: usize = 1 << 18;
