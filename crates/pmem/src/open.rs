//! Opening: finds out what a path is, locks it, allocates its space, maps it, and reports.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom};
use rustix::io::Errno;
use rustix::mm::MapFlags;

use crate::cpu::CpuFeatures;
use crate::error::RegionError;
use crate::info::{
    DomainSource, PersistenceDomain, REGION_ALIGN_BYTES, RegionInfo, RegionKind, durability_of,
};
use crate::mapping::{Mapping, RawMap};
use crate::method::{self, PlainStores};
use crate::options::{MsyncMode, OpenOptions};
use crate::pkeys::{Key, Protection};
use crate::sysfs::{self, DevDaxAttributes, DeviceNumber, PmAttributes};

const X86: bool = cfg!(target_arch = "x86_64");

/// Whether anything may have been read from a file's page cache yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Medium {
    NotYetRead,
    /// Another process has it open, and began as it must.
    InUse,
}

/// What a path leads to, if it can be a region.
enum Target {
    DevDax(DevDaxAttributes),
    File,
}

/// Opens an existing device or file.
pub(crate) fn open(path: &Path, options: &OpenOptions) -> Result<Mapping, RegionError> {
    // Looking before opening: opening a device may have effects, and says less about what is wrong.
    let metadata = fs::metadata(path).map_err(|source| io_error(path, "look at", source))?;
    classify(path, &metadata, &options.sysfs_root)?;
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK)
        .open(path)
        .map_err(|source| io_error(path, "open", source))?;
    lock(path, &file)?;
    let metadata = file.metadata().map_err(|source| io_error(path, "look at", source))?;
    match classify(path, &metadata, &options.sysfs_root)? {
        Target::DevDax(attributes) => finish_devdax(path, file, attributes, options),
        Target::File => {
            check_len(path, metadata.len(), REGION_ALIGN_BYTES, options)?;
            fill_holes(path, &file, metadata.len())?;
            finish_file(path, file, &metadata, options, Medium::NotYetRead)
        }
    }
}

/// Maps what another process has opened.
pub(crate) fn join(file: File, options: &OpenOptions) -> Result<Mapping, RegionError> {
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .unwrap_or_else(|_| PathBuf::from("the region of another process"));
    let metadata = file.metadata().map_err(|source| io_error(&path, "look at", source))?;
    match classify(&path, &metadata, &options.sysfs_root)? {
        Target::DevDax(attributes) => finish_devdax(&path, file, attributes, options),
        Target::File => {
            check_len(&path, metadata.len(), REGION_ALIGN_BYTES, options)?;
            finish_file(&path, file, &metadata, options, Medium::InUse)
        }
    }
}

/// Creates a file, all of it allocated, and opens it. One without a byte was left by one that died here.
pub(crate) fn create_file(path: &Path, len: u64, options: &OpenOptions) -> Result<Mapping, RegionError> {
    check_len(path, len, REGION_ALIGN_BYTES, options)?;
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(options.mode)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK)
        .open(path)
        .map_err(|source| io_error(path, "create", source))?;
    // Of several processes that create it, the one with the lock does; the others find it in use, or there.
    lock(path, &file)?;
    check_new(path, &file).map_err(|source| io_error(path, "create", source))?;
    finish_new_file(path, file, len, options).inspect_err(|_| {
        // Ours and of no use; nothing can be done if it stays.
        let _ = fs::remove_file(path);
    })
}

/// Whether a file is the one at `path`, and has no byte.
fn check_new(path: &Path, file: &File) -> io::Result<()> {
    let (found, named) = (file.metadata()?, fs::metadata(path)?);
    let is_named = (named.dev(), named.ino()) == (found.dev(), found.ino());
    let is_new = is_named && found.is_file() && found.len() == 0;
    is_new.then_some(()).ok_or_else(|| io::Error::from_raw_os_error(libc::EEXIST))
}

fn finish_new_file(path: &Path, file: File, len: u64, options: &OpenOptions) -> Result<Mapping, RegionError> {
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len) {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP) => write_zeroes(&file, len).map_err(|error| space_error(path, len, error))?,
        Err(errno) => return Err(space_error(path, len, errno.into())),
    }
    // PERSIST: the file's size, its blocks and its name, before anything that is stored in it; excludes that
    // a structure's durable commit is in a file that a power cut unmakes.
    file.sync_all().map_err(|source| io_error(path, "sync", source))?;
    sync_parent(path).map_err(|source| io_error(path, "sync the directory of", source))?;
    let metadata = file.metadata().map_err(|source| io_error(path, "look at", source))?;
    finish_file(path, file, &metadata, options, Medium::NotYetRead)
}

/// Anonymous memory as a region.
pub(crate) fn anonymous(len_bytes: u64, options: &OpenOptions) -> Result<Mapping, RegionError> {
    let path = Path::new("anonymous memory");
    check_len(path, len_bytes, REGION_ALIGN_BYTES, options)?;
    let map = RawMap::anonymous(as_len(path, len_bytes)?).map_err(|source| io_error(path, "map", source))?;
    let found = Found {
        kind: RegionKind::Anonymous,
        path: None,
        align_bytes: REGION_ALIGN_BYTES,
        pm: PmAttributes::UNKNOWN,
    };
    assemble(map, None, found, options)
}

fn finish_devdax(
    path: &Path,
    file: File,
    attributes: DevDaxAttributes,
    options: &OpenOptions,
) -> Result<Mapping, RegionError> {
    if !X86 {
        return Err(RegionError::UnsupportedArchitecture { path: path.to_path_buf() });
    }
    let align_bytes = attributes.align_bytes.unwrap_or(REGION_ALIGN_BYTES).max(REGION_ALIGN_BYTES);
    let len_bytes = attributes.len_bytes.ok_or_else(|| {
        io_error(path, "find in sysfs the size of", io::Error::from(io::ErrorKind::InvalidData))
    })?;
    check_len(path, len_bytes, align_bytes, options)?;
    let map = RawMap::of_file(&file, as_len(path, len_bytes)?, MapFlags::SHARED)
        .map_err(|source| io_error(path, "map", source))?;
    let found =
        Found { kind: RegionKind::DevDax, path: Some(path.to_path_buf()), align_bytes, pm: attributes.pm };
    assemble(map, Some(file), found, options)
}

fn finish_file(
    path: &Path,
    file: File,
    metadata: &Metadata,
    options: &OpenOptions,
    medium: Medium,
) -> Result<Mapping, RegionError> {
    let in_memory =
        is_memory_file_system(&file).map_err(|source| io_error(path, "find the file system of", source))?;
    let (map, kind) = map_file(path, &file, as_len(path, metadata.len())?, in_memory)?;
    let number = device_number(metadata.dev());
    let pm = match kind {
        RegionKind::Tmpfs => PmAttributes::UNKNOWN,
        _ => sysfs::under_block_device(&options.sysfs_root, number),
    };
    let found = Found { kind, path: Some(path.to_path_buf()), align_bytes: REGION_ALIGN_BYTES, pm };
    if medium == Medium::NotYetRead && kind == RegionKind::File && calls_msync(kind, options.msync) {
        start_from_medium(&file).map_err(|source| io_error(path, "write back", source))?;
    }
    assemble(map, Some(file), found, options)
}

/// Maps with `MAP_SYNC` where the file system offers it.
fn map_file(
    path: &Path,
    file: &File,
    len_bytes: usize,
    in_memory: bool,
) -> Result<(RawMap, RegionKind), RegionError> {
    if !in_memory {
        match RawMap::of_file(file, len_bytes, MapFlags::SHARED_VALIDATE | MapFlags::SYNC) {
            Ok(map) => return Ok((map, RegionKind::FsDax)),
            // Not a DAX file; or a kernel that does not know the flag.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => {}
            Err(source) => return Err(io_error(path, "map", source)),
        }
    }
    let map =
        RawMap::of_file(file, len_bytes, MapFlags::SHARED).map_err(|source| io_error(path, "map", source))?;
    Ok((map, if in_memory { RegionKind::Tmpfs } else { RegionKind::File }))
}

/// Makes the page cache agree with the medium before anything is read.
///
/// An earlier process may have died before its `msync`, or met one that failed; what it left in the page
/// cache would be read as if it were durable.
fn start_from_medium(file: &File) -> io::Result<()> {
    // PERSIST: whatever recovery reads is on the medium before recovery acts on it; excludes that a power cut
    // takes back what recovery has acknowledged.
    file.sync_all()?;
    // Pages that could not be written are marked clean by now; without them the medium is read. Advice only.
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    Ok(())
}

/// What is known of the region by the time it is mapped.
struct Found {
    kind: RegionKind,
    path: Option<PathBuf>,
    align_bytes: u64,
    pm: PmAttributes,
}

/// Whether fences of such a region call `msync`.
fn calls_msync(kind: RegionKind, mode: MsyncMode) -> bool {
    match kind {
        // Nothing there to write back to.
        RegionKind::DevDax | RegionKind::Anonymous => false,
        // Without flush instructions of our own only the kernel can.
        RegionKind::FsDax => !X86 || mode == MsyncMode::Always,
        RegionKind::File => mode != MsyncMode::Never,
        RegionKind::Tmpfs => mode == MsyncMode::Always,
    }
}

fn plain_stores(kind: RegionKind, domain: PersistenceDomain, msync: bool) -> PlainStores {
    match kind {
        RegionKind::DevDax | RegionKind::FsDax if domain == PersistenceDomain::CpuCache => {
            PlainStores::Preferred
        }
        RegionKind::FsDax if msync => PlainStores::Allowed,
        RegionKind::DevDax | RegionKind::FsDax => PlainStores::Refused,
        RegionKind::File if msync => PlainStores::Preferred,
        RegionKind::File | RegionKind::Tmpfs | RegionKind::Anonymous => PlainStores::Allowed,
    }
}

fn assemble(
    map: RawMap,
    file: Option<File>,
    found: Found,
    options: &OpenOptions,
) -> Result<Mapping, RegionError> {
    let Found { kind, path, align_bytes, pm } = found;
    let (persistence_domain, domain_source) = match options.domain {
        Some(domain) => (domain, DomainSource::Override),
        None => (pm.domain, DomainSource::Sysfs),
    };
    let msync = calls_msync(kind, options.msync);
    let method = options.method;
    let plain_stores = plain_stores(kind, persistence_domain, msync);
    let kernel = method::choose(method, &CpuFeatures::get(), plain_stores)
        .map_err(|reason| RegionError::MethodUnavailable { method, reason })?;
    let key = match options.protection {
        Protection::None => None,
        Protection::Keys => Some(guard(&map).map_err(|reason| RegionError::KeysUnavailable { reason })?),
    };
    let info = RegionInfo {
        kind,
        path,
        len_bytes: map.len_bytes() as u64,
        align_bytes,
        persistence_domain,
        domain_source,
        unsafe_shutdowns: pm.unsafe_shutdowns,
        bad_blocks: pm.bad_blocks,
        numa_node: pm.numa_node,
        kernel,
        msync,
        durability: durability_of(kind, persistence_domain, msync),
        protection: options.protection,
    };
    Ok(Mapping::new(map, key, info, file, options.msync_hook.clone()))
}

fn guard(map: &RawMap) -> Result<Key, crate::error::KeysRefusal> {
    let key = Key::alloc()?;
    // SAFETY: the mapping is ours, readable and writable.
    unsafe { key.guard_pages(map.base().as_ptr().cast(), map.len_bytes())? };
    Ok(key)
}

fn classify(path: &Path, metadata: &Metadata, sysfs_root: &Path) -> Result<Target, RegionError> {
    let file_type = metadata.file_type();
    if file_type.is_file() {
        return Ok(Target::File);
    }
    let number = device_number(metadata.rdev());
    let path = path.to_path_buf();
    if file_type.is_block_device() {
        let (is_pm, namespace) = sysfs::block_namespace(sysfs_root, number);
        return Err(RegionError::BlockDevice { path, is_pm, namespace });
    }
    if file_type.is_char_device() {
        return match sysfs::devdax(sysfs_root, number) {
            Some(attributes) => Ok(Target::DevDax(attributes)),
            None => Err(RegionError::UnsupportedType { path, found: "character device that is not devdax" }),
        };
    }
    let found = if file_type.is_dir() {
        "directory"
    } else if file_type.is_fifo() {
        "named pipe"
    } else if file_type.is_socket() {
        "socket"
    } else {
        "file of unknown type"
    };
    Err(RegionError::UnsupportedType { path, found })
}

fn lock(path: &Path, file: &File) -> Result<(), RegionError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(RegionError::AlreadyOpen { path: path.to_path_buf() }),
        Err(errno) => Err(io_error(path, "lock", errno.into())),
    }
}

fn check_len(
    path: &Path,
    len_bytes: u64,
    align_bytes: u64,
    options: &OpenOptions,
) -> Result<(), RegionError> {
    let path = || path.to_path_buf();
    if len_bytes < options.min_len_bytes {
        return Err(RegionError::TooSmall { path: path(), len_bytes, min_bytes: options.min_len_bytes });
    }
    if !len_bytes.is_multiple_of(align_bytes) {
        return Err(RegionError::Misaligned { path: path(), len_bytes, align_bytes });
    }
    Ok(())
}

/// Allocates what a file lacks, keeping its contents and its length.
fn fill_holes(path: &Path, file: &File, len_bytes: u64) -> Result<(), RegionError> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len_bytes) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP) => match rustix::fs::seek(file, SeekFrom::Hole(0)) {
            Ok(hole) if hole < len_bytes => Err(RegionError::Sparse { path: path.to_path_buf() }),
            // No hole, or a file system that knows none.
            Ok(_) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(io_error(path, "look for holes in", errno.into())),
        },
        Err(errno) => Err(space_error(path, len_bytes, errno.into())),
    }
}

fn write_zeroes(file: &File, len_bytes: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), len_bytes), &mut &*file).map(drop)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Whether the file lives in memory, whatever it says about `msync`.
fn is_memory_file_system(file: &File) -> io::Result<bool> {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    const RAMFS_MAGIC: u64 = 0x8584_58f6;
    const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;
    let magic = rustix::fs::fstatfs(file)?.f_type as u64 & u64::from(u32::MAX);
    Ok([TMPFS_MAGIC, RAMFS_MAGIC, HUGETLBFS_MAGIC].contains(&magic))
}

fn device_number(device: u64) -> DeviceNumber {
    DeviceNumber { major: rustix::fs::major(device), minor: rustix::fs::minor(device) }
}

fn as_len(path: &Path, len_bytes: u64) -> Result<usize, RegionError> {
    usize::try_from(len_bytes).map_err(|_| io_error(path, "map", io::Error::from_raw_os_error(libc::ENOMEM)))
}

/// The variant for a failed system call on `path`.
fn io_error(path: &Path, operation: &'static str, source: io::Error) -> RegionError {
    let path = path.to_path_buf();
    match source.raw_os_error() {
        Some(libc::ENOENT) => RegionError::NotFound { path },
        Some(libc::EEXIST) => RegionError::AlreadyExists { path },
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => RegionError::ReadOnly { path, source },
        _ => RegionError::Io { path, operation, source },
    }
}

/// The variant for a failed allocation.
fn space_error(path: &Path, len_bytes: u64, source: io::Error) -> RegionError {
    match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => {
            RegionError::NoSpace { path: path.to_path_buf(), len_bytes, source }
        }
        _ => io_error(path, "allocate", source),
    }
}
