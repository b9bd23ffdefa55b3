//! The paths and numbers of a command, to be changed.

use fastness_crashcheck_workload::Command;
use fastness_crashcheck_workload::jlang::Path;

/// All its paths, in the order in which they are written.
pub(super) fn paths_mut(command: &mut Command) -> Vec<&mut Path> {
    match command {
        Command::Open { file, .. }
        | Command::Close { file }
        | Command::Write { file, .. }
        | Command::Dwrite { file, .. }
        | Command::Mmapwrite { file, .. }
        | Command::Falloc { file, .. }
        | Command::Truncate { file, .. }
        | Command::Unlink { file }
        | Command::Remove { file }
        | Command::Fsetxattr { file }
        | Command::Removexattr { file }
        | Command::Fsync { file }
        | Command::Fdatasync { file }
        | Command::Mknod { file, .. } => vec![file],
        Command::Opendir { directory, .. }
        | Command::Mkdir { directory, .. }
        | Command::Rmdir { directory } => vec![directory],
        Command::Link { file, name } => vec![file, name],
        Command::Symlink { target, name } => vec![target, name],
        Command::Rename { from, to } => vec![from, to],
        Command::Sync | Command::None | Command::Mark | Command::Checkpoint(_) => Vec::new(),
    }
}

/// What a number of a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    /// Where a file is written to, or its length.
    Offset,
    /// How much is written.
    Length,
}

/// Its offsets and lengths.
pub(super) fn numbers_mut(command: &mut Command) -> Vec<(&mut u64, Number)> {
    match command {
        Command::Write { offset, len, .. }
        | Command::Dwrite { offset, len, .. }
        | Command::Mmapwrite { offset, len, .. }
        | Command::Falloc { offset, len, .. } => vec![(offset, Number::Offset), (len, Number::Length)],
        Command::Truncate { len, .. } => vec![(len, Number::Offset)],
        _ => Vec::new(),
    }
}
