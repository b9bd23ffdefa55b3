//! The origin: the block device that a cache is in front of, opened as often as it fails.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fastness_blkdev::{BlockDevice, OpenError, OpenOptions};
use fastness_sync::{RwLock, RwLockReadGuard, read, write};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::error::Error;
use crate::id::CacheId;

/// What an origin is recognised by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Its block in bytes: a power of two from 512 to 4096.
    pub block_bytes: u32,
    /// Number of the device that it is, or that its file system is on.
    pub device: u64,
    /// Its inode; 0: it is a device.
    pub inode: u64,
}

impl Identity {
    pub(crate) fn is_possible(&self) -> bool {
        let block = self.block_bytes;
        let is_block = block.is_power_of_two() && (512..=4096).contains(&block);
        is_block && self.len_bytes > 0 && self.len_bytes.is_multiple_of(u64::from(block))
    }
}

/// What an origin says of its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Whose origin it is.
    pub cache: CacheId,
    /// The last opening of that: an older copy of the region does not know it.
    pub opening: u64,
}

/// A block device that can be opened again, and can carry a mark.
pub trait Origin: Send + Sync {
    /// Opens it, for this process alone. After a failed flush, reads show what is on the medium.
    ///
    /// # Errors
    /// [`OpenError`].
    fn open(&self) -> Result<Box<dyn BlockDevice>, OpenError>;

    /// Number of its device, and its inode or 0.
    ///
    /// # Errors
    /// Of the system call.
    fn number(&self) -> io::Result<(u64, u64)>;

    /// Where it is, for people, and for [`Superblock::origin_path`](crate::Superblock::origin_path).
    fn path(&self) -> Vec<u8>;

    /// The mark; `None` if there is none. `Err` of kind Unsupported: it cannot have one.
    ///
    /// # Errors
    /// Those of reading it.
    fn mark(&self) -> io::Result<Option<Mark>>;

    /// Sets or removes the mark, durably.
    ///
    /// # Errors
    /// Those of writing it.
    fn set_mark(&self, mark: Option<Mark>) -> io::Result<()>;
}

/// A file or a disk as an origin. The mark of a file is an extended attribute; a disk has none.
#[derive(Debug, Clone)]
pub struct FileOrigin {
    path: PathBuf,
    options: OpenOptions,
}

/// Attribute that has the mark: the cache's id, then the opening.
const ATTRIBUTE: &str = "user.fastness.wcache";
const MARK_BYTES: usize = 24;

impl FileOrigin {
    /// The file or disk at `path`, opened directly if that is possible.
    pub fn new(path: &Path) -> FileOrigin {
        FileOrigin::with(path, OpenOptions::new())
    }

    /// The same with other options.
    pub fn with(path: &Path, options: OpenOptions) -> FileOrigin {
        FileOrigin { path: path.canonicalize().unwrap_or_else(|_| path.to_owned()), options }
    }

    fn file(&self) -> io::Result<File> {
        match fs::metadata(&self.path)?.is_file() {
            true => File::open(&self.path),
            false => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// File systems without attributes of users say so in more than one way.
fn attribute_error(errno: Errno) -> io::Error {
    match errno {
        Errno::OPNOTSUPP | Errno::PERM | Errno::NOSYS => io::ErrorKind::Unsupported.into(),
        errno => errno.into(),
    }
}

impl Origin for FileOrigin {
    fn open(&self) -> Result<Box<dyn BlockDevice>, OpenError> {
        Ok(Box::new(self.options.open(&self.path)?))
    }

    fn number(&self) -> io::Result<(u64, u64)> {
        let found = fs::metadata(&self.path)?;
        Ok(if found.is_file() { (found.dev(), found.ino()) } else { (found.rdev(), 0) })
    }

    fn path(&self) -> Vec<u8> {
        self.path.as_os_str().as_bytes().to_vec()
    }

    fn mark(&self) -> io::Result<Option<Mark>> {
        let mut bytes = [0; MARK_BYTES + 1];
        match rustix::fs::fgetxattr(self.file()?.as_fd(), ATTRIBUTE, &mut bytes) {
            Ok(MARK_BYTES) => {
                let cache = CacheId(bytes[..16].try_into().expect("sixteen bytes"));
                let opening = u64::from_le_bytes(bytes[16..MARK_BYTES].try_into().expect("eight bytes"));
                Ok(Some(Mark { cache, opening }))
            }
            Ok(_) | Err(Errno::RANGE) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "its mark is damaged"))
            }
            Err(Errno::NODATA) => Ok(None),
            Err(errno) => Err(attribute_error(errno)),
        }
    }

    fn set_mark(&self, mark: Option<Mark>) -> io::Result<()> {
        let file = self.file()?;
        let set = match mark {
            Some(Mark { cache, opening }) => {
                let mut bytes = cache.0.to_vec();
                bytes.extend(opening.to_le_bytes());
                rustix::fs::fsetxattr(file.as_fd(), ATTRIBUTE, &bytes, XattrFlags::empty())
            }
            None => match rustix::fs::fremovexattr(file.as_fd(), ATTRIBUTE) {
                Err(Errno::NODATA) => Ok(()),
                removed => removed,
            },
        };
        set.map_err(attribute_error)?;
        file.sync_all()
    }
}

/// An origin that is open, unless it has failed.
pub(crate) struct Target {
    origin: Box<dyn Origin>,
    identity: Identity,
    device: RwLock<Option<Box<dyn BlockDevice>>>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// A device, for as long as the guard lives.
pub(crate) struct Opened<'a>(RwLockReadGuard<'a, Option<Box<dyn BlockDevice>>>);

impl Opened<'_> {
    pub(crate) fn device(&self) -> &dyn BlockDevice {
        &**self.0.as_ref().expect("looked at before the guard was made")
    }
}

impl Target {
    /// Opens an origin, whatever it is.
    pub(crate) fn open(origin: Box<dyn Origin>) -> Result<Target, Error> {
        let device = origin.open().map_err(Error::OpenOrigin)?;
        let (number, inode) = origin.number().map_err(Error::LookAtOrigin)?;
        let (info, len_bytes) = (device.info(), device.len_bytes());
        let identity = Identity { len_bytes, block_bytes: info.logical_block_bytes, device: number, inode };
        if info.is_read_only {
            return Err(Error::Refused("the origin is read-only".to_owned()));
        }
        if !identity.is_possible() {
            let text = format!("an origin has blocks of 512 to 4096 bytes, not of {}", identity.block_bytes);
            return Err(Error::Refused(text));
        }
        Ok(Target { origin, identity, device: RwLock::new(Some(device)) })
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    pub(crate) fn origin(&self) -> &dyn Origin {
        &*self.origin
    }

    /// The device. One that refuses everything after a failed flush is opened again.
    ///
    /// # Errors
    /// It cannot be opened, or is not what it was.
    pub(crate) fn get(&self) -> Result<Opened<'_>, Error> {
        let usable =
            |device: &Option<Box<dyn BlockDevice>>| device.as_ref().is_some_and(|it| !it.is_poisoned());
        for _ in 0..2 {
            let opened = read(&self.device);
            if usable(&opened) {
                return Ok(Opened(opened));
            }
            drop(opened);
            let mut device = write(&self.device);
            if !usable(&device) {
                // The last handle has to be gone before another one can be had.
                *device = None;
                let again = self.origin.open().map_err(Error::OpenOrigin)?;
                let (len_bytes, block_bytes) = (again.len_bytes(), again.logical_block_bytes());
                if (len_bytes, block_bytes) != (self.identity.len_bytes, self.identity.block_bytes) {
                    let (expected, found) = (self.identity.len_bytes, len_bytes);
                    return Err(Error::Resized { expected, found });
                }
                *device = Some(again);
            }
        }
        Err(Error::Refused("the origin fails as often as it is opened".to_owned()))
    }

    /// Lets go of a device that has gone away: the next use opens it again.
    pub(crate) fn forget(&self) {
        *write(&self.device) = None;
    }

    /// The mark; `None` also if there can be none.
    pub(crate) fn mark(&self) -> Result<Marked, Error> {
        match self.origin.mark() {
            Ok(Some(mark)) => Ok(Marked::By(mark)),
            Ok(None) => Ok(Marked::Not),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(Marked::Never),
            Err(error) => Err(Error::LookAtOrigin(error)),
        }
    }

    /// Sets the mark, if there can be one.
    pub(crate) fn set_mark(&self, mark: Option<Mark>) -> Result<(), Error> {
        match self.origin.set_mark(mark) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            set => set.map_err(Error::MarkOrigin),
        }
    }
}

/// What is known of an origin's mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marked {
    By(Mark),
    Not,
    /// It cannot have one.
    Never,
}
