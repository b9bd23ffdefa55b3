//! To whom files belong, as the kernel is told.
//!
//! In the user namespace of an ordinary user (`fastness_fuse::own_mounts`) only this user and one group are
//! known. The kernel refuses every change to a file with an owner or a group that it does not know, even to
//! its owner. So a file of the user's whose group is not known there seems to have the one that is: the bits
//! of the owner decide what the user may do with it, so nobody gets a right by that.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use rustix::process::{getegid, geteuid};

/// What `chown` and `stat` have for a group that a namespace does not know, unless it was configured.
const UNKNOWN: u32 = 65534;

/// How groups are shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owners {
    /// Of a namespace that knows one user and one group: what it has for other groups, the user, the group.
    alone: Option<(u32, u32, u32)>,
}

impl Owners {
    pub(crate) fn new() -> Owners {
        let map = std::fs::read_to_string("/proc/self/gid_map").unwrap_or_default();
        let unknown = std::fs::read_to_string("/proc/sys/kernel/overflowgid");
        let unknown = unknown.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(UNKNOWN);
        let alone = knows_one(&map).then(|| (unknown, geteuid().as_raw(), getegid().as_raw()));
        Owners { alone }
    }

    /// The group of a file.
    pub(crate) fn group(self, metadata: &Metadata) -> u32 {
        self.shown(metadata.uid(), metadata.gid())
    }

    fn shown(self, owner: u32, group: u32) -> u32 {
        match self.alone {
            Some((unknown, me, mine)) if (owner, group) == (me, unknown) => mine,
            _ => group,
        }
    }
}

/// Whether a map of a namespace (`user_namespaces(7)`) has one number alone.
fn knows_one(map: &str) -> bool {
    let mut lines = map.lines().filter(|line| !line.trim().is_empty());
    let has_one = |line: &str| line.split_whitespace().nth(2) == Some("1");
    lines.next().is_some_and(has_one) && lines.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_of_one_user() {
        assert!(knows_one("      1000       1000          1\n"));
        assert!(!knows_one("         0          0 4294967295\n"));
        assert!(!knows_one("0 1000 1\n1 100000 65536\n"));
        assert!(!knows_one(""));
    }

    #[test]
    fn only_the_groups_of_own_files_are_replaced() {
        let alone = Owners { alone: Some((65534, 1000, 100)) };
        assert_eq!(alone.shown(1000, 65534), 100);
        assert_eq!(alone.shown(1000, 100), 100);
        assert_eq!(alone.shown(65534, 65534), 65534, "of somebody else");
        assert_eq!(Owners { alone: None }.shown(1000, 65534), 65534);
    }
}
