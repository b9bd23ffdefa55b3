//! A directory of the system's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{Advice, CWD, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use super::nodes::{self, Node};
use super::{
    Attributes, Backing, BackingFile, BackingNode, DirectoryId, FileId, Mark, Named, Renaming, Stat, mark,
};
use crate::own_files::{CACHE_FILE, NEXT_CACHE_FILE};

/// A directory of the system's and everything below it, on its file system.
///
/// Paths are below it, or lead through a descriptor (`/proc/self/fd/7/name`): a front end that knows files by
/// descriptors is not misled when names change meanwhile.
#[derive(Debug, Clone)]
pub struct Directory {
    /// Where it was found.
    path: PathBuf,
    /// The directory itself, for as long as something is mounted over its path.
    root: PathBuf,
    open: Arc<File>,
}

pub(super) fn nanoseconds(time: io::Result<std::time::SystemTime>) -> u64 {
    let since = time.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0))
}

pub(super) fn id_of(metadata: &fs::Metadata) -> FileId {
    FileId { inode: metadata.ino(), generation: nanoseconds(metadata.created()) }
}

impl From<&fs::Metadata> for Stat {
    fn from(metadata: &fs::Metadata) -> Stat {
        Stat {
            id: id_of(metadata),
            size: metadata.len(),
            links: metadata.nlink(),
            modified_ns: nanoseconds(metadata.modified()),
            changed_ns: changed(metadata),
        }
    }
}

/// In ns since 1970; 0: before that.
fn changed(metadata: &fs::Metadata) -> u64 {
    let ns = i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec());
    u64::try_from(ns).unwrap_or(0)
}

impl Directory {
    /// The directory at `root`.
    ///
    /// # Errors
    /// Of the system call; there is none.
    pub fn open(root: impl AsRef<Path>) -> io::Result<Directory> {
        let path = root.as_ref().canonicalize()?;
        let flags = OFlags::DIRECTORY.bits() as i32;
        let open = OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        Ok(Directory { path, root, open: Arc::new(open) })
    }

    /// Makes the names in the folder of `path` durable.
    fn sync_names(&self, path: &Path) -> io::Result<()> {
        let path = self.root.join(path);
        File::open(path.parent().unwrap_or(&self.root))?.sync_all()
    }

    fn open_file(path: &Path, create: Option<u32>) -> io::Result<(DirectoryFile, bool)> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let (file, created) = match (options.open(path), create) {
            (Err(error), Some(mode)) if error.kind() == io::ErrorKind::NotFound => {
                (options.create_new(true).mode(mode).open(path)?, true)
            }
            (Err(error), _) if is_refused_for_writing(&error) => {
                return Ok((DirectoryFile::new(File::open(path)?, false), false));
            }
            (file, _) => (file?, false),
        };
        Ok((DirectoryFile::new(file, true), created))
    }

    /// Looks through a folder of the directory's own file system. What cannot be read or opened is an error:
    /// a file that is only not found would be taken for one that is gone.
    fn look_through(
        folder: &Path,
        (device, parent): (u64, FileId),
        visit: &mut dyn FnMut(&Path, &fs::Metadata, Named<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.dev() != device {
                continue;
            }
            let (name, id, is_directory) = (&*entry.file_name(), id_of(&metadata), metadata.is_dir());
            visit(&entry.path(), &metadata, Named { parent, name, id, is_directory })?;
            if is_directory {
                Self::look_through(&entry.path(), (device, id), visit)?;
            }
        }
        Ok(())
    }

    fn look_through_all(
        &self,
        visit: &mut dyn FnMut(&Path, &fs::Metadata, Named<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let DirectoryId { device, id } = self.directory()?;
        Self::look_through(&self.root, (device, id), visit)
    }
}

impl Backing for Directory {
    fn directory(&self) -> io::Result<DirectoryId> {
        let metadata = fs::metadata(&self.root)?;
        Ok(DirectoryId { device: metadata.dev(), id: id_of(&metadata) })
    }

    fn path(&self) -> Option<PathBuf> {
        Some(self.path.clone())
    }

    fn mark(&self) -> io::Result<Option<Mark>> {
        match fs::read(self.root.join(CACHE_FILE)) {
            Ok(bytes) => mark::decode(&bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn set_mark(&self, mark: Option<Mark>) -> io::Result<()> {
        let path = self.root.join(CACHE_FILE);
        if let Some(mark) = mark {
            let next = self.root.join(NEXT_CACHE_FILE);
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
            file.write_all_at(&mark::encode(&mark), 0)?;
            file.sync_all()?;
            fs::rename(next, path)?;
        } else {
            fs::remove_file(path)?;
        }
        self.sync_names(Path::new(CACHE_FILE))
    }

    fn open(&self, path: &Path, create: Option<u32>) -> io::Result<(Arc<dyn BackingFile>, bool)> {
        let (file, created) = Self::open_file(&self.root.join(path), create)?;
        Ok((Arc::new(file), created))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Ok(Stat::from(&fs::symlink_metadata(self.root.join(path))?))
    }

    fn node(&self, path: &Path, follows: bool) -> io::Result<Arc<dyn BackingNode>> {
        Ok(Arc::new(Node::open(&self.root.join(path), follows)?))
    }

    fn find(&self, files: &BTreeSet<FileId>) -> io::Result<BTreeMap<FileId, Arc<dyn BackingFile>>> {
        let mut found: BTreeMap<FileId, Arc<dyn BackingFile>> = BTreeMap::new();
        if !files.is_empty() {
            self.look_through_all(&mut |path, metadata, named| {
                let is_wanted = metadata.is_file() && files.contains(&named.id);
                if is_wanted && !found.contains_key(&named.id) {
                    found.insert(named.id, Arc::new(Self::open_file(path, None)?.0));
                }
                Ok(())
            })?;
        }
        Ok(found)
    }

    fn search(&self, visit: &mut dyn FnMut(Named<'_>)) -> io::Result<()> {
        self.look_through_all(&mut |_, _, named| {
            visit(named);
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(self.root.join(path))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(self.root.join(path))
    }

    fn rename(&self, from: &Path, to: &Path, how: Renaming) -> io::Result<()> {
        let flags = match how {
            Renaming::Replace => RenameFlags::empty(),
            Renaming::Keep => RenameFlags::NOREPLACE,
            Renaming::Exchange => RenameFlags::EXCHANGE,
        };
        Ok(rustix::fs::renameat_with(CWD, self.root.join(from), CWD, self.root.join(to), flags)?)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(self.root.join(from), self.root.join(to))
    }

    fn make(&self, path: &Path, like: &Attributes) -> io::Result<()> {
        nodes::make(&self.root.join(path), like)
    }

    fn set_attributes(&self, path: &Path, like: &Attributes) -> io::Result<()> {
        nodes::set_attributes(&self.root.join(path), like)
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&*self.open)?)
    }
}

/// It can be read nevertheless: on a read-only file system, while it is executed, by its permissions.
fn is_refused_for_writing(error: &io::Error) -> bool {
    use io::ErrorKind::{ExecutableFileBusy, PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), ExecutableFileBusy | PermissionDenied | ReadOnlyFilesystem)
}

/// Leads to an open file itself, whatever has become of its name.
fn through(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Whether a file may have that length on its file system; `EFBIG` if not. No position is used but for this:
/// reads and writes name theirs.
pub(crate) fn check_longest(file: &File, size: u64) -> io::Result<()> {
    match rustix::fs::seek(file, SeekFrom::Start(size)) {
        Err(Errno::INVAL) => Err(Errno::FBIG.into()),
        other => Ok(other.map(drop)?),
    }
}

#[derive(Debug)]
struct DirectoryFile {
    file: File,
    is_writable: bool,
    /// If that is not.
    writer: OnceLock<File>,
}

impl DirectoryFile {
    fn new(file: File, is_writable: bool) -> DirectoryFile {
        DirectoryFile { file, is_writable, writer: OnceLock::new() }
    }

    /// What was opened for reading alone is opened again: it may be possible now.
    fn writer(&self) -> io::Result<&File> {
        if self.is_writable {
            return Ok(&self.file);
        }
        if let Some(writer) = self.writer.get() {
            return Ok(writer);
        }
        let file = OpenOptions::new().read(true).write(true).open(through(&self.file))?;
        Ok(self.writer.get_or_init(|| file))
    }
}

impl BackingFile for DirectoryFile {
    fn stat(&self) -> io::Result<Stat> {
        Ok(Stat::from(&self.file.metadata()?))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut len = 0;
        while len < buffer.len() {
            match self.file.read_at(&mut buffer[len..], offset + len as u64) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(len)
    }

    /// Through the page cache: the sync gives the device all of it at once, and readers keep their pages
    /// (`docs/adr/2026-11-27-flushes-through-the-page-cache.md`).
    fn write_some(&self, offset: u64, data: &[u8]) -> io::Result<usize> {
        let writer = self.writer()?;
        loop {
            match writer.write_at(data, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => return written,
            }
        }
    }

    /// The advice makes Linux begin to write what is dirty; what is being written stays in the page cache.
    fn begin_sync(&self, offset: u64, len: u64) {
        // The sync does it otherwise.
        let _ = rustix::fs::fadvise(&self.file, offset, NonZeroU64::new(len), Advice::DontNeed);
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.writer()?.set_len(size)
    }

    fn check_size(&self, size: u64) -> io::Result<()> {
        check_longest(&self.file, size)
    }

    fn set_modified(&self, modified_ns: u64) -> io::Result<()> {
        let since = Duration::from_nanos(modified_ns);
        let keep = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let last_modification =
            Timespec { tv_sec: since.as_secs() as i64, tv_nsec: i64::from(since.subsec_nanos()) as _ };
        rustix::fs::futimens(&self.file, &Timestamps { last_access: keep, last_modification })?;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
