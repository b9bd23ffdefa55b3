//! Extended attributes, access control lists among them: those of the directory's files.
//!
//! The kernel has checked who may do what; it asks for names alone without that.

use fastness_fuse::{Caller, Errno, Name, Reply};
use fastness_responder::Stat;
use rustix::fs::{Mode, XattrFlags};

use crate::contents::Contents;
use crate::nodes::Node;
use crate::server::PassThrough;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

/// Capabilities of a program.
pub(crate) const CAPABILITIES: Name<'static> = b"security.capability";
const LISTS: Name<'static> = b"system.posix_acl_";
const DEFAULT_LIST: Name<'static> = b"system.posix_acl_default";
const SET_GID: u32 = 0o2000;

/// The value of an attribute, asked for again if it has grown meanwhile.
fn sized(len: impl Fn() -> Reply<usize>, mut fill: impl FnMut(&mut [u8]) -> Reply<usize>) -> Reply<Vec<u8>> {
    loop {
        let mut value = vec![0; len()?];
        match fill(&mut value) {
            Err(Errno::RANGE) => {}
            Err(error) => return Err(error),
            Ok(len) => {
                value.truncate(len);
                return Ok(value);
            }
        }
    }
}

fn get(node: &Node, name: Name<'_>) -> Reply<Vec<u8>> {
    let path = node.path();
    let len = || rustix::fs::getxattr_query(&path, name);
    sized(len, |buffer| rustix::fs::getxattr(&path, name, buffer))
}

/// The error for one who asks for an attribute. Where there are no access control lists (CephFS through
/// ceph-fuse), a file has none: another answer would keep everyone out but its owner and root, since the
/// kernel asks first.
fn unless_lists_are_unknown(name: Name<'_>, error: Errno) -> Errno {
    match error {
        Errno::OPNOTSUPP if name.starts_with(LISTS) => Errno::NODATA,
        error => error,
    }
}

/// Names; those of the administrator are for root alone.
fn names(node: &Node, caller: Caller<'_>) -> Reply<Vec<u8>> {
    let path = node.path();
    let len = || rustix::fs::listxattr_query(&path);
    let mut names = sized(len, |buffer| rustix::fs::listxattr(&path, buffer))?;
    if caller.uid != 0 {
        let kept = names.split_inclusive(|byte| *byte == 0).filter(|name| !name.starts_with(b"trusted."));
        names = kept.flatten().copied().collect();
    }
    Ok(names)
}

pub(crate) fn has_default_list(directory: &Node) -> bool {
    get(directory, DEFAULT_LIST).is_ok_and(|list| !list.is_empty())
}

impl<C: Contents> PassThrough<C> {
    pub(crate) fn attribute(&self, node: &Node, name: Name<'_>) -> Reply<Vec<u8>> {
        get(node, name).map_err(|error| unless_lists_are_unknown(name, error))
    }

    pub(crate) fn attribute_names(&self, node: &Node, caller: Caller<'_>) -> Reply<Vec<u8>> {
        names(node, caller)
    }

    /// A file is opened for writing: notes whether the first write takes capabilities from it.
    pub(crate) fn note_capabilities(&self, node: &Node) {
        if get(node, CAPABILITIES).is_ok() {
            node.has_capabilities.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_attribute(
        &self,
        node: &Node,
        name: Name<'_>,
        value: &[u8],
        flags: u32,
        clears_set_gid: bool,
    ) -> Reply<()> {
        rustix::fs::setxattr(node.path(), name, value, XattrFlags::from_bits_retain(flags))?;
        if name == CAPABILITIES {
            self.contents.end_leases(Stat::from(&node.metadata()?).id)?;
            node.has_capabilities.store(true, Ordering::Relaxed);
        }
        if clears_set_gid {
            let mode = node.metadata()?.mode();
            rustix::fs::chmod(node.path(), Mode::from_raw_mode(mode & 0o7777 & !SET_GID))?;
        }
        self.settle(node)
    }

    pub(crate) fn remove_attribute(&self, node: &Node, name: Name<'_>) -> Reply<()> {
        rustix::fs::removexattr(node.path(), name)?;
        self.settle(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_no_list_where_there_are_none() {
        assert_eq!(unless_lists_are_unknown(b"system.posix_acl_access", Errno::OPNOTSUPP), Errno::NODATA);
        assert_eq!(unless_lists_are_unknown(DEFAULT_LIST, Errno::OPNOTSUPP), Errno::NODATA);
        assert_eq!(unless_lists_are_unknown(DEFAULT_LIST, Errno::IO), Errno::IO);
        assert_eq!(unless_lists_are_unknown(b"user.name", Errno::OPNOTSUPP), Errno::OPNOTSUPP);
    }
}
