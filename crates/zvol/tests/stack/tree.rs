//! What a crash may leave of files.
//!
//! Changes of names are one sequence, and a prefix of it is left, not shorter than what is durable. The
//! changes of each file are a sequence of their own; so is what is left of them. A file that a name was given
//! to has at least the changes that came before. Bytes that a record reads back at its commit may be those of
//! a later write; a long write may be left in part.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use fastness_zpl::{FileSystem, FsError, Ino, mode};

use crate::drive::names;
use crate::files::Durable;
use crate::model::{Change, Model, Node, is_directory};

/// Files as they were when all was durable, and what has happened since.
#[derive(Debug, Default)]
pub struct Tree {
    base: Model,
    /// As they are now.
    pub now: Model,
    changes: Vec<(Change, u64)>,
    /// So many of them are durable if they change names.
    names: usize,
    /// The same for the changes of a file.
    files: Durable,
    /// So many are durable whatever they are.
    synced: usize,
}

impl Tree {
    pub fn of(found: Model) -> Tree {
        Tree { base: found.clone(), now: found, ..Tree::default() }
    }

    pub fn changes(&self) -> usize {
        self.changes.len()
    }

    pub fn push(&mut self, change: Change, txg: u64) {
        self.now.apply(&change).unwrap_or_else(|error| panic!("{change:?}: {error}"));
        self.changes.push((change, txg));
    }

    pub fn settle(&mut self) {
        self.synced = self.changes.len();
    }

    pub fn settle_names(&mut self, count: usize) {
        self.names = self.names.max(count);
    }

    pub fn settle_own(&mut self, ino: Ino) {
        self.files.insert(ino, self.changes.len());
    }

    pub fn settle_file(&mut self, ino: Ino) {
        self.settle_names(self.changes.len());
        self.settle_own(ino);
    }

    pub fn settle_txg(&mut self, synced: u64) {
        let count = self.changes.iter().take_while(|(_, txg)| *txg <= synced).count();
        self.synced = self.synced.max(count);
    }

    /// Whether that may be what is left; and if so, whether anything was lost.
    pub fn judge(&self, found: &Model) -> Result<bool, String> {
        let mut states = vec![self.base.clone()];
        // For each count of changes: which files must have how many of theirs, because of their names.
        let mut promoted: Vec<BTreeMap<Ino, usize>> = vec![BTreeMap::new()];
        for (at, (change, _)) in self.changes.iter().enumerate() {
            let (before, mut after) = (&states[at], states[at].clone());
            after.apply(change).expect("it was made");
            let mut of_names = promoted[at].clone();
            of_names.extend(names(before, &after, change).into_iter().map(|ino| (ino, at)));
            promoted.push(of_names);
            states.push(after);
        }
        let from = self.names.max(self.synced);
        let last = &states[states.len() - 1];
        let mut why = None;
        for count in from..states.len() {
            if has_same_names(&states[count], found) {
                match self.judge_files(found, &states, &promoted[count]) {
                    Ok(()) => return Ok(!is_same(last, found)),
                    Err(error) => why = Some(format!("with the names of {count} changes: {error}")),
                }
            }
        }
        let why = why.unwrap_or_else(|| {
            let count = self.changes.len();
            format!(
                "no names of {from} to {count} changes; from the last differ {}",
                differing_names(last, found)
            )
        });
        Err(format!("{why}; durable: names {}, all {}, files {:?}", self.names, self.synced, self.files))
    }

    fn judge_files(
        &self,
        found: &Model,
        states: &[Model],
        promoted: &BTreeMap<Ino, usize>,
    ) -> Result<(), String> {
        for (ino, node) in &found.0 {
            let of = |counts: &BTreeMap<Ino, usize>| counts.get(ino).copied().unwrap_or(0);
            let from = of(&self.files).max(of(promoted)).max(self.synced);
            let allowed: Vec<&Node> = states[from..].iter().filter_map(|state| state.0.get(ino)).collect();
            let attributes = |node: &Node| (node.mode, node.uid, node.xattrs.clone());
            if !allowed.iter().any(|state| attributes(state) == attributes(node)) {
                return Err(format!("{ino} has attributes of none of the changes from {from} on: {node:?}"));
            }
            if node.mode & mode::TYPE == mode::FILE {
                judge_bytes(node, &allowed).map_err(|why| format!("{ino}, changes from {from} on: {why}"))?;
            }
        }
        Ok(())
    }
}

fn judge_bytes(node: &Node, allowed: &[&Node]) -> Result<(), String> {
    let sizes = || allowed.iter().map(|state| state.bytes.len());
    let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    let len = node.bytes.len();
    if len < least || len > most {
        return Err(format!("{len} bytes, not {least} to {most}"));
    }
    if allowed.iter().any(|state| state.bytes == node.bytes) {
        return Ok(());
    }
    let is_allowed = |(at, found): (usize, &u8)| {
        allowed.iter().any(|state| state.bytes.get(at).copied().unwrap_or(0) == *found)
    };
    match node.bytes.iter().enumerate().find(|byte| !is_allowed(*byte)) {
        Some((at, found)) => Err(format!("byte {at} is {found}")),
        None => Ok(()),
    }
}

/// What changes of names leave of a node.
#[derive(PartialEq, Eq)]
struct Named<'n> {
    kind: u32,
    links: u32,
    names: &'n BTreeMap<Vec<u8>, Ino>,
    /// Of a directory: where it is.
    parent: Option<Ino>,
    /// Of a symlink.
    target: Option<&'n [u8]>,
}

fn named(node: &Node) -> Named<'_> {
    let kind = node.mode & mode::TYPE;
    let parent = is_directory(node.mode).then_some(node.parent);
    let target = (kind == mode::SYMLINK).then_some(&node.bytes[..]);
    Named { kind, links: node.links, names: &node.names, parent, target }
}

fn has_same_names(model: &Model, found: &Model) -> bool {
    let there = || model.0.iter().filter(|(_, node)| node.links > 0);
    there().count() == found.0.len()
        && there().all(|(ino, node)| found.0.get(ino).is_some_and(|found| named(found) == named(node)))
}

/// Which files have other names, for a message.
fn differing_names(model: &Model, found: &Model) -> String {
    let of = |of: &Model, ino: Ino| {
        let node = of.0.get(&ino).filter(|node| node.links > 0);
        node.map_or_else(
            || "none".to_owned(),
            |node| {
                let names = node.names.iter().map(|(name, ino)| format!("{}: {ino}", name.escape_ascii()));
                format!("{:o}, {} links, {:?}", node.mode, node.links, names.collect::<Vec<_>>())
            },
        )
    };
    let inos: BTreeSet<Ino> = model.0.keys().chain(found.0.keys()).copied().collect();
    let differing = inos.into_iter().filter(|ino| of(model, *ino) != of(found, *ino));
    let told = differing.map(|ino| format!("{ino}: {} and not {}", of(found, ino), of(model, ino)));
    told.collect::<Vec<_>>().join("; ")
}

fn is_same(model: &Model, found: &Model) -> bool {
    let rest = |node: &Node| (node.mode, node.uid, node.xattrs.clone(), node.bytes.clone());
    has_same_names(model, found) && found.0.iter().all(|(ino, node)| rest(&model.0[ino]) == rest(node))
}

/// Everything in a file system that has a name.
pub fn read(fs: &FileSystem) -> Result<Model, FsError> {
    let (mut found, mut next) = (Model::default(), vec![(Ino::ROOT, Ino::ROOT)]);
    found.0.clear();
    while let Some((ino, parent)) = next.pop() {
        let attributes = fs.attributes(ino)?;
        let mut node = Node {
            mode: attributes.mode,
            uid: attributes.uid,
            links: attributes.links,
            bytes: Vec::new(),
            names: BTreeMap::new(),
            parent,
            xattrs: BTreeMap::new(),
            is_temporary: false,
        };
        match attributes.mode & mode::TYPE {
            mode::FILE => {
                node.bytes = vec![0; attributes.size_bytes as usize];
                let len = fs.read(ino, 0, &mut node.bytes)?;
                assert_eq!(len, node.bytes.len(), "{ino} is shorter than it says");
            }
            mode::SYMLINK => node.bytes = fs.read_link(ino)?,
            mode::DIRECTORY => {
                fs.list(ino, 0, |entry| {
                    if entry.name != b"." && entry.name != b".." {
                        node.names.insert(entry.name.to_vec(), entry.ino);
                    }
                    ControlFlow::Continue(())
                })?;
                next.extend(node.names.values().map(|child| (*child, ino)));
            }
            _ => {}
        }
        for name in fs.xattr_names(ino)?.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            node.xattrs.insert(name.to_vec(), fs.xattr(ino, name)?);
        }
        found.0.insert(ino, node);
    }
    Ok(found)
}
