//! Rows of the last synced txg: in a table of the engine, long values in fragments.
//!
//! A row of the engine takes at most about a third of a page: so a page never grows to hold a long value, and
//! a change of a short row next to a long one costs what its own charge says (`room`). A value is cut into
//! fragments (`limits`), numbered from 0; only the last one is shorter, and may be empty.

use std::collections::BTreeSet;
use std::ops::Bound;

use redb::{ReadOnlyTable, Table};

use crate::error::{PoolError, Result};
use crate::ids::TableId;
use crate::metadata::tables::RowKey;
use crate::rows::layer::Row;
use crate::rows::limits::{ROW_KEY_BYTES_MAX, ROW_VALUE_BYTES_MAX, fragment_bytes};

pub(crate) type Rows = ReadOnlyTable<RowKey, &'static [u8]>;

/// Key of the first fragment.
fn first_of(dataset: u64, table: TableId, key: &[u8]) -> (u64, u8, &[u8], u16) {
    (dataset, table.0, key, 0)
}

/// Puts fragments together, in the order of their keys.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    key: Vec<u8>,
    value: Vec<u8>,
    /// Dataset, table, number of the fragment that must come next.
    next: Option<(u64, u8, u16)>,
}

fn bad(what: &str) -> PoolError {
    PoolError::bad_value("rows", what)
}

impl Joiner {
    /// Adds a fragment; returns the value if it is whole now.
    pub(crate) fn add<'a>(
        &'a mut self,
        (dataset, table, key, number): (u64, u8, &[u8], u16),
        fragment: &'a [u8],
    ) -> Result<Option<&'a [u8]>> {
        if key.is_empty() || key.len() > ROW_KEY_BYTES_MAX {
            return Err(bad("a key of another length"));
        }
        match self.next.take() {
            None if number == 0 => self.value.clear(),
            Some(next) if next == (dataset, table, number) && key == self.key => {}
            _ => return Err(bad("a fragment without the one before it")),
        }
        let max = fragment_bytes(key.len());
        if fragment.len() > max || self.value.len() + fragment.len() > ROW_VALUE_BYTES_MAX {
            return Err(bad("too long a value"));
        }
        if fragment.len() < max && number == 0 {
            return Ok(Some(fragment));
        }
        self.value.extend_from_slice(fragment);
        if fragment.len() < max {
            return Ok(Some(&self.value));
        }
        if number == 0 {
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        self.next = Some((dataset, table, number + 1));
        Ok(None)
    }

    /// There are no more fragments.
    pub(crate) fn end(&self) -> Result<()> {
        if self.next.is_none() { Ok(()) } else { Err(bad("a value without its end")) }
    }
}

/// Appends the value of a row; `false`: there is none.
pub(crate) fn get(rows: &Rows, dataset: u64, table: TableId, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
    let mut at = first_of(dataset, table, key);
    let mut joiner = Joiner::default();
    while let Some(row) = rows.get(at)? {
        if let Some(value) = joiner.add(at, row.value())? {
            out.extend_from_slice(value);
            return Ok(true);
        }
        at.3 += 1;
    }
    joiner.end().map(|()| false)
}

/// Shows the rows of a table within bounds, in order, while `show` returns true.
pub(crate) fn each(
    rows: &Rows,
    dataset: u64,
    table: TableId,
    (from, to): (Bound<&[u8]>, Bound<&[u8]>),
    show: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<()> {
    let at = |key, number| (dataset, table.0, key, number);
    let from = match from {
        Bound::Included(key) => Bound::Included(at(key, 0)),
        Bound::Excluded(key) => Bound::Excluded(at(key, u16::MAX)),
        Bound::Unbounded => Bound::Included(at(&[], 0)),
    };
    let to = match to {
        Bound::Included(key) => Bound::Included(at(key, u16::MAX)),
        Bound::Excluded(key) => Bound::Excluded(at(key, 0)),
        Bound::Unbounded => match table.0.checked_add(1) {
            Some(next) => Bound::Excluded((dataset, next, &[][..], 0)),
            None => Bound::Excluded((dataset + 1, 0, &[][..], 0)),
        },
    };
    let mut joiner = Joiner::default();
    for row in rows.range::<(u64, u8, &[u8], u16)>((from, to))? {
        let (key, fragment) = row?;
        let key = key.value();
        if let Some(value) = joiner.add(key, fragment.value())?
            && !show(key.2, value)
        {
            return Ok(());
        }
    }
    joiner.end()
}

/// Reads every row of all datasets; returns which datasets have rows, and the number of rows of those that
/// exist: of others, whose fragments are being freed, any may be missing.
///
/// # Errors
/// [`PoolError::BadValue`] for fragments that form no row.
pub(crate) fn read_all(rows: &Rows, exists: impl Fn(u64) -> bool) -> Result<(BTreeSet<u64>, u64)> {
    let (mut datasets, mut count, mut joiner) = (BTreeSet::new(), 0, Joiner::default());
    for row in rows.range::<(u64, u8, &[u8], u16)>(..)? {
        let (key, fragment) = row?;
        let key = key.value();
        datasets.insert(key.0);
        if exists(key.0) {
            count += u64::from(joiner.add(key, fragment.value())?.is_some());
        }
    }
    joiner.end()?;
    Ok((datasets, count))
}

type Stored<'t> = Table<'t, RowKey, &'static [u8]>;

/// Removes rows of a destroyed dataset, at most `count`, each fragment counted; returns how many.
pub(crate) fn remove_some(rows: &mut Stored<'_>, dataset: u64, count: usize) -> Result<usize> {
    let range = (dataset, 0, &[][..], 0)..(dataset + 1, 0, &[][..], 0);
    let mut removed = 0;
    for row in rows.extract_from_if::<(u64, u8, &[u8], u16), _>(range, |_, _| true)?.take(count) {
        row?;
        removed += 1;
    }
    Ok(removed)
}

/// Stores a changed row in the place of what is there: so many fragments, and none of those that a longer
/// value has left.
pub(crate) fn store(rows: &mut Stored<'_>, dataset: u64, table: TableId, row: &Row) -> Result<()> {
    let max = fragment_bytes(row.key().len());
    let (mut rest, mut has_old) = (row.value(), true);
    for number in 0..=u16::MAX {
        let at = (dataset, table.0, row.key(), number);
        let old = match rest {
            Some(bytes) => {
                let (fragment, after) = bytes.split_at(bytes.len().min(max));
                rest = (fragment.len() == max).then_some(after);
                rows.insert(at, fragment)?
            }
            None if has_old => rows.remove(at)?,
            None => return Ok(()),
        };
        has_old = old.is_some_and(|old| old.value().len() == max);
    }
    Err(bad("a value without its end"))
}
