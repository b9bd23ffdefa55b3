//! What is done to the bytes and the names of files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use fastness_fuse::{Errno, Reply};
use fastness_responder::{FileId, Stat};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};

use crate::nodes::errno;

/// The space that a file takes changes when it is flushed.
pub(crate) const ATTRIBUTES_VALID: Duration = Duration::from_secs(1);

/// What a write is to be.
#[derive(Debug, Clone, Copy, Default)]
pub struct Writing {
    /// At the end of the file, wherever that is.
    pub appends: bool,
    /// Durable when it returns (`O_DSYNC`), also where others are not.
    pub is_synced: bool,
}

/// The files of a directory as a mount needs them. Paths lead through descriptors (`/proc/self/fd/7/name`).
///
/// Concurrency: any number of threads.
pub trait Contents: Send + Sync + 'static {
    /// An open file, closed when it is dropped.
    type File: Send + Sync + 'static;

    /// How long names and their absence are known without asking; the latter only if it is not short.
    const NAME_VALID: Duration;

    /// Opens a file; `flags` has the mode of access, and nothing that creates or truncates.
    ///
    /// # Errors
    /// As the system call, as all of these.
    fn open(&self, path: &Path, flags: OFlags) -> Reply<Self::File>;

    /// Fills `buffer`; fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// As above.
    fn read(&self, file: &Self::File, offset: u64, buffer: &mut [u8]) -> Reply<usize>;

    /// Writes `data`, and says how much of it: less than all if something failed on the way.
    ///
    /// # Errors
    /// As above; nothing was written.
    fn write(&self, file: &Self::File, offset: u64, data: &[u8], how: Writing) -> Reply<usize>;

    /// Makes durable what was written to a file.
    ///
    /// # Errors
    /// As above; [`Errno::NOSYS`]: no file needs that.
    fn sync(&self, _: &Self::File) -> Reply<()> {
        Err(Errno::NOSYS)
    }

    /// Sets the length of a file.
    ///
    /// # Errors
    /// As above.
    fn truncate(&self, path: &Path, size_bytes: u64) -> Reply<()>;

    /// Length and times of a file of which the directory says `stat`; `again` asks it once more.
    fn current(&self, stat: Stat, again: impl Fn() -> io::Result<Stat>) -> Stat;

    /// How long the attributes of a file are known without asking.
    fn attributes_valid(&self, _: FileId) -> Duration {
        ATTRIBUTES_VALID
    }

    /// Whether pages of a file that the kernel has stay valid when it is opened again.
    fn keeps_pages(&self) -> bool {
        true
    }

    /// Nothing changes the file past this mount any more.
    ///
    /// # Errors
    /// As above.
    fn end_leases(&self, _: FileId) -> Reply<()> {
        Ok(())
    }

    /// Changes a file in the directory, not through what is open of it.
    ///
    /// # Errors
    /// Those of `act`.
    fn change<T>(&self, file: FileId, act: impl FnOnce() -> io::Result<T>) -> Reply<T>;

    /// Makes something by `act`, which gives it the name `path` and says whether it was made: it may be
    /// there.
    ///
    /// # Errors
    /// Those of `act`.
    fn make(&self, path: &Path, act: impl Fn() -> Reply<bool>) -> Reply<()>;

    /// Gives the file that `file` leads to one more name by `act`.
    ///
    /// # Errors
    /// Those of `act`.
    fn link(&self, file: &Path, to: &Path, act: impl FnOnce() -> Reply<()>) -> Reply<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As the system call.
    fn remove_directory(&self, path: &Path) -> Reply<()>;

    /// Removes a name of a file.
    ///
    /// # Errors
    /// As the system call.
    fn unlink(&self, path: &Path) -> Reply<()>;

    /// Renames.
    ///
    /// # Errors
    /// As the system call.
    fn rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> Reply<()>;

    /// Makes attributes of the file or directory at `path` durable.
    ///
    /// # Errors
    /// As the system call.
    fn settle(&self, path: &Path) -> Reply<()>;

    /// The file as the directory has it, for what is not read or written through it. It has everything.
    ///
    /// # Errors
    /// As above.
    fn flush(&self, file: &Self::File) -> Reply<()>;

    /// Makes everything durable that is not.
    ///
    /// # Errors
    /// As above.
    fn flush_all(&self) -> Reply<()>;
}

/// The directory as it is; nothing is made durable.
#[derive(Debug, Default)]
pub struct Plain;

impl Contents for Plain {
    type File = File;

    const NAME_VALID: Duration = Duration::from_secs(3600);

    fn open(&self, path: &Path, flags: OFlags) -> Reply<File> {
        Ok(rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    fn read(&self, file: &File, offset: u64, buffer: &mut [u8]) -> Reply<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match rustix::io::pread(file, &mut buffer[filled..], offset + filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled)
    }

    fn write(&self, file: &File, offset: u64, data: &[u8], _: Writing) -> Reply<usize> {
        // A descriptor that appends does that wherever it is told to write.
        file.write_at(data, offset).map_err(|error| errno(&error))
    }

    fn truncate(&self, path: &Path, size_bytes: u64) -> Reply<()> {
        let file = self.open(path, OFlags::WRONLY)?;
        rustix::fs::ftruncate(file, size_bytes)
    }

    fn current(&self, stat: Stat, _: impl Fn() -> io::Result<Stat>) -> Stat {
        stat
    }

    fn change<T>(&self, _: FileId, act: impl FnOnce() -> io::Result<T>) -> Reply<T> {
        act().map_err(|error| errno(&error))
    }

    fn make(&self, _: &Path, act: impl Fn() -> Reply<bool>) -> Reply<()> {
        act().map(drop)
    }

    fn link(&self, _: &Path, _: &Path, act: impl FnOnce() -> Reply<()>) -> Reply<()> {
        act()
    }

    fn remove_directory(&self, path: &Path) -> Reply<()> {
        rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR)
    }

    fn unlink(&self, path: &Path) -> Reply<()> {
        rustix::fs::unlinkat(CWD, path, AtFlags::empty())
    }

    fn rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> Reply<()> {
        rustix::fs::renameat_with(CWD, from, CWD, to, flags)
    }

    fn settle(&self, _: &Path) -> Reply<()> {
        Ok(())
    }

    fn flush(&self, _: &File) -> Reply<()> {
        Ok(())
    }

    fn flush_all(&self) -> Reply<()> {
        Err(Errno::NOSYS)
    }
}
