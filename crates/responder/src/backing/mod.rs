//! The store in front of which the cache stands: one directory of some file system.
//!
//! A trait, so that tests can put one there that fails, lacks room, is slow or loses its power.

mod directory;
mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use directory::check_longest;
pub use directory::{CACHE_FILE, Directory};
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

    /// Writes all of `data`. Durable after [`sync`](Self::sync) only.
    ///
    /// # Errors
    /// As above; any part of `data` may have been written.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

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

/// A directory and everything below it. Changes of names are durable when they return.
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
    /// As above.
    fn cache(&self) -> io::Result<Option<CacheId>>;

    /// Says durably which cache it belongs to.
    ///
    /// # Errors
    /// As above.
    fn set_cache(&self, cache: Option<CacheId>) -> io::Result<()>;

    /// Opens a file below the directory for reading, and for writing unless it cannot be written to now: then
    /// each write tries again. With `create`, a file that is not there is made with that mode, durably; the
    /// answer says whether it was.
    ///
    /// # Errors
    /// As above.
    fn open(&self, path: &Path, create: Option<u32>) -> io::Result<(Arc<dyn BackingFile>, bool)>;

    /// What a name leads to.
    ///
    /// # Errors
    /// As above, `NotFound` among them.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// Opens those of the files that are anywhere below the directory: after a crash, names are not known.
    ///
    /// # Errors
    /// As above.
    fn find(&self, files: &BTreeSet<FileId>) -> io::Result<BTreeMap<FileId, Arc<dyn BackingFile>>>;

    /// Removes a name.
    ///
    /// # Errors
    /// As above; the name may be gone all the same.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Renames, in place of what has the name `to`.
    ///
    /// # Errors
    /// As above; it may have been done all the same.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file one more name.
    ///
    /// # Errors
    /// As above; it may have been done all the same.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
}
