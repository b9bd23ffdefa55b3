//! A tree of files as text: equal text for equal states, and readable.
//!
//! One JSON object, a key for each path, sorted. `/` is the directory that was given. In paths and link
//! targets a byte that is not UTF-8 is `\xNN`, and a backslash two.
//!
//! | field | |
//! |---|---|
//! | `type` | `file`, `directory`, `symlink`, `fifo`, `socket`, `character device`, `block device` |
//! | `mode` | permissions in octal |
//! | `ino`, `nlink`, `uid`, `gid`, `size`, `blocks` | as `lstat` has them; `size` of a directory too |
//! | `atime`, `mtime`, `ctime` | seconds, a dot, nine digits of nanoseconds; read before the content is |
//! | ... `recovery` | in their place: what a recovery's [clock](crate::clock) has written |
//! | `device` | of a device: major and minor number |
//! | `content` | of a file: see [`content`] |
//! | `target` | of a symbolic link |
//! | `xattrs` | extended attributes, if there are some: names, and contents as of files |
//! | `error` | what could not be read, as `EIO at read`; the rest is there all the same |
//!
//! A damaged file system may show anything: depth, entries and bytes that are read are bounded, and a bound
//! is an error of the entry that it cuts.

mod content;
mod entry;
mod errno;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Map, Value};

pub use content::content;

/// Directories below each other; entries of a tree.
const DEPTH_MAX: usize = 64;
const ENTRIES_MAX: usize = 200_000;

/// Which fields to print: some differ between states that should count as the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields {
    /// `atime`, `mtime`, `ctime`.
    pub times: bool,
    /// `ino`.
    pub ino: bool,
    /// `blocks`.
    pub blocks: bool,
}

impl Default for Fields {
    fn default() -> Self {
        Self { times: true, ino: true, blocks: true }
    }
}

/// A tree as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dump {
    /// JSON, with a newline at the end.
    pub text: String,
    /// How many entries have an `error`.
    pub errors: usize,
}

/// Reads a tree. What cannot be read is in the text.
pub fn dump(directory: &Path, fields: Fields) -> Dump {
    let mut walk = Walk { fields, entries: BTreeMap::new() };
    walk.visit(directory, String::new(), 0);
    let errors = walk.entries.values().filter(|entry| entry.contains_key("error")).count();
    // A BTreeMap: sorted, whatever order serde_json's own maps have.
    let mut text = serde_json::to_string_pretty(&walk.entries).unwrap_or_default();
    text.push('\n');
    Dump { text, errors }
}

/// Bytes as text, reversibly: a byte that is not UTF-8 is `\xNN`, a backslash two.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

struct Walk {
    fields: Fields,
    entries: BTreeMap<String, BTreeMap<&'static str, Value>>,
}

impl Walk {
    /// `name` is the path from the root of the tree, `""` for the root.
    fn visit(&mut self, path: &Path, name: String, depth: usize) {
        let mut entry = BTreeMap::new();
        let is_directory = entry::read(path, self.fields, &mut entry);
        let mut below = Vec::new();
        if is_directory {
            if depth == DEPTH_MAX || self.entries.len() >= ENTRIES_MAX {
                entry::note(
                    &mut entry,
                    format!("more than {DEPTH_MAX} directories deep, or {ENTRIES_MAX} entries"),
                );
            } else if let Err(what) = list(path, &mut below) {
                entry::note(&mut entry, what);
            }
        }
        let key = if name.is_empty() { "/".to_owned() } else { name.clone() };
        self.entries.insert(key, entry);
        below.sort();
        for child in below {
            self.visit(&path.join(&child), format!("{name}/{}", escaped(child.as_bytes())), depth + 1);
        }
    }
}

/// The names in a directory, as far as they can be read.
fn list(path: &Path, names: &mut Vec<std::ffi::OsString>) -> Result<(), String> {
    for child in std::fs::read_dir(path).map_err(|error| errno::at("opendir", &error))? {
        names.push(child.map_err(|error| errno::at("readdir", &error))?.file_name());
        if names.len() == ENTRIES_MAX {
            return Err(format!("more than {ENTRIES_MAX} entries"));
        }
    }
    Ok(())
}

/// An object with one key.
fn object(key: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(key.to_owned(), value)]))
}
