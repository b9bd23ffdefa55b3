//! Mounts that no other process sees.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Pid, getegid, geteuid};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces};

/// Gives this process, and those that it starts from now on, a mount namespace of their own: what they mount
/// is seen by no other process, and ends with the last of them. To be called before there are threads: those
/// keep the old namespace.
///
/// An ordinary user gets a user namespace with it, in which this process may mount; a program that it runs
/// may not. User and group stay what they were, and are the only ones that are known in there: files of
/// others seem to be nobody's, and other groups of the user give no rights to files of the mount.
///
/// # Errors
/// Those of `unshare(2)` and of `mount(2)`: `EPERM`, `EACCES`, `ENOSPC` where ordinary users get no
/// namespaces; `EINVAL` for an ordinary user's process with threads.
pub fn own_mounts() -> io::Result<()> {
    let (user, group) = (geteuid(), getegid());
    let of_user = if user.is_root() { UnshareFlags::empty() } else { UnshareFlags::NEWUSER };
    // SAFETY: only `FILES` can take open files away from other threads.
    #[allow(unsafe_code)]
    unsafe {
        rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | of_user)?;
    }
    if !user.is_root() {
        // The kernel wants that before a group can be known.
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("{0} {0} 1", user.as_raw()))?;
        std::fs::write("/proc/self/gid_map", format!("{0} {0} 1", group.as_raw()))?;
    }
    // Otherwise new mounts would show where the old namespace shares its own.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Ok(())
}

/// Gives this process the mounts that another one has by [`own_mounts`], with its user namespace if it has
/// made one. `process` is a descriptor of it (`pidfd_open(2)`), `number` its number. The working directory
/// stays the same path. To be called before there are threads.
///
/// # Errors
/// Those of `setns(2)`: `EPERM` if the other one has another user, `ESRCH` if it has ended; no such working
/// directory there.
pub fn join_mounts(process: BorrowedFd<'_>, number: Pid) -> io::Result<()> {
    let user = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/user"));
    let is_same = user("self")? == user(&number.as_raw_nonzero().to_string())?;
    let of_user = if is_same { ThreadNameSpaceType::empty() } else { ThreadNameSpaceType::USER };
    let at = std::env::current_dir()?;
    move_into_thread_name_spaces(process, ThreadNameSpaceType::MOUNT | of_user)?;
    std::env::set_current_dir(at)
}
