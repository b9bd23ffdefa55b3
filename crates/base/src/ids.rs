//! Numbers that must not be mixed up.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

number!(
    /// A transaction group of a pool, or of whatever else owns a log. Numbers count up by one; 0 is none.
    Txg,
    "txg "
);
number!(
    /// A dataset, for the life of its pool; renaming keeps the number, and none is reused.
    DatasetId,
    "dataset #"
);
number!(
    /// An object in its dataset; no number is reused. 0 is none, or in a commit all.
    ObjectId,
    "object #"
);

impl Txg {
    /// The next one.
    #[must_use]
    pub fn next(self) -> Txg {
        Txg(self.0 + 1)
    }
}

impl ObjectId {
    /// No object; a commit of it is a commit of all objects.
    pub const NONE: ObjectId = ObjectId(0);
}

/// Identifies a log: random, 128 bits, neither half zero. Every entry and every block of the log carries it,
/// and nothing else does.
///
/// Source: zil-pmem thesis, 5.3 and 5.10 (a half of zero makes an entry header invalid).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogGuid([u8; 16]);

impl LogGuid {
    /// A GUID from its 16 bytes as stored on the medium; `None` if either half is zero.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<LogGuid> {
        let (low, high) = bytes.split_at(8);
        let zero = |half: &[u8]| half.iter().all(|&byte| byte == 0);
        (!zero(low) && !zero(high)).then_some(LogGuid(bytes))
    }

    /// The bytes as stored on the medium.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for LogGuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LogGuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogGuid({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_whose_number_has_an_empty_half_is_none() {
        let mut bytes = [0; 16];
        assert_eq!(LogGuid::from_bytes(bytes), None);
        bytes[15] = 1;
        assert_eq!(LogGuid::from_bytes(bytes), None, "only the upper half");
        bytes[0] = 1;
        let guid = LogGuid::from_bytes(bytes).unwrap();
        assert_eq!(guid.to_bytes(), bytes);
        assert_eq!(guid.to_string(), "01000000000000000000000000000001");
        bytes[15] = 0;
        assert_eq!(LogGuid::from_bytes(bytes), None, "only the lower half");
    }
}
