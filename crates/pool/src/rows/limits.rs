//! How long keys and values of rows may be, and how a value is divided in the engine's table.

/// Longest key of a row.
pub const ROW_KEY_BYTES_MAX: usize = 1024;
/// Longest value of a row, in tables from [`TableId::FIRST_LONG`](crate::TableId::FIRST_LONG) on.
pub const ROW_VALUE_BYTES_MAX: usize = 64 << 10;
/// Longest value in the other tables. Key and value together have at most 1279 bytes there.
pub const ROW_SHORT_VALUE_BYTES_MAX: usize = 1023;

/// Longest fragment, if the key is short.
const FRAGMENT_BYTES_MAX: usize = 1024;
/// Longest key and fragment together.
const STORED_BYTES_MAX: usize = 1280;

/// Bytes of every fragment but the last.
pub(crate) fn fragment_bytes(key_bytes: usize) -> usize {
    (STORED_BYTES_MAX - key_bytes).min(FRAGMENT_BYTES_MAX)
}

/// Longest value in one fragment.
pub(super) fn short_value_bytes_max(key_bytes: usize) -> usize {
    fragment_bytes(key_bytes) - 1
}

/// Number of fragments.
pub(super) fn fragments(key_bytes: usize, value_bytes: usize) -> u64 {
    (value_bytes / fragment_bytes(key_bytes)) as u64 + 1
}
