//! The parser: lines into commands, with line and column for what is wrong.

use std::collections::HashMap;

use super::{
    COMMANDS_MAX, Command, FallocFlags, LENGTH_MAX, NodeMode, OFFSET_MAX, OpenFlags, PATHS_MAX, Path,
    PathError, TEXT_BYTES_MAX, Workload,
};

/// What is wrong with a workload, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {kind}")]
pub struct ParseError {
    /// From 1.
    pub line: usize,
    /// From 1, in bytes.
    pub column: usize,
    /// What is wrong.
    pub kind: ParseErrorKind,
}

/// What is wrong with a workload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseErrorKind {
    /// Longer than [`TEXT_BYTES_MAX`].
    #[error("a workload has at most {TEXT_BYTES_MAX} bytes")]
    TextTooLong,
    /// More lines than a section may have.
    #[error("a section has at most {0} lines")]
    SectionTooLong(usize),
    /// A line before the first section.
    #[error("a workload begins with \"# define\"")]
    NoSection,
    /// A section that is unknown, or a second time there.
    #[error("no section, or one that was there before: {0:?}")]
    Section(String),
    /// Not a path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A path that is the same as another one without its slashes.
    #[error("{0:?} was defined before, perhaps with other slashes")]
    Defined(String),
    /// A name in a command that was not defined.
    #[error("{0:?} is not defined")]
    Undefined(String),
    /// A name that is not a variable's.
    #[error("a variable is a word of letters, digits and '_'")]
    Variable,
    /// No such command.
    #[error("unknown command {0:?}")]
    Command(String),
    /// Not what is expected here.
    #[error("expected {0}")]
    Expected(&'static str),
    /// A number that is too large.
    #[error("the number is larger than {0}")]
    TooLarge(u64),
    /// More words than the command has.
    #[error("unexpected {0:?}")]
    Unexpected(String),
}

#[derive(Clone, Copy, PartialEq)]
enum Section {
    Define,
    Declare,
    Setup,
    Run,
}

pub(super) fn parse(text: &str) -> Result<Workload, ParseError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(ParseError { line: 1, column: 1, kind: ParseErrorKind::TextTooLong });
    }
    let mut workload = Workload::default();
    let mut names = HashMap::new();
    let mut seen = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut words = Words { line, at: 0 };
        parse_line(&mut words, &mut workload, &mut names, &mut seen)
            .map_err(|(column, kind)| ParseError { line: index + 1, column: column + 1, kind })?;
    }
    Ok(workload)
}

/// Byte in the line, and what is wrong there.
type At<T> = Result<T, (usize, ParseErrorKind)>;

fn parse_line(
    words: &mut Words<'_>,
    workload: &mut Workload,
    names: &mut HashMap<String, Path>,
    seen: &mut Vec<Section>,
) -> At<()> {
    let Some((at, word)) = words.next() else { return Ok(()) };
    if let Some(name) = words.line.trim_end().strip_prefix('#') {
        let section = match name.trim() {
            "define" => Section::Define,
            "declare" => Section::Declare,
            "setup" => Section::Setup,
            "run" => Section::Run,
            other => return Err((at, ParseErrorKind::Section(short(other)))),
        };
        if seen.contains(&section) {
            return Err((at, ParseErrorKind::Section(short(name.trim()))));
        }
        seen.push(section);
        return Ok(());
    }
    let Some(section) = seen.last() else { return Err((at, ParseErrorKind::NoSection)) };
    match section {
        Section::Define => {
            let path = Path::new(word).map_err(|error| (at, error.into()))?;
            room(at, &workload.define, PATHS_MAX)?;
            if names.insert(path.short(), path.clone()).is_some() {
                return Err((at, ParseErrorKind::Defined(short(word))));
            }
            workload.define.push(path);
        }
        Section::Declare => {
            if !word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                return Err((at, ParseErrorKind::Variable));
            }
            room(at, &workload.declare, PATHS_MAX)?;
            workload.declare.push(word.to_owned());
        }
        Section::Setup | Section::Run => {
            let commands = if *section == Section::Setup { &mut workload.setup } else { &mut workload.run };
            room(at, commands, COMMANDS_MAX)?;
            commands.push(command(at, word, words, names)?);
        }
    }
    match words.next() {
        Some((at, word)) => Err((at, ParseErrorKind::Unexpected(short(word)))),
        None => Ok(()),
    }
}

fn room<T>(at: usize, lines: &[T], max: usize) -> At<()> {
    if lines.len() < max { Ok(()) } else { Err((at, ParseErrorKind::SectionTooLong(max))) }
}

/// For a message.
fn short(word: &str) -> String {
    word.chars().take(60).collect()
}

fn command(at: usize, name: &str, words: &mut Words<'_>, names: &HashMap<String, Path>) -> At<Command> {
    let path = |words: &mut Words<'_>| words.path(names);
    Ok(match name {
        "open" => Command::Open { file: path(words)?, flags: words.open_flags()?, mode: words.mode()? },
        "opendir" => Command::Opendir { directory: path(words)?, mode: words.mode()? },
        "mkdir" => Command::Mkdir { directory: path(words)?, mode: words.mode()? },
        "rmdir" => Command::Rmdir { directory: path(words)? },
        "close" => Command::Close { file: path(words)? },
        "write" => Command::Write { file: path(words)?, offset: words.offset()?, len: words.length()? },
        "dwrite" => Command::Dwrite { file: path(words)?, offset: words.offset()?, len: words.length()? },
        "mmapwrite" => {
            Command::Mmapwrite { file: path(words)?, offset: words.offset()?, len: words.length()? }
        }
        "falloc" => Command::Falloc {
            file: path(words)?,
            flags: words.parsed("flags of falloc, or 0", FallocFlags::parse)?,
            offset: words.offset()?,
            len: words.length()?,
        },
        "truncate" => Command::Truncate { file: path(words)?, len: words.offset()? },
        "link" => Command::Link { file: path(words)?, name: path(words)? },
        "symlink" => Command::Symlink { target: path(words)?, name: path(words)? },
        "rename" => Command::Rename { from: path(words)?, to: path(words)? },
        "unlink" => Command::Unlink { file: path(words)? },
        "remove" => Command::Remove { file: path(words)? },
        "fsetxattr" => Command::Fsetxattr { file: path(words)? },
        "removexattr" => Command::Removexattr { file: path(words)? },
        "fsync" => Command::Fsync { file: path(words)? },
        "fdatasync" => Command::Fdatasync { file: path(words)? },
        "sync" => Command::Sync,
        "mknod" => Command::Mknod {
            file: path(words)?,
            mode: words.parsed("type and permissions of a node", NodeMode::parse)?,
            device: words.number(u64::from(u32::MAX))?,
        },
        "none" => Command::None,
        "mark" => Command::Mark,
        "checkpoint" => Command::Checkpoint(words.number(u64::MAX)?),
        other => return Err((at, ParseErrorKind::Command(short(other)))),
    })
}

/// The words of a line, each with its byte.
struct Words<'a> {
    line: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<(usize, &'a str)> {
        let rest = &self.line[self.at..];
        let start = self.at + (rest.len() - rest.trim_start().len());
        let word = self.line[start..].split_whitespace().next()?;
        self.at = start + word.len();
        Some((start, word))
    }

    fn parsed<T>(&mut self, what: &'static str, parse: impl FnOnce(&str) -> Option<T>) -> At<T> {
        let Some((at, word)) = self.next() else { return Err((self.at, ParseErrorKind::Expected(what))) };
        parse(word).ok_or((at, ParseErrorKind::Expected(what)))
    }

    fn path(&mut self, names: &HashMap<String, Path>) -> At<Path> {
        let Some((at, word)) = self.next() else { return Err((self.at, ParseErrorKind::Expected("a path"))) };
        let found = names.get(&word.replace('/', ""));
        // With slashes it has to be the path that was defined.
        let found = found.filter(|path| !word.contains('/') || path.as_str() == word);
        found.cloned().ok_or_else(|| (at, ParseErrorKind::Undefined(short(word))))
    }

    fn open_flags(&mut self) -> At<OpenFlags> {
        self.parsed("flags of open, as O_RDWR|O_CREAT", |word| {
            if word == "O_RDONLY" { Some(OpenFlags::empty()) } else { OpenFlags::parse(word) }
        })
    }

    fn mode(&mut self) -> At<u32> {
        let octal = |word: &str| word.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
        self.parsed("permissions in octal", |word| {
            u32::from_str_radix(word, 8).ok().filter(|mode| octal(word) && *mode <= 0o7777)
        })
    }

    fn number(&mut self, max: u64) -> At<u64> {
        let digits = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit()).then_some(word.to_owned());
        let before = self.at;
        let word = self.parsed("a number", digits)?;
        let at = before + self.line[before..].find(|c: char| !c.is_whitespace()).unwrap_or(0);
        word.parse().ok().filter(|number| *number <= max).ok_or((at, ParseErrorKind::TooLarge(max)))
    }

    fn offset(&mut self) -> At<u64> {
        self.number(OFFSET_MAX)
    }

    fn length(&mut self) -> At<u64> {
        self.number(LENGTH_MAX)
    }
}
