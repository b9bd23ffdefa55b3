//! Where running pools are found, and which devices a pool had last.
//!
//! `FASTNESS_RUN_DIR`, or `/run/fastness` for root, or `fastness` in `XDG_RUNTIME_DIR`, or a folder in `/tmp` with the
//! user's number: mode 0700, and refused if it belongs to somebody else.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::StartError;

/// The folder of sockets, made if it is not there.
///
/// # Errors
/// [`StartError::RunDir`]: it cannot be made, or others may write into it.
pub fn run_dir() -> Result<PathBuf, StartError> {
    let user = rustix::process::getuid();
    let path = match (std::env::var_os("FASTNESS_RUN_DIR"), std::env::var_os("XDG_RUNTIME_DIR")) {
        (Some(path), _) => PathBuf::from(path),
        (None, _) if user.is_root() => PathBuf::from("/run/fastness"),
        (None, Some(path)) => Path::new(&path).join("fastness"),
        (None, None) => PathBuf::from(format!("/tmp/fastness-{}", user.as_raw())),
    };
    let strange = |path: &Path, source| StartError::RunDir { path: path.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(|error| strange(&path, error))?;
    let found = fs::symlink_metadata(&path).map_err(|error| strange(&path, error))?;
    if !found.is_dir() || found.uid() != user.as_raw() || found.mode() & 0o022 != 0 {
        let error = io::Error::other("it belongs to somebody else, or others may write into it");
        return Err(strange(&path, error));
    }
    Ok(path)
}

/// Control socket of a pool.
pub fn control_socket(run_dir: &Path, pool: &str) -> PathBuf {
    run_dir.join(format!("{pool}.control"))
}

/// Socket for a volume that is served without an address.
pub fn volume_socket(run_dir: &Path, volume: &str) -> PathBuf {
    run_dir.join(format!("{}.nbd", volume.replace('/', ":")))
}

/// Names of pools that have a control socket; whether somebody answers is not known yet.
///
/// # Errors
/// The folder cannot be read.
pub fn running_pools(run_dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(run_dir)? {
        let name = entry?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(".control")).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// File that remembers devices: `FASTNESS_STATE_DIR`, `/var/lib/fastness`, or below `XDG_STATE_HOME` or the home.
fn state_file() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/state"));
    let folder = match std::env::var_os("FASTNESS_STATE_DIR") {
        Some(path) => PathBuf::from(path),
        None if rustix::process::getuid().is_root() => PathBuf::from("/var/lib/fastness"),
        None => std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(home)?.join("fastness"),
    };
    Some(folder.join("pools.json"))
}

type Known = BTreeMap<String, Vec<String>>;

fn load(path: &Path) -> Known {
    let text = fs::read_to_string(path).unwrap_or_default();
    // A convenience: what cannot be read is not known.
    serde_json::from_str(&text).unwrap_or_default()
}

/// Paths of a pool's devices when it was imported last; a hint where to look, nothing more.
pub fn known_devices(pool: &str) -> Vec<String> {
    state_file().and_then(|path| load(&path).remove(pool)).unwrap_or_default()
}

/// Remembers the devices of a pool; an empty list forgets it.
///
/// # Errors
/// The file cannot be written.
pub fn remember_devices(pool: &str, devices: &[String]) -> io::Result<()> {
    let path = state_file().ok_or_else(|| io::Error::other("no folder for state: HOME is not set"))?;
    let mut known = load(&path);
    if devices.is_empty() {
        known.remove(pool);
    } else {
        known.insert(pool.to_owned(), devices.to_vec());
    }
    let folder = path.parent().expect("a file in a folder");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let new = folder.join(format!("pools.json.{}", std::process::id()));
    fs::write(&new, serde_json::to_string_pretty(&known)?)?;
    fs::rename(&new, &path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_have_names_without_folders() {
        let dir = Path::new("/run/x");
        assert_eq!(control_socket(dir, "tank"), Path::new("/run/x/tank.control"));
        assert_eq!(volume_socket(dir, "tank/a/b"), Path::new("/run/x/tank:a:b.nbd"));
    }
}
