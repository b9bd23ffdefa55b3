//! A pass-through file system: every operation is the same one on a directory, and nothing is made durable.
//! What a mount costs at least, whoever stores the files.
//!
//! Only what the benchmarks use. Nodes have the inode numbers of the directory, which is on one file system.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastness_fuse::{
    Attr, Caller, Entry, Errno, Files, MountOptions, Name, NewNode, Open, Opened, Reply, Session,
    SessionOptions, SetAttr, Time, Transport, WriteFlags, mount,
};
use fastness_sync::{Mutex, RwLock, lock};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};

use crate::error::{Context, Result, foreign};

const ROOT: u64 = 1;
/// As a mount of ours.
const NAME_VALID: Duration = Duration::from_secs(3600);
const ATTR_VALID: Duration = Duration::from_secs(1);

/// A file that the kernel knows, and how often.
struct Node {
    path_fd: Arc<OwnedFd>,
    lookups: u64,
}

struct PassThrough {
    root: Arc<OwnedFd>,
    nodes: Mutex<HashMap<u64, Node>>,
    /// By handle.
    open: RwLock<Vec<Option<Arc<OwnedFd>>>>,
}

/// Serves `dir` at `mount_point` until it is unmounted.
///
/// # Errors
/// If it cannot be mounted.
pub fn serve_pass_through(dir: &Path, mount_point: &Path) -> Result<()> {
    let root = open_path(rustix::fs::CWD, dir.as_os_str(), OFlags::DIRECTORY)
        .map_err(foreign)
        .with_context(|| format!("cannot open {}", dir.display()))?;
    let files =
        Arc::new(PassThrough { root: Arc::new(root), nodes: Mutex::default(), open: RwLock::default() });
    let options = MountOptions { source: "pass-through".to_owned(), ..MountOptions::default() };
    // As the mounts that it is compared with (`fastness-daemon`).
    let transport = Transport::told();
    let device = mount(mount_point, &options).map_err(foreign)?;
    let session = Session::start(device, files, SessionOptions { transport, ..SessionOptions::default() })
        .map_err(foreign)?;
    session.wait(None);
    Ok(())
}

fn open_path(parent: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> Reply<OwnedFd> {
    let flags = flags | OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

fn time(seconds: i64, nanoseconds: u64) -> Time {
    Time { seconds, nanoseconds: nanoseconds as u32 }
}

fn attr(stat: &Stat, node: u64) -> Attr {
    Attr {
        node,
        size_bytes: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        block_bytes: stat.st_blksize as u32,
        mode: stat.st_mode,
        links: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        btime: None,
    }
}

fn entry(attr: Attr) -> Entry {
    Entry { attr, generation: 1, name_valid: NAME_VALID, attr_valid: ATTR_VALID }
}

impl PassThrough {
    fn node(&self, node: u64) -> Reply<Arc<OwnedFd>> {
        if node == ROOT {
            return Ok(self.root.clone());
        }
        let nodes = lock(&self.nodes);
        nodes.get(&node).map(|node| node.path_fd.clone()).ok_or(Errno::STALE)
    }

    /// The kernel is told of a file.
    fn tell(&self, path_fd: OwnedFd) -> Reply<Entry> {
        let stat = rustix::fs::fstat(&path_fd)?;
        let mut nodes = lock(&self.nodes);
        let node =
            nodes.entry(stat.st_ino).or_insert_with(|| Node { path_fd: Arc::new(path_fd), lookups: 0 });
        node.lookups += 1;
        Ok(entry(attr(&stat, stat.st_ino)))
    }

    fn opened(&self, fd: OwnedFd) -> Opened {
        let mut open = fastness_sync::write(&self.open);
        let free = open.iter().position(Option::is_none).unwrap_or_else(|| {
            open.push(None);
            open.len() - 1
        });
        open[free] = Some(Arc::new(fd));
        Opened { handle: free as u64, keeps_cache: true, is_direct: false }
    }

    fn file(&self, handle: u64) -> Reply<Arc<OwnedFd>> {
        let open = fastness_sync::read(&self.open);
        open.get(handle as usize).and_then(Clone::clone).ok_or(Errno::BADF)
    }

    fn stat(&self, node: u64, handle: Option<u64>) -> Reply<Attr> {
        let stat = match handle {
            Some(handle) => rustix::fs::fstat(&*self.file(handle)?)?,
            None => rustix::fs::fstat(&*self.node(node)?)?,
        };
        Ok(attr(&stat, node))
    }
}

/// Through which a descriptor without access is opened again.
fn reopened(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

fn flags(flags: u32) -> OFlags {
    OFlags::from_bits_retain(flags) & !(OFlags::NOFOLLOW | OFlags::CREATE | OFlags::EXCL) | OFlags::CLOEXEC
}

impl Files for PassThrough {
    fn lookup(&self, _: Caller<'_>, parent: u64, name: Name<'_>) -> Reply<Entry> {
        let parent = self.node(parent)?;
        self.tell(open_path(parent.as_fd(), OsStr::from_bytes(name), OFlags::empty())?)
    }

    fn attributes(&self, _: Caller<'_>, node: u64, handle: Option<u64>) -> Reply<(Attr, Duration)> {
        Ok((self.stat(node, handle)?, ATTR_VALID))
    }

    fn set_attributes(&self, _: Caller<'_>, node: u64, set: &SetAttr) -> Reply<(Attr, Duration)> {
        let path = reopened(&*self.node(node)?);
        if let Some(size_bytes) = set.size_bytes {
            let fd = rustix::fs::open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::fs::ftruncate(fd, size_bytes)?;
        }
        if let Some(mode) = set.mode {
            rustix::fs::chmod(&path, Mode::from_raw_mode(mode))?;
        }
        Ok((self.stat(node, set.handle)?, ATTR_VALID))
    }

    fn make(&self, _: Caller<'_>, parent: u64, name: Name<'_>, new: &NewNode<'_>) -> Reply<Entry> {
        const TYPE: u32 = 0o170_000;
        const DIRECTORY: u32 = 0o040_000;
        if new.mode & TYPE != DIRECTORY {
            return Err(Errno::OPNOTSUPP);
        }
        let (parent, name) = (self.node(parent)?, OsStr::from_bytes(name));
        rustix::fs::mkdirat(&*parent, name, Mode::from_raw_mode(new.mode & !new.umask))?;
        self.tell(open_path(parent.as_fd(), name, OFlags::DIRECTORY)?)
    }

    fn unlink(&self, _: Caller<'_>, parent: u64, name: Name<'_>) -> Reply<()> {
        rustix::fs::unlinkat(&*self.node(parent)?, OsStr::from_bytes(name), AtFlags::empty())
    }

    fn remove_directory(&self, _: Caller<'_>, parent: u64, name: Name<'_>) -> Reply<()> {
        rustix::fs::unlinkat(&*self.node(parent)?, OsStr::from_bytes(name), AtFlags::REMOVEDIR)
    }

    fn open(&self, _: Caller<'_>, node: u64, how: u32, _: bool) -> Reply<Opened> {
        Ok(self.opened(rustix::fs::open(reopened(&*self.node(node)?), flags(how), Mode::empty())?))
    }

    fn create(
        &self,
        _: Caller<'_>,
        parent: u64,
        name: Name<'_>,
        new: &NewNode<'_>,
        how: u32,
    ) -> Reply<(Entry, Opened)> {
        let (parent, name) = (self.node(parent)?, OsStr::from_bytes(name));
        let mode = Mode::from_raw_mode(new.mode & !new.umask & 0o7777);
        let fd = rustix::fs::openat(&*parent, name, flags(how) | OFlags::CREATE | OFlags::NOFOLLOW, mode)?;
        let entry = self.tell(open_path(parent.as_fd(), name, OFlags::empty())?)?;
        Ok((entry, self.opened(fd)))
    }

    fn read(&self, _: Caller<'_>, of: Open, offset: u64, buffer: &mut [u8]) -> Reply<usize> {
        let (file, mut filled) = (self.file(of.handle)?, 0);
        while filled < buffer.len() {
            match rustix::io::pread(&*file, &mut buffer[filled..], offset + filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled)
    }

    fn write(&self, _: Caller<'_>, of: Open, offset: u64, data: &[u8], _: WriteFlags) -> Reply<usize> {
        rustix::io::pwrite(&*self.file(of.handle)?, data, offset)
    }

    fn sync(&self, _: Caller<'_>, _: Open, _: bool) -> Reply<()> {
        Ok(())
    }

    fn open_directory(&self, _: Caller<'_>, _: u64) -> Reply<Opened> {
        Ok(Opened::default())
    }

    fn forget(&self, node: u64, lookups: u64) {
        let mut nodes = lock(&self.nodes);
        if let Some(known) = nodes.get_mut(&node) {
            known.lookups = known.lookups.saturating_sub(lookups);
            if known.lookups == 0 {
                nodes.remove(&node);
            }
        }
    }

    fn release(&self, of: Open) {
        let mut open = fastness_sync::write(&self.open);
        if let Some(handle) = open.get_mut(of.handle as usize) {
            *handle = None;
        }
    }
}
