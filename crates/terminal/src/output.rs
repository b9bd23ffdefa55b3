//! Standard output and standard error.

use std::io::{self, BufWriter, Write};

use indicatif::{ProgressBar, ProgressStyle};

/// Standard output, buffered; commands that acknowledge flush after each line.
pub fn stdout() -> impl Write {
    BufWriter::with_capacity(64 << 10, Output(io::stdout()))
}

/// The reader of standard output has closed it.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
struct ReaderGone;

/// The error is that of standard output whose reader has closed it.
pub fn is_reader_gone(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<ReaderGone>())
}

/// Standard output, whose closed pipe is marked.
struct Output<W>(W);

/// Marks the closed pipe of standard output, so that it is not confused with another closed pipe (such as a
/// process that was killed).
pub fn marked(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, ReaderGone),
        _ => error,
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(marked)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(marked)
    }
}

/// Prints a line to standard error, if that is still open.
pub fn note(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A progress bar, shown on a terminal only.
pub fn progress_bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("a template that is right");
    ProgressBar::new(0).with_style(style)
}

/// Lines of name and value, aligned.
pub fn fields(out: &mut dyn Write, rows: &[(&str, String)]) -> io::Result<()> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in rows {
        writeln!(out, "{name:width$}  {value}")?;
    }
    Ok(())
}
