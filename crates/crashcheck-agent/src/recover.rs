//! A recovery in one process: mounts, dumps, writes, unmounts, as a suite without scripts of its own wants.
//!
//! Motivation: in an emulated guest each process costs as much as the mount of a small file system, since
//! every change of the address space empties QEMU's table of addresses. With a program for each step, a
//! recovery was mostly processes.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::dump::{Fields, dump};
use crate::kernel_log::KernelLog;

/// Begins what a recovery says of its write, on standard error: the status that it ended with.
pub const WRITTEN: &str = "crashcheck: the write ended with ";
/// The exit status if the file system cannot be mounted.
pub const NOT_MOUNTED: u8 = 32;

/// What is recovered.
#[derive(Debug, Clone, Copy)]
pub struct Recovery<'a> {
    /// What is mounted.
    pub device: &'a str,
    /// Where.
    pub directory: &'a Path,
    /// What the kernel calls the file system.
    pub kind: &'a str,
    /// Mount options, with commas.
    pub options: &'a str,
    /// It is written to afterwards.
    pub has_write: bool,
    /// Shell in place of this process, if it cannot be mounted. Its input is what the kernel has said
    /// meanwhile.
    pub failed: Option<&'a str>,
}

/// Recovers; the state goes to standard output, what went wrong to standard error. Returns the exit status:
/// 0, [`NOT_MOUNTED`], or 1 if the dump has errors, or the write or the unmount fails.
///
/// # Errors
/// Standard output cannot be written, or the shell not be started.
pub fn recover(recovery: &Recovery<'_>) -> io::Result<u8> {
    let mut stderr = io::stderr().lock();
    let log = recovery.failed.and_then(|_| KernelLog::from_now());
    if let Err(error) = mount_as_mount_does(recovery, &mut stderr) {
        let Recovery { device, directory, .. } = recovery;
        writeln!(stderr, "mount: mounting {device} on {} failed: {}", directory.display(), text(error))?;
        let Some(failed) = recovery.failed else { return Ok(NOT_MOUNTED) };
        let (input, mut said) = io::pipe()?;
        said.write_all(&log.map(KernelLog::text).unwrap_or_default())?;
        drop(said);
        return Err(Command::new("sh").arg("-c").arg(failed).stdin(input).exec());
    }
    let shown = dump(recovery.directory, Fields { blocks: false, ..Fields::default() });
    io::stdout().lock().write_all(shown.text.as_bytes())?;
    let mut status = u8::from(shown.errors > 0);
    if recovery.has_write && status == 0 {
        let written = write(recovery.directory);
        status = u8::from(written.is_err());
        writeln!(stderr, "{WRITTEN}{status}")?;
    }
    if let Err(error) = unmount(recovery.directory, UnmountFlags::empty()) {
        writeln!(stderr, "umount: can't unmount {}: {}", recovery.directory.display(), text(error))?;
        status = 1;
    }
    Ok(status)
}

/// What shows that a file system takes writes again.
fn write(directory: &Path) -> io::Result<()> {
    std::fs::write(directory.join("after-recovery"), "written\n")?;
    rustix::fs::sync();
    Ok(())
}

/// A device that refuses writes is mounted without, as by the program.
fn mount_as_mount_does(recovery: &Recovery<'_>, stderr: &mut dyn Write) -> Result<(), Errno> {
    let Recovery { device, directory, kind, options, .. } = *recovery;
    let (flags, data) = flags_and_data(options);
    let data = std::ffi::CString::new(data).map_err(|_| Errno::INVAL)?;
    let with = |flags| mount(device, directory, kind, flags, data.as_c_str());
    match with(flags) {
        Err(Errno::ROFS | Errno::ACCESS) if !flags.contains(MountFlags::RDONLY) => {
            let _ = writeln!(stderr, "mount: {device} is write-protected, mounting read-only");
            with(flags | MountFlags::RDONLY)
        }
        done => done,
    }
}

/// What the kernel takes as flags, and what is left for the file system.
fn flags_and_data(options: &str) -> (MountFlags, String) {
    let mut flags = MountFlags::empty();
    let mut data = Vec::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option {
            "rw" => flags.remove(MountFlags::RDONLY),
            "defaults" => {}
            "ro" => flags |= MountFlags::RDONLY,
            "noatime" => flags |= MountFlags::NOATIME,
            "nodiratime" => flags |= MountFlags::NODIRATIME,
            "relatime" => flags |= MountFlags::RELATIME,
            "strictatime" => flags |= MountFlags::STRICTATIME,
            "lazytime" => flags |= MountFlags::LAZYTIME,
            "sync" => flags |= MountFlags::SYNCHRONOUS,
            "dirsync" => flags |= MountFlags::DIRSYNC,
            "nosuid" => flags |= MountFlags::NOSUID,
            "nodev" => flags |= MountFlags::NODEV,
            "noexec" => flags |= MountFlags::NOEXEC,
            other => data.push(other),
        }
    }
    (flags, data.join(","))
}

/// As the C library has it, without the number.
fn text(error: Errno) -> String {
    let text = io::Error::from(error).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_flags_or_go_to_the_file_system() {
        let of = |options| flags_and_data(options);
        assert_eq!(of("dax=always,noatime"), (MountFlags::NOATIME, "dax=always".to_owned()));
        assert_eq!(
            of("ro,rw,logdev=/dev/pmem0,a=1"),
            (MountFlags::empty(), "logdev=/dev/pmem0,a=1".to_owned())
        );
        assert_eq!(of("ro,,sync"), (MountFlags::RDONLY | MountFlags::SYNCHRONOUS, String::new()));
    }

    #[test]
    fn errors_read_as_those_of_the_program() {
        assert_eq!(text(Errno::UCLEAN), "Structure needs cleaning");
        assert_eq!(text(Errno::INVAL), "Invalid argument");
    }
}
