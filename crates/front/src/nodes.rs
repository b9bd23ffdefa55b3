//! The files that the kernel knows.
//!
//! A file is held by a descriptor without access, which leads to it whatever becomes of its names. There are
//! fewer descriptors than files that a kernel can know, so those that were not used for long are closed, and
//! the file is found again by its name. Calls that take names away or give them tell of it
//! ([`Nodes::take`], [`Nodes::look_again`]): what has no name that is known keeps its descriptor.
//!
//! What is found by a name must be the same file: inode and birth. If it is not, or nothing is there,
//! somebody
//! has changed the directory past the mount: the call fails with ESTALE, and the kernel asks for the name.

mod table;

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fastness_fuse::{Errno, Reply};
use fastness_responder::{FileId, OWN_FILES, Stat};
use fastness_sync::{Mutex, lock};
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::descriptors::Descriptors;

use table::{Known, Place, Table};

/// Number of the root in the protocol.
pub(crate) const ROOT: u64 = 1;
/// How often a file is looked for whose name changes meanwhile.
const ATTEMPTS: u32 = 10;
/// Directories above a file that are looked for with it: there are no more in a path (`PATH_MAX`).
const DEPTH_MAX: u32 = 2048;

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

/// Files by their numbers: those of their inodes, on one file system.
#[derive(Debug)]
pub(crate) struct Nodes {
    root: Arc<Node>,
    device: u64,
    inode: u64,
    table: Mutex<Table>,
    descriptors: Arc<Descriptors>,
}

/// A file of which a name is about to be taken: it is held.
#[derive(Debug)]
pub(crate) struct Taken {
    number: u64,
    _node: Arc<Node>,
}

impl Nodes {
    /// Of the directory `root`.
    pub(crate) fn new(root: File, descriptors: Arc<Descriptors>) -> Reply<Nodes> {
        let root = Node::new(root);
        let metadata = root.metadata()?;
        let (device, inode) = (metadata.dev(), metadata.ino());
        Ok(Nodes { root: Arc::new(root), device, inode, table: Mutex::default(), descriptors })
    }

    pub(crate) fn root(&self) -> &Node {
        &self.root
    }

    /// The number of the file with this inode.
    pub(crate) fn number(&self, inode: u64) -> u64 {
        if inode == self.inode { ROOT } else { inode }
    }

    /// A file by its number.
    ///
    /// # Errors
    /// [`Errno::STALE`]: the kernel does not know it, or it was taken away past the mount; those of `openat`.
    pub(crate) fn get(&self, number: u64) -> Reply<Arc<Node>> {
        self.get_below(number, DEPTH_MAX)
    }

    fn get_below(&self, number: u64, depth: u32) -> Reply<Arc<Node>> {
        if number == ROOT {
            return Ok(self.root.clone());
        }
        for _ in 0..ATTEMPTS {
            let (place, id) = {
                let mut table = lock(&self.table);
                if let Some(node) = table.held(number) {
                    return Ok(node);
                }
                let known = table.known.get(&number).ok_or(Errno::STALE)?;
                (known.place.clone().ok_or(Errno::STALE)?, known.id)
            };
            let depth = depth.checked_sub(1).ok_or(Errno::STALE)?;
            let found =
                self.get_below(place.parent, depth).and_then(|parent| self.open(&parent, &place.name));
            if let Ok((node, metadata)) = &found
                && (metadata.dev(), Stat::from(metadata).id) == (self.device, id)
            {
                return self.opened_again(number, node);
            }
            let is_there_still = {
                let mut table = lock(&self.table);
                if let Some(node) = table.held(number) {
                    // By what is just changing its name.
                    return Ok(node);
                }
                table.known.get(&number).is_some_and(|known| known.place.as_ref() == Some(&place))
            };
            if is_there_still {
                return Err(found.err().filter(|error| *error != Errno::NOENT).unwrap_or(Errno::STALE));
            }
        }
        Err(Errno::STALE)
    }

    /// The descriptor of a file that had none.
    fn opened_again(&self, number: u64, node: &Arc<Node>) -> Reply<Arc<Node>> {
        let mut table = lock(&self.table);
        // Another thread may have been faster: a file has one node.
        let held = table.held(number);
        let held = held.unwrap_or_else(|| {
            table.keep(number, node);
            node.clone()
        });
        let closed = table.shrink(self.descriptors.nodes_max());
        drop(table);
        // Without the lock.
        drop(closed);
        Ok(held)
    }

    /// Opens a name. If there are no descriptors left, all that can be are given up for it.
    fn open(&self, parent: &Node, name: &OsStr) -> Reply<(Arc<Node>, Metadata)> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let node = self.giving_up(|| rustix::fs::openat(parent, name, flags, Mode::empty()))?;
        let node = Node::new(node.into());
        let metadata = node.metadata()?;
        Ok((Arc::new(node), metadata))
    }

    /// Does what takes a descriptor; if there are none left, once more after those were closed that can be.
    pub(crate) fn giving_up<T>(&self, act: impl Fn() -> Reply<T>) -> Reply<T> {
        match act() {
            Err(Errno::MFILE) => {
                let mut table = lock(&self.table);
                table.known.values_mut().for_each(|known| known.is_used = false);
                let closed = table.shrink(0);
                drop(table);
                drop(closed);
                act().inspect_err(|error| {
                    if *error == Errno::MFILE {
                        self.descriptors.refused();
                    }
                })
            }
            done => done,
        }
    }

    /// Finds a name; the kernel is about to be told of the file.
    ///
    /// # Errors
    /// [`Errno::XDEV`]: something else is mounted there.
    pub(crate) fn find(&self, parent: u64, directory: &Node, name: &OsStr) -> Reply<(Arc<Node>, Metadata)> {
        let (node, metadata) = self.open(directory, name)?;
        if metadata.dev() != self.device {
            return Err(Errno::XDEV);
        }
        let number = self.number(metadata.ino());
        if number == ROOT {
            return Ok((self.root.clone(), metadata));
        }
        let id = Stat::from(&metadata).id;
        let mut table = lock(&self.table);
        let known = table.known.entry(number).or_insert_with(|| Known::new(id));
        known.lookups += 1;
        if known.id != id {
            // The one of before was removed past the mount, while nothing held it: its number is another's.
            known.replace(id);
        }
        let is_name = name != "." && name != "..";
        if is_name && known.place.as_ref().is_none_or(|place| !place.is(parent, name)) {
            known.place = Some(Place { parent, name: name.to_owned() });
        }
        let held = known.node().unwrap_or(node);
        table.keep(number, &held);
        let closed = table.shrink(self.descriptors.nodes_max());
        drop(table);
        drop(closed);
        Ok((held, metadata))
    }

    /// Notes a file that is open and has no name; the kernel is about to be told of it.
    pub(crate) fn add(&self, open: OwnedFd) -> Reply<(Arc<Node>, Metadata)> {
        let path = format!("/proc/self/fd/{}", open.as_raw_fd());
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let node = Arc::new(Node::new(file.into()));
        let metadata = node.metadata()?;
        let id = Stat::from(&metadata).id;
        let mut table = lock(&self.table);
        let known = table.known.entry(self.number(metadata.ino())).or_insert_with(|| Known::new(id));
        // Something of this number that is known was removed past the mount.
        (known.id, known.place) = (id, None);
        known.lookups += 1;
        table.keep(self.number(metadata.ino()), &node);
        Ok((node, metadata))
    }

    /// Holds what has a name that is about to be taken from it, if the kernel knows that file.
    pub(crate) fn take(&self, directory: &Node, name: &OsStr) -> Reply<Option<Taken>> {
        let Ok((node, metadata)) = self.open(directory, name) else {
            // The call that follows says what is wrong.
            return Ok(None);
        };
        let number = self.number(metadata.ino());
        let is_known = {
            let table = lock(&self.table);
            table.known.get(&number).is_some_and(|known| known.id == Stat::from(&metadata).id)
        };
        match is_known && number != ROOT && metadata.dev() == self.device {
            true => Ok(Some(Taken { number, _node: self.opened_again(number, &node)? })),
            false => Ok(None),
        }
    }

    /// After names were changed: which of these leads to the file now. Without one, and if it was known by
    /// one of them, it keeps its descriptor.
    pub(crate) fn look_again(&self, taken: &Taken, places: &[(u64, &Node, &OsStr)]) {
        let leads_to_it = |(_, directory, name): &&(u64, &Node, &OsStr)| {
            let found = rustix::fs::statat(directory, *name, AtFlags::SYMLINK_NOFOLLOW);
            found.is_ok_and(|found| (found.st_dev, found.st_ino) == (self.device, taken.number))
        };
        let now = places.iter().find(leads_to_it);
        let mut table = lock(&self.table);
        let Some(known) = table.known.get_mut(&taken.number) else { return };
        match now {
            Some((parent, _, name)) => {
                known.place = Some(Place { parent: *parent, name: (*name).to_owned() });
            }
            None if known
                .place
                .as_ref()
                .is_some_and(|known| places.iter().any(|(parent, _, name)| known.is(*parent, name))) =>
            {
                known.place = None;
            }
            None => {}
        }
        table.keep(taken.number, &taken._node);
        let closed = table.shrink(self.descriptors.nodes_max());
        drop(table);
        drop(closed);
    }

    /// Where a file that the kernel knows is, below the root, by the last name that it was found by. The
    /// directory is not asked.
    pub(crate) fn place(&self, file: FileId) -> Option<PathBuf> {
        let table = lock(&self.table);
        let (mut number, mut names) = (file.inode, Vec::new());
        if table.known.get(&number)?.id != file {
            return None;
        }
        while number != ROOT {
            let place = table.known.get(&number)?.place.as_ref()?;
            names.push(&place.name);
            if names.len() > DEPTH_MAX as usize {
                return None;
            }
            number = place.parent;
        }
        Some(names.into_iter().rev().collect())
    }

    /// The kernel has forgotten some of the times that it was told.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        let mut table = lock(&self.table);
        let Some(known) = table.known.get_mut(&number) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        let forgotten = if known.lookups == 0 { table.remove(number) } else { None };
        drop(table);
        drop(forgotten);
    }
}

#[cfg(test)]
mod tests;
