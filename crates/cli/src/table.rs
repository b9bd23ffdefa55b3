//! Tables of aligned columns.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table};

/// A column: its head, and whether it holds numbers.
pub(crate) type Column<'a> = (&'a str, bool);

/// Writes rows under heads; numbers are aligned at the right.
pub(crate) fn table(out: &mut dyn Write, columns: &[Column<'_>], rows: Vec<Vec<String>>) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|(head, _)| *head));
    table.add_rows(rows);
    for (index, (_, is_number)) in columns.iter().enumerate() {
        let column = table.column_mut(index).expect("a column for each head");
        column.set_padding((0, if index + 1 < columns.len() { 2 } else { 0 }));
        if *is_number {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
