//! The file system of `fastness up`, and where it is mounted.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fastness_daemon::{MountRequest, Node};

use crate::error::{Context, Result};

/// Creates the file system, if there is none, and mounts it; says where, or why not.
pub(super) fn mount(no_mount: bool, node: &Node, dir: &Path) -> Result<String> {
    let (name, path) = (format!("{}/files", node.name()), mount_point(dir));
    if no_mount {
        remove_mount_point(dir);
        return Ok("not mounted (--no-mount)".to_owned());
    }
    if node.pool().dataset(&name).is_err() {
        let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        node.create_files(&name, user, &[], false)?;
    }
    match fs::create_dir(&path) {
        // A server that died leaves a mount there, which cannot be looked at.
        Err(error) if !matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotConnected) => {
            return Err(error).with_context(|| format!("cannot make {}", path.display()));
        }
        _ => {}
    }
    Ok(match node.mount(&name, &path, MountRequest::default(), false) {
        Ok(served) => format!("{} ({name}, mounted)", served.uri),
        Err(failure) => {
            remove_mount_point(dir);
            format!("not mounted: {}", fastness_base::chain(&failure))
        }
    })
}

fn mount_point(dir: &Path) -> PathBuf {
    dir.join("files")
}

/// Where nothing is mounted there is no folder either: programs would fill it, and the next mount hide what
/// they wrote. One with something in it, or a mount, stays.
pub(super) fn remove_mount_point(dir: &Path) {
    let _ = fs::remove_dir(mount_point(dir));
}
