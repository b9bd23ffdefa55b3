//! What a snapshot depends on, as a name.

use std::fs::File;
use std::process::Command;

use super::{GuestConfig, GuestError, Result};

/// The name of the snapshot of a machine: a hash of QEMU's version, its arguments, the kernel and the initramfs.
pub(super) fn of(config: &GuestConfig) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    let version = Command::new(&config.qemu).arg("--version").output();
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
