//! Where files are, by what they are: for words about a cache. People know files by their names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fastness_responder::{FileId, Stat};

/// Names that are looked at: a directory may have more than anybody would wait for.
const LOOKED_AT_MAX: u64 = 500_000;

/// The paths of these files below `directory`, as far as they are found soon.
pub(crate) fn places(directory: &Path, wanted: &BTreeSet<FileId>) -> BTreeMap<FileId, PathBuf> {
    let mut search = Search { device: 0, left: LOOKED_AT_MAX, wanted, found: BTreeMap::new() };
    if let Ok(metadata) = fs::metadata(directory) {
        search.device = metadata.dev();
        search.look_through(directory, Path::new(""));
    }
    search.found
}

struct Search<'a> {
    device: u64,
    left: u64,
    wanted: &'a BTreeSet<FileId>,
    found: BTreeMap<FileId, PathBuf>,
}

impl Search<'_> {
    /// What cannot be read is not found: these are only words.
    fn look_through(&mut self, folder: &Path, below: &Path) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if self.left == 0 || self.found.len() == self.wanted.len() {
                return;
            }
            self.left -= 1;
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.dev() != self.device {
                continue;
            }
            let path = below.join(entry.file_name());
            if metadata.is_dir() {
                self.look_through(&entry.path(), &path);
            } else {
                let id = Stat::from(&metadata).id;
                if self.wanted.contains(&id) {
                    self.found.entry(id).or_insert(path);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_in_folders_of_folders() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let id = |name: &str| {
            fs::write(dir.path().join(name), name).unwrap();
            Stat::from(&fs::metadata(dir.path().join(name)).unwrap()).id
        };
        let (deep, top, _) = (id("a/b/c"), id("d"), id("e"));
        let gone = FileId { inode: 1, generation: 1 };
        let found = places(dir.path(), &BTreeSet::from([deep, top, gone]));
        assert_eq!(found, BTreeMap::from([(deep, "a/b/c".into()), (top, "d".into())]));
        assert!(places(&dir.path().join("none"), &BTreeSet::from([top])).is_empty());
    }
}
