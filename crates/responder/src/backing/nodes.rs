//! Anything in a directory of the system's: held, described, and made again.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType as RawType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::directory::{id_of, nanoseconds};
use super::{Attributes, BackingNode, FileId, FileType};

/// A descriptor without access.
#[derive(Debug)]
pub(super) struct Node(File);

impl Node {
    pub(super) fn open(path: &Path, follows: bool) -> io::Result<Node> {
        let stay = if follows { OFlags::empty() } else { OFlags::NOFOLLOW };
        let node: OwnedFd = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | stay, Mode::empty())?;
        Ok(Node(node.into()))
    }

    /// Leads to it, whatever has become of its names.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

impl BackingNode for Node {
    fn id(&self) -> io::Result<FileId> {
        Ok(id_of(&self.0.metadata()?))
    }

    fn attributes(&self) -> io::Result<Attributes> {
        let metadata = self.0.metadata()?;
        Ok(Attributes {
            id: id_of(&metadata),
            links: metadata.nlink(),
            mode: metadata.mode(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            rdev: metadata.rdev(),
            accessed_ns: nanoseconds(metadata.accessed()),
            modified_ns: nanoseconds(metadata.modified()),
            target: Vec::new(),
            extended: extended(&self.path())?,
        })
    }

    fn target(&self) -> io::Result<Vec<u8>> {
        match self.0.metadata()?.is_symlink() {
            true => Ok(rustix::fs::readlinkat(&self.0, "", Vec::new())?.into_bytes()),
            false => Ok(Vec::new()),
        }
    }

    fn sync(&self) -> io::Result<bool> {
        let metadata = self.0.metadata()?;
        if !metadata.is_file() && !metadata.is_dir() {
            return Ok(false);
        }
        match File::open(self.path()) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
            file => file?.sync_all().map(|()| true),
        }
    }
}

/// Calls again if what is asked for has grown meanwhile.
fn sized(
    len: impl Fn() -> rustix::io::Result<usize>,
    fill: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
) -> io::Result<Vec<u8>> {
    loop {
        let mut bytes = vec![0; len()?];
        if bytes.is_empty() {
            return Ok(bytes);
        }
        match fill(&mut bytes) {
            Err(Errno::RANGE) => {}
            filled => {
                bytes.truncate(filled?);
                return Ok(bytes);
            }
        }
    }
}

/// Extended attributes, of a path that leads through a descriptor. Those that the file system makes up
/// (CephFS: `ceph.`) are none.
fn extended(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let names = sized(|| rustix::fs::listxattr_query(path), |buffer| rustix::fs::listxattr(path, buffer));
    let names = match names {
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => Vec::new(),
        names => names?,
    };
    let mut all = Vec::new();
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        if name.starts_with(b"ceph.") {
            continue;
        }
        let key = OsStr::from_bytes(name);
        let len = || rustix::fs::getxattr_query(path, key);
        match sized(len, |buffer| rustix::fs::getxattr(path, key, buffer)) {
            // Gone meanwhile.
            Err(error) if error.raw_os_error() == Some(Errno::NODATA.raw_os_error()) => {}
            value => all.push((name.to_vec(), value?)),
        }
    }
    all.sort();
    Ok(all)
}

pub(super) fn make(path: &Path, like: &Attributes) -> io::Result<()> {
    match like.file_type() {
        FileType::File => {
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        }
        FileType::Directory => rustix::fs::mkdir(path, Mode::RWXU)?,
        FileType::Symlink => rustix::fs::symlink(OsStr::from_bytes(&like.target), path)?,
        FileType::Special => {
            let kind = RawType::from_raw_mode(like.mode);
            rustix::fs::mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, like.rdev)?;
        }
    }
    Ok(())
}

fn timestamp(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ }
}

/// What is so already is not changed: that may need more rights than there are.
pub(super) fn set_attributes(path: &Path, like: &Attributes) -> io::Result<()> {
    let node = Node::open(path, false)?;
    let (path, now) = (node.path(), node.attributes()?);
    if (now.uid, now.gid) != (like.uid, like.gid) {
        let (uid, gid) = (Uid::from_raw(like.uid), Gid::from_raw(like.gid));
        rustix::fs::chownat(&node.0, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    }
    let is_symlink = like.file_type() == FileType::Symlink;
    for (name, _) in
        now.extended.iter().filter(|(name, _)| !like.extended.iter().any(|(kept, _)| kept == name))
    {
        rustix::fs::removexattr(&path, OsStr::from_bytes(name))?;
    }
    for (name, value) in like.extended.iter().filter(|attribute| !now.extended.contains(attribute)) {
        rustix::fs::setxattr(&path, OsStr::from_bytes(name), value, XattrFlags::empty())?;
    }
    // After the owner, which takes bits of the mode with it, and the access control list, which sets some.
    if !is_symlink && fs::metadata(&path)?.mode() & 0o7777 != like.mode & 0o7777 {
        rustix::fs::chmod(&path, Mode::from_raw_mode(like.mode & 0o7777))?;
    }
    if !like.is_directory() && !is_symlink {
        let times = Timestamps {
            last_access: timestamp(like.accessed_ns),
            last_modification: timestamp(like.modified_ns),
        };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty())?;
    }
    Ok(())
}
