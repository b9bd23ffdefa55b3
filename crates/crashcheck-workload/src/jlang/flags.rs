//! Sets of named flags, as J-lang writes them: `O_RDWR|O_CREAT`.

use std::fmt;

/// Names that stand for bits; a set of them prints in the order of its table.
fn write_set(f: &mut fmt::Formatter<'_>, bits: u32, names: &[(&str, u32)]) -> fmt::Result {
    let mut first = true;
    for (name, _) in names.iter().filter(|(_, bit)| bits & bit != 0) {
        write!(f, "{}{name}", if first { "" } else { "|" })?;
        first = false;
    }
    if first { f.write_str("0") } else { Ok(()) }
}

/// `0`, or names with `|` between them.
fn parse_set(text: &str, names: &[(&str, u32)]) -> Option<u32> {
    if text == "0" {
        return Some(0);
    }
    text.split('|').try_fold(0, |bits, part| {
        let (_, bit) = names.iter().find(|(name, _)| *name == part)?;
        Some(bits | bit)
    })
}

macro_rules! set {
    ($(#[$doc:meta])* $set:ident { $($(#[$flag_doc:meta])* $flag:ident = $name:literal, $bit:expr;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $set(u32);

        impl $set {
            $($(#[$flag_doc])* pub const $flag: $set = $set($bit);)*
            const NAMES: &[(&str, u32)] = &[$(($name, $bit)),*];

            /// No flag.
            pub const fn empty() -> Self {
                Self(0)
            }

            /// Both sets together.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Are all flags of `other` in it?
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// The set with these numbers; what has no name is dropped.
            pub fn from_bits_truncate(bits: u32) -> Self {
                Self(Self::NAMES.iter().fold(0, |all, (_, bit)| all | (bits & bit)))
            }

            /// `None` for a name that is not in the table.
            pub(super) fn parse(text: &str) -> Option<Self> {
                parse_set(text, Self::NAMES).map(Self)
            }
        }

        impl fmt::Display for $set {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_set(f, self.0, Self::NAMES)
            }
        }
    };
}

set! {
    /// Flags of `open`. The numbers are this crate's own. `O_RDONLY` is the empty set, printed as `0`.
    OpenFlags {
        /// Write only.
        WRONLY = "O_WRONLY", 1;
        /// Read and write.
        RDWR = "O_RDWR", 2;
        /// Make it if it is not there.
        CREAT = "O_CREAT", 4;
        /// With `O_CREAT`: it must not be there.
        EXCL = "O_EXCL", 8;
        /// Make it empty.
        TRUNC = "O_TRUNC", 16;
        /// Write at the end.
        APPEND = "O_APPEND", 32;
        /// Past the page cache.
        DIRECT = "O_DIRECT", 64;
        /// Data and metadata are durable when a write returns.
        SYNC = "O_SYNC", 128;
        /// Data is durable when a write returns.
        DSYNC = "O_DSYNC", 256;
    }
}

set! {
    /// Flags of `fallocate`; the numbers are Linux's.
    FallocFlags {
        /// The file's size does not change.
        KEEP_SIZE = "FALLOC_FL_KEEP_SIZE", 1;
        /// Give the range back.
        PUNCH_HOLE = "FALLOC_FL_PUNCH_HOLE", 2;
        /// Cut the range out.
        COLLAPSE_RANGE = "FALLOC_FL_COLLAPSE_RANGE", 8;
        /// The range reads as zeroes.
        ZERO_RANGE = "FALLOC_FL_ZERO_RANGE", 16;
        /// Make room in the middle.
        INSERT_RANGE = "FALLOC_FL_INSERT_RANGE", 32;
        /// No shared extents.
        UNSHARE_RANGE = "FALLOC_FL_UNSHARE_RANGE", 64;
    }
}

impl FallocFlags {
    /// Linux's number.
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// Type and permissions of `mknod`, with Linux's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeMode(u32);

impl NodeMode {
    // S_IFBLK has the bits of S_IFCHR, so no table of single bits.
    const TYPES: &[(&str, u32)] = &[
        ("S_IFIFO", 0o010_000),
        ("S_IFCHR", 0o020_000),
        ("S_IFBLK", 0o060_000),
        ("S_IFREG", 0o100_000),
        ("S_IFSOCK", 0o140_000),
    ];

    /// `None` for other bits than permissions and the type of a node.
    pub fn new(bits: u32) -> Option<Self> {
        let kind = bits & !0o7777;
        (kind == 0 || Self::TYPES.iter().any(|(_, bits)| *bits == kind)).then_some(Self(bits))
    }

    /// Linux's number.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Names and octal numbers with `|` between them. `TEST_FILE_PERMS` is what the published generators
    /// write.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let bits = text.split('|').try_fold(0, |bits, part| {
            let found = match Self::TYPES.iter().find(|(name, _)| *name == part) {
                Some((_, bits)) => *bits,
                None if part == "TEST_FILE_PERMS" => 0o777,
                None => u32::from_str_radix(part, 8).ok().filter(|bits| *bits <= 0o7777)?,
            };
            Some(bits | found)
        })?;
        Self::new(bits)
    }
}

impl fmt::Display for NodeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = Self::TYPES.iter().find(|(_, bits)| *bits == self.0 & !0o7777) {
            write!(f, "{name}|")?;
        }
        write!(f, "{:04o}", self.0 & 0o7777)
    }
}
