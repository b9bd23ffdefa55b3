//! Mounts that no other process sees.

use std::io;

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::UnshareFlags;

/// Gives this process, and those that it starts from now on, a mount namespace of their own: what they mount
/// is seen by no other process, and ends with the last of them. To be called before there are threads: those
/// keep the old namespace.
///
/// # Errors
/// Those of `unshare(2)` and of `mount(2)`: `EPERM` for others than root.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: only `FILES` can take open files away from other threads.
    #[allow(unsafe_code)]
    unsafe {
        rustix::thread::unshare_unsafe(UnshareFlags::NEWNS)?;
    }
    // Otherwise new mounts would show where the old namespace shares its own.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Ok(())
}
