//! Who may keep a set-group bit: the kernel tells of a caller's supplementary groups and capabilities in
//! `/proc` alone.
//!
//! Source: Linux, `setattr_should_drop_sgid`; proc_pid_status(5); capabilities(7).

use fastness_fuse::Caller;

/// `CAP_FSETID`, as a bit of the set.
const FSETID: u64 = 1 << 4;

/// Whether a caller is a member of a group, or may do the same. One of which nothing can be found out is not.
pub(super) fn keeps_set_gid(caller: Caller<'_>, group: u32) -> bool {
    // A thread has a folder, too, although none is listed.
    let status = || std::fs::read_to_string(format!("/proc/{}/status", caller.pid));
    caller.gid == group || status().is_ok_and(|status| is_member(&status, group))
}

fn is_member(status: &str, group: u32) -> bool {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let has_group = field("Groups:").split_whitespace().any(|listed| listed.parse() == Ok(group));
    let capabilities = u64::from_str_radix(field("CapEff:").trim(), 16).unwrap_or(0);
    has_group || capabilities & FSETID != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_the_privileged_are_known_by_their_status() {
        let status = |capabilities| {
            format!("Name:\tx\nGid:\t7\t7\t7\t7\nGroups:\t4 1000 24 \nCapEff:\t{capabilities}\n")
        };
        let user = status("0000000000000000");
        assert!(is_member(&user, 1000) && is_member(&user, 24));
        assert!(!is_member(&user, 100) && !is_member(&user, 7));
        assert!(is_member(&status("000001ffffffffff"), 100));
        assert!(!is_member(&status("000001ffffffffef"), 100));
        assert!(!is_member("", 0));
    }
}
