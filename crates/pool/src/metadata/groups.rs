//! Rows of extents.

use crate::error::Result;
use crate::metadata::tables::ExtentKey;
use crate::objects::extent::{Group, decode_group, encode_group};

type Row<'a> = (redb::AccessGuard<'a, ExtentKey>, redb::AccessGuard<'a, &'static [u8]>);

pub(crate) fn decode_row(
    row: std::result::Result<Row<'_>, redb::StorageError>,
) -> Result<(ExtentKey, Group)> {
    let (key, value) = row?;
    Ok((key.value(), decode_group(value.value())?))
}

/// Replaces a row; without any extent it goes.
pub(crate) fn store(
    table: &mut redb::Table<'_, ExtentKey, &'static [u8]>,
    key: ExtentKey,
    group: &Group,
) -> Result<()> {
    if group.iter().all(Option::is_none) {
        table.remove(key)?;
    } else {
        table.insert(key, encode_group(group).as_slice())?;
    }
    Ok(())
}
