//! Mounting and unmounting: directly where this process may, or else with `fusermount3`.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};
use rustix::thread::CapabilitySet;

/// Type of the file system, as `/proc/mounts` shows it.
const FILE_SYSTEM_TYPE: &str = "fuse.fastness";
const HELPER: &str = "fusermount3";

/// Settings of a mount.
#[derive(Debug, Clone, Default)]
pub struct MountOptions {
    /// What is mounted, as `/proc/mounts` shows it.
    pub source: String,
    /// Changes are refused.
    pub is_read_only: bool,
    /// Bits that run a program as another user are ignored.
    pub no_set_id: bool,
    /// Device nodes are ignored.
    pub no_devices: bool,
    /// No programs are run.
    pub no_exec: bool,
    /// As `/proc/mounts` shows it: the server leaves the times of access as they are.
    pub no_access_time: bool,
    /// Other users than the one who mounts may use it. Root's mounts always allow that.
    pub allows_others: bool,
}

/// Why nothing was mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// There is no FUSE here, or this user may not use it.
    #[error("/dev/fuse cannot be opened: {0}")]
    NoFuse(Errno),
    /// The mount point is no directory, or cannot be looked at.
    #[error("{path} cannot be a mount point: {why}")]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The kernel refuses.
    #[error("{path} cannot be mounted: {error}")]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// Its error.
        error: Errno,
    },
    /// Somebody uses files of the mount.
    #[error("{0} is in use")]
    Busy(PathBuf),
    /// The kernel refuses to unmount.
    #[error("{path} cannot be unmounted: {error}")]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// Its error.
        error: Errno,
    },
    /// The program that mounts for ordinary users is missing or refuses.
    #[error("only root can mount without {HELPER} (package fuse3): {0}")]
    Helper(String),
}

/// What there is at a path where something is to be mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountPoint {
    /// An empty directory.
    Empty,
    /// A directory with something in it, which a mount hides.
    NotEmpty,
    /// Something is mounted there.
    Mounted,
    /// The mount of a server that died.
    Stale,
}

impl MountPoint {
    /// Looks at a mount point.
    ///
    /// # Errors
    /// [`MountError::MountPoint`]: it does not exist, or is no directory.
    pub fn inspect(path: &Path) -> Result<MountPoint, MountError> {
        let refuse = |why: String| MountError::MountPoint { path: path.to_owned(), why };
        match rustix::fs::stat(path) {
            Err(error) if is_of_a_dead_server(error) => return Ok(MountPoint::Stale),
            Err(error) => return Err(refuse(io::Error::from(error).to_string())),
            Ok(stat) if stat.st_mode & 0o170_000 != 0o040_000 => {
                return Err(refuse("it is no directory".to_owned()));
            }
            Ok(_) => {}
        }
        let real = path.canonicalize().map_err(|error| refuse(error.to_string()))?;
        if is_mounted(&real) {
            // Attributes may come from a cache; this asks the server.
            let is_stale = rustix::fs::statfs(&real).is_err_and(is_of_a_dead_server);
            return Ok(if is_stale { MountPoint::Stale } else { MountPoint::Mounted });
        }
        let mut entries = std::fs::read_dir(&real).map_err(|error| refuse(error.to_string()))?;
        Ok(if entries.next().is_none() { MountPoint::Empty } else { MountPoint::NotEmpty })
    }
}

/// Whether an error says that the server has died, or was still dying while it was asked: aborted, or
/// canceled, if requests came over rings.
fn is_of_a_dead_server(error: Errno) -> bool {
    matches!(error, Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED)
}

/// Whether something is mounted at a path without symlinks.
pub fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut points = mounts.split(|byte| *byte == b'\n').filter_map(|line| line.split(|b| *b == b' ').nth(4));
    points.any(|point| unescape(point) == path.as_os_str().as_bytes())
}

/// `/proc` writes blanks, tabs, newlines and backslashes as octal numbers.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let octal = text.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if text[at] == b'\\' => {
                out.push(byte);
                at += 4;
            }
            _ => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    out
}

/// Mounts at a directory; returns the kernel's side, over which a [`Session`](crate::Session) must begin.
///
/// # Errors
/// [`MountError`].
pub fn mount(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    if mounts_by_itself() { mount_directly(path, options) } else { mount_as_user(path, options) }
}

/// Root can, and who has made a namespace of mounts ([`own_mounts`](crate::own_mounts)).
fn mounts_by_itself() -> bool {
    let may_mount = |sets: rustix::thread::CapabilitySets| sets.effective.contains(CapabilitySet::SYS_ADMIN);
    rustix::process::geteuid().is_root() || rustix::thread::capabilities(None).is_ok_and(may_mount)
}

fn mount_directly(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let open = File::options().read(true).write(true).open("/dev/fuse");
    let device: OwnedFd =
        open.map_err(|error| MountError::NoFuse(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?.into();
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions,allow_other",
        device.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let data = CString::new(data).expect("it has no NUL");
    let mut flags = MountFlags::empty();
    for (is_on, flag) in [
        (options.is_read_only, MountFlags::RDONLY),
        (options.no_set_id, MountFlags::NOSUID),
        (options.no_devices, MountFlags::NODEV),
        (options.no_exec, MountFlags::NOEXEC),
        (options.no_access_time, MountFlags::NOATIME),
    ] {
        flags.set(flag, is_on);
    }
    rustix::mount::mount(&*options.source, path, FILE_SYSTEM_TYPE, flags, Some(data.as_c_str()))
        .map_err(|error| MountError::Mount { path: path.to_owned(), error })?;
    Ok(device)
}

fn mount_as_user(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let failed = |error: Errno| MountError::Helper(io::Error::from(error).to_string());
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).map_err(failed)?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC).map_err(failed)?;
    let mut text = format!("default_permissions,subtype=fastness,fsname={}", options.source);
    for (is_on, option) in [
        (options.is_read_only, ",ro"),
        (options.no_exec, ",noexec"),
        (options.no_access_time, ",noatime"),
        (options.allows_others, ",allow_other"),
    ] {
        text += if is_on { option } else { "" };
    }
    let mut helper = Command::new(HELPER);
    helper.arg("-o").arg(text).arg("--").arg(path);
    helper.env("_FUSE_COMMFD", theirs.as_raw_fd().to_string());
    let output = helper.output().map_err(|error| MountError::Helper(error.to_string()))?;
    drop(theirs);
    if !output.status.success() {
        return Err(MountError::Helper(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    receive_descriptor(ours.as_fd()).map_err(failed)
}

/// The descriptor that the helper sends.
fn receive_descriptor(socket: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [io::IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    descriptors.flatten().next().ok_or(Errno::PROTO)
}

/// How to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmount {
    /// Only if no file of it is in use.
    Clean,
    /// In any case: it vanishes at once, and whoever still uses a file of it gets errors. An ordinary user's
    /// mount goes when the last file is closed.
    Force,
}

/// Unmounts.
///
/// # Errors
/// [`MountError::Busy`], [`MountError::Unmount`], [`MountError::Helper`].
pub fn unmount(path: &Path, how: Unmount) -> Result<(), MountError> {
    if !mounts_by_itself() {
        return unmount_as_user(path, how);
    }
    if how == Unmount::Force {
        // Ends all requests; fails with EBUSY, and has done that, if files are open.
        let _ = rustix::mount::unmount(path, UnmountFlags::FORCE);
    }
    let flags = if how == Unmount::Force { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(path, flags) {
        Ok(()) => Ok(()),
        // It is not mounted: that was the forced unmount, or somebody else.
        Err(Errno::INVAL) => Ok(()),
        Err(Errno::BUSY) => Err(MountError::Busy(path.to_owned())),
        Err(error) => Err(MountError::Unmount { path: path.to_owned(), error }),
    }
}

/// Whether a file or folder of a mount is in use, by a program or as the place of another mount. An ordinary
/// user's mount is not known to be: false.
pub fn is_in_use(path: &Path) -> bool {
    // The kernel marks a mount that is not in use as expired, unmounts one that is marked already, and
    // forgets the mark when a path there is looked up.
    let look_up = || drop(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()));
    if !mounts_by_itself() {
        return false;
    }
    look_up();
    let found = rustix::mount::unmount(path, UnmountFlags::EXPIRE);
    look_up();
    found == Err(Errno::BUSY)
}

fn unmount_as_user(path: &Path, how: Unmount) -> Result<(), MountError> {
    let mut helper = Command::new(HELPER);
    helper.arg("-u").args((how == Unmount::Force).then_some("-z")).arg("--").arg(path);
    let output = helper.output().map_err(|error| MountError::Helper(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.success() {
        true => Ok(()),
        false if said.contains("busy") => Err(MountError::Busy(path.to_owned())),
        false => Err(MountError::Helper(said)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_in_mount_points() {
        assert_eq!(unescape(br"/a\040b\134c"), b"/a b\\c");
        assert_eq!(unescape(br"/a\04"), br"/a\04");
    }

    #[test]
    fn mount_points_are_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(MountPoint::inspect(folder.path()).unwrap(), MountPoint::Empty);
        std::fs::write(folder.path().join("a"), "a").unwrap();
        assert_eq!(MountPoint::inspect(folder.path()).unwrap(), MountPoint::NotEmpty);
        assert_eq!(MountPoint::inspect(Path::new("/proc")).unwrap(), MountPoint::Mounted);
        assert!(matches!(MountPoint::inspect(&folder.path().join("a")), Err(MountError::MountPoint { .. })));
        assert!(matches!(MountPoint::inspect(&folder.path().join("b")), Err(MountError::MountPoint { .. })));
    }

    #[test]
    fn errors_of_a_dead_server() {
        let all = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED, Errno::IO, Errno::NOENT];
        assert_eq!(all.map(is_of_a_dead_server), [true, true, true, false, false]);
    }
}
