//! J-lang: a workload as lines of text.
//!
//! ```text
//! # define          paths that the workload uses, one a line; `test` is the directory that it runs in
//! test
//! A
//! A/foo
//!
//! # declare         variables of testers that compile J-lang to C++: kept, without meaning here
//! local_checkpoint
//!
//! # setup           commands before the part that is traced
//!
//! # run             commands
//! mkdir A 0777
//! open Afoo O_RDWR|O_CREAT 0777
//! mark              from here on crashes are interesting
//! write Afoo 0 4096
//! checkpoint 1      the operation before it has returned
//! close Afoo
//! ```
//!
//! Commands name a path as it was defined, or without its slashes: the published generators write `Afoo`. A
//! name that was not defined, or two paths with the same name, are errors. A `#` elsewhere than at the start
//! of a line is an error, too: the published files have no comments.
//!
//! Bounds of what is parsed: [`TEXT_BYTES_MAX`], [`PATHS_MAX`], [`COMMANDS_MAX`], [`LENGTH_MAX`],
//! [`OFFSET_MAX`].

mod flags;
mod parse;
mod path;
mod print;

pub use flags::{FallocFlags, NodeMode, OpenFlags};
pub use parse::{ParseError, ParseErrorKind};
pub use path::{Path, PathError};

/// Longest text that is parsed, in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Most paths and most variables of a workload.
pub const PATHS_MAX: usize = 1000;
/// Most commands in each section of a workload.
pub const COMMANDS_MAX: usize = 10_000;
/// Longest write or allocation, in bytes: an interpreter may hold it in memory.
pub const LENGTH_MAX: u64 = 64 << 20;
/// Highest offset, in bytes.
pub const OFFSET_MAX: u64 = 1 << 43;

/// A workload: what is done to a file system.
///
/// Invariant, kept by [`Workload::parse`] and [`ace`](crate::ace): every path of a command is defined, and no
/// two defined paths are the same without their slashes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workload {
    /// The paths that the commands use.
    pub define: Vec<Path>,
    /// Variables of other testers.
    pub declare: Vec<String>,
    /// Commands that prepare.
    pub setup: Vec<Command>,
    /// Commands to test.
    pub run: Vec<Command>,
}

impl Workload {
    /// Reads J-lang.
    ///
    /// # Errors
    /// [`ParseError`] with line and column, for anything that [`Workload`]'s printer would not write.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::parse(text)
    }
}

/// One line of a workload. Offsets and lengths are bytes, modes are permission bits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "file, len, offset, mode say it")]
pub enum Command {
    /// `open F FLAGS MODE`: the descriptor stays open under the file's name until `close F`.
    Open { file: Path, flags: OpenFlags, mode: u32 },
    /// `opendir D MODE`: as `open`, for a directory; MODE is without meaning.
    Opendir { directory: Path, mode: u32 },
    /// `mkdir D MODE`
    Mkdir { directory: Path, mode: u32 },
    /// `rmdir D`
    Rmdir { directory: Path },
    /// `close X`
    Close { file: Path },
    /// `write F off len`: one `pwrite` through the open descriptor.
    Write { file: Path, offset: u64, len: u64 },
    /// `dwrite F off len`: one `pwrite` through a descriptor of its own with O_DIRECT.
    Dwrite { file: Path, offset: u64, len: u64 },
    /// `mmapwrite F off len`: stores through a shared mapping, then `msync`.
    Mmapwrite { file: Path, offset: u64, len: u64 },
    /// `falloc F FLAGS off len`
    Falloc { file: Path, flags: FallocFlags, offset: u64, len: u64 },
    /// `truncate F len`
    Truncate { file: Path, len: u64 },
    /// `link A B`: a second name for A.
    Link { file: Path, name: Path },
    /// `symlink A B`: B points to A.
    Symlink { target: Path, name: Path },
    /// `rename A B`
    Rename { from: Path, to: Path },
    /// `unlink F`
    Unlink { file: Path },
    /// `remove F`: `unlink`, or `rmdir` of a directory.
    Remove { file: Path },
    /// `fsetxattr F`: an attribute of the interpreter's choice.
    Fsetxattr { file: Path },
    /// `removexattr F`: that attribute.
    Removexattr { file: Path },
    /// `fsync X`
    Fsync { file: Path },
    /// `fdatasync X`
    Fdatasync { file: Path },
    /// `sync`
    Sync,
    /// `mknod F MODE DEVICE`
    Mknod { file: Path, mode: NodeMode, device: u64 },
    /// `none`: where a generator chose not to persist.
    None,
    /// `mark`: crashes from here on are interesting; checkpoint 0.
    Mark,
    /// `checkpoint N`: all operations above it have returned.
    Checkpoint(u64),
}
