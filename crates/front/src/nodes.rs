//! The files that the kernel knows.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fastness_fuse::{Errno, Reply};
use fastness_responder::OWN_FILES;
use fastness_sync::{Mutex, lock};
use rustix::fs::{Mode, OFlags};

/// Number of the root in the protocol.
pub(crate) const ROOT: u64 = 1;

/// Whether it is a file of the cache itself.
pub(crate) fn is_own(parent: u64, name: &[u8]) -> bool {
    parent == ROOT && OWN_FILES.iter().any(|own| name == own.as_bytes())
}

/// A file that the kernel knows: a descriptor without access, which keeps its inode from being given out
/// again.
#[derive(Debug)]
pub(crate) struct Node {
    file: File,
    /// It has capabilities, which the next write takes from it.
    pub(crate) has_capabilities: AtomicBool,
}

impl Node {
    fn new(file: File) -> Node {
        Node { file, has_capabilities: AtomicBool::new(false) }
    }

    /// Leads to the file itself, whatever has become of its names.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Leads to a name in this directory.
    pub(crate) fn path_of(&self, name: &OsStr) -> PathBuf {
        self.path().join(name)
    }

    /// What the directory says of it.
    pub(crate) fn metadata(&self) -> Reply<Metadata> {
        self.file.metadata().map_err(|error| errno(&error))
    }
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The number of an error.
pub(crate) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[derive(Debug)]
struct Known {
    node: Arc<Node>,
    lookups: u64,
}

/// Files by their numbers: those of their inodes, on one file system.
#[derive(Debug)]
pub(crate) struct Nodes {
    root: Arc<Node>,
    device: u64,
    inode: u64,
    known: Mutex<HashMap<u64, Known>>,
}

impl Nodes {
    pub(crate) fn new(root: File) -> Reply<Nodes> {
        let root = Node::new(root);
        let metadata = root.metadata()?;
        let (device, inode) = (metadata.dev(), metadata.ino());
        Ok(Nodes { root: Arc::new(root), device, inode, known: Mutex::default() })
    }

    pub(crate) fn root(&self) -> &Node {
        &self.root
    }

    /// The number of the file with this inode.
    pub(crate) fn number(&self, inode: u64) -> u64 {
        if inode == self.inode { ROOT } else { inode }
    }

    pub(crate) fn get(&self, number: u64) -> Reply<Arc<Node>> {
        if number == ROOT {
            return Ok(self.root.clone());
        }
        let known = lock(&self.known);
        known.get(&number).map(|known| known.node.clone()).ok_or(Errno::STALE)
    }

    /// Finds a name; the kernel is about to be told of the file.
    ///
    /// # Errors
    /// [`Errno::XDEV`]: something else is mounted there.
    pub(crate) fn find(&self, parent: &Node, name: &OsStr) -> Reply<(Arc<Node>, Metadata)> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let node = Node::new(rustix::fs::openat(parent, name, flags, Mode::empty())?.into());
        let metadata = node.metadata()?;
        if metadata.dev() != self.device {
            return Err(Errno::XDEV);
        }
        let number = self.number(metadata.ino());
        if number == ROOT {
            return Ok((self.root.clone(), metadata));
        }
        let mut known = lock(&self.known);
        let known = known.entry(number).or_insert_with(|| Known { node: Arc::new(node), lookups: 0 });
        known.lookups += 1;
        Ok((known.node.clone(), metadata))
    }

    /// The kernel has forgotten some of the times that it was told.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        let mut all = lock(&self.known);
        if let Some(known) = all.get_mut(&number) {
            known.lookups = known.lookups.saturating_sub(lookups);
            if known.lookups == 0 {
                all.remove(&number);
            }
        }
    }
}
