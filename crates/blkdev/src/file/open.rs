//! Opening and creating devices, with their options.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FallocateFlags, FlockOperation};

use crate::error::OpenError;
use crate::file::FileDevice;
use crate::file::probe::{self, Found};
use crate::file::raw::{BlockFile, RawIo, RegularFile};
use crate::file::uring::Rings;
use crate::health::Health;
use crate::info::{DeviceInfo, DeviceKind, Engine};

/// Whether to bypass the page cache (`O_DIRECT`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direct {
    /// If the device supports it with the requested block size; otherwise [`DeviceInfo::notes`] says why not.
    #[default]
    Auto,
    /// Always, or fail.
    On,
    /// Never.
    Off,
}

/// How to run batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EngineChoice {
    /// io_uring if the kernel allows it and I/O is direct (page-cached writes gain nothing, since they are
    /// handed to kernel threads); otherwise [`DeviceInfo::notes`] says why not.
    #[default]
    Auto,
    /// One system call per request.
    Psync,
    /// io_uring, or fail.
    Uring,
}

/// How to open a file or block device.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    is_read_only: bool,
    is_exclusive: bool,
    direct: Direct,
    engine: EngineChoice,
    logical_block_bytes: Option<u32>,
    queue_depth: u32,
    is_sparse: bool,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            is_read_only: false,
            is_exclusive: true,
            direct: Direct::Auto,
            engine: EngineChoice::Auto,
            logical_block_bytes: None,
            queue_depth: 128,
            is_sparse: false,
        }
    }
}

impl OpenOptions {
    /// For reading and writing, exclusively, direct and with io_uring if possible.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Opens for reading only.
    #[must_use]
    pub fn read_only(mut self, is_read_only: bool) -> OpenOptions {
        self.is_read_only = is_read_only;
        self
    }

    /// Locks out other processes (default): `flock` on a file, shared between readers; `O_EXCL` on a block
    /// device, which also refuses mounted ones. Without it the caller is responsible for what others write.
    #[must_use]
    pub fn exclusive(mut self, is_exclusive: bool) -> OpenOptions {
        self.is_exclusive = is_exclusive;
        self
    }

    /// Whether to bypass the page cache.
    #[must_use]
    pub fn direct(mut self, direct: Direct) -> OpenOptions {
        self.direct = direct;
        self
    }

    /// How to run batches.
    #[must_use]
    pub fn engine(mut self, engine: EngineChoice) -> OpenOptions {
        self.engine = engine;
        self
    }

    /// Unit of offsets and lengths: a power of two, 512 to 65536, at least that of a block device. Default:
    /// the smallest that the device accepts.
    #[must_use]
    pub fn logical_block_bytes(mut self, block_bytes: u32) -> OpenOptions {
        self.logical_block_bytes = Some(block_bytes);
        self
    }

    /// Maximum number of requests of a batch in flight, with io_uring.
    #[must_use]
    pub fn queue_depth(mut self, queue_depth: u32) -> OpenOptions {
        self.queue_depth = queue_depth.clamp(1, 4096);
        self
    }

    /// Creates files without preallocated space: writes allocate it, and fail when the file system has none
    /// left.
    #[must_use]
    pub fn sparse(mut self, is_sparse: bool) -> OpenOptions {
        self.is_sparse = is_sparse;
        self
    }

    /// Opens an existing file or device.
    ///
    /// After a failed flush by an earlier handle of this process, the cached contents are dropped first, so
    /// that reads show what is on the medium.
    ///
    /// # Errors
    /// [`OpenError`]; nothing stays open.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<FileDevice, OpenError> {
        let path = path.as_ref();
        let metadata = fs::metadata(path).map_err(|error| open_error(path, error))?;
        if let Some(found) = probe::unsupported_type(&metadata) {
            return Err(OpenError::UnsupportedType { path: path.into(), found });
        }
        let is_block = !metadata.is_file();
        let mut options = fs::OpenOptions::new();
        options.read(true).write(!self.is_read_only);
        if is_block && self.is_exclusive {
            // Without O_CREAT, on a block device: fails if it is mounted or opened the same way.
            options.custom_flags(libc::O_EXCL);
        }
        let file = options.open(path).map_err(|error| open_error(path, error))?;
        self.finish(path, file, Vec::new())
    }

    /// Creates a file of `len_bytes` zeroes, allocated if the file system can (unless
    /// [`sparse`](Self::sparse)), and durable with its name.
    ///
    /// # Errors
    /// [`OpenError`]; no file is left.
    pub fn create(&self, path: impl AsRef<Path>, len_bytes: u64) -> Result<FileDevice, OpenError> {
        let path = path.as_ref();
        let mut options = fs::OpenOptions::new();
        // Nobody else reads what is on a disk either.
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(path).map_err(|error| open_error(path, error))?;
        let mut notes = Vec::new();
        let allocated = match self.is_sparse {
            true => set_len(path, &file, len_bytes),
            false => allocate(path, &file, len_bytes, &mut notes),
        };
        let created = allocated
            .and_then(|()| sync_with_name(path, &file).map_err(|error| io_error(path, "sync", error)))
            .and_then(|()| self.finish(path, file, notes));
        if created.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_file(path);
        }
        created
    }

    fn finish(&self, path: &Path, file: File, mut notes: Vec<String>) -> Result<FileDevice, OpenError> {
        let found =
            probe::probe(&file, self.is_read_only).map_err(|error| io_error(path, "inspect", error))?;
        if found.kind == DeviceKind::File && self.is_exclusive {
            lock(path, &file, self.is_read_only)?;
        }
        let (health, was_poisoned) =
            Health::join(found.identity).map_err(|_| OpenError::Poisoned { path: path.into() })?;
        if was_poisoned {
            forget_cached(&file).map_err(|error| io_error(path, "recover from a failed flush of", error))?;
            health.recovered();
        }
        let direct = self.choose_direct(path, &file, &found, &mut notes)?;
        let block_bytes = self.block_bytes(path, &found, direct.map_or(1, |align| align.offset_bytes))?;
        let raw: Box<dyn RawIo> = match found.kind {
            DeviceKind::Block => Box::new(BlockFile(file)),
            _ => Box::new(RegularFile(file)),
        };
        let rings = self.choose_engine(path, &*raw, direct.is_some(), &mut notes)?;
        let info = DeviceInfo {
            name: path.display().to_string().into(),
            len_bytes: found.len_bytes,
            logical_block_bytes: block_bytes,
            physical_block_bytes: found.physical_block_bytes.max(block_bytes),
            memory_align_bytes: direct.map_or(1, |align| align.memory_bytes),
            is_read_only: found.is_read_only,
            can_discard: found.can_discard,
            discard_zeroes: found.discard_zeroes,
            fences_others: false,
            is_direct: direct.is_some(),
            write_cache: probe::write_cache(&found, direct.is_some()),
            kind: found.kind,
            engine: if rings.is_some() { Engine::Uring } else { Engine::Psync },
            notes,
        };
        Ok(FileDevice::new(info, raw, rings, health))
    }

    /// Enables direct I/O if it is wanted and possible with the block size.
    fn choose_direct(
        &self,
        path: &Path,
        file: &File,
        found: &Found,
        notes: &mut Vec<String>,
    ) -> Result<Option<probe::DirectAlign>, OpenError> {
        if self.direct == Direct::Off {
            return Ok(None);
        }
        let attempt = probe::direct_align(file, found).and_then(|align| {
            let block_bytes = self.logical_block_bytes.unwrap_or(align.offset_bytes);
            if block_bytes < align.offset_bytes {
                return Err(format!(
                    "blocks of {block_bytes} bytes, offsets must be multiples of {}",
                    align.offset_bytes
                ));
            }
            probe::set_direct(file, true)
                .and_then(|()| {
                    probe::try_direct_read(file, block_bytes.max(align.offset_bytes), align.memory_bytes)
                })
                .map_err(|error| error.to_string())?;
            Ok(align)
        });
        match attempt {
            Ok(align) => Ok(Some(align)),
            Err(reason) if self.direct == Direct::On => {
                Err(OpenError::DirectUnavailable { path: path.into(), reason })
            }
            Err(reason) => {
                probe::set_direct(file, false).map_err(|error| io_error(path, "configure", error))?;
                notes.push(format!("no O_DIRECT: {reason}"));
                Ok(None)
            }
        }
    }

    fn block_bytes(&self, path: &Path, found: &Found, direct_bytes: u32) -> Result<u32, OpenError> {
        let geometry = |reason| Err(OpenError::Geometry { path: path.into(), reason });
        let least = found.logical_block_bytes.max(direct_bytes);
        let block_bytes = self.logical_block_bytes.unwrap_or(least);
        if !block_bytes.is_power_of_two() || !(512..=65536).contains(&block_bytes) {
            return geometry(format!("a block is a power of two from 512 to 65536, not {block_bytes}"));
        }
        if block_bytes < least {
            return geometry(format!("blocks of {block_bytes} bytes on a device with blocks of {least}"));
        }
        if found.len_bytes == 0 || !found.len_bytes.is_multiple_of(u64::from(block_bytes)) {
            return geometry(format!(
                "{} bytes are no whole number of blocks of {block_bytes}",
                found.len_bytes
            ));
        }
        Ok(block_bytes)
    }

    fn choose_engine(
        &self,
        path: &Path,
        raw: &dyn RawIo,
        is_direct: bool,
        notes: &mut Vec<String>,
    ) -> Result<Option<Rings>, OpenError> {
        let is_wanted = match self.engine {
            EngineChoice::Psync => false,
            EngineChoice::Uring => true,
            EngineChoice::Auto => is_direct,
        };
        let Some(fd) = raw.raw_fd().filter(|_| is_wanted) else { return Ok(None) };
        match Rings::new(fd, self.queue_depth) {
            Ok(rings) => Ok(Some(rings)),
            Err(error) if self.engine == EngineChoice::Uring => {
                Err(OpenError::UringUnavailable { path: path.into(), reason: error.to_string() })
            }
            Err(error) => {
                notes.push(format!("io_uring refused: {error}"));
                Ok(None)
            }
        }
    }
}

fn io_error(path: &Path, operation: &'static str, source: io::Error) -> OpenError {
    OpenError::Io { path: path.into(), operation, source }
}

fn open_error(path: &Path, source: io::Error) -> OpenError {
    let path = PathBuf::from(path);
    match source.raw_os_error() {
        Some(libc::ENOENT) => OpenError::NotFound { path },
        Some(libc::EEXIST) => OpenError::AlreadyExists { path },
        Some(libc::EBUSY) => OpenError::InUse { path },
        Some(libc::EROFS | libc::EACCES | libc::EPERM) => OpenError::ReadOnly { path, source },
        _ => OpenError::Io { path, operation: "open", source },
    }
}

fn lock(path: &Path, file: &File, is_read_only: bool) -> Result<(), OpenError> {
    let operation = if is_read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    match rustix::fs::flock(file, operation) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::InUse { path: path.into() }),
        Err(error) => Err(io_error(path, "lock", error.into())),
    }
}

/// Makes reads show the medium: writes back dirty pages, then drops clean ones, which after a failed
/// write-back may hold what never reached the medium.
fn forget_cached(file: &File) -> io::Result<()> {
    rustix::fs::fdatasync(file)?;
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

fn allocate(path: &Path, file: &File, len_bytes: u64, notes: &mut Vec<String>) -> Result<(), OpenError> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len_bytes) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => {
            notes.push("not allocated in advance: the file system cannot".to_owned());
            set_len(path, file, len_bytes)
        }
        Err(error @ (rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT | rustix::io::Errno::FBIG)) => {
            Err(OpenError::NoSpace { path: path.into(), len_bytes, source: error.into() })
        }
        Err(rustix::io::Errno::INVAL) => {
            Err(OpenError::Geometry { path: path.into(), reason: format!("a length of {len_bytes} bytes") })
        }
        Err(error) => Err(io_error(path, "allocate", error.into())),
    }
}

fn set_len(path: &Path, file: &File, len_bytes: u64) -> Result<(), OpenError> {
    file.set_len(len_bytes).map_err(|error| io_error(path, "extend", error))
}

/// Makes the file's length and its name durable.
fn sync_with_name(path: &Path, file: &File) -> io::Result<()> {
    file.sync_all()?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}
