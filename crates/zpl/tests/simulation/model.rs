//! Files as plain maps: what the file system must show.

use std::collections::BTreeMap;

use fastness_zpl::{Errno, Ino, mode};

pub(crate) type Name = Vec<u8>;

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) links: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) names: BTreeMap<Name, Ino>,
    pub(crate) parent: Ino,
    pub(crate) xattrs: BTreeMap<Name, Vec<u8>>,
    /// It has no name yet, and may get one.
    pub(crate) is_temporary: bool,
}

impl Node {
    fn new(mode: u32, parent: Ino) -> Node {
        let links = if is_directory(mode) { 2 } else { 1 };
        let (bytes, names, xattrs) = Default::default();
        Node { mode, uid: 0, links, bytes, names, parent, xattrs, is_temporary: false }
    }
}

pub(crate) fn is_directory(of: u32) -> bool {
    of & mode::TYPE == mode::DIRECTORY
}

/// A tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Model(pub(crate) BTreeMap<Ino, Node>);

/// A change, with the number that the file system gave to what it made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Make { directory: Ino, name: Name, mode: u32, target: Vec<u8>, made: Ino },
    MakeUnnamed { mode: u32, made: Ino },
    Link { ino: Ino, directory: Ino, name: Name },
    Remove { directory: Ino, name: Name, is_directory: bool },
    Rename { from: (Ino, Name), to: (Ino, Name), how: How, white: Ino },
    Write { ino: Ino, offset: usize, data: Vec<u8> },
    Resize { ino: Ino, len: usize },
    Punch { ino: Ino, offset: usize, len: usize },
    SetMode { ino: Ino, mode: u32 },
    SetOwner { ino: Ino, uid: u32 },
    SetXattr { ino: Ino, name: Name, value: Option<Vec<u8>> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Replace,
    NoReplace,
    Exchange,
    Whiteout,
}

impl Change {
    /// The file whose commits cover it; `None` for changes of names, which all commits cover.
    pub(crate) fn file(&self) -> Option<Ino> {
        match self {
            Change::Write { ino, .. }
            | Change::Resize { ino, .. }
            | Change::Punch { ino, .. }
            | Change::SetMode { ino, .. }
            | Change::SetOwner { ino, .. }
            | Change::SetXattr { ino, .. } => Some(*ino),
            _ => None,
        }
    }
}

impl Default for Model {
    fn default() -> Model {
        Model([(Ino::ROOT, Node::new(mode::DIRECTORY | 0o755, Ino::ROOT))].into())
    }
}

impl Model {
    fn directory(&self, ino: Ino) -> Result<&Node, Errno> {
        let node = self.0.get(&ino).ok_or(Errno::STALE)?;
        match node {
            _ if !is_directory(node.mode) => Err(if node.links == 0 { Errno::NOENT } else { Errno::NOTDIR }),
            _ if node.links == 0 => Err(Errno::NOENT),
            _ => Ok(node),
        }
    }

    fn node(&mut self, ino: Ino) -> &mut Node {
        self.0.get_mut(&ino).expect("it was looked up")
    }

    fn is_above(&self, ino: Ino, directory: Ino) -> bool {
        let mut at = directory;
        while at != ino {
            if at == Ino::ROOT {
                return false;
            }
            at = self.0[&at].parent;
        }
        true
    }

    /// Makes a change; refused as the file system must refuse it, and then nothing has changed.
    pub(crate) fn apply(&mut self, change: &Change) -> Result<(), Errno> {
        match change {
            Change::Make { directory, name, mode, target, made } => {
                let parent = self.directory(*directory)?;
                if parent.names.contains_key(name) {
                    return Err(Errno::EXIST);
                }
                let mut node = Node::new(*mode, *directory);
                node.bytes.clone_from(target);
                self.0.insert(*made, node);
                let parent = self.node(*directory);
                parent.names.insert(name.clone(), *made);
                parent.links += u32::from(is_directory(*mode));
            }
            Change::MakeUnnamed { mode, made } => {
                let node = Node { links: 0, is_temporary: true, ..Node::new(*mode, Ino::ROOT) };
                self.0.insert(*made, node);
            }
            Change::Link { ino, directory, name } => {
                let parent = self.directory(*directory)?;
                let is_taken = parent.names.contains_key(name);
                let node = self.0.get(ino).ok_or(Errno::STALE)?;
                match node {
                    _ if is_directory(node.mode) => return Err(Errno::PERM),
                    Node { links: 0, is_temporary: false, .. } => return Err(Errno::NOENT),
                    _ if is_taken => return Err(Errno::EXIST),
                    _ => {}
                }
                let node = self.node(*ino);
                node.links += 1;
                node.is_temporary = false;
                self.node(*directory).names.insert(name.clone(), *ino);
            }
            Change::Remove { directory, name, is_directory: wanted } => {
                let parent = self.directory(*directory)?;
                let ino = *parent.names.get(name).ok_or(Errno::NOENT)?;
                match (*wanted, is_directory(self.0[&ino].mode)) {
                    (true, false) => return Err(Errno::NOTDIR),
                    (false, true) => return Err(Errno::ISDIR),
                    _ => {}
                }
                self.drop_name(ino)?;
                let parent = self.node(*directory);
                parent.names.remove(name);
                parent.links -= u32::from(*wanted);
            }
            Change::Rename { from, to, how, white } => self.rename(from, to, *how, *white)?,
            _ => self.change_file(change)?,
        }
        Ok(())
    }

    fn drop_name(&mut self, ino: Ino) -> Result<(), Errno> {
        let node = self.node(ino);
        if is_directory(node.mode) {
            if !node.names.is_empty() {
                return Err(Errno::NOTEMPTY);
            }
            node.links = 0;
        } else {
            node.links -= 1;
        }
        Ok(())
    }

    fn rename(&mut self, from: &(Ino, Name), to: &(Ino, Name), how: How, white: Ino) -> Result<(), Errno> {
        let before = self.clone();
        let source = *self.directory(from.0)?.names.get(&from.1).ok_or(Errno::NOENT)?;
        let target = self.directory(to.0)?.names.get(&to.1).copied();
        match (how, target) {
            (How::NoReplace, Some(_)) => return Err(Errno::EXIST),
            (How::Exchange, None) => return Err(Errno::NOENT),
            _ if target == Some(source) => return Ok(()),
            _ => {}
        }
        let is_dir = |model: &Model, ino: Ino| is_directory(model.0[&ino].mode);
        let back = target.filter(|_| how == How::Exchange);
        if is_dir(self, source) && self.is_above(source, to.0)
            || back.is_some_and(|back| is_dir(self, back) && self.is_above(back, from.0))
        {
            return Err(Errno::INVAL);
        }
        if let (Some(target), None) = (target, back) {
            match (is_dir(self, source), is_dir(self, target)) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                _ => {}
            }
            if let Err(error) = self.drop_name(target) {
                *self = before;
                return Err(error);
            }
            self.node(to.0).links -= u32::from(is_dir(self, target));
        }
        self.node(from.0).names.remove(&from.1);
        self.node(to.0).names.insert(to.1.clone(), source);
        self.node(from.0).links -= u32::from(is_dir(self, source));
        self.node(to.0).links += u32::from(is_dir(self, source));
        if is_dir(self, source) {
            self.node(source).parent = to.0;
        }
        if let Some(back) = back {
            self.node(from.0).names.insert(from.1.clone(), back);
            self.node(to.0).links -= u32::from(is_dir(self, back));
            self.node(from.0).links += u32::from(is_dir(self, back));
            if is_dir(self, back) {
                self.node(back).parent = from.0;
            }
        }
        if how == How::Whiteout {
            self.0.insert(white, Node::new(mode::CHAR_DEVICE, from.0));
            self.node(from.0).names.insert(from.1.clone(), white);
        }
        Ok(())
    }

    fn change_file(&mut self, change: &Change) -> Result<(), Errno> {
        let ino = change.file().expect("a change of a file");
        let node = self.0.get_mut(&ino).ok_or(Errno::STALE)?;
        let is_data = matches!(change, Change::Write { .. } | Change::Resize { .. } | Change::Punch { .. });
        match node.mode & mode::TYPE {
            mode::FILE => {}
            mode::DIRECTORY if is_data => return Err(Errno::ISDIR),
            _ if is_data => return Err(Errno::INVAL),
            _ => {}
        }
        match change {
            Change::Write { offset, data, .. } => {
                let len = node.bytes.len().max(offset + data.len());
                node.bytes.resize(len, 0);
                node.bytes[*offset..offset + data.len()].copy_from_slice(data);
            }
            Change::Resize { len, .. } => node.bytes.resize(*len, 0),
            Change::Punch { offset, len, .. } => {
                let end = (offset + len).min(node.bytes.len());
                if *offset < end {
                    node.bytes[*offset..end].fill(0);
                }
            }
            Change::SetMode { mode, .. } => node.mode = node.mode & mode::TYPE | mode,
            Change::SetOwner { uid, .. } => node.uid = *uid,
            Change::SetXattr { name, value: Some(value), .. } => {
                node.xattrs.insert(name.clone(), value.clone());
            }
            Change::SetXattr { name, value: None, .. } => {
                node.xattrs.remove(name).ok_or(Errno::NODATA)?;
            }
            _ => unreachable!("a change of a file"),
        }
        Ok(())
    }
}
