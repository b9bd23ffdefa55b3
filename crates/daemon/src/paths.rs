//! Where to find running pools, and which devices a pool last had.
//!
//! `FASTNESS_RUN_DIR`, or `/run/fastness` for root, or `fastness` in `XDG_RUNTIME_DIR`, or a folder in
//! `/tmp` with the user's number: mode 0700, and refused if it belongs to another user.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use fastness_remote::is_remote;

use crate::error::StartError;

/// The folder of sockets, created if it does not exist.
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

/// Longest path of a Unix socket: the kernel's limit, less the terminating zero. Source: unix(7).
const SOCKET_BYTES_MAX: usize = 107;

/// A path from a command line, made absolute for a process with another working directory; a device's name
/// that is no path stays as it is.
///
/// # Errors
/// [`StartError::Invalid`]: it is empty.
pub fn absolute(path: &Path) -> Result<PathBuf, StartError> {
    if path.as_os_str().is_empty() {
        return Err(StartError::Invalid("a path is empty".to_owned()));
    }
    if is_remote(path) {
        return Ok(path.to_owned());
    }
    std::path::absolute(path).map_err(|source| StartError::System { what: "use the path", source })
}

/// The path of a socket, if it is not too long: checked before creating anything that could not be reached.
fn socket(run_dir: &Path, of: &str, name: &str) -> Result<PathBuf, StartError> {
    let path = run_dir.join(name);
    let len = path.as_os_str().len();
    if len > SOCKET_BYTES_MAX {
        let text = format!(
            "{of} is too long a name: its socket would be {}, {len} bytes, and {SOCKET_BYTES_MAX} is the most that a \
             socket's path may have; take a shorter name, or a shorter folder in FASTNESS_RUN_DIR",
            path.display()
        );
        return Err(StartError::Invalid(text));
    }
    Ok(path)
}

/// Control socket of a pool.
///
/// # Errors
/// [`StartError::Invalid`]: its path would be too long.
pub fn control_socket(run_dir: &Path, pool: &str) -> Result<PathBuf, StartError> {
    socket(run_dir, pool, &format!("{pool}.control"))
}

/// Socket for a volume that is served without an address. No two volumes have the same: no name has a `%`.
///
/// # Errors
/// As [`control_socket`].
pub fn volume_socket(run_dir: &Path, volume: &str) -> Result<PathBuf, StartError> {
    let name = volume.replace(':', "%3A").replace('/', ":");
    socket(run_dir, volume, &format!("{name}.nbd"))
}

/// Names of pools that have a control socket; whether anything answers there is not known yet.
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

/// File that remembers devices: `FASTNESS_STATE_DIR`, `/var/lib/fastness`, or below `XDG_STATE_HOME` or the
/// home.
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
    // Only a convenience: an unreadable file counts as empty.
    serde_json::from_str(&text).unwrap_or_default()
}

/// Paths of a pool's devices at its last import; only a hint where to look.
pub fn known_devices(pool: &str) -> Vec<String> {
    state_file().and_then(|path| load(&path).remove(pool)).unwrap_or_default()
}

/// Paths of all pools' devices at their last imports.
pub fn all_known_devices() -> Vec<String> {
    state_file().map(|path| load(&path)).unwrap_or_default().into_values().flatten().collect()
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
        assert_eq!(control_socket(dir, "tank").unwrap(), Path::new("/run/x/tank.control"));
        assert_eq!(volume_socket(dir, "tank/a/b").unwrap(), Path::new("/run/x/tank:a:b.nbd"));
    }

    #[test]
    fn names_of_devices_that_are_no_paths_stay_as_they_are() {
        for name in ["rbd:tank/disk@conf=/etc/a", "nbd+unix:///x?socket=/run/s", "nbd://host/x"] {
            assert_eq!(absolute(Path::new(name)).unwrap(), Path::new(name));
        }
        assert!(absolute(Path::new("./rbd:tank")).unwrap().is_absolute());
    }

    #[test]
    fn no_two_volumes_have_the_same_socket() {
        let names = ["a/x/y", "a/x:y", "a:x/y", "a:x:y", "a/x::y", "a/x/:y", "a/x:/y"];
        let sockets = names.map(|name| volume_socket(Path::new("/run"), name).unwrap());
        for (index, socket) in sockets.iter().enumerate() {
            assert!(!sockets[..index].contains(socket), "{}", socket.display());
        }
    }

    #[test]
    fn a_socket_that_cannot_be_is_refused_by_its_name() {
        use std::os::unix::net::UnixListener;
        let dir = tempfile::tempdir().unwrap();
        let room = SOCKET_BYTES_MAX - dir.path().as_os_str().len() - "/.control".len();
        let longest = control_socket(dir.path(), &"x".repeat(room)).unwrap();
        UnixListener::bind(longest).unwrap();
        let name = "x".repeat(room + 1);
        let refused = control_socket(dir.path(), &name).unwrap_err();
        assert_eq!(refused.kind(), fastness_base::ErrorKind::Invalid);
        assert!(refused.to_string().contains(&name), "{refused}");
        UnixListener::bind(dir.path().join(format!("{name}.control"))).unwrap_err();
    }
}
