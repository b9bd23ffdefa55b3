//! What a snapshot depends on, as a name.

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use super::{GuestConfig, GuestError, Result};
use crate::process;

/// For a program to say its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(30);

/// The name of the snapshot of a machine: a hash of QEMU's version, its arguments, the kernel and the
/// initramfs.
pub(super) fn of(config: &GuestConfig) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    let version = process::run(Command::new(&config.qemu).arg("--version"), &[], VERSION_TIMEOUT);
    hasher.update(&version.map_err(GuestError::io("cannot run", &config.qemu))?.stdout);
    for argument in config.arguments() {
        hasher.update(argument.as_encoded_bytes());
        hasher.update(&[0]);
    }
    for path in [&config.kernel, &config.initrd] {
        let mut file = File::open(path).map_err(GuestError::io("cannot open", path))?;
        hasher.update_reader(&mut file).map_err(GuestError::io("cannot read", path))?;
    }
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}
