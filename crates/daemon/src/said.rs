//! What the process says on standard error: to people, to a file, or to the journal of systemd.
//!
//! People at a terminal get a line as it is. A file gets each line with its time and level. The journal has
//! times of its own, and gets the level as a number before the line.
//!
//! Source: sd-daemon(3) for the numbers; systemd.exec(5) for `JOURNAL_STREAM`.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use fastness_base::Moment;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something is not done, or lost.
    Error,
    /// Somebody should look at it.
    Warning,
    /// What is as it should be.
    Info,
}

impl Level {
    fn number(self) -> u8 {
        match self {
            Level::Error => 3,
            Level::Warning => 4,
            Level::Info => 6,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Level::Error => "ERROR",
            Level::Warning => "WARN",
            Level::Info => "INFO",
        }
    }
}

/// Who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    People,
    File,
    Journal,
}

const STYLES: [Style; 3] = [Style::People, Style::File, Style::Journal];
static STYLE: AtomicU8 = AtomicU8::new(0);

fn style() -> Style {
    STYLES[usize::from(STYLE.load(Ordering::Relaxed))]
}

/// From here on this process is a service: standard error is the journal's or a file's, unless it is a
/// terminal.
pub fn speak_as_service() {
    let style = match std::env::var("JOURNAL_STREAM") {
        Ok(stream) if is_stream(&stream) => Style::Journal,
        _ if std::io::stderr().is_terminal() => Style::People,
        _ => Style::File,
    };
    let at = STYLES.iter().position(|known| *known == style).unwrap_or(0);
    STYLE.store(at as u8, Ordering::Relaxed);
}

/// Whether the process speaks as a service, line by line.
pub fn speaks_as_service() -> bool {
    style() != Style::People
}

/// Whether standard error is the stream of the journal: somebody may have redirected it since.
fn is_stream(stream: &str) -> bool {
    let Some((device, inode)) = stream.split_once(':') else { return false };
    let Ok(found) = rustix::fs::fstat(std::io::stderr()) else { return false };
    device.parse() == Ok(found.st_dev) && inode.parse() == Ok(found.st_ino)
}

/// Says something. If standard error is closed, it is not wanted.
pub fn say(level: Level, text: impl Display) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let lines = lines(style(), level, now.as_millis() as u64, &text.to_string());
    // In one piece: other threads speak, too.
    let _ = std::io::stderr().write_all(lines.as_bytes());
}

fn lines(style: Style, level: Level, now_ms: u64, text: &str) -> String {
    let before = match style {
        Style::People => "fastness: ".to_owned(),
        Style::File => {
            let moment = Moment::of(now_ms / 1000).to_string().replace(' ', "T");
            format!("{moment}.{:03}Z {} ", now_ms % 1000, level.word())
        }
        Style::Journal => format!("<{}>", level.number()),
    };
    text.lines().map(|line| format!("{before}{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_gets_its_lines() {
        let said = |style, level| lines(style, level, 1_709_210_096_007, "a\nb");
        assert_eq!(said(Style::People, Level::Error), "fastness: a\nfastness: b\n");
        assert_eq!(said(Style::Journal, Level::Error), "<3>a\n<3>b\n");
        assert_eq!(said(Style::Journal, Level::Warning), "<4>a\n<4>b\n");
        assert_eq!(
            said(Style::File, Level::Info),
            "2024-02-29T12:34:56.007Z INFO a\n2024-02-29T12:34:56.007Z INFO b\n"
        );
    }

    #[test]
    fn a_stream_that_is_another_file_is_not_the_journal() {
        let found = rustix::fs::fstat(std::io::stderr()).unwrap();
        assert!(is_stream(&format!("{}:{}", found.st_dev, found.st_ino)));
        assert!(!is_stream(&format!("{}:{}", found.st_dev, found.st_ino + 1)));
        assert!(!is_stream("") && !is_stream("8") && !is_stream("a:b"));
    }
}
