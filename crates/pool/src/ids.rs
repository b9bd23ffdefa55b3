//! Numbers that must not be mixed up, and the one name that the pool gives itself.

use std::fmt;

pub use fastness_base::{DatasetId, ObjectId, Txg};

/// One of the tables of a dataset. Whoever stores rows in a dataset gives the numbers their meaning, except
/// that tables from [`TableId::FIRST_LONG`] on take long values: a change of a row may then have to remove
/// one, and reserves twice the room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u8);

impl TableId {
    /// The first table for values of any length.
    pub const FIRST_LONG: TableId = TableId(128);

    /// Whether values may be long.
    pub fn is_long(self) -> bool {
        self >= TableId::FIRST_LONG
    }
}

/// A random name that no two pools or devices share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub u64);

impl Guid {
    /// A new one, from the operating system's randomness; not 0.
    ///
    /// # Panics
    /// If the operating system has no randomness; no supported one lets that happen.
    pub fn random() -> Guid {
        loop {
            let guid = getrandom::u64().expect("the operating system gives random numbers");
            if guid != 0 {
                return Guid(guid);
            }
        }
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guid({self})")
    }
}

/// The import, or creation, of a pool that wrote something: drawn at random each time. Two histories of a
/// pool, one of them from an older copy, may reach the same txg; they never have the same number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImportId(pub u64);

/// A txg, and the import that wrote it: no two states of a pool have the same mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mark {
    /// The txg.
    pub txg: Txg,
    /// The import that wrote it.
    pub import: ImportId,
}

impl ImportId {
    /// A new one.
    pub(crate) fn random() -> ImportId {
        ImportId(Guid::random().0)
    }
}

/// Unit of allocation.
pub const UNIT_BYTES: u64 = 4096;

/// Place in the pool: a top-level vdev, and a unit of [`UNIT_BYTES`] in its data area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Number of the top-level vdev.
    pub vdev: u16,
    /// Unit from the beginning of the data area.
    pub unit: u64,
}

impl Place {
    /// As one number: vdev in the upper 16 bits.
    pub(crate) fn pack(self) -> u64 {
        debug_assert!(self.unit < 1 << 48, "units of a vdev fit into 48 bits");
        u64::from(self.vdev) << 48 | self.unit
    }

    pub(crate) fn unpack(packed: u64) -> Place {
        Place { vdev: (packed >> 48) as u16, unit: packed & ((1 << 48) - 1) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vdev {} unit {:#x}", self.vdev, self.unit)
    }
}

/// Last part of the name of what is being received for a volume that exists, below that volume. No name that
/// is given begins so.
pub const RECEIVED: &str = "%recv";
