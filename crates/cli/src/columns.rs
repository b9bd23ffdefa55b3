//! What can be said of a dataset: columns of lists, and read-only properties.

use fastness_daemon::{DatasetReport, RatioReport, Request};

use crate::connect::{ask, pool_of};
use crate::error::Result;
use crate::listing::{Cell, Value};

/// Names of columns that every list of datasets has, and `get` as properties.
pub(crate) const NAMES: [&str; 12] = [
    "type",
    "creation",
    "used",
    "available",
    "referenced",
    "compressratio",
    "refcompressratio",
    "volsize",
    "origin",
    "clones",
    "token",
    "name",
];

fn bytes(bytes: Option<u64>) -> Cell {
    bytes.map_or(Cell::Absent, Cell::Bytes)
}

/// What stands in a column; `None`: there is no such column.
pub(crate) fn cell(dataset: &DatasetReport, column: &str) -> Option<Cell> {
    let ratio =
        |of: fn(RatioReport) -> u64| dataset.ratios.map_or(Cell::Absent, |ratios| Cell::Percent(of(ratios)));
    Some(match column {
        "name" => Cell::text(&dataset.name),
        "type" | "kind" => Cell::text(&dataset.kind),
        "creation" => dataset.created_unix_s.map_or(Cell::Absent, Cell::Time),
        "used" => Cell::Bytes(dataset.used_bytes),
        "available" => bytes(dataset.available_bytes),
        "referenced" => Cell::Bytes(dataset.referenced_bytes),
        "compressratio" => ratio(|ratios| ratios.used_percent),
        "refcompressratio" => ratio(|ratios| ratios.referenced_percent),
        "volsize" | "size" => bytes(dataset.size_bytes),
        "origin" => dataset.origin.as_ref().map_or(Cell::Absent, Cell::text),
        "token" => dataset.token.as_ref().map_or(Cell::Absent, Cell::text),
        "clones" if dataset.clones.is_empty() => Cell::Absent,
        "clones" => Cell::text(dataset.clones.join(",")),
        _ => match dataset.properties.iter().find(|property| property.name == column) {
            Some(property) => Cell::text(&property.value),
            // A property of users that this dataset does not have.
            None if column.contains(':') => Cell::Absent,
            None => return None,
        },
    })
}

/// All that `get` shows of a dataset: what applies of the above, and what can be set.
pub(crate) fn values(dataset: &DatasetReport) -> Vec<Value> {
    let value = |name: &str, cell: Cell, source: &str| Value {
        of: dataset.name.clone(),
        property: name.to_owned(),
        cell,
        source: source.to_owned(),
    };
    let known = NAMES.iter().filter(|name| **name != "name");
    let known = known.filter_map(|name| Some((*name, cell(dataset, name)?)));
    let is_shown = |(name, cell): &(&str, Cell)| *cell != Cell::Absent || *name == "creation";
    let mut all: Vec<_> = known.filter(is_shown).map(|(name, cell)| value(name, cell, "-")).collect();
    let properties = dataset.properties.iter();
    all.extend(properties.map(|is| value(&is.name, Cell::text(&is.value), &is.source)));
    all
}

/// Asks what compression saves, if one of these columns says so: that is counted from all blocks.
pub(crate) fn add_ratios<'a>(
    reports: &mut [DatasetReport],
    mut columns: impl Iterator<Item = &'a str>,
) -> Result<()> {
    if !columns.any(|column| ["compressratio", "refcompressratio", "all"].contains(&column)) {
        return Ok(());
    }
    let of_pools = reports.chunk_by_mut(|one, other| pool_of(&one.name) == pool_of(&other.name));
    for reports in of_pools {
        let names = reports.iter().map(|report| report.name.clone()).collect();
        let ratios: Vec<Option<RatioReport>> = ask(&reports[0].name, &Request::Ratios { names })?;
        reports.iter_mut().zip(ratios).for_each(|(report, ratios)| report.ratios = ratios);
    }
    Ok(())
}
