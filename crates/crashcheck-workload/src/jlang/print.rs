//! The printer: what the parser reads back as the same workload.

use std::fmt;

use super::{Command, Path, Workload};

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        section(f, "# define", &self.define)?;
        section(f, "\n# declare", &self.declare)?;
        section(f, "\n# setup", &self.setup)?;
        section(f, "\n# run", &self.run)
    }
}

fn section(f: &mut fmt::Formatter<'_>, name: &str, lines: &[impl fmt::Display]) -> fmt::Result {
    writeln!(f, "{name}")?;
    lines.iter().try_for_each(|line| writeln!(f, "{line}"))
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |f: &mut fmt::Formatter<'_>, name: &str, path: &Path| write!(f, "{name} {}", path.short());
        let two = |f: &mut fmt::Formatter<'_>, name: &str, a: &Path, b: &Path| {
            write!(f, "{name} {} {}", a.short(), b.short())
        };
        match self {
            Command::Open { file, flags, mode } => write!(f, "open {} {flags} {mode:04o}", file.short()),
            Command::Opendir { directory, mode } => write!(f, "opendir {} {mode:04o}", directory.short()),
            Command::Mkdir { directory, mode } => write!(f, "mkdir {} {mode:04o}", directory.short()),
            Command::Rmdir { directory } => one(f, "rmdir", directory),
            Command::Close { file } => one(f, "close", file),
            Command::Write { file, offset, len } => write!(f, "write {} {offset} {len}", file.short()),
            Command::Dwrite { file, offset, len } => write!(f, "dwrite {} {offset} {len}", file.short()),
            Command::Mmapwrite { file, offset, len } => {
                write!(f, "mmapwrite {} {offset} {len}", file.short())
            }
            Command::Falloc { file, flags, offset, len } => {
                write!(f, "falloc {} {flags} {offset} {len}", file.short())
            }
            Command::Truncate { file, len } => write!(f, "truncate {} {len}", file.short()),
            Command::Link { file, name } => two(f, "link", file, name),
            Command::Symlink { target, name } => two(f, "symlink", target, name),
            Command::Rename { from, to } => two(f, "rename", from, to),
            Command::Unlink { file } => one(f, "unlink", file),
            Command::Remove { file } => one(f, "remove", file),
            Command::Fsetxattr { file } => one(f, "fsetxattr", file),
            Command::Removexattr { file } => one(f, "removexattr", file),
            Command::Fsync { file } => one(f, "fsync", file),
            Command::Fdatasync { file } => one(f, "fdatasync", file),
            Command::Sync => f.write_str("sync"),
            Command::Mknod { file, mode, device } => write!(f, "mknod {} {mode} {device}", file.short()),
            Command::None => f.write_str("none"),
            Command::Mark => f.write_str("mark"),
            Command::Checkpoint(number) => write!(f, "checkpoint {number}"),
        }
    }
}
