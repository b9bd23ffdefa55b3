//! Operations that change names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use fastness_fuse::{Caller, Entry, Errno, Name, NewNode, Opened, Reply, device_numbers};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};

use crate::caller::in_the_name_of;
use crate::contents::Contents;
use crate::descriptors::Opening;
use crate::nodes::{Node, is_own};
use crate::server::PassThrough;
use crate::xattrs;

/// Permissions of a new file. A directory with a default access control list takes the place of the umask.
fn mode(parent: &Node, new: &NewNode<'_>) -> Mode {
    let umask = if xattrs::has_default_list(parent) { 0 } else { new.umask };
    Mode::from_raw_mode(new.mode & 0o7777 & !umask)
}

/// A name that may be given.
fn new_name(parent: u64, name: Name<'_>) -> Reply<&OsStr> {
    match is_own(parent, name) {
        true => Err(Errno::PERM),
        false => Ok(OsStr::from_bytes(name)),
    }
}

impl<C: Contents> PassThrough<C> {
    pub(crate) fn make_node(
        &self,
        caller: Caller<'_>,
        parent: u64,
        name: Name<'_>,
        new: &NewNode<'_>,
    ) -> Reply<Entry> {
        let (node, name) = (self.nodes.get(parent)?, new_name(parent, name)?);
        let file_type = FileType::from_raw_mode(new.mode);
        let make = || match file_type {
            FileType::Symlink => rustix::fs::symlinkat(OsStr::from_bytes(new.target), &*node, name),
            FileType::Directory => rustix::fs::mkdirat(&*node, name, mode(&node, new)),
            _ => {
                let (major, minor) = device_numbers(new.rdev);
                let device = rustix::fs::makedev(major, minor);
                rustix::fs::mknodat(&*node, name, file_type, mode(&node, new), device)
            }
        };
        self.contents.make(&node.path_of(name), || in_the_name_of(caller, make).map(|()| true))?;
        let (made, metadata) = self.nodes.find(parent, &node, name)?;
        Ok(self.entry(&made, &metadata))
    }

    pub(crate) fn create_file(
        &self,
        caller: Caller<'_>,
        parent: u64,
        name: Name<'_>,
        new: &NewNode<'_>,
        flags: u32,
    ) -> Reply<(Entry, Opened)> {
        let (node, name) = (self.nodes.get(parent)?, new_name(parent, name)?);
        // Before there is a file that could not be opened.
        let opening = self.descriptors.open_for(caller)?;
        let how = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::WRONLY;
        let is_exclusive = OFlags::from_bits_retain(flags).contains(OFlags::EXCL);
        let create = || match rustix::fs::openat(&*node, name, how, mode(&node, new)) {
            // Made past the mount meanwhile.
            Err(Errno::EXIST) if !is_exclusive => Ok(false),
            created => created.map(|_| true),
        };
        self.contents.make(&node.path_of(name), || in_the_name_of(caller, create))?;
        let (made, metadata) = self.nodes.find(parent, &node, name)?;
        let entry = self.entry(&made, &metadata);
        self.opened(made, entry, flags, opening)
    }

    /// Makes a file without a name, and opens it: nothing of it is left once it is closed, unless it gets
    /// one.
    pub(crate) fn create_unnamed_file(
        &self,
        caller: Caller<'_>,
        parent: u64,
        new: &NewNode<'_>,
        flags: u32,
    ) -> Reply<(Entry, Opened)> {
        let (node, opening) = (self.nodes.get(parent)?, self.descriptors.open_for(caller)?);
        // Whether it may get a name at all.
        let exclusive = OFlags::from_bits_retain(flags) & OFlags::EXCL;
        let how = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC | exclusive;
        let create = || rustix::fs::openat(&*node, ".", how, mode(&node, new));
        let made = in_the_name_of(caller, || self.nodes.giving_up(create))?;
        let (made, metadata) = self.nodes.add(made)?;
        let entry = self.entry(&made, &metadata);
        self.opened(made, entry, flags, opening)
    }

    /// Opens what was made, and of which the kernel is about to be told.
    fn opened(&self, made: Arc<Node>, entry: Entry, flags: u32, opening: Opening) -> Reply<(Entry, Opened)> {
        match self.open_node(made, flags, opening) {
            Ok(opened) => Ok((entry, opened)),
            Err(error) => {
                // The kernel is not told of it after all.
                self.nodes.forget(entry.attr.node, 1);
                Err(error)
            }
        }
    }

    pub(crate) fn rename_node(&self, from: (u64, Name<'_>), to: (u64, Name<'_>), flags: u32) -> Reply<()> {
        let flags = RenameFlags::from_bits_retain(flags);
        // A renaming that leaves a whiteout (RENAME_WHITEOUT, for overlayfs) has no record in the log of
        // names.
        if !(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE).contains(flags) {
            return Err(Errno::INVAL);
        }
        let (old, old_name) = (self.nodes.get(from.0)?, self.name(from.0, from.1)?);
        let (new, new_name) = (self.nodes.get(to.0)?, new_name(to.0, to.1)?);
        let moved = self.nodes.take(&old, old_name)?;
        let other = self.nodes.take(&new, new_name)?;
        let done = self.contents.rename(&old.path_of(old_name), &new.path_of(new_name), flags);
        for taken in [moved, other].iter().flatten() {
            self.nodes.look_again(taken, &[(to.0, &new, new_name), (from.0, &old, old_name)]);
        }
        done
    }

    /// Does what takes a name from the file that has it.
    pub(crate) fn taking_a_name(
        &self,
        parent: u64,
        node: &Node,
        name: &OsStr,
        act: impl FnOnce() -> Reply<()>,
    ) -> Reply<()> {
        let taken = self.nodes.take(node, name)?;
        let done = act();
        if let Some(taken) = taken {
            self.nodes.look_again(&taken, &[(parent, node, name)]);
        }
        done
    }

    pub(crate) fn link_node(&self, node: u64, parent: u64, name: Name<'_>) -> Reply<Entry> {
        let (file, node, name) = (self.nodes.get(node)?, self.nodes.get(parent)?, new_name(parent, name)?);
        // Followed, the descriptor leads to the file itself, even if that is a symlink.
        let link = || rustix::fs::linkat(CWD, file.path(), &*node, name, AtFlags::SYMLINK_FOLLOW);
        self.contents.link(&file.path(), &node.path_of(name), link)?;
        let (made, metadata) = self.nodes.find(parent, &node, name)?;
        Ok(self.entry(&made, &metadata))
    }
}
