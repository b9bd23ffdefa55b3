//! What a crash in the middle of a commit may leave.
//!
//! Changes of names are there up to one of them, in their order. Of each file at least what was durable
//! before, and what was written before one of the names that are there; at most everything; and of its
//! changes none without those before it. Bytes that are read back may be those that a later write left.

use std::collections::BTreeMap;

use fastness_zpl::{FileSystem, Ino, mode};

use crate::drive::{listed, xattrs};
use crate::model::{Model, Name, Node, is_directory};
use crate::run::{Met, World};

/// What the crash has left, each file as it is. Panics if no crash may leave that.
pub(crate) fn survivors(
    world: &World,
    fs: &FileSystem,
    durable: impl Fn(Ino) -> usize + Copy,
    met: &mut Met,
) -> Model {
    let (count, found) = (world.changes.len(), tree(fs));
    let mut refused = BTreeMap::new();
    for names in world.names..=count {
        let (mut model, _) = world.survivors(names, durable, &mut Met::default());
        let names_of: BTreeMap<_, _> = model.0.iter().map(|(ino, node)| (*ino, node.names.clone())).collect();
        if names_of != found {
            continue;
        }
        let states = States { world, fs, durable, names };
        match model.0.iter_mut().try_for_each(|(ino, node)| states.settle(*ino, node)) {
            Ok(()) => {
                if names > world.names && names < count {
                    met.meet("part of a commit");
                }
                return model;
            }
            Err(why) => drop(refused.insert(names, why)),
        }
    }
    panic!("of {}..={count} changes of names none fits: {refused:#?}; {found:?}", world.names)
}

struct States<'a, F> {
    world: &'a World,
    fs: &'a FileSystem,
    /// How many changes are durable, if they are of this file.
    durable: F,
    /// How many changes of names are there.
    names: usize,
}

impl<F: Fn(Ino) -> usize + Copy> States<'_, F> {
    /// Makes the node of a file that of a state that the crash may have left, and that it has.
    fn settle(&self, ino: Ino, node: &mut Node) -> Result<(), String> {
        let from = (self.durable)(ino);
        let changes = self.world.changes.iter().enumerate().skip(from);
        let ends = changes.filter(|(_, (change, _))| change.file() == Some(ino)).map(|(at, _)| at + 1);
        let mut states = vec![node.clone()];
        for end in ends {
            let of_file = |other| if other == ino { end } else { (self.durable)(other) };
            let (model, _) = self.world.survivors(self.names, of_file, &mut Met::default());
            states.extend(model.0.get(&ino).cloned());
        }
        let found = match node.mode & mode::TYPE {
            mode::FILE => bytes(self.fs, ino),
            _ => node.bytes.clone(),
        };
        let (attributes, xattrs) = (self.fs.attributes(ino).unwrap(), xattrs(self.fs, ino));
        let fits = |state: &&Node| {
            (state.mode, state.uid, &state.xattrs) == (attributes.mode, attributes.uid, &xattrs)
        };
        // Attributes and bytes are of one state, unless a later write's bytes were read back.
        let whole = states.iter().filter(fits).find(|state| state.bytes == found);
        let mixed = || states.iter().find(fits).filter(|_| is_mixed(&found, &states));
        let Some(state) = whole.or_else(mixed) else {
            let lens: Vec<_> = states.iter().map(|state| state.bytes.len()).collect();
            return Err(format!("{ino} has {} bytes, where {lens:?} may be", found.len()));
        };
        *node = Node { bytes: found, ..state.clone() };
        Ok(())
    }
}

/// Whether each byte is that of one of the states, and the length, too.
fn is_mixed(found: &[u8], states: &[Node]) -> bool {
    let has = |state: &Node, at: usize| state.bytes.get(at).copied().unwrap_or(0) == found[at];
    states.iter().any(|state| state.bytes.len() == found.len())
        && (0..found.len()).all(|at| states.iter().any(|state| has(state, at)))
}

/// All bytes of a file.
pub(crate) fn bytes(fs: &FileSystem, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0; fs.attributes(ino).unwrap().size_bytes as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// All files that have a name, and the names that each has as a directory.
pub(crate) fn tree(fs: &FileSystem) -> BTreeMap<Ino, BTreeMap<Name, Ino>> {
    let (mut found, mut left) = (BTreeMap::new(), vec![Ino::ROOT]);
    while let Some(ino) = left.pop() {
        let mut names = BTreeMap::new();
        if is_directory(fs.attributes(ino).unwrap().mode) {
            names = listed(fs, ino);
            names.retain(|name, _| name != b"." && name != b"..");
            left.extend(names.values().filter(|ino| !found.contains_key(*ino)));
        }
        found.insert(ino, names);
    }
    found
}
