//! The cache as the contents of a mount: what is acknowledged is durable; with the protocol Log, what is
//! synced.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fastness_fuse::{Errno, Reply};
use fastness_pmem::PmRange;
use fastness_responder::{Cache, Error, FileId, Handle, Lease, Renaming, Stat};
use rustix::fs::{Mode, OFlags, RenameFlags};

use crate::contents::{ATTRIBUTES_VALID, Contents, Writing};

/// Files of a directory with a cache in front.
#[derive(Debug, Clone)]
pub struct Cached(pub Arc<Cache<PmRange>>);

/// A file that is open in the cache.
#[derive(Debug)]
pub struct CachedFile {
    cache: Arc<Cache<PmRange>>,
    /// Until it is closed.
    handle: Option<Handle>,
    /// What was opened for writing can be written to for as long: it is not executed meanwhile.
    _writable: Option<File>,
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // What is in PM stays there; the next recovery does what this could not.
            let _ = self.cache.close(handle);
        }
    }
}

impl CachedFile {
    /// Lets other processes use it directly, if nothing uses it in another way.
    pub(crate) fn lease(&self) -> Result<Option<Lease>, Error> {
        self.cache.lease(self.handle())
    }

    fn handle(&self) -> &Handle {
        self.handle.as_ref().expect("it is open until it is dropped")
    }
}

fn number(error: Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

fn open_for_writing(path: &Path, flags: OFlags) -> Reply<Option<File>> {
    let access = flags & OFlags::RWMODE;
    if access == OFlags::RDONLY {
        return Ok(None);
    }
    Ok(Some(rustix::fs::open(path, access | OFlags::CLOEXEC, Mode::empty())?.into()))
}

impl Contents for Cached {
    type File = CachedFile;

    /// The directory may be looked at, and read, past the mount.
    const NAME_VALID: Duration = Duration::from_secs(1);

    fn open(&self, path: &Path, flags: OFlags) -> Reply<CachedFile> {
        let writable = open_for_writing(path, flags)?;
        let handle = self.0.open_file(path, None, 0).map_err(number)?;
        Ok(CachedFile { cache: self.0.clone(), handle: Some(handle), _writable: writable })
    }

    fn read(&self, file: &CachedFile, offset: u64, buffer: &mut [u8]) -> Reply<usize> {
        // From now on the kernel may have pages of it.
        self.0.use_directly(file.handle()).map_err(number)?;
        self.0.read(file.handle(), offset, buffer).map_err(number)
    }

    fn write(&self, file: &CachedFile, offset: u64, data: &[u8], how: Writing) -> Reply<usize> {
        let (cache, handle) = (&self.0, file.handle());
        cache.use_directly(handle).map_err(number)?;
        match (how.appends, how.is_synced) {
            (true, true) => cache.append_synced(handle, data).map(|(_, len)| len),
            (true, false) => cache.append(handle, data).map(|(_, len)| len),
            (false, true) => cache.write_synced(handle, offset, data),
            (false, false) => cache.write(handle, offset, data),
        }
        .map_err(number)
    }

    fn sync(&self, file: &CachedFile) -> Reply<()> {
        match self.0.syncs_itself() {
            true => Err(Errno::NOSYS),
            false => self.0.sync(file.handle()).map_err(number),
        }
    }

    fn truncate(&self, path: &Path, size_bytes: u64) -> Reply<()> {
        let file = self.open(path, OFlags::WRONLY)?;
        self.0.truncate(file.handle(), size_bytes).map_err(number)
    }

    fn current(&self, stat: Stat, again: impl Fn() -> io::Result<Stat>) -> Stat {
        self.0.current(stat, again).unwrap_or(stat)
    }

    fn attributes_valid(&self, file: FileId) -> Duration {
        if self.0.is_leased(file) { Duration::ZERO } else { ATTRIBUTES_VALID }
    }

    fn keeps_pages(&self) -> bool {
        // A process that has a lease changes the file without the kernel.
        self.0.shared().is_none()
    }

    fn end_leases(&self, file: FileId) -> Reply<()> {
        self.0.end_leases_of(file).map_err(number)
    }

    fn change<T>(&self, file: FileId, act: impl FnOnce() -> io::Result<T>) -> Reply<T> {
        self.0.change_below(file, act).map_err(number)
    }

    fn make(&self, path: &Path, act: impl Fn() -> Reply<bool>) -> Reply<()> {
        self.0.make(path, || Ok(((), act()?))).map_err(number)
    }

    fn link(&self, file: &Path, to: &Path, act: impl FnOnce() -> Reply<()>) -> Reply<()> {
        self.0.link_by(file, true, to, || act().map_err(io::Error::from)).map_err(number)
    }

    fn unlink(&self, path: &Path) -> Reply<()> {
        self.0.unlink(path).map_err(number)
    }

    fn remove_directory(&self, path: &Path) -> Reply<()> {
        self.0.remove_directory(path).map_err(number)
    }

    fn rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> Reply<()> {
        let how = match flags {
            RenameFlags::NOREPLACE => Renaming::Keep,
            RenameFlags::EXCHANGE => Renaming::Exchange,
            flags if flags.is_empty() => Renaming::Replace,
            _ => return Err(Errno::INVAL),
        };
        self.0.rename_with(from, to, how).map_err(number)
    }

    fn settle(&self, path: &Path) -> Reply<()> {
        self.0.settle(path).map_err(number)
    }

    fn flush(&self, file: &CachedFile) -> Reply<()> {
        self.0.flush_file(file.handle()).map_err(number)
    }

    fn flush_all(&self) -> Reply<()> {
        self.0.flush().map_err(number)
    }
}
