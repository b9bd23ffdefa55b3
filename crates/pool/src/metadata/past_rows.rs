//! Rows of ordered tables as they were: what snapshots of file systems see.
//!
//! Design: as for rows of extents (`past`). Before a txg changes a row for the first time since the newest
//! snapshot of its dataset, a copy of it, or that there was none, goes into the table `past rows` under that
//! snapshot's txg, fragment by fragment. A snapshot finds a row in the first version from its txg on, or else
//! in the current table. A scan goes through both in the order of keys.
//!
//! Performance: a lookup at a snapshot is one more than at the file system. A scan reads all versions of the
//! rows that it shows.
//!
//! Crash cases: as for rows of extents.
//!
//! Layout: table `past rows`: branch, table, key, txg, number of the fragment → fragment, as in `rows`; or
//! none with number 0: there was no row.

use std::ops::Bound;

use redb::{ReadTransaction, ReadableTable, Table, TableError};

use crate::error::{PoolError, Result};
use crate::ids::{TableId, Txg};
use crate::metadata::tables::{PAST_ROWS, PastRowKey, RowKey};
use crate::rows::limits::fragment_bytes;
use crate::rows::stored::{self, Joiner, Rows};

/// The table as of a synced txg.
pub(crate) type PastRows = redb::ReadOnlyTable<PastRowKey, Option<&'static [u8]>>;
/// The table in the transaction of a txg.
pub(crate) type PastRowsMut<'t> = Table<'t, PastRowKey, Option<&'static [u8]>>;

/// A key of the table, borrowed.
type At<'k> = (u64, u8, &'k [u8], u64, u16);

/// The table; `None` before there was a snapshot of a file system.
pub(crate) fn table(transaction: &ReadTransaction) -> Result<Option<PastRows>> {
    match transaction.open_table(PAST_ROWS) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        table => Ok(Some(table?)),
    }
}

fn of_key(branch: u64, table: u8, key: &[u8], from: u64) -> std::ops::RangeInclusive<At<'_>> {
    (branch, table, key, from, 0)..=(branch, table, key, u64::MAX, u16::MAX)
}

/// Rows of a branch as of the end of a txg.
#[derive(Clone, Copy)]
pub(crate) struct RowsAt<'t> {
    pub(crate) current: &'t Rows,
    pub(crate) past: Option<&'t PastRows>,
    pub(crate) branch: u64,
    pub(crate) txg: Txg,
}

impl RowsAt<'_> {
    /// Appends the value of a row; `false`: there is none.
    pub(crate) fn get(&self, table: TableId, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        if let Some(past) = self.past {
            let mut joiner = Joiner::default();
            let mut version = None;
            for row in past.range::<At<'_>>(of_key(self.branch, table.0, key, self.txg.0))? {
                let (at, fragment) = row?;
                let (branch, table, key, txg, number) = at.value();
                if *version.get_or_insert(txg) != txg {
                    break;
                }
                let Some(fragment) = fragment.value() else { return Ok(false) };
                if let Some(value) = joiner.add((branch, table, key, number), fragment)? {
                    out.extend_from_slice(value);
                    return Ok(true);
                }
            }
            joiner.end()?;
        }
        stored::get(self.current, self.branch, table, key, out)
    }

    /// Shows the rows of a table within bounds, in order, while `show` returns true.
    pub(crate) fn each(
        &self,
        table: TableId,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        show: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let Some(past) = self.past else {
            return stored::each(self.current, self.branch, table, bounds, show);
        };
        let mut old = Versions::of(past, self.branch, self.txg, table, bounds)?;
        let mut next = old.next()?;
        let (mut failed, mut goes_on) = (Ok(()), true);
        // The kept rows before a key, and that of the key itself; returns whether there was one.
        let mut show_old = |until: Option<&[u8]>, show: &mut dyn FnMut(&[u8], &[u8]) -> bool| -> Result<_> {
            let mut is_kept = false;
            while let Some((key, value)) = &next {
                if until.is_some_and(|until| key.as_slice() > until) {
                    break;
                }
                is_kept = until == Some(key.as_slice());
                if let Some(value) = value
                    && !show(key, value)
                {
                    return Ok((is_kept, false));
                }
                next = old.next()?;
            }
            Ok((is_kept, true))
        };
        stored::each(self.current, self.branch, table, bounds, &mut |key, value| {
            match show_old(Some(key), show) {
                Ok((is_kept, more)) => goes_on = more && (is_kept || show(key, value)),
                Err(error) => (failed, goes_on) = (Err(error), false),
            }
            goes_on
        })?;
        failed?;
        if goes_on {
            show_old(None, show)?;
        }
        Ok(())
    }
}

/// A key, and its value; no value: there was no row.
type Version = (Vec<u8>, Option<Vec<u8>>);

/// The kept rows that count for one txg, in the order of their keys.
struct Versions<'t> {
    rows: redb::Range<'t, PastRowKey, Option<&'static [u8]>>,
    txg: u64,
    /// The key that was found last, and the txg of the version that counts.
    last: Option<(Vec<u8>, u64)>,
}

impl<'t> Versions<'t> {
    fn of(
        past: &'t PastRows,
        branch: u64,
        txg: Txg,
        table: TableId,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<Versions<'t>> {
        let (first, last) = ((0, 0), (u64::MAX, u16::MAX));
        let at = |key, (txg, number)| (branch, table.0, key, txg, number);
        let from = match from {
            Bound::Included(key) => Bound::Included(at(key, first)),
            Bound::Excluded(key) => Bound::Excluded(at(key, last)),
            Bound::Unbounded => Bound::Included(at(&[][..], first)),
        };
        let to = match to {
            Bound::Included(key) => Bound::Included(at(key, last)),
            Bound::Excluded(key) => Bound::Excluded(at(key, first)),
            Bound::Unbounded => match table.0.checked_add(1) {
                Some(next) => Bound::Excluded((branch, next, &[][..], 0, 0)),
                None => Bound::Excluded((branch + 1, 0, &[][..], 0, 0)),
            },
        };
        Ok(Versions { rows: past.range::<At<'_>>((from, to))?, txg: txg.0, last: None })
    }

    /// The next one.
    fn next(&mut self) -> Result<Option<Version>> {
        let mut joiner = Joiner::default();
        for row in self.rows.by_ref() {
            let (at, fragment) = row?;
            let (branch, table, key, txg, number) = at.value();
            if txg < self.txg {
                continue;
            }
            match &self.last {
                Some((last, version)) if last == key => {
                    // A newer version, which others see.
                    if *version != txg {
                        continue;
                    }
                }
                _ => self.last = Some((key.to_vec(), txg)),
            }
            let Some(fragment) = fragment.value() else { return Ok(Some((key.to_vec(), None))) };
            if let Some(value) = joiner.add((branch, table, key, number), fragment)? {
                return Ok(Some((key.to_vec(), Some(value.to_vec()))));
            }
        }
        joiner.end().map(|()| None)
    }
}

/// Before a row changes: keeps it under the txg of the newest snapshot, unless it has changed since that.
pub(crate) fn keep(
    past: &mut PastRowsMut<'_>,
    current: &impl ReadableTable<RowKey, &'static [u8]>,
    (branch, table, key): (u64, TableId, &[u8]),
    newest: Txg,
) -> Result<()> {
    if past.range::<At<'_>>(of_key(branch, table.0, key, newest.0))?.next().is_some() {
        return Ok(());
    }
    let max = fragment_bytes(key.len());
    for number in 0..=u16::MAX {
        let Some(fragment) = current.get((branch, table.0, key, number))? else {
            if number > 0 {
                break;
            }
            past.insert((branch, table.0, key, newest.0, 0), None)?;
            return Ok(());
        };
        past.insert((branch, table.0, key, newest.0, number), Some(fragment.value()))?;
        if fragment.value().len() < max {
            return Ok(());
        }
    }
    Err(PoolError::bad_value("rows", "a value without its end"))
}

/// A key of which versions are kept.
pub(crate) struct KeptKey {
    pub(crate) table: TableId,
    pub(crate) key: Vec<u8>,
    /// Oldest first, each with the number of its fragments.
    pub(crate) versions: Vec<(u64, u16)>,
}

/// The first key after another one of which versions are kept.
pub(crate) fn next_key(
    past: &impl ReadableTable<PastRowKey, Option<&'static [u8]>>,
    branch: u64,
    (table, key): (TableId, &[u8]),
) -> Result<Option<KeptKey>> {
    let from = (branch, table.0, key, u64::MAX, u16::MAX);
    let to = (branch + 1, 0, &[][..], 0, 0);
    let mut found: Option<KeptKey> = None;
    for row in past.range::<At<'_>>((Bound::Excluded(from), Bound::Excluded(to)))? {
        let at = row?.0;
        let (_, table, key, txg, _) = at.value();
        let kept = found.get_or_insert_with(|| KeptKey {
            table: TableId(table),
            key: key.to_vec(),
            versions: Vec::new(),
        });
        if (kept.table.0, kept.key.as_slice()) != (table, key) {
            break;
        }
        match kept.versions.last_mut() {
            Some((last, count)) if *last == txg => *count += 1,
            _ => kept.versions.push((txg, 1)),
        }
    }
    Ok(found)
}

/// The first branch from a number on that has kept rows.
pub(crate) fn next_branch(past: &PastRows, from: u64) -> Result<Option<u64>> {
    let row = past.range::<At<'_>>((from, 0, &[][..], 0, 0)..)?.next().transpose()?;
    Ok(row.map(|(at, _)| at.value().0))
}

/// Refuses a version whose fragments form no row: of a row that was not there, it has none.
pub(crate) fn check_version(
    past: &PastRows,
    branch: u64,
    KeptKey { table, key, .. }: &KeptKey,
    (txg, fragments): (u64, u16),
) -> Result<()> {
    let mut joiner = Joiner::default();
    for number in 0..fragments {
        let strange = || PoolError::bad_value("past rows", "fragments that form no row");
        let row = past.get((branch, table.0, key.as_slice(), txg, number))?.ok_or_else(strange)?;
        let is_last = number + 1 == fragments;
        let is_whole = match row.value() {
            None => number == 0,
            Some(fragment) => joiner.add((branch, table.0, key, number), fragment)?.is_some(),
        };
        if is_whole != is_last {
            return Err(strange());
        }
    }
    Ok(())
}
