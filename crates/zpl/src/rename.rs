//! Renaming: within a directory, between two, over what is there, by exchange, and leaving a whiteout.

use fastness_store::Itx;
use fastness_store::record::{Attributes as Created, Record, Rename, RenameKind, SetXattr, Time, attribute};
use fastness_sync::lock;

use crate::acl::{self, Inherited};
use crate::attributes::AttributesRecord;
use crate::edit::{Edit, Found, Sought};
use crate::error::{FsError, Result};
use crate::file_system::FileSystem;
use crate::ino::Ino;
use crate::inode::{Inode, mode};
use crate::make::{self, Making, one_more_link};
use crate::names::{self, Entry};
use crate::remove::{Fate, drop_name};
use crate::xattr;

/// What is to happen at the two names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RenameHow {
    /// The new name is taken over from what has it.
    #[default]
    Replace,
    /// The new name must be free.
    NoReplace,
    /// Both names exist and are exchanged.
    Exchange,
    /// As `Replace`, and the old name becomes a whiteout: a character device 0:0.
    Whiteout {
        /// Owner of the whiteout.
        uid: u32,
        /// Its group.
        gid: u32,
    },
}

/// One side of a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Side<'a> {
    pub(crate) directory: Ino,
    pub(crate) name: &'a [u8],
}

/// What a rename has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Renamed {
    pub(crate) moved: Ino,
    /// What had the new name.
    pub(crate) target: Option<Ino>,
    /// Whether that was its last name.
    pub(crate) was_last: bool,
}

/// Whether `ino` is `directory`, or a directory above it.
fn is_above(edit: &Edit<'_>, ino: Ino, directory: Ino) -> Result<bool> {
    let mut at = directory;
    loop {
        if at == ino {
            return Ok(true);
        }
        if at == Ino::ROOT {
            return Ok(false);
        }
        at = edit.inode(at)?.parent;
    }
}

/// A directory moves from one parent to another.
fn move_directory(edit: &mut Edit<'_>, ino: Ino, from: Ino, to: Ino) -> Result<()> {
    if from == to {
        return Ok(());
    }
    let mut inode = edit.inode(ino)?;
    inode.parent = to;
    edit.set_inode(ino, inode);
    let mut old = edit.inode(from)?;
    old.links -= 1;
    edit.set_inode(from, old);
    let mut new = edit.inode(to)?;
    new.links = one_more_link(new.links)?;
    edit.set_inode(to, new);
    Ok(())
}

fn touch(edit: &mut Edit<'_>, inos: &[Ino], now: Time) -> Result<()> {
    inos.iter().try_for_each(|ino| edit.change(*ino, now, |inode| inode.mtime = now))
}

/// Makes a rename; `None`: both names are of the same file, and nothing is to be done.
pub(crate) fn rename(
    edit: &mut Edit<'_>,
    from: Side<'_>,
    to: Side<'_>,
    is_exchange: bool,
    now: Time,
    fate: Fate,
) -> Result<Option<Renamed>> {
    edit.directory(from.directory)?;
    edit.directory(to.directory)?;
    let source = edit.must_find(from.directory, from.name)?;
    let sought = edit.seek(to.directory, to.name)?;
    let target = sought.found();
    if is_exchange && target.is_none() {
        return Err(FsError::NotFound);
    }
    if target.is_some_and(|target| target.ino == source.ino) {
        return Ok(None);
    }
    for (moved, into) in [(Some(source), to.directory), (target.filter(|_| is_exchange), from.directory)] {
        if let Some(Found { ino, file_type: mode::DIRECTORY, .. }) = moved
            && is_above(edit, ino, into)?
        {
            return Err(FsError::Invalid("a directory cannot become a part of itself"));
        }
    }
    let is_directory = source.file_type == mode::DIRECTORY;
    let mut renamed = Renamed { moved: source.ino, target: target.map(|target| target.ino), was_last: false };
    let entry = Entry { file_type: source.file_type, ino: source.ino, name: to.name };
    match sought {
        Sought::Found(target) if is_exchange => {
            let back = Entry { file_type: target.file_type, ino: target.ino, name: from.name };
            edit.set_entry(from.directory, source.cookie, &back);
            edit.set_entry(to.directory, target.cookie, &entry);
            if target.file_type == mode::DIRECTORY {
                move_directory(edit, target.ino, to.directory, from.directory)?;
            }
            edit.change(target.ino, now, |_| ())?;
        }
        Sought::Found(target) => {
            let is_target_directory = target.file_type == mode::DIRECTORY;
            match (is_directory, is_target_directory) {
                (true, false) => return Err(FsError::NotADirectory),
                (false, true) => return Err(FsError::IsADirectory),
                _ => {}
            }
            renamed.was_last = drop_name(edit, target.ino, now, fate)?;
            if is_target_directory {
                let mut parent = edit.inode(to.directory)?;
                parent.links -= 1;
                edit.set_inode(to.directory, parent);
            }
            edit.set_entry(to.directory, target.cookie, &entry);
            edit.remove(from.directory, source.cookie)?;
        }
        Sought::Free(mut free) => {
            edit.remove(from.directory, source.cookie)?;
            if from.directory == to.directory && free.is_beside(source.cookie) {
                free = edit.must_be_free(to.directory, to.name)?;
            }
            edit.add(to.directory, free, &entry)?;
        }
    }
    if is_directory {
        move_directory(edit, source.ino, from.directory, to.directory)?;
    }
    edit.change(source.ino, now, |_| ())?;
    touch(edit, &[from.directory, to.directory], now)?;
    Ok(Some(renamed))
}

/// A whiteout, which inherits what any new file does; its mode gives nobody anything.
fn whiteout(
    ino: Ino,
    (uid, gid): (u32, u32),
    generation: u64,
    inherited: Inherited,
    now: Time,
) -> Making<'static> {
    let attributes = Created {
        mode: mode::CHAR_DEVICE,
        uid: u64::from(uid),
        gid: u64::from(gid),
        generation,
        crtime: now,
        rdev: 0,
    };
    Making { ino, attributes, target: &[], inherited }
}

impl FileSystem {
    /// Renames a file. Returns what had the new name, if that was its last: it stays until
    /// [`reap`](Self::reap).
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::Exists`], [`FsError::NotEmpty`], [`FsError::NotADirectory`],
    /// [`FsError::IsADirectory`]; [`FsError::Invalid`]: a directory would become a part of itself.
    pub fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), how: RenameHow) -> Result<Option<Ino>> {
        names::check(from.1)?;
        names::check(to.1)?;
        let from = Side { directory: from.0, name: from.1 };
        let to = Side { directory: to.0, name: to.1 };
        // Whether a directory is above another one changes with moves between directories alone.
        let _moving = (from.directory != to.directory).then(|| lock(&self.moving));
        let white = match how {
            RenameHow::Whiteout { uid, gid } => Some((Ino(self.dataset().allot_object().0), uid, gid)),
            _ => None,
        };
        loop {
            let edit = self.edit();
            let source = edit.must_find(from.directory, from.name)?.ino;
            let target = edit.find(to.directory, to.name)?.map(|found| found.ino);
            let mut inos = vec![from.directory, to.directory, source];
            inos.extend(target);
            inos.extend(white.map(|(ino, ..)| ino));
            let _guard = self.locks.all(&inos);
            let mut edit = self.edit();
            let found = edit.find(to.directory, to.name)?.map(|found| found.ino);
            if edit.must_find(from.directory, from.name)?.ino != source || found != target {
                continue;
            }
            if target.is_some() && how == RenameHow::NoReplace {
                return Err(FsError::Exists);
            }
            let now = self.now();
            let is_exchange = how == RenameHow::Exchange;
            let Some(renamed) = rename(&mut edit, from, to, is_exchange, now, Fate::Stays)? else {
                return Ok(None);
            };
            let mut listed = Vec::new();
            let kind = match white {
                Some((ino, uid, gid)) => {
                    let parent = edit.inode(from.directory)?;
                    let gid = if parent.mode & mode::SET_GID != 0 { parent.gid } else { gid };
                    let (_, inherited) = acl::inherit(&edit, from.directory, mode::CHAR_DEVICE, 0, false)?;
                    let list = inherited.access.clone();
                    let making = whiteout(ino, (uid, gid), self.generation, inherited, now);
                    let kind = RenameKind::Whiteout(ino.object(), making.attributes);
                    make::make(&mut edit, from.directory, from.name, making)?;
                    if let Some(list) = list {
                        listed = whiteout_list(ino, &list, &edit.inode(ino)?);
                    }
                    kind
                }
                None if is_exchange => RenameKind::Exchange,
                None => RenameKind::Plain,
            };
            let record = Record::Rename(Rename {
                kind,
                target_directory: to.directory.object(),
                source_name: from.name,
                target_name: to.name,
            });
            let touched: Vec<_> = inos[1..].iter().map(|ino| ino.object()).collect();
            let mut itx = Itx::sync(from.directory.object(), &record, &touched).behind(source.object());
            if let Some(back) = target.filter(|_| is_exchange) {
                itx = itx.behind(back.object());
            }
            let gone = target.filter(|_| renamed.was_last);
            self.carry_out(&edit, |records| {
                records.assign(itx);
                listed.into_iter().for_each(|itx| records.assign(itx));
                // Not before: a commit in between would cover neither its records nor its end.
                if let Some(gone) = gone {
                    records.forget(gone.object());
                }
            })?;
            return Ok(gone);
        }
    }
}

/// The records of a whiteout's list, after the rename that makes it: a crash may leave it without.
fn whiteout_list(ino: Ino, list: &[u8], inode: &Inode) -> Vec<Itx> {
    let value = xattr::logged_value(Some(list));
    let set = Record::SetXattr(SetXattr { name: acl::ACCESS, value: &value });
    let times = AttributesRecord::new(inode, attribute::EXTRA);
    let itx = |record: &Record<'_>| Itx::sync(ino.object(), record, &[]);
    vec![itx(&set), times.with(itx)]
}

/// Makes the rename that a record describes.
pub(crate) fn replay(
    edit: &mut Edit<'_>,
    from: Side<'_>,
    to: Side<'_>,
    kind: RenameKind,
    now: Time,
    fate: Fate,
) -> Result<()> {
    rename(edit, from, to, kind == RenameKind::Exchange, now, fate)?;
    if let RenameKind::Whiteout(ino, attributes) = kind {
        let making = Making { ino: Ino(ino.0), attributes, target: &[], inherited: Inherited::default() };
        make::make(edit, from.directory, from.name, making)?;
    }
    Ok(())
}
