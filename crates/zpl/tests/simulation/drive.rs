//! Random changes of files: drawn, made in a file system, and compared with the model. Shared with the
//! simulation of the whole stack (`crates/zvol/tests/stack`).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use fastness_testkit::Rng;
use fastness_zpl::{
    Allocate, FileSystem, FsError, Ino, NewFile, RenameHow, SetAttributes, WriteHow, XattrHow, mode,
};

use crate::model::{Change, How, Model, Name, Node, is_directory};

/// Smallest block of a file.
pub(crate) const BLOCK_BYTES: usize = 4096;
const TYPES: [u32; 6] = [mode::FILE, mode::FILE, mode::FILE, mode::DIRECTORY, mode::DIRECTORY, mode::SYMLINK];

fn name(rng: &mut Rng) -> Name {
    match rng.below(12) {
        0 => vec![0xff, 0xfe],
        1 => vec![b'x'; 255],
        number => format!("n{number}").into_bytes(),
    }
}

impl Model {
    /// One of the files that are wanted.
    pub(crate) fn any(&self, rng: &mut Rng, wanted: impl Fn(&Node) -> bool) -> Option<Ino> {
        let all: Vec<_> = self.0.iter().filter(|(_, node)| wanted(node)).map(|(ino, _)| *ino).collect();
        (!all.is_empty()).then(|| all[rng.below(all.len() as u64) as usize])
    }

    fn any_directory(&self, rng: &mut Rng) -> Ino {
        self.any(rng, |node| is_directory(node.mode)).expect("the root is one")
    }

    /// A name in a directory, most often one that is there.
    fn known_name(&self, rng: &mut Rng) -> (Ino, Name) {
        let directory = self.any_directory(rng);
        let names: Vec<_> = self.0[&directory].names.keys().collect();
        match names.len() as u64 {
            0 => (directory, name(rng)),
            _ if rng.below(8) == 0 => (directory, name(rng)),
            count => (directory, names[rng.below(count) as usize].clone()),
        }
    }

    /// Draws a change; files end before `end`.
    pub(crate) fn choose(&self, rng: &mut Rng, end: u64) -> Change {
        let file = |rng: &mut Rng| self.any(rng, |node| node.mode & mode::TYPE == mode::FILE);
        let any = self.any(rng, |_| true).expect("the root");
        let offset = rng.below(end) as usize >> (4 * rng.below(4));
        match rng.below(20) {
            0..=3 => {
                let of = TYPES[rng.below(TYPES.len() as u64) as usize];
                let target = if of == mode::SYMLINK { b"target".to_vec() } else { Vec::new() };
                let directory = self.any_directory(rng);
                let inherited =
                    if of == mode::DIRECTORY { self.0[&directory].mode & mode::SET_GID } else { 0 };
                let mode = of | inherited | if of == mode::SYMLINK { 0o777 } else { 0o644 };
                Change::Make { directory, name: name(rng), mode, target, made: Ino(0) }
            }
            4 => Change::MakeUnnamed { mode: mode::FILE | 0o600, made: Ino(0) },
            5..=6 => {
                let unnamed = self.any(rng, |node| node.is_temporary).filter(|_| rng.below(2) == 0);
                let ino = unnamed.or_else(|| file(rng)).unwrap_or(any);
                Change::Link { ino, directory: self.any_directory(rng), name: name(rng) }
            }
            7..=8 => {
                let (directory, name) = self.known_name(rng);
                Change::Remove { directory, name, is_directory: rng.below(3) == 0 }
            }
            9..=11 => {
                let how = [How::Replace, How::Replace, How::NoReplace, How::Exchange, How::Whiteout];
                let how = how[rng.below(5) as usize];
                let from = self.known_name(rng);
                let to = if rng.below(2) == 0 {
                    self.known_name(rng)
                } else {
                    (self.any_directory(rng), name(rng))
                };
                Change::Rename { from, to, how, white: Ino(0) }
            }
            12..=14 => {
                let len = rng.below(40_000) as usize >> (3 * rng.below(5));
                let byte = 1 + rng.below(255) as u8;
                let ino = file(rng).unwrap_or(any);
                if byte.is_multiple_of(2) {
                    // Whole blocks, which a log alone may have.
                    let (offset, len) = (offset / BLOCK_BYTES, len.div_ceil(BLOCK_BYTES).max(1));
                    return Change::Write {
                        ino,
                        offset: offset * BLOCK_BYTES,
                        data: vec![byte; len * BLOCK_BYTES],
                    };
                }
                Change::Write { ino, offset, data: vec![byte; len.max(1)] }
            }
            15 => Change::Resize { ino: file(rng).unwrap_or(any), len: offset },
            16 => {
                let len = 1 + rng.below(100_000) as usize;
                Change::Punch { ino: file(rng).unwrap_or(any), offset, len }
            }
            17 => Change::SetMode { ino: any, mode: rng.below(0o10000) as u32 },
            18 => Change::SetOwner { ino: any, uid: rng.below(1000) as u32 },
            _ => {
                let name = format!("user.{}", rng.below(3)).into_bytes();
                let len = [0, 1, 700, 5000][rng.below(4) as usize];
                let value = (rng.below(4) > 0).then(|| vec![rng.below(256) as u8; len]);
                Change::SetXattr { ino: any, name, value }
            }
        }
    }
}

/// Makes a change in the file system, a write durable on return if `is_sync`; fills in the number of what it
/// made.
pub(crate) fn carry_out(fs: &FileSystem, change: &mut Change, is_sync: bool) -> Result<(), FsError> {
    let whiteout = |directory: Ino, name: &[u8]| fs.find(directory, name);
    match change {
        Change::Make { directory, name, mode, target, made } => {
            let new = NewFile { mode: *mode, target, ..NewFile::default() };
            *made = fs.make(*directory, name, &new)?.ino;
        }
        Change::MakeUnnamed { mode, made } => {
            let new = NewFile { mode: *mode, ..NewFile::default() };
            *made = fs.make_unnamed(Ino::ROOT, &new, true)?.ino;
        }
        Change::Link { ino, directory, name } => drop(fs.link(*ino, *directory, name)?),
        Change::Remove { directory, name, is_directory: true } => {
            fs.remove_directory(*directory, name)?;
        }
        Change::Remove { directory, name, .. } => drop(fs.unlink(*directory, name)?),
        Change::Rename { from, to, how, white } => {
            let how = match how {
                How::Replace => RenameHow::Replace,
                How::NoReplace => RenameHow::NoReplace,
                How::Exchange => RenameHow::Exchange,
                How::Whiteout => RenameHow::Whiteout { uid: 0, gid: 0 },
            };
            let is_same = || fs.find(from.0, &from.1).ok() == fs.find(to.0, &to.1).ok();
            let is_nothing = is_same();
            fs.rename((from.0, &from.1), (to.0, &to.1), how)?;
            if matches!(how, RenameHow::Whiteout { .. }) && !is_nothing {
                *white = whiteout(from.0, &from.1)?;
            }
        }
        Change::Write { ino, offset, data } => {
            fs.write(*ino, *offset as u64, data, WriteHow { is_sync, ..WriteHow::default() })?;
        }
        Change::Resize { ino, len } => {
            let set = SetAttributes { size_bytes: Some(*len as u64), ..SetAttributes::default() };
            fs.set_attributes(*ino, &set)?;
        }
        Change::Punch { ino, offset, len } => {
            fs.allocate(*ino, *offset as u64, *len as u64, Allocate::Punch)?;
        }
        Change::SetMode { ino, mode } => {
            let set = SetAttributes { mode: Some(*mode), ..SetAttributes::default() };
            fs.set_attributes(*ino, &set)?;
        }
        Change::SetOwner { ino, uid } => {
            let set = SetAttributes { uid: Some(*uid), ..SetAttributes::default() };
            fs.set_attributes(*ino, &set)?;
        }
        Change::SetXattr { ino, name, value: Some(value) } => {
            fs.set_xattr(*ino, name, value, XattrHow::Set, false)?;
        }
        Change::SetXattr { ino, name, value: None } => fs.remove_xattr(*ino, name)?,
    }
    Ok(())
}

/// The files that a change has given a name. A rename to another name of the same file does nothing.
pub(crate) fn names(before: &Model, after: &Model, change: &Change) -> Vec<Ino> {
    let of = |model: &Model, (directory, name): &(Ino, Name)| {
        model.0.get(directory).and_then(|node| node.names.get(name)).copied()
    };
    match change {
        Change::Link { ino, .. } => vec![*ino],
        Change::Rename { from, to, how, .. } if of(before, from) != of(before, to) => {
            let back = of(after, from).filter(|_| *how == How::Exchange);
            of(after, to).into_iter().chain(back).collect()
        }
        _ => Vec::new(),
    }
}

/// The names in a directory.
pub(crate) fn listed(fs: &FileSystem, directory: Ino) -> BTreeMap<Name, Ino> {
    let mut names = BTreeMap::new();
    fs.list(directory, 0, |entry| {
        names.insert(entry.name.to_vec(), entry.ino);
        ControlFlow::Continue(())
    })
    .unwrap();
    names
}

/// Extended attributes of a file.
pub(crate) fn xattrs(fs: &FileSystem, ino: Ino) -> BTreeMap<Name, Vec<u8>> {
    let list = fs.xattr_names(ino).unwrap();
    let list = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    list.map(|name| (name.to_vec(), fs.xattr(ino, name).unwrap())).collect()
}

/// The file system shows exactly what the model has.
pub(crate) fn assert_shows(fs: &FileSystem, model: &Model) {
    for (ino, node) in &model.0 {
        let attributes = fs.attributes(*ino).unwrap_or_else(|error| panic!("{ino} {node:?}: {error}"));
        assert_eq!(
            (attributes.mode, attributes.uid, attributes.links),
            (node.mode, node.uid, node.links),
            "inode {ino}"
        );
        match node.mode & mode::TYPE {
            mode::FILE => {
                let mut bytes = vec![0; node.bytes.len() + 1];
                let len = fs.read(*ino, 0, &mut bytes).unwrap();
                assert_eq!((attributes.size_bytes, len), (len as u64, node.bytes.len()), "inode {ino}");
                let differs =
                    bytes[..len].iter().zip(&node.bytes).position(|(found, wanted)| found != wanted);
                assert_eq!(differs, None, "first wrong byte of inode {ino}");
            }
            mode::SYMLINK => assert_eq!(fs.read_link(*ino).unwrap(), node.bytes),
            mode::DIRECTORY => {
                let mut names = listed(fs, *ino);
                assert_eq!(
                    (names.remove(&b"."[..]), names.remove(&b".."[..])),
                    (Some(*ino), Some(node.parent))
                );
                assert_eq!(names, node.names, "directory {ino}");
            }
            _ => {}
        }
        assert_eq!(xattrs(fs, *ino), node.xattrs, "attributes of inode {ino}");
    }
}
