//! Guests: a machine with persistent memory (PM) that is booted once and restored in a fraction of a second.
//!
//! Motivation: a crash test has a real kernel recover thousands of images. A boot takes seconds, and no two
//! boots are the same; so a guest is booted once, until its agent serves commands, and everything starts
//! from that state.
//!
//! Design: the guest's RAM is a shared file. [`Snapshot::boot`] stops the machine and migrates its devices to
//! another file, the RAM staying where it is (`x-ignore-shared`). [`Snapshot::restore`] copies the RAM file
//! as far as it is not a hole, puts an image where PM is, and starts QEMU with the devices' state. PM is a
//! part of RAM that the kernel was told to leave (`memmap=`), so a PM image is bytes of the RAM file at
//! [`PM_START`], and a tracer that maps the file sees all.
//!
//! `scripts/crash-guest` builds the guest. In it, `fastness-agent serve` executes commands that arrive over a
//! virtio port.
//!
//! Crash cases: every wait has an end; a guest that panics or hangs is an error with the end of its console;
//! QEMU dies with its [`Guest`], and with this process however that ends. Files are removed with their
//! owner; a process that is killed leaves its folder `fastness-guest-*` behind, which the next
//! [`Snapshot::boot`] there removes.
//!
//! Source: PM file systems dissertation, 8.6.1 (state extraction), 10.1 (machine).

mod addition;
mod agent;
mod config;
mod cpio;
mod crash;
mod error;
mod facts;
mod failures;
mod frames;
mod kernel;
mod key;
mod machine;
mod nvme;
mod pool;
mod qmp;
mod ram;
mod room;
mod snapshot;
#[cfg(test)]
mod tests;

pub use addition::Addition;
pub use agent::Output;
pub use config::{GuestConfig, PM_START, Restore};
pub use crash::KernelCrash;
pub use error::GuestError;
pub use facts::Facts;
pub use machine::Guest;
pub use nvme::Nvme;
pub use pool::Guests;
pub use snapshot::Snapshot;

/// Result of what is done with a guest.
pub type Result<T, E = GuestError> = std::result::Result<T, E>;

/// A folder for the files of one guest.
fn new_folder(parent: &std::path::Path) -> Result<crate::process::Folder> {
    crate::process::Folder::new(parent, "guest").map_err(GuestError::io("cannot make a folder in", parent))
}

/// A file of at most `bytes_max` bytes.
fn read(path: &std::path::Path, bytes_max: u64) -> Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes))
        .map_err(GuestError::io("cannot read", path))?;
    if bytes.len() as u64 > bytes_max {
        return Err(GuestError::Config(format!("{} has more than {bytes_max} bytes", path.display())));
    }
    Ok(bytes)
}
