//! A file or a disk as an origin.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastness_blkdev::{BlockDevice, OpenOptions};
use fastness_remote::OpenError;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::disk_number::disk_number;
use crate::id::CacheId;
use crate::origin::{Mark, Origin};

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
    fn open(&self) -> Result<Arc<dyn BlockDevice>, OpenError> {
        Ok(Arc::new(self.options.open(&self.path)?))
    }

    fn number(&self) -> io::Result<(u64, u64)> {
        let found = fs::metadata(&self.path)?;
        Ok(if found.is_file() { (found.dev(), found.ino()) } else { (disk_number(found.rdev()), 0) })
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
