//! New files of all types, and new names of old ones.

use fastness_store::Itx;
use fastness_store::record::{
    Attributes as Created, Create, CreateKind, Link, Record, SetXattr, Time, attribute,
};

use crate::acl::{self, Inherited};
use crate::attributes::{Attributes, AttributesRecord};
use crate::edit::Edit;
use crate::error::{FsError, Result};
use crate::file_system::FileSystem;
use crate::ino::Ino;
use crate::inode::{Inode, mode};
use crate::names::{self, Entry, TARGET_BYTES_MAX};
use crate::tables::{ATTRIBUTES, ORPHANS, TARGETS};
use crate::xattr;

/// Names of one file.
pub(crate) const LINKS_MAX: u32 = i32::MAX as u32;

/// A file to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewFile<'a> {
    /// Type and permissions.
    pub mode: u32,
    /// Permissions that are left out, unless the directory has a default access control list.
    pub umask: u32,
    /// Owner.
    pub uid: u32,
    /// Group; a directory with the set-group bit gives its own instead.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u64,
    /// Target of a symlink, empty for others.
    pub target: &'a [u8],
}

/// A file that an edit adds; in use as the caller wants it, in replay as the record has it.
pub(crate) struct Making<'a> {
    pub(crate) ino: Ino,
    pub(crate) attributes: Created,
    pub(crate) target: &'a [u8],
    pub(crate) inherited: Inherited,
}

impl Making<'_> {
    fn inode(&self, parent: Ino) -> Inode {
        let Created { mode, uid, gid, generation, crtime, rdev } = self.attributes;
        let is_directory = mode & mode::TYPE == mode::DIRECTORY;
        Inode {
            mode,
            links: if is_directory { 2 } else { 1 },
            uid: uid as u32,
            gid: gid as u32,
            block_bytes: 0,
            rdev,
            generation,
            entries: self.target.len() as u64,
            parent: if is_directory { parent } else { Ino(0) },
            is_temporary: false,
            is_bare: self.inherited.is_nothing(),
            atime: crtime,
            mtime: crtime,
            ctime: crtime,
            btime: crtime,
        }
    }
}

/// Adds a new file under a name that has been checked.
pub(crate) fn make(edit: &mut Edit<'_>, directory: Ino, name: &[u8], new: Making<'_>) -> Result<()> {
    let now = new.attributes.crtime;
    let mut parent = edit.directory(directory)?;
    let free = edit.must_be_free(directory, name)?;
    let inode = new.inode(directory);
    if inode.is_directory() {
        parent.links = one_more_link(parent.links)?;
    }
    (parent.mtime, parent.ctime) = (now, now);
    edit.set_inode(directory, parent);
    edit.add(directory, free, &Entry { file_type: inode.file_type(), ino: new.ino, name })?;
    add(edit, new, inode);
    Ok(())
}

/// Adds a new file without a name.
pub(crate) fn make_unnamed(edit: &mut Edit<'_>, new: Making<'_>, is_linkable: bool) -> Inode {
    let (ino, mut inode) = (new.ino, new.inode(Ino::NONE));
    (inode.links, inode.is_temporary) = (0, is_linkable);
    add(edit, new, inode);
    edit.put(ORPHANS, ino.key(), Some(Vec::new()));
    inode
}

/// Adds a new inode with what belongs to it.
pub(crate) fn add(edit: &mut Edit<'_>, new: Making<'_>, inode: Inode) {
    if !new.target.is_empty() {
        edit.put(TARGETS, new.ino.key(), Some(new.target.to_vec()));
    }
    edit.set_inode(new.ino, inode);
    new.inherited.put(edit, new.ino);
}

pub(crate) fn one_more_link(links: u32) -> Result<u32> {
    if links >= LINKS_MAX { Err(FsError::TooManyLinks) } else { Ok(links + 1) }
}

/// Adds a name to a file that has others.
pub(crate) fn link(edit: &mut Edit<'_>, ino: Ino, directory: Ino, name: &[u8], now: Time) -> Result<Inode> {
    edit.directory(directory)?;
    let mut inode = edit.inode(ino)?;
    if inode.is_directory() {
        return Err(FsError::NotPermitted("a directory has one name"));
    }
    if inode.links == 0 && !inode.is_temporary {
        return Err(FsError::NotFound);
    }
    let free = edit.must_be_free(directory, name)?;
    if inode.links == 0 {
        edit.put(ORPHANS, ino.key(), None);
    }
    inode.links = one_more_link(inode.links)?;
    inode.is_temporary = false;
    inode.ctime = now;
    edit.set_inode(ino, inode);
    edit.add(directory, free, &Entry { file_type: inode.file_type(), ino, name })?;
    edit.change(directory, now, |parent| parent.mtime = now)?;
    Ok(inode)
}

/// The record of a new file.
pub(crate) fn create_itx(directory: Ino, name: &[u8], new: &Making<'_>) -> Itx {
    let kind = match new.attributes.mode & mode::TYPE {
        mode::DIRECTORY => CreateKind::Directory,
        mode::SYMLINK => CreateKind::Symlink,
        _ => CreateKind::File,
    };
    let acl = new.inherited.to_record();
    let (object, attributes, target) = (new.ino.object(), new.attributes, new.target);
    let create = Create { kind, object, attributes, name, target, acl: &acl };
    Itx::sync(directory.object(), &Record::Create(create), &[object])
}

impl FileSystem {
    /// Creates a file of any type.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NotADirectory`], [`FsError::NotFound`] for a directory that was
    /// removed, [`FsError::NameTooLong`], [`FsError::Invalid`], [`FsError::TooManyLinks`]; those of a write.
    pub fn make(&self, directory: Ino, name: &[u8], new: &NewFile<'_>) -> Result<Attributes> {
        names::check(name)?;
        let ino = Ino(self.dataset().allot_object().0);
        let _guard = self.locks.all(&[directory, ino]);
        let mut edit = self.edit();
        let (making, itx) = {
            let parent = edit.directory(directory)?;
            let making = self.making(&edit, ino, Some((directory, &parent)), new)?;
            let itx = create_itx(directory, name, &making);
            (making, itx)
        };
        make(&mut edit, directory, name, making)?;
        let inode = edit.inode(ino)?;
        self.carry_out(&edit, |records| records.assign(itx))?;
        // The record has the time of creation, and replay takes it for all of them.
        self.late.logged(ino);
        self.shown(ino, &inode)
    }

    fn making<'a>(
        &self,
        edit: &Edit<'_>,
        ino: Ino,
        parent: Option<(Ino, &Inode)>,
        new: &NewFile<'a>,
    ) -> Result<Making<'a>> {
        let is_symlink = new.mode & mode::TYPE == mode::SYMLINK;
        if !mode::is_valid(new.mode) {
            return Err(FsError::Invalid("the mode is of no known type"));
        }
        if new.target.len() > TARGET_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        if is_symlink == new.target.is_empty() {
            return Err(FsError::Invalid("a symlink has a target, and nothing else does"));
        }
        let is_directory = new.mode & mode::TYPE == mode::DIRECTORY;
        let (mut mode, mut gid, mut inherited) = (new.mode, new.gid, Inherited::default());
        if let Some((directory, inode)) = parent {
            if !is_symlink {
                (mode, inherited) = acl::inherit(edit, directory, new.mode, new.umask, is_directory)?;
            }
            if inode.mode & mode::SET_GID != 0 {
                gid = inode.gid;
                mode |= if is_directory { mode::SET_GID } else { 0 };
            }
        }
        let attributes = Created {
            mode,
            uid: u64::from(new.uid),
            gid: u64::from(gid),
            generation: self.generation,
            crtime: self.now(),
            rdev: new.rdev,
        };
        Ok(Making { ino, attributes, target: new.target, inherited })
    }

    /// Creates a file without a name, as `O_TMPFILE` does. It goes with [`reap`](Self::reap), unless
    /// [`link`](Self::link) gives it a name before; `is_linkable`: that is allowed.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn make_unnamed(&self, directory: Ino, new: &NewFile<'_>, is_linkable: bool) -> Result<Attributes> {
        let ino = Ino(self.dataset().allot_object().0);
        let _guard = self.locks.all(&[directory, ino]);
        let mut edit = self.edit();
        let parent = edit.directory(directory)?;
        let making = self.making(&edit, ino, Some((directory, &parent)), new)?;
        if making.attributes.mode & mode::TYPE != mode::FILE {
            return Err(FsError::Invalid("only a file can be without a name"));
        }
        let inode = make_unnamed(&mut edit, making, is_linkable);
        // Nothing of it is logged before it has a name.
        self.carry_out(&edit, |_| ())?;
        self.shown(ino, &inode)
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// [`FsError::NotPermitted`] for a directory; [`FsError::NotFound`] for a file that was removed; as
    /// [`make`](Self::make).
    pub fn link(&self, ino: Ino, directory: Ino, name: &[u8]) -> Result<Attributes> {
        names::check(name)?;
        let _guard = self.locks.all(&[directory, ino]);
        let mut edit = self.edit();
        let before = edit.inode(ino)?;
        let inode = link(&mut edit, ino, directory, name, self.now())?;
        let itxs = match before.links {
            0 => self.whole_file(directory, name, ino, &inode)?,
            _ => {
                let record = Record::Link(Link { object: ino.object(), name });
                vec![Itx::sync(directory.object(), &record, &[ino.object()]).behind(ino.object())]
            }
        };
        // Before the change: whoever gets an error may try again, and would find the name.
        let shown = self.shown(ino, &inode)?;
        self.carry_out(&edit, |records| itxs.into_iter().for_each(|itx| records.assign(itx)))?;
        Ok(shown)
    }

    /// The records of a file that gets its first name: none of what happened to it was logged. It is created
    /// without a name, and gets its name when it has the rest: a crash may leave only some of these records.
    /// Its bytes are read back if they are ever committed.
    fn whole_file(&self, directory: Ino, name: &[u8], ino: Ino, inode: &Inode) -> Result<Vec<Itx>> {
        let Inode { mode, generation, btime, rdev, .. } = *inode;
        let (uid, gid) = (u64::from(inode.uid), u64::from(inode.gid));
        let attributes = Created { mode, uid, gid, generation, crtime: btime, rdev };
        let making = Making { ino, attributes, target: &[], inherited: Inherited::default() };
        let mut itxs = vec![create_itx(Ino::NONE, name, &making)];
        self.tables.of_inode(ATTRIBUTES, ino, |name, value| {
            let value = xattr::logged_value(Some(value));
            let record = Record::SetXattr(SetXattr { name, value: &value });
            itxs.push(Itx::sync(ino.object(), &record, &[]));
            std::ops::ControlFlow::Continue(())
        })?;
        if let Some(object) = self.object(ino)? {
            self.whole_data(ino, &object, &mut itxs)?;
        }
        let link = Record::Link(Link { object: ino.object(), name });
        itxs.push(Itx::sync(directory.object(), &link, &[ino.object()]));
        let set = AttributesRecord::new(inode, attribute::ALL & !attribute::SIZE);
        itxs.push(set.with(|record| Itx::sync(ino.object(), record, &[])));
        Ok(itxs)
    }
}
