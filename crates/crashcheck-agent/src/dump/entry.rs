//! One entry of a tree: its metadata and its contents.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, lgetxattr, llistxattr, major, minor};
use serde_json::{Map, Value};

use super::{Fields, content, errno, escaped};
use crate::clock;

/// Longer contents are hashed; beyond the second bound nothing is read. Bytes.
const SHOWN_MAX: u64 = 64 << 10;
const READ_MAX: u64 = 256 << 20;
/// What the kernel gives for one attribute, and for all names.
const XATTR_BYTES_MAX: usize = 64 << 10;

type Entry = BTreeMap<&'static str, Value>;

/// Adds an error to those that the entry has.
pub(super) fn note(entry: &mut Entry, what: String) {
    let text = match entry.get("error") {
        Some(Value::String(before)) => format!("{before}; {what}"),
        _ => what,
    };
    entry.insert("error", Value::from(text));
}

/// Reads all of an entry but its children; true for a directory.
pub(super) fn read(path: &Path, fields: Fields, entry: &mut Entry) -> bool {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => {
            note(entry, errno::at("lstat", &error));
            return false;
        }
    };
    attributes(&metadata, fields, entry);
    if metadata.is_file() {
        match read_content(path, metadata.len()) {
            Ok(content) => {
                entry.insert("content", content);
            }
            Err(what) => note(entry, what),
        }
    } else if metadata.is_symlink() {
        match fs::read_link(path) {
            Ok(target) => {
                entry.insert("target", Value::from(escaped(target.as_os_str().as_bytes())));
            }
            Err(error) => note(entry, errno::at("readlink", &error)),
        }
    }
    match xattrs(path) {
        Ok(found) if found.is_empty() => {}
        Ok(found) => {
            entry.insert("xattrs", Value::Object(found));
        }
        Err(what) => note(entry, what),
    }
    metadata.is_dir()
}

fn attributes(metadata: &Metadata, fields: Fields, entry: &mut Entry) {
    let kind = metadata.file_type();
    let is_device = kind.is_char_device() || kind.is_block_device();
    entry.insert("type", Value::from(type_name(metadata)));
    entry.insert("mode", Value::from(format!("{:04o}", metadata.mode() & 0o7777)));
    for (name, number, is_wanted) in [
        ("ino", metadata.ino(), fields.ino),
        ("nlink", metadata.nlink(), true),
        ("uid", metadata.uid().into(), true),
        ("gid", metadata.gid().into(), true),
        ("size", metadata.size(), true),
        ("blocks", metadata.blocks(), fields.blocks),
    ] {
        if is_wanted {
            entry.insert(name, Value::from(number));
        }
    }
    if is_device {
        let device = metadata.rdev();
        entry.insert("device", Value::from(format!("{}:{}", major(device), minor(device))));
    }
    if fields.times {
        for (name, seconds, nanoseconds) in [
            ("atime", metadata.atime(), metadata.atime_nsec()),
            ("mtime", metadata.mtime(), metadata.mtime_nsec()),
            ("ctime", metadata.ctime(), metadata.ctime_nsec()),
        ] {
            let text = match clock::is_of_recovery(seconds) {
                true => "recovery".to_owned(),
                false => format!("{seconds}.{nanoseconds:09}"),
            };
            entry.insert(name, Value::from(text));
        }
    }
}

fn type_name(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() => "file",
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_char_device() => "character device",
        () if kind.is_block_device() => "block device",
        () => "unknown",
    }
}

/// The bytes that can be read, not those that the size promises: the file may be shorter or longer.
fn read_content(path: &Path, size: u64) -> Result<Value, String> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(|error| errno::at("open", &error))?;
    let mut bytes = Vec::new();
    let failed = |error: io::Error| errno::at("read", &error);
    (&file).take(SHOWN_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 <= SHOWN_MAX {
        return Ok(content(&bytes));
    }
    hashed(&file, bytes).map_err(|what| format!("{what} (size {size})"))
}

fn hashed(mut file: &File, mut bytes: Vec<u8>) -> Result<Value, String> {
    let mut hasher = blake3::Hasher::new();
    let mut total = 0;
    loop {
        hasher.update(&bytes);
        total += bytes.len() as u64;
        if total > READ_MAX {
            return Err(format!("more than {READ_MAX} bytes, not read"));
        }
        bytes.resize(1 << 20, 0);
        match file.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => bytes.truncate(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => bytes.clear(),
            Err(error) => return Err(errno::at("read", &error)),
        }
    }
    Ok(Value::Object(Map::from_iter([
        ("blake3".to_owned(), Value::from(hasher.finalize().to_hex().as_str())),
        ("bytes".to_owned(), Value::from(total)),
    ])))
}

fn xattrs(path: &Path) -> Result<Map<String, Value>, String> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let len = match llistxattr(path, &mut names[..]) {
        Ok(len) => len,
        // A file system without attributes.
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Map::new()),
        Err(error) => return Err(errno::at("llistxattr", &error.into())),
    };
    let mut found = BTreeMap::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; XATTR_BYTES_MAX];
        let len =
            lgetxattr(path, name, &mut value[..]).map_err(|error| errno::at("lgetxattr", &error.into()))?;
        found.insert(escaped(name), content(&value[..len]));
    }
    Ok(found.into_iter().collect())
}
