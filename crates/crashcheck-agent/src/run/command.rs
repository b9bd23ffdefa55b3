//! Each command as system calls.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use fastness_crashcheck_workload::jlang::{Command, FallocFlags, OpenFlags, Path};
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Mode, OFlags, XattrFlags, fallocate, fdatasync, fremovexattr,
    fsetxattr, fsync, ftruncate, linkat, mkdirat, mknodat, openat, renameat, symlinkat, unlinkat,
};
use rustix::io::{Errno, Result};

use super::data;

/// The attribute of `fsetxattr` and `removexattr`.
const ATTRIBUTE: &str = "user.workload";

pub(super) struct Interpreter {
    root: OwnedFd,
    open: HashMap<Path, OwnedFd>,
    writes: u8,
}

impl Interpreter {
    pub(super) fn new(root: OwnedFd) -> Self {
        Self { root, open: HashMap::new(), writes: 0 }
    }

    pub(super) fn execute(&mut self, command: &Command) -> Result<()> {
        match command {
            Command::Open { file, flags, mode } => self.open(file, open_flags(*flags), *mode),
            Command::Opendir { directory, mode } => {
                self.open(directory, OFlags::RDONLY | OFlags::DIRECTORY, *mode)
            }
            Command::Mkdir { directory, mode } => {
                mkdirat(&self.root, directory.relative(), permissions(*mode))
            }
            Command::Rmdir { directory } => unlinkat(&self.root, directory.relative(), AtFlags::REMOVEDIR),
            Command::Close { file } => self.open.remove(file).map(drop).ok_or(Errno::BADF),
            Command::Write { file, offset, len } => {
                let byte = self.letter();
                data::write(self.descriptor(file)?, *offset, *len, byte)
            }
            Command::Dwrite { file, offset, len } => self.dwrite(file, *offset, *len),
            Command::Mmapwrite { file, offset, len } => {
                let byte = self.letter();
                data::write_mapped(self.descriptor(file)?, *offset, *len, byte)
            }
            Command::Falloc { file, flags, offset, len } => {
                fallocate(self.descriptor(file)?, falloc_flags(*flags), *offset, *len)
            }
            Command::Truncate { file, len } => match self.open.get(file) {
                Some(fd) => ftruncate(fd, *len),
                None => ftruncate(
                    openat(&self.root, file.relative(), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?,
                    *len,
                ),
            },
            Command::Link { file, name } => {
                linkat(&self.root, file.relative(), &self.root, name.relative(), AtFlags::empty())
            }
            Command::Symlink { target, name } => symlinkat(target.relative(), &self.root, name.relative()),
            Command::Rename { from, to } => renameat(&self.root, from.relative(), &self.root, to.relative()),
            Command::Unlink { file } => unlinkat(&self.root, file.relative(), AtFlags::empty()),
            Command::Remove { file } => match unlinkat(&self.root, file.relative(), AtFlags::empty()) {
                Err(Errno::ISDIR) => unlinkat(&self.root, file.relative(), AtFlags::REMOVEDIR),
                done => done,
            },
            Command::Fsetxattr { file } => {
                fsetxattr(self.descriptor(file)?, ATTRIBUTE, b"value", XattrFlags::empty())
            }
            Command::Removexattr { file } => fremovexattr(self.descriptor(file)?, ATTRIBUTE),
            Command::Fsync { file } => fsync(self.descriptor(file)?),
            Command::Fdatasync { file } => fdatasync(self.descriptor(file)?),
            Command::Sync => {
                rustix::fs::sync();
                Ok(())
            }
            Command::Mknod { file, mode, device } => {
                let kind = match FileType::from_raw_mode(mode.bits()) {
                    FileType::Unknown => FileType::RegularFile,
                    kind => kind,
                };
                mknodat(&self.root, file.relative(), kind, permissions(mode.bits()), *device)
            }
            Command::None | Command::Mark | Command::Checkpoint(_) => Ok(()),
        }
    }

    /// A second `open` of a name closes the first one's descriptor.
    fn open(&mut self, path: &Path, flags: OFlags, mode: u32) -> Result<()> {
        let fd = openat(&self.root, path.relative(), flags | OFlags::CLOEXEC, permissions(mode))?;
        self.open.insert(path.clone(), fd);
        Ok(())
    }

    fn descriptor(&self, path: &Path) -> Result<&OwnedFd> {
        self.open.get(path).ok_or(Errno::BADF)
    }

    /// Where O_DIRECT is unknown, without it.
    fn dwrite(&mut self, file: &Path, offset: u64, len: u64) -> Result<()> {
        let byte = self.letter();
        let open = |flags| {
            openat(&self.root, file.relative(), flags | OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
        };
        let fd = match open(OFlags::DIRECT) {
            Err(Errno::INVAL) => open(OFlags::empty())?,
            opened => opened?,
        };
        data::write(fd, offset, len, byte)
    }

    fn letter(&mut self) -> u8 {
        let letter = b'a' + self.writes;
        self.writes = (self.writes + 1) % 26;
        letter
    }
}

fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}

fn open_flags(flags: OpenFlags) -> OFlags {
    let table = [
        (OpenFlags::WRONLY, OFlags::WRONLY),
        (OpenFlags::RDWR, OFlags::RDWR),
        (OpenFlags::CREAT, OFlags::CREATE),
        (OpenFlags::EXCL, OFlags::EXCL),
        (OpenFlags::TRUNC, OFlags::TRUNC),
        (OpenFlags::APPEND, OFlags::APPEND),
        (OpenFlags::DIRECT, OFlags::DIRECT),
        (OpenFlags::SYNC, OFlags::SYNC),
        (OpenFlags::DSYNC, OFlags::DSYNC),
    ];
    table
        .into_iter()
        .filter(|(ours, _)| flags.contains(*ours))
        .fold(OFlags::empty(), |all, (_, flag)| all | flag)
}

fn falloc_flags(flags: FallocFlags) -> FallocateFlags {
    FallocateFlags::from_bits_truncate(flags.bits())
}
