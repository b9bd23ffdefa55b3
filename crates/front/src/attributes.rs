//! Changes of attributes, and what a change of contents takes from them.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

use fastness_fuse::{Caller, Errno, NewTime, Reply, SetAttr};
use fastness_responder::Stat;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};

use crate::contents::Contents;
use crate::nodes::Node;
use crate::server::{OpenFile, PassThrough};
use crate::xattrs::CAPABILITIES;

/// Bits that run a program as another user or group: a write takes them from a file.
pub(crate) const SET_ID: u32 = 0o6000;

fn timestamp(new: Option<NewTime>) -> Timespec {
    match new {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(NewTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(NewTime::At(time)) => {
            Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) as _ }
        }
    }
}

impl<C: Contents> PassThrough<C> {
    pub(crate) fn change_attributes(&self, caller: Caller<'_>, node: &Node, set: &SetAttr) -> Reply<()> {
        let asks_nothing =
            SetAttr { handle: set.handle, clears_set_id: set.clears_set_id, ..SetAttr::default() } == *set;
        if set.clears_set_id || asks_nothing && [0, node.metadata()?.uid()].contains(&caller.uid) {
            self.clear_set_id(node)?;
        }
        if let Some(size_bytes) = set.size_bytes {
            self.clear_capabilities(node)?;
            self.contents.truncate(&node.path(), size_bytes)?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            rustix::fs::chownat(node, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = set.mode {
            if mode & SET_ID != 0 {
                // A write takes these bits away, which only this mount does.
                self.contents.end_leases(Stat::from(&node.metadata()?).id)?;
            }
            rustix::fs::chmod(node.path(), Mode::from_raw_mode(mode))?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let times =
                Timestamps { last_access: timestamp(set.atime), last_modification: timestamp(set.mtime) };
            // What is flushed later must not set the time of its own write again.
            let change = || Ok(rustix::fs::utimensat(CWD, node.path(), &times, AtFlags::empty())?);
            self.contents.change(Stat::from(&node.metadata()?).id, change)?;
        }
        let only_size =
            SetAttr { mode: None, uid: None, gid: None, atime: None, mtime: None, ..*set } == *set;
        if only_size { Ok(()) } else { self.settle(node) }
    }

    /// Makes attributes durable.
    pub(crate) fn settle(&self, node: &Node) -> Reply<()> {
        self.contents.settle(&node.path())
    }

    /// Clears the bits that run a program as another user or group: what another user writes must not run
    /// with them. A group's bit goes in any case, where the kernel leaves it to members of the group.
    pub(crate) fn clear_set_id(&self, node: &Node) -> Reply<()> {
        let metadata = node.metadata()?;
        if !metadata.is_file() || metadata.mode() & SET_ID == 0 {
            return Ok(());
        }
        rustix::fs::chmod(node.path(), Mode::from_raw_mode(metadata.mode() & 0o7777 & !SET_ID))?;
        self.settle(node)
    }

    /// Takes its capabilities from a file whose contents change. The directory's own file system does that
    /// when it is written to, which the cache does later.
    pub(crate) fn clear_capabilities(&self, node: &Node) -> Reply<()> {
        if !node.has_capabilities.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let removed = match rustix::fs::removexattr(node.path(), CAPABILITIES) {
            Err(Errno::NODATA) => Ok(()),
            done => done,
        };
        // If that is not durable, the next write tries again.
        removed
            .and_then(|()| self.settle(node))
            .inspect_err(|_| node.has_capabilities.store(true, Ordering::Relaxed))
    }

    /// Allocates, punches or zeroes below, where the file has everything first.
    pub(crate) fn allocate_space(
        &self,
        caller: Caller<'_>,
        open: &OpenFile<C::File>,
        offset: u64,
        len_bytes: u64,
        mode: u32,
    ) -> Reply<()> {
        let node = &open.node;
        if caller.uid != 0 {
            self.clear_set_id(node)?;
        }
        self.clear_capabilities(node)?;
        let mode = FallocateFlags::from_bits_retain(mode);
        let allocate = || {
            let file = std::fs::File::options().write(true).open(node.path())?;
            rustix::fs::fallocate(&file, mode, offset, len_bytes).map_err(io::Error::from)
        };
        self.contents.change(Stat::from(&node.metadata()?).id, allocate)
    }
}

#[cfg(test)]
mod tests;
