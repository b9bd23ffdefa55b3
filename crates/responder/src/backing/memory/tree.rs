//! Names and what they lead to, in a directory in memory: what there is now, and what a crash leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path};

use crate::backing::{Attributes, FileId, Renaming};

/// Inode of the directory itself.
pub(super) const ROOT: u64 = 1;

/// A name in a directory, that by its serial number.
pub(super) type Place = (u64, OsString);

/// A change of names or attributes. Numbers are serial numbers, which are never given out again.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Make { at: Place, serial: u64, attributes: Attributes },
    Link { at: Place, serial: u64 },
    Remove { at: Place, serial: u64 },
    Rename { from: Place, to: Place, serial: u64, other: Option<u64>, how: Renaming },
    Attributes { serial: u64, attributes: Attributes },
}

/// What changes rest on: who has one of them in common with an earlier one that was lost is lost, too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Place(Place),
    /// By its inode, whose number may be another file's later.
    Inode(u64),
}

/// Names, and what there is.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    names: BTreeMap<Place, u64>,
    objects: BTreeMap<u64, Attributes>,
    /// Inodes of all that there ever was.
    inodes: BTreeMap<u64, u64>,
}

impl Tree {
    pub(super) fn new() -> Tree {
        let id = FileId { inode: ROOT, generation: 1 };
        let root = Attributes { id, links: 1, mode: 0o040_755, ..Attributes::default() };
        let objects = BTreeMap::from([(ROOT, root)]);
        Tree { names: BTreeMap::new(), objects, inodes: BTreeMap::from([(ROOT, ROOT)]) }
    }

    pub(super) fn serial(&self, path: &Path) -> io::Result<u64> {
        let mut serial = ROOT;
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            serial = self.at(&(serial, name.to_owned())).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(serial)
    }

    pub(super) fn place(&self, path: &Path) -> io::Result<Place> {
        let parent = self.serial(path.parent().unwrap_or(Path::new("")))?;
        Ok((parent, path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned()))
    }

    pub(super) fn at(&self, place: &Place) -> Option<u64> {
        self.names.get(place).copied()
    }

    pub(super) fn attributes(&self, serial: u64) -> Attributes {
        let links = self.names.values().filter(|named| **named == serial).count() as u64;
        Attributes { links: if serial == ROOT { 1 } else { links }, ..self.objects[&serial].clone() }
    }

    pub(super) fn has_inode(&self, inode: u64) -> bool {
        self.objects.values().any(|object| object.id.inode == inode)
    }

    pub(super) fn has_serial(&self, serial: u64) -> bool {
        self.objects.contains_key(&serial)
    }

    /// All names in a directory, with what they lead to.
    pub(super) fn children(&self, parent: u64) -> Vec<(&OsStr, u64)> {
        let here = self.names.range((parent, OsString::new())..(parent + 1, OsString::new()));
        here.map(|((_, name), serial)| (name.as_os_str(), *serial)).collect()
    }

    /// What has no name any more is gone.
    pub(super) fn remove_unnamed(&mut self, is_held: impl Fn(u64) -> bool) {
        let named: BTreeSet<u64> = self.names.values().copied().collect();
        let gone = |serial: &u64| *serial != ROOT && !named.contains(serial) && !is_held(*serial);
        let gone: Vec<u64> = self.objects.keys().copied().filter(gone).collect();
        gone.iter().for_each(|serial| drop(self.objects.remove(serial)));
    }

    fn is_below(&self, directory: u64, serial: u64) -> bool {
        directory == serial || self.children(serial).iter().any(|(_, child)| self.is_below(directory, *child))
    }

    /// Whether it can be made here.
    fn allows(&self, change: &Change) -> bool {
        let is_directory = |serial: &u64| self.objects.get(serial).is_some_and(Attributes::is_directory);
        match change {
            Change::Make { at, .. } => is_directory(&at.0) && self.at(at).is_none(),
            Change::Link { at, serial } => {
                is_directory(&at.0) && self.at(at).is_none() && self.objects.contains_key(serial)
            }
            Change::Remove { at, serial } => {
                self.at(at) == Some(*serial) && self.children(*serial).is_empty()
            }
            Change::Rename { from, to, serial, other, how } => {
                let is_free =
                    *how == Renaming::Exchange || other.is_none_or(|other| self.children(other).is_empty());
                let moves_into_itself = self.is_below(to.0, *serial)
                    || *how == Renaming::Exchange && other.is_some_and(|other| self.is_below(from.0, other));
                is_directory(&to.0)
                    && self.at(from) == Some(*serial)
                    && self.at(to) == *other
                    && is_free
                    && !moves_into_itself
            }
            Change::Attributes { serial, .. } => self.objects.contains_key(serial),
        }
    }

    /// Makes a change; `false`: it cannot be made.
    pub(super) fn apply(&mut self, change: &Change) -> bool {
        if !self.allows(change) {
            return false;
        }
        match change.clone() {
            Change::Make { at, serial, attributes } => {
                self.inodes.insert(serial, attributes.id.inode);
                self.objects.insert(serial, attributes);
                self.names.insert(at, serial);
            }
            Change::Link { at, serial } => drop(self.names.insert(at, serial)),
            Change::Remove { at, .. } => drop(self.names.remove(&at)),
            Change::Rename { from, to, serial, other, how } => {
                self.names.remove(&from);
                self.names.insert(to, serial);
                if let Some(other) = other.filter(|_| how == Renaming::Exchange) {
                    self.names.insert(from, other);
                }
            }
            Change::Attributes { serial, attributes } => drop(self.objects.insert(serial, attributes)),
        }
        true
    }

    /// What is left of the changes after a crash: those for which `survives` says so, and for which nothing
    /// is lost that they rest on.
    pub(super) fn crash(&mut self, changes: &[Change], now: &Tree, survives: &mut dyn FnMut() -> bool) {
        let mut lost = BTreeSet::new();
        for change in changes {
            let keys = now.keys(change);
            let rests_on_lost = keys.iter().any(|key| lost.contains(key));
            if rests_on_lost || !survives() || !self.apply(change) {
                lost.extend(keys);
            }
        }
    }

    /// Splits the changes into those that are durable once the directory, or the file, is, and the others.
    pub(super) fn split(&self, changes: Vec<Change>, of: u64) -> (Vec<Change>, Vec<Change>) {
        let (mut wanted, mut emptied) = (BTreeSet::new(), BTreeSet::new());
        let mut is_wanted = vec![false; changes.len()];
        for (at, change) in changes.iter().enumerate().rev() {
            let (keys, places) = (self.keys(change), change.places());
            is_wanted[at] = change.concerns(of)
                || keys.iter().any(|key| wanted.contains(key))
                || places.iter().any(|(parent, _)| emptied.contains(parent));
            if is_wanted[at] {
                wanted.extend(keys);
                // A directory is there before what is in it, and is removed after that.
                let parents = places.iter().filter_map(|(parent, _)| self.inodes.get(parent));
                wanted.extend(parents.map(|inode| Key::Inode(*inode)));
                emptied.extend(change.removed());
            }
        }
        let (mut durable, mut rest) = (Vec::new(), Vec::new());
        for (change, is_wanted) in changes.into_iter().zip(is_wanted) {
            if is_wanted { durable.push(change) } else { rest.push(change) }
        }
        (durable, rest)
    }

    fn keys(&self, change: &Change) -> Vec<Key> {
        let inode = |serial: &u64| self.inodes.get(serial).copied().map(Key::Inode);
        let mut keys: Vec<Key> = change.places().into_iter().cloned().map(Key::Place).collect();
        match change {
            Change::Make { serial, .. }
            | Change::Link { serial, .. }
            | Change::Remove { serial, .. }
            | Change::Attributes { serial, .. } => keys.extend(inode(serial)),
            Change::Rename { serial, other, .. } => {
                keys.extend(inode(serial));
                keys.extend(other.as_ref().and_then(inode));
            }
        }
        keys
    }
}

impl Change {
    fn places(&self) -> Vec<&Place> {
        match self {
            Change::Make { at, .. } | Change::Link { at, .. } | Change::Remove { at, .. } => vec![at],
            Change::Rename { from, to, .. } => vec![from, to],
            Change::Attributes { .. } => Vec::new(),
        }
    }

    /// What loses this name.
    fn removed(&self) -> Option<u64> {
        match self {
            Change::Remove { serial, .. } => Some(*serial),
            Change::Rename { other, how: Renaming::Replace, .. } => *other,
            _ => None,
        }
    }

    /// Whether it is in that directory, or of that file.
    fn concerns(&self, of: u64) -> bool {
        let is_attributes = matches!(self, Change::Attributes { serial, .. } if *serial == of);
        is_attributes || self.places().iter().any(|(parent, _)| *parent == of)
    }
}
