//! Compares all of a file system's rows with each other: links, entries, parents, files without a name, and
//! objects.
//!
//! Memory: about 100 bytes for each inode. What changes during a look may show up as a finding; of a file
//! system in use, only what several looks have found is one.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::{Bound, ControlFlow};

use fastness_store::{Dataset, ObjectId, PoolError, Table};

use crate::error::Result;
use crate::ino::Ino;
use crate::inode::Inode;
use crate::names::{self, CHAIN_MAX, Entry};
use crate::tables::{ATTRIBUTES, ORPHANS, TARGETS, Tables, ino_of};

/// Findings that are listed; the others are counted.
const FINDINGS_MAX: usize = 1000;
/// Looks at a file system in use, at most.
const LOOKS: usize = 4;

/// Something that contradicts something else.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Finding {
    /// The inode.
    pub ino: Ino,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {}: {}", self.ino, self.what)
    }
}

/// What a check has found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FsReport {
    /// Inodes that are no directories.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Names.
    pub entries: u64,
    /// Files without a name: they are in use, or go with the next mount.
    pub orphans: u64,
    /// The first 1000 findings.
    pub findings: Vec<Finding>,
    /// All of them.
    pub findings_count: u64,
}

impl FsReport {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings_count == 0
    }

    fn find(&mut self, ino: Ino, what: impl Into<String>) {
        self.findings_count += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { ino, what: what.into() });
        }
    }
}

/// What the entries say of an inode.
#[derive(Debug, Default)]
struct Named {
    names: u32,
    /// Of a directory: where its name is.
    parent: Option<Ino>,
    file_type: u32,
    /// Of a directory: its entries, and how many of them are directories.
    entries: u64,
    directories: u32,
}

fn all(table: &Table, mut show: impl FnMut(&[u8], &[u8])) -> Result<()> {
    Ok(table.scan((Bound::Unbounded, Bound::Unbounded), |key, value| {
        show(key, value);
        ControlFlow::Continue(())
    })?)
}

/// Checks a file system that nothing changes meanwhile; changes nothing.
///
/// # Errors
/// Those of reading the tables; [`FsError::NotAFileSystem`](crate::FsError::NotAFileSystem).
pub fn check(dataset: &Dataset) -> Result<FsReport> {
    let tables = Tables::open(dataset)?;
    let mut report = FsReport::default();
    let mut named = read_entries(&tables, &mut report)?;
    let mut orphans = HashSet::new();
    all(&tables.table(ORPHANS), |key, _| orphans.extend(ino_of(key)))?;
    report.orphans = orphans.len() as u64;
    let mut inodes = HashSet::new();
    let mut objects = HashSet::new();
    all(&tables.inodes, |key, row| {
        let Some(ino) = ino_of(key).filter(|_| key.len() == 8) else {
            return report.find(Ino(0), "the key of an inode is damaged");
        };
        inodes.insert(ino);
        let of = named.remove(&ino).unwrap_or_default();
        match Inode::decode(ino, row) {
            Ok(inode) => {
                if inode.block_bytes > 0 {
                    objects.insert(ino);
                }
                check_inode(ino, &inode, &of, orphans.remove(&ino), &mut report);
            }
            Err(error) => report.find(ino, error.to_string()),
        }
    })?;
    for (ino, of) in named {
        report.find(ino, format!("{} names, {} entries, and no inode", of.names, of.entries));
    }
    for ino in orphans {
        report.find(ino, "on the list of those without a name, and there is no such inode");
    }
    for (table, what) in [(ATTRIBUTES, "an extended attribute"), (TARGETS, "a target")] {
        all(&tables.table(table), |key, _| match ino_of(key) {
            Some(ino) if inodes.contains(&ino) => {}
            ino => report.find(ino.unwrap_or(Ino(0)), format!("{what}, and no inode")),
        })?;
    }
    check_objects(dataset, &objects, &mut report)?;
    Ok(report)
}

/// Checks a file system that may be changed meanwhile: what several looks find is wrong.
///
/// # Errors
/// As [`check`].
pub fn check_in_use(dataset: &Dataset) -> Result<FsReport> {
    look_again(|| check(dataset))
}

fn look_again(mut look: impl FnMut() -> Result<FsReport>) -> Result<FsReport> {
    let mut report = look()?;
    for _ in 1..LOOKS {
        // More than are listed are no coincidence, and cannot be compared.
        if report.is_clean() || report.findings_count > FINDINGS_MAX as u64 {
            break;
        }
        let before: HashSet<Finding> = report.findings.into_iter().collect();
        report = look()?;
        if report.findings_count <= FINDINGS_MAX as u64 {
            report.findings.retain(|finding| before.contains(finding));
            report.findings_count = report.findings.len() as u64;
        }
    }
    Ok(report)
}

fn read_entries(tables: &Tables, report: &mut FsReport) -> Result<HashMap<Ino, Named>> {
    let mut named: HashMap<Ino, Named> = HashMap::new();
    all(&tables.entries, |key, row| {
        let cookie = key.get(8..16).and_then(|key| key.first_chunk()).map(|key| u64::from_be_bytes(*key));
        let (Some(directory), Some(cookie)) = (ino_of(key), cookie) else {
            return report.find(Ino(0), "the key of an entry is damaged");
        };
        let entry = match Entry::decode(directory, row) {
            Ok(Some(entry)) => entry,
            Ok(None) => return,
            Err(error) => return report.find(directory, error.to_string()),
        };
        report.entries += 1;
        if names::check(entry.name).is_err() {
            report.find(directory, format!("it has a name that cannot be: {:?}", entry.name.escape_ascii()));
        }
        if names::first_cookie(tables.seed, entry.name) != cookie - cookie % CHAIN_MAX {
            report.find(directory, format!("{} is in a wrong place", entry.name.escape_ascii()));
        }
        let is_directory = entry.file_type == crate::mode::DIRECTORY;
        let parent = named.entry(directory).or_default();
        parent.entries += 1;
        parent.directories += u32::from(is_directory);
        let of = named.entry(entry.ino).or_default();
        of.names += 1;
        of.file_type = entry.file_type;
        of.parent = Some(directory);
    })?;
    Ok(named)
}

fn check_inode(ino: Ino, inode: &Inode, of: &Named, is_orphan: bool, report: &mut FsReport) {
    if of.names > 0 && of.file_type != inode.file_type() {
        report.find(ino, "its entry says another type");
    }
    if !inode.is_directory() {
        report.files += 1;
        if inode.links != of.names {
            report.find(ino, format!("it counts {} links and has {} names", inode.links, of.names));
        }
        if of.entries > 0 {
            report.find(ino, "it is no directory and has entries");
        }
    } else {
        report.directories += 1;
        let is_root = ino == Ino::ROOT;
        let names = u32::from(!is_root && inode.links > 0);
        if of.names != names {
            report.find(ino, format!("a directory with {} names", of.names));
        }
        let links = if inode.links == 0 { 0 } else { 2 + of.directories };
        if inode.links != links {
            report.find(ino, format!("it counts {} links and should have {links}", inode.links));
        }
        if inode.entries != of.entries {
            report.find(ino, format!("it counts {} entries and has {}", inode.entries, of.entries));
        }
        if !is_root && of.parent.is_some_and(|parent| parent != inode.parent) {
            report.find(ino, format!("its parent is {}, and its name is elsewhere", inode.parent));
        }
    }
    if is_orphan != (inode.links == 0) {
        report.find(ino, format!("{} links, on the list of those without a name: {is_orphan}", inode.links));
    }
}

/// Every file that was written has an object, and every object a file.
fn check_objects(dataset: &Dataset, objects: &HashSet<Ino>, report: &mut FsReport) -> Result<()> {
    for ino in objects {
        match dataset.object(ObjectId(ino.0)) {
            Ok(_) => {}
            Err(PoolError::NoObject { .. }) => report.find(*ino, "the object with its bytes is gone"),
            Err(error) => return Err(error.into()),
        }
    }
    for id in dataset.synced_objects()? {
        // One that was destroyed and has not synced is there and cannot be opened.
        if !objects.contains(&Ino(id.0)) && dataset.object(id).is_ok() {
            report.find(Ino(id.0), "an object, and no file that has it");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_looks(looks: &[&[u64]]) -> (usize, Vec<u64>) {
        let mut count = 0;
        let report = look_again(|| {
            let mut report = FsReport::default();
            looks[count].iter().for_each(|ino| report.find(Ino(*ino), "wrong"));
            count += 1;
            Ok(report)
        });
        let report = report.unwrap();
        assert_eq!(report.findings_count, report.findings.len() as u64);
        (count, report.findings.iter().map(|finding| finding.ino.0).collect())
    }

    #[test]
    fn what_all_looks_have_found_stays() {
        assert_eq!(of_looks(&[&[]]), (1, vec![]));
        assert_eq!(of_looks(&[&[1, 2], &[3], &[3]]), (2, vec![]));
        assert_eq!(of_looks(&[&[1, 2, 3], &[2, 3, 4], &[3, 4], &[3, 5]]), (4, vec![3]));
    }

    #[test]
    fn more_than_are_listed_are_not_compared() {
        let mut looks = 0;
        let report = look_again(|| {
            looks += 1;
            Ok(FsReport { findings_count: FINDINGS_MAX as u64 + 1, ..FsReport::default() })
        });
        assert_eq!((report.unwrap().findings_count, looks), (FINDINGS_MAX as u64 + 1, 1));
    }
}
