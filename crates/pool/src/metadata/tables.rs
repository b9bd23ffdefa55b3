//! The tables, and those of their rows that are not described elsewhere.

use redb::TableDefinition;

use crate::codec::{Reader, Writer};
use crate::error::{PoolError, Result};
use crate::namespace::props::{Property, Values};

pub(crate) type ExtentKey = (u64, u64, u64);
/// Branch, object, group, txg.
pub(crate) type PastKey = (u64, u64, u64, u64);
/// Branch, object, txg.
pub(crate) type PastObjectKey = (u64, u64, u64);
/// Branch, table, key, txg, number of the fragment.
pub(crate) type PastRowKey = (u64, u8, &'static [u8], u64, u16);
/// Dataset, table, key, number of the fragment.
pub(crate) type RowKey = (u64, u8, &'static [u8], u16);
type Table<K, V> = TableDefinition<'static, K, V>;

/// Dataset → parent, kind, name, properties.
pub(crate) const DATASETS: Table<u64, &[u8]> = Table::new("datasets");
/// Dataset → next object, used bytes.
pub(crate) const USAGE: Table<u64, (u64, u64)> = Table::new("usage");
/// Dataset, object → size, block bytes.
pub(crate) const OBJECTS: Table<(u64, u64), (u64, u32)> = Table::new("objects");
/// Dataset, object, group → extents.
pub(crate) const EXTENTS: Table<ExtentKey, &[u8]> = Table::new("extents");
/// Place of the first piece → pieces of a block for which there was no long enough run.
pub(crate) const PIECES: Table<u64, &[u8]> = Table::new("pieces");
/// Vdev, region → bitmap of units that hold data.
pub(crate) const SPACE: Table<(u16, u32), &[u8]> = Table::new("space");
/// Dataset, key → aux data of an owner.
pub(crate) const AUX: Table<(u64, &[u8]), &[u8]> = Table::new("aux");
/// Dataset, table, key, number of the fragment → fragment of the value (`rows`).
pub(crate) const ROWS: Table<RowKey, &[u8]> = Table::new("rows");
/// Dataset, object, first block → end, txg: cleared blocks, whose extents from before that txg are not freed
/// yet.
pub(crate) const CLEARED: Table<ExtentKey, (u64, u64)> = Table::new("cleared");
/// Dataset, first and last object: destroyed, space not yet free.
pub(crate) const DOOMED: Table<(u64, u64, u64), ()> = Table::new("doomed");
/// Single numbers.
pub(crate) const NUMBERS: Table<&str, u64> = Table::new("numbers");
/// Dataset, object, block → place and birth of its extent: damage that a scrub found (`damage`). Exists only
/// once there was any.
pub(crate) const DAMAGED: Table<ExtentKey, (u64, u64)> = Table::new("damaged");
/// Place → number of blocks that are stored there, 2 or more (`references`). Exists only once there was any.
pub(crate) const REFERENCES: Table<u64, u64> = Table::new("references");
/// Snapshot or clone → branch, txg, snapshot (`branches`). This and the next four exist only once there was a
/// snapshot.
pub(crate) const BASES: Table<u64, (u64, u64, u64)> = Table::new("bases");
/// Snapshot, object, first block → end, txg: what was cleared, but not yet freed, when it was made.
pub(crate) const HOLES: Table<ExtentKey, (u64, u64)> = Table::new("holes");
/// Branch → object and group: where pruning goes on.
pub(crate) const PRUNING: Table<u64, (u64, u64)> = Table::new("pruning");
/// Branch, object, group, txg → extents: rows as they were (`past`).
pub(crate) const PAST: Table<PastKey, &[u8]> = Table::new("past");
/// Dataset → bytes that it shows, whoever owns them; for snapshots, clones, and volumes that had a snapshot.
pub(crate) const SHOWN: Table<u64, u64> = Table::new("shown");
/// Branch, object, txg → size and block bytes as they were, or none (`past_objects`). This and the next two
/// exist only once there was a snapshot of a file system.
pub(crate) const PAST_OBJECTS: Table<PastObjectKey, Option<(u64, u32)>> = Table::new("past objects");
/// Branch, table, key, txg, number of the fragment → fragment of the value as it was; none, with number 0, if
/// there was no row (`past_rows`).
pub(crate) const PAST_ROWS: Table<PastRowKey, Option<&[u8]>> = Table::new("past rows");
/// Branch → where pruning of the other two goes on: 0 and an object, or 1, a table, and the key before.
pub(crate) const PRUNING_FILES: Table<u64, (u8, u64, &[u8])> = Table::new("pruning files");
/// In [`NUMBERS`]: the number of damaged blocks that are not listed.
pub(crate) const DAMAGED_UNLISTED: &str = "damaged and not listed";
/// In [`NUMBERS`]: the txg that committed.
pub(crate) const TXG: &str = "txg";
/// In [`NUMBERS`]: the next dataset's number.
pub(crate) const NEXT_DATASET: &str = "next dataset";

/// Creates the tables of a new pool.
pub(crate) fn create_all(transaction: &redb::WriteTransaction) -> Result<()> {
    transaction.open_table(DATASETS)?;
    transaction.open_table(USAGE)?;
    transaction.open_table(OBJECTS)?;
    transaction.open_table(EXTENTS)?;
    transaction.open_table(PIECES)?;
    transaction.open_table(SPACE)?;
    transaction.open_table(AUX)?;
    transaction.open_table(ROWS)?;
    transaction.open_table(CLEARED)?;
    transaction.open_table(DOOMED)?;
    transaction.open_table(NUMBERS)?;
    Ok(())
}

/// Number of [`DatasetKind::Snapshot`].
const SNAPSHOT: u8 = 128;
/// Number of [`DatasetKind::Receiving`].
const RECEIVING: u8 = 129;

/// What a dataset is used for. The pool itself treats all kinds alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DatasetKind {
    /// Only a parent of others.
    Folder,
    /// A volume: its data is object 1.
    Volume,
    /// Files.
    Filesystem,
    /// A snapshot of a volume or of a file system: never changes.
    Snapshot,
    /// A volume of which not everything has been received yet: nothing opens or serves it.
    Receiving,
    /// Of another owner; numbers from 3 on, as they are stored. No dataset is created with another number.
    Other(u8),
}

impl DatasetKind {
    fn to_byte(self) -> u8 {
        match self {
            DatasetKind::Folder => 0,
            DatasetKind::Volume => 1,
            DatasetKind::Filesystem => 2,
            DatasetKind::Snapshot => SNAPSHOT,
            DatasetKind::Receiving => RECEIVING,
            DatasetKind::Other(number) => number,
        }
    }

    fn from_byte(byte: u8) -> DatasetKind {
        match byte {
            0 => DatasetKind::Folder,
            1 => DatasetKind::Volume,
            2 => DatasetKind::Filesystem,
            SNAPSHOT => DatasetKind::Snapshot,
            RECEIVING => DatasetKind::Receiving,
            number => DatasetKind::Other(number),
        }
    }

    /// Refuses a number of another owner that would be read back as a kind that is known here.
    pub(crate) fn check(self) -> Result<()> {
        let (number, stored) = (self.to_byte(), DatasetKind::from_byte(self.to_byte()));
        if stored == self {
            return Ok(());
        }
        let value = format!("number {number}, which is that of kind {stored}");
        Err(PoolError::invalid("kind of a dataset", value))
    }
}

impl std::fmt::Display for DatasetKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DatasetKind::Folder => f.write_str("folder"),
            DatasetKind::Filesystem => f.write_str("filesystem"),
            DatasetKind::Volume => f.write_str("volume"),
            DatasetKind::Snapshot => f.write_str("snapshot"),
            DatasetKind::Receiving => f.write_str("receiving"),
            DatasetKind::Other(number) => write!(f, "{number}"),
        }
    }
}

/// Row of [`DATASETS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DatasetRow {
    /// 0 for the root.
    pub(crate) parent: u64,
    pub(crate) kind: DatasetKind,
    pub(crate) name: String,
    pub(crate) values: Values,
}

impl DatasetRow {
    /// Whether it has a quota or a reservation.
    pub(crate) fn has_limit(&self) -> bool {
        let limits = [Property::Quota, Property::Reservation, Property::RefReservation];
        limits.iter().any(|p| self.values.get(*p).unwrap_or(0) > 0)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u64(self.parent).text(&self.name).u8(self.kind.to_byte());
        for property in Property::ALL {
            let value = self.values.get(property);
            // The last one is newer than the others, and most datasets do not have it.
            if property != Property::RefReservation || value.is_some() {
                out.option(value);
            }
        }
        out.bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<DatasetRow> {
        let mut input = Reader::new(bytes);
        let mut parse = || {
            let (parent, name) = (input.u64()?, input.text()?);
            let kind = DatasetKind::from_byte(input.u8()?);
            let mut values = Values::default();
            for property in Property::ALL {
                let is_missing = property == Property::RefReservation && input.is_empty();
                let value = if is_missing { None } else { input.option()? };
                if value.is_some_and(|value| property.check(value).is_err()) {
                    return None;
                }
                values.set(property, value);
            }
            Some(DatasetRow { parent, kind, name, values })
        };
        parse().ok_or_else(|| PoolError::bad_value("datasets", "a row of another shape"))
    }
}
