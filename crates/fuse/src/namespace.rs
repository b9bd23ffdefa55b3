//! Mounts that no other process sees.

use std::io;

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

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
