//! Handles of files, as an NFS server keeps them: `name_to_handle_at` and `open_by_handle_at`.
#![expect(unsafe_code, reason = "in no safe interface")]

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;

use crate::mounted;
use crate::used::wait_until_erased;

const BYTES_MAX: usize = 128;

/// Shape: length (4), type (4), bytes.
#[repr(C)]
#[derive(Clone)]
struct Handle {
    len: u32,
    kind: i32,
    bytes: [u8; BYTES_MAX],
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()
}

fn handle_of(path: &Path) -> Result<Handle, Errno> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut handle = Handle { len: BYTES_MAX as u32, kind: 0, bytes: [0; BYTES_MAX] };
    let mut mount = 0;
    // SAFETY: the path ends with NUL, and the handle has the room that it says.
    let done = unsafe {
        libc::name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), (&raw mut handle).cast(), &raw mut mount, 0)
    };
    if done == 0 { Ok(handle) } else { Err(last_error()) }
}

fn open(mount: &Path, handle: &Handle) -> Result<File, Errno> {
    let (mount, mut handle) = (File::open(mount).unwrap(), handle.clone());
    // SAFETY: the handle is one that the kernel has filled; the result is a new descriptor.
    unsafe {
        match libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut handle).cast(), libc::O_RDONLY) {
            ..0 => Err(last_error()),
            file => Ok(File::from_raw_fd(file)),
        }
    }
}

fn text(mut file: File) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

/// A crash loses a file that nothing made durable, and its number is given again.
#[test]
fn a_handle_of_a_lost_file_finds_no_other_one() {
    let Some(files) = mounted("") else { return };
    for _ in 0..10 {
        fs::write(files.path("lost"), "text").unwrap();
        let number = fs::metadata(files.path("lost")).unwrap().ino();
        let handle = handle_of(&files.path("lost")).unwrap();
        files.kill();
        files.bench.ok("pool import tank");
        if fs::exists(files.path("lost")).unwrap() {
            continue;
        }
        fs::write(files.path("next"), "other").unwrap();
        if fs::metadata(files.path("next")).unwrap().ino() == number {
            assert_eq!(open(&files.at, &handle).unwrap_err(), Errno::STALE);
            return;
        }
    }
    panic!("no file was lost and its number given again");
}

#[test]
fn a_handle_finds_its_file_whatever_its_name_is_until_it_is_erased() {
    let Some(files) = mounted("") else { return };
    fs::create_dir_all(files.path("deep/folder")).unwrap();
    fs::write(files.path("deep/folder/a"), "text").unwrap();
    let (file, folder) = (handle_of(&files.path("deep/folder/a")), handle_of(&files.path("deep/folder")));
    let (file, folder) = (file.unwrap(), folder.unwrap());
    assert_eq!(text(open(&files.at, &file).unwrap()), "text");
    fs::rename(files.path("deep/folder/a"), files.path("b")).unwrap();
    assert_eq!(text(open(&files.at, &file).unwrap()), "text");
    // The kernel knows none of them after this; it asks for them by their numbers, and for parents by `..`.
    files.bench.unmount("tank/home");
    files.bench.ok("fs mount tank/home at");
    assert_eq!(text(open(&files.at, &file).unwrap()), "text");
    let opened = open(&files.at, &folder).unwrap();
    let way = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).unwrap();
    assert_eq!(way, files.path("deep/folder"));
    drop(opened);
    files.kill();
    files.bench.ok("pool import tank");
    assert_eq!(text(open(&files.at, &file).unwrap()), "text");
    fs::remove_file(files.path("b")).unwrap();
    fs::remove_dir(files.path("deep/folder")).unwrap();
    wait_until_erased(&files);
    assert_eq!(open(&files.at, &file).unwrap_err(), Errno::STALE);
    assert_eq!(open(&files.at, &folder).unwrap_err(), Errno::STALE);
}
