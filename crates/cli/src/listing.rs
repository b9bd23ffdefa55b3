//! Lists as administrators want them: chosen columns, sorted, for people or for scripts.

use std::io::Write;

use clap::Args;
use fastness_base::Moment;
use fastness_daemon::PropertyReport;
use fastness_terminal::Outcome;
use fastness_terminal::size::short;

use crate::error::{Result, refuse};
use crate::table::table;

/// Options of every list.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Columns")]
pub(crate) struct ListingArgs {
    /// For scripts: no heads, and one tab between columns
    #[arg(short = 'H', long)]
    scripted: bool,
    /// Exact numbers
    #[arg(short, long)]
    parsable: bool,
    /// Columns, separated by commas
    #[arg(short = 'o', long = "columns", value_name = "COLUMNS", value_delimiter = ',')]
    columns: Vec<String>,
    /// Sort by this column, the least first
    #[arg(short, long, value_name = "COLUMN", conflicts_with = "sort_down")]
    sort: Option<String>,
    /// Sort by this column, the greatest first
    #[arg(short = 'S', long, value_name = "COLUMN")]
    sort_down: Option<String>,
}

/// What stands in a row and a column.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cell {
    /// Nothing that applies.
    Absent,
    /// A number.
    Number(u64),
    /// A number of bytes.
    Bytes(u64),
    /// A ratio in hundredths.
    Percent(u64),
    /// Seconds since the beginning of 1970.
    Time(u64),
    /// Words.
    Text(String),
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    fn show(&self, is_exact: bool) -> String {
        match self {
            Cell::Absent => "-".to_owned(),
            Cell::Number(number) => number.to_string(),
            Cell::Bytes(bytes) if is_exact => bytes.to_string(),
            Cell::Bytes(bytes) => short(*bytes),
            Cell::Percent(ratio) => {
                format!("{}.{:02}{}", ratio / 100, ratio % 100, if is_exact { "" } else { "x" })
            }
            Cell::Time(seconds) if is_exact => seconds.to_string(),
            Cell::Time(seconds) => Moment::of(*seconds).to_string(),
            Cell::Text(text) => text.clone(),
        }
    }
}

/// A column: its name, and what stands in it.
pub(crate) type Shown<T> = (&'static str, fn(&T) -> Cell);

/// A list of things of one kind.
pub(crate) struct Listing<'a, T> {
    /// Columns that are shown unless others are chosen.
    pub(crate) shown: &'a [Shown<T>],
    /// Columns that can be chosen.
    pub(crate) others: &'a [Shown<T>],
    /// Columns that depend on the thing; `None`: it has no such column.
    pub(crate) more: &'a dyn Fn(&T, &str) -> Option<Cell>,
    /// Those of them that all things have.
    pub(crate) more_names: &'a [&'a str],
}

impl ListingArgs {
    /// Columns that are asked for by name.
    pub(crate) fn named(&self) -> impl Iterator<Item = &str> {
        let sort = self.sort.iter().chain(&self.sort_down);
        self.columns.iter().chain(sort).map(String::as_str)
    }
}

impl<T> Listing<'_, T> {
    fn cell(&self, of: &T, column: &str) -> Option<Cell> {
        let known = self.shown.iter().chain(self.others).find(|(name, _)| *name == column);
        known.map(|(_, cell)| cell(of)).or_else(|| (self.more)(of, column))
    }

    /// Writes the rows.
    pub(crate) fn write(&self, out: &mut dyn Write, args: &ListingArgs, mut rows: Vec<T>) -> Result<()> {
        let chosen: Vec<&str> = match &args.columns[..] {
            [] => self.shown.iter().map(|(name, _)| *name).collect(),
            columns => columns.iter().map(String::as_str).collect(),
        };
        let sort = args.sort.as_deref().map(|column| (column, false));
        let sort = sort.or_else(|| args.sort_down.as_deref().map(|column| (column, true)));
        for column in chosen.iter().copied().chain(sort.map(|(column, _)| column)) {
            if !rows.is_empty() && rows.iter().all(|row| self.cell(row, column).is_none()) {
                let named = self.shown.iter().chain(self.others).map(|(name, _)| *name);
                let mut names: Vec<_> = named.chain(self.more_names.iter().copied()).collect();
                let mut seen = std::collections::BTreeSet::new();
                names.retain(|name| seen.insert(*name));
                return Err(refuse(format!("there is no column {column}; known are {}", names.join(", "))));
            }
        }
        if let Some((column, is_down)) = sort {
            rows.sort_by(|one, other| {
                let order = self.cell(one, column).cmp(&self.cell(other, column));
                if is_down { order.reverse() } else { order }
            });
        }
        let cells = |row: &T| -> Vec<Cell> {
            chosen.iter().map(|column| self.cell(row, column).unwrap_or(Cell::Absent)).collect()
        };
        let rows: Vec<Vec<Cell>> = rows.iter().map(cells).collect();
        let text = |row: &Vec<Cell>| row.iter().map(|cell| cell.show(args.parsable)).collect::<Vec<_>>();
        if args.scripted {
            for row in &rows {
                writeln!(out, "{}", text(row).join("\t"))?;
            }
            return Ok(());
        }
        let heads: Vec<String> = chosen.iter().map(|column| column.to_uppercase()).collect();
        let is_number = |at: usize| {
            rows.iter().any(|row| matches!(row[at], Cell::Bytes(_) | Cell::Number(_) | Cell::Percent(_)))
        };
        let columns: Vec<_> =
            heads.iter().enumerate().map(|(at, head)| (head.as_str(), is_number(at))).collect();
        if !rows.is_empty() {
            table(out, &columns, rows.iter().map(text).collect())?;
        }
        Ok(())
    }
}

/// The value of a property.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    /// Its pool or dataset.
    pub(crate) of: String,
    pub(crate) property: String,
    pub(crate) cell: Cell,
    /// Where it comes from.
    pub(crate) source: String,
}

impl Value {
    pub(crate) fn new(of: impl Into<String>, is: PropertyReport) -> Value {
        Value { of: of.into(), property: is.name, cell: Cell::Text(is.value), source: is.source }
    }
}

/// Values of properties, with their owners.
pub(crate) fn values(args: &ListingArgs, rows: Vec<Value>, out: &mut dyn Write) -> Result<Outcome> {
    let listing = Listing::<Value> {
        shown: &[
            ("name", |value| Cell::text(&value.of)),
            ("property", |value| Cell::text(&value.property)),
            ("value", |value| value.cell.clone()),
            ("source", |value| Cell::text(&value.source)),
        ],
        others: &[],
        more: &|_, _| None,
        more_names: &[],
    };
    listing.write(out, args, rows)?;
    Ok(Outcome::Clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(args: &ListingArgs) -> Result<String> {
        let listing = Listing::<(&str, u64)> {
            shown: &[("name", |row| Cell::text(row.0)), ("used", |row| Cell::Bytes(row.1))],
            others: &[("half", |row| Cell::Number(row.1 / 2))],
            more: &|row, column| (column == "odd" && row.1 % 2 == 1).then(|| Cell::text("yes")),
            more_names: &["odd"],
        };
        let mut out = Vec::new();
        listing.write(&mut out, args, vec![("b", 3), ("a", 2048), ("c", 10)])?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn columns_are_chosen_sorted_and_written_for_scripts() {
        let args = ListingArgs::default();
        assert_eq!(listed(&args).unwrap(), "NAME   USED\nb        3B\na     2.00K\nc       10B\n");
        let args = ListingArgs { scripted: true, parsable: true, sort: Some("used".to_owned()), ..args };
        assert_eq!(listed(&args).unwrap(), "b\t3\nc\t10\na\t2048\n");
        let args = ListingArgs {
            columns: ["odd", "half", "name"].map(str::to_owned).to_vec(),
            sort: None,
            sort_down: Some("name".to_owned()),
            ..args
        };
        assert_eq!(listed(&args).unwrap(), "-\t5\tc\nyes\t1\tb\n-\t1024\ta\n");
        let args = ListingArgs { columns: vec!["frob".to_owned()], ..args };
        let refused = listed(&args).unwrap_err();
        assert!(refused.texts()[0].contains("frob; known are name, used, half, odd"), "{refused:?}");
    }
}
