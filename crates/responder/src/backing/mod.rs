//! The store in front of which the cache stands: one directory of some file system.
//!
//! A trait, so that tests can put one there that fails, lacks room, is slow or loses its power.

mod attributes;
mod directory;
mod mark;
mod memory;
mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use attributes::{Attributes, FileType};
pub use directory::Directory;
pub(crate) use directory::check_longest;
pub use mark::{Mark, Opening};
pub use memory::{Call, MemoryBacking, Verdict};

/// A file for as long as it lives: numbers of inodes are given out again, births are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileId {
    /// The inode.
    pub inode: u64,
    /// When it was born, in ns since 1970; 0 where the file system does not say.
    pub generation: u64,
}

/// The directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryId {
    /// Its device; another one after a restart, perhaps.
    pub device: u64,
    /// Its inode.
    pub id: FileId,
}

/// Identifies a cache: random, in the superblock of its region and in its directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CacheId(pub [u8; 16]);

impl fmt::Debug for CacheId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CacheId(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// What the backing store says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Which file it is.
    pub id: FileId,
    /// Its length in bytes.
    pub size: u64,
    /// Its names.
    pub links: u64,
    /// When it was last modified, in ns since 1970.
    pub modified_ns: u64,
    /// When it was last changed (ctime), in ns since 1970.
    pub changed_ns: u64,
}

/// An open file of the backing store.
pub trait BackingFile: Send + Sync + fmt::Debug {
    /// What there is to know about it.
    ///
    /// # Errors
    /// Of the system call, as for all calls here.
    fn stat(&self) -> io::Result<Stat>;

    /// Fills `buffer` from `offset` on; fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// As above.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes as much from the beginning of `data` as there is room for, and says how much: at least a byte.
    /// Durable after [`sync`](Self::sync) only.
    ///
    /// # Errors
    /// As above; nothing was written where the reason is a lack of room, otherwise any part.
    fn write_some(&self, offset: u64, data: &[u8]) -> io::Result<usize>;

    /// Writes all of `data`. Durable after [`sync`](Self::sync) only.
    ///
    /// # Errors
    /// As above; any part of `data` may have been written.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            match self.write_some(offset + done as u64, &data[done..])? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                more => done += more,
            }
        }
        Ok(())
    }

    /// What was written there is about to be synced, after other files are written: the store may begin.
    fn begin_sync(&self, _offset: u64, _len: u64) {}

    /// Sets the length. Durable after [`sync`](Self::sync) only.
    ///
    /// # Errors
    /// As above.
    fn truncate(&self, size: u64) -> io::Result<()>;

    /// Whether a file can be so long: what is refused here no write at that place will ever be.
    ///
    /// # Errors
    /// `EFBIG`; as above.
    fn check_size(&self, _size: u64) -> io::Result<()> {
        Ok(())
    }

    /// Sets when the file was modified.
    ///
    /// # Errors
    /// As above.
    fn set_modified(&self, modified_ns: u64) -> io::Result<()>;

    /// Makes durable what was written and the length.
    ///
    /// # Errors
    /// As above; then nothing is promised of what was written since the last success, and another sync that
    /// succeeds promises nothing of it either. It has to be written again.
    fn sync(&self) -> io::Result<()>;
}

/// Anything that has a name, held: its inode is not given out again meanwhile, whatever becomes of its
/// names.
pub trait BackingNode: Send + Sync + fmt::Debug {
    /// Which file it is.
    ///
    /// # Errors
    /// Of the system call, as for all calls here.
    fn id(&self) -> io::Result<FileId>;

    /// What there is to know about it, perhaps without its [`target`](Self::target): it is not read.
    ///
    /// # Errors
    /// As above.
    fn attributes(&self) -> io::Result<Attributes>;

    /// Where a symbolic link leads; nothing for anything else. That counts as a read of it.
    ///
    /// # Errors
    /// As above.
    fn target(&self) -> io::Result<Vec<u8>>;

    /// Makes its attributes durable and, of a directory, the names in it with what they lead to; `false`: it
    /// is not one that can be synced alone.
    ///
    /// # Errors
    /// As above; then nothing is known to be durable, and a later success is one for all.
    fn sync(&self) -> io::Result<bool>;
}

/// A name, as it is found when the directory is searched.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// The directory in which it is.
    pub parent: FileId,
    /// The name.
    pub name: &'a OsStr,
    /// What it leads to.
    pub id: FileId,
    /// Whether that is a directory.
    pub is_directory: bool,
}

/// What a renaming does to what has the new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renaming {
    /// It is replaced.
    Replace,
    /// Then it fails.
    Keep,
    /// It gets the old name.
    Exchange,
}

/// A directory and everything below it.
///
/// Persistence: changes of names and attributes are durable after a sync only: of the directory that has the
/// name, or of [everything](Self::sync_all). Of the others a crash may leave any, but none without those
/// that it rests on: earlier ones of the same name, and of the same file.
pub trait Backing: Send + Sync + fmt::Debug {
    /// Which directory it is.
    ///
    /// # Errors
    /// Of the system call, as for all calls here.
    fn directory(&self) -> io::Result<DirectoryId>;

    /// Where it is, if it has a path.
    fn path(&self) -> Option<PathBuf> {
        None
    }

    /// The cache that it belongs to, if any.
    ///
    /// # Errors
    /// As above; `InvalidData`: what says so is damaged.
    fn mark(&self) -> io::Result<Option<Mark>>;

    /// Says durably which cache it belongs to. A crash inside leaves the one or the other.
    ///
    /// # Errors
    /// As above; it may say so all the same.
    fn set_mark(&self, mark: Option<Mark>) -> io::Result<()>;

    /// Opens a file below the directory for reading, and for writing unless it cannot be written to now:
    /// then
    /// each write tries again. With `create`, a file that is not there is made with that mode; the answer
    /// says whether it was.
    ///
    /// # Errors
    /// As above.
    fn open(&self, path: &Path, create: Option<u32>) -> io::Result<(Arc<dyn BackingFile>, bool)>;

    /// What a name leads to.
    ///
    /// # Errors
    /// As above, `NotFound` among them.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// Holds what a name leads to; `follows`: if that is a symbolic link, what this leads to.
    ///
    /// # Errors
    /// As above, `NotFound` among them.
    fn node(&self, path: &Path, follows: bool) -> io::Result<Arc<dyn BackingNode>>;

    /// Opens those of the files that are anywhere below the directory: after a crash, names are not known.
    ///
    /// # Errors
    /// As above.
    fn find(&self, files: &BTreeSet<FileId>) -> io::Result<BTreeMap<FileId, Arc<dyn BackingFile>>>;

    /// Shows every name that is anywhere below the directory, a directory before what is in it.
    ///
    /// # Errors
    /// As above: what cannot be read is an error.
    fn search(&self, visit: &mut dyn FnMut(Named<'_>)) -> io::Result<()>;

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// As above; the name may be gone all the same.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As above; it may be gone all the same.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Renames anything.
    ///
    /// # Errors
    /// As above; it may have been done all the same.
    fn rename(&self, from: &Path, to: &Path, how: Renaming) -> io::Result<()>;

    /// Gives a file one more name.
    ///
    /// # Errors
    /// As above; it may have been done all the same.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes something that is like another one was; [`set_attributes`](Self::set_attributes) does the rest.
    ///
    /// # Errors
    /// As above; it may have been done all the same.
    fn make(&self, path: &Path, like: &Attributes) -> io::Result<()>;

    /// Gives what has the name mode, owner, extended attributes and, unless it is a directory, the times.
    ///
    /// # Errors
    /// As above; some may have been set.
    fn set_attributes(&self, path: &Path, like: &Attributes) -> io::Result<()>;

    /// Makes everything durable.
    ///
    /// # Errors
    /// As above; then nothing is known to be durable, and a later success is one for all.
    fn sync_all(&self) -> io::Result<()>;
}
