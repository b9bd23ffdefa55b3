//! Where commands write to.

use std::io::{self, BufWriter, Stdout, Write};

/// Standard output, buffered; commands that acknowledge flush after each line.
pub(crate) fn stdout() -> BufWriter<Stdout> {
    BufWriter::with_capacity(64 << 10, io::stdout())
}

/// A line to standard error; if that is closed, nobody wants to know.
pub(crate) fn note(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Lines of name and value, aligned.
pub(crate) fn fields(out: &mut dyn Write, rows: &[(&str, String)]) -> io::Result<()> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in rows {
        writeln!(out, "{name:width$}  {value}")?;
    }
    Ok(())
}
