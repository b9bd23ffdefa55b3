//! Where commands write to.

use std::io::{self, BufWriter, Stdout, Write};

use indicatif::{ProgressBar, ProgressStyle};

/// Standard output, buffered; commands that acknowledge flush after each line.
pub(crate) fn stdout() -> BufWriter<Stdout> {
    BufWriter::with_capacity(64 << 10, io::stdout())
}

/// A line to standard error; if that is closed, nobody wants to know.
pub(crate) fn note(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A progress bar, if somebody looks at it.
pub(crate) fn progress_bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("a template that is right");
    ProgressBar::new(0).with_style(style)
}

/// Lines of name and value, aligned.
pub(crate) fn fields(out: &mut dyn Write, rows: &[(&str, String)]) -> io::Result<()> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in rows {
        writeln!(out, "{name:width$}  {value}")?;
    }
    Ok(())
}
