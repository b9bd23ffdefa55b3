//! Applies the records of a file system's log, with the edits that operations in use make.
//!
//! Nothing is in use after a crash: a file that loses its last name goes at once. When a suspended pool goes
//! on, it stays without a name, as it did. Times that a record does not have are those of the replay.

use fastness_store::record::{
    Create, Head, Record, Remove, Rename, SetAttr, SetXattr, TimedWrite, Truncate, Write, WriteData,
    attribute,
};
use fastness_store::{Dataset, Handler, Object, PoolError, PoolResult, ReplayError, Replaying, Tx};

use crate::acl::{self, Inherited};
use crate::attributes::ctime_of;
use crate::data::block_bytes_for;
use crate::edit::Edit;
use crate::error::{FsError, Result};
use crate::file_system::{Clock, now};
use crate::ino::Ino;
use crate::inode::{Inode, mode};
use crate::make::{self, Making};
use crate::names;
use crate::remove::{self, Fate};
use crate::rename::{self, Side};
use crate::tables::Tables;
use crate::xattr;

/// Replays file systems; see [`Kinds`](fastness_store::Kinds).
#[derive(Debug, Clone, Copy)]
pub struct FileReplay {
    /// The time for changes whose records have none.
    pub clock: Clock,
}

impl Default for FileReplay {
    fn default() -> FileReplay {
        FileReplay { clock: now }
    }
}

impl Handler for FileReplay {
    fn apply(
        &self,
        replaying: &Replaying<'_>,
        tx: &Tx,
        head: &Head,
        record: &Record<'_>,
    ) -> Result<(), ReplayError> {
        let tables = replaying.kept(|| Tables::open(replaying.dataset))?;
        let mut edit = Edit::new(tables, None);
        let ino = Ino(head.object.0);
        let now = (self.clock)();
        if record.record_type().may_be_reordered() {
            let Some(inode) = tables.inode(ino)? else {
                // Its file was removed.
                return Ok(());
            };
            change_file(replaying, tx, &mut edit, (ino, inode), record, now)?;
        } else {
            change_names(replaying, &mut edit, ino, record, now)?;
        }
        Ok(edit.apply(tx)?)
    }
}

fn change_names(
    replaying: &Replaying<'_>,
    edit: &mut Edit<'_>,
    directory: Ino,
    record: &Record<'_>,
    now: fastness_store::record::Time,
) -> Result<()> {
    let dataset = replaying.dataset;
    let fate = if replaying.is_resumed { Fate::Stays } else { Fate::Goes };
    match record {
        Record::Create(Create { object, attributes, name, target, acl, .. }) => {
            names::check(name)?;
            check_new(*object, attributes.mode, target)?;
            let is_new = dataset.note_object(*object);
            let ino = Ino(object.0);
            let inherited = Inherited::of_record(acl)?;
            let before = if is_new { None } else { edit.renew(ino)? };
            let making = Making { ino, attributes: *attributes, target, inherited };
            match directory {
                Ino::NONE if attributes.mode & mode::TYPE != mode::FILE => {
                    return Err(FsError::Invalid("a record creates what cannot be without a name"));
                }
                Ino::NONE => drop(make::make_unnamed(edit, making, true)),
                directory => make::make(edit, directory, name, making)?,
            }
            if let Some(before) = before {
                let inode = Inode { block_bytes: before.block_bytes, ..edit.inode(ino)? };
                edit.set_inode(ino, inode);
            }
            Ok(())
        }
        Record::Remove(Remove { is_directory, name }) => {
            remove::remove(edit, directory, name, *is_directory, now, fate).map(drop)
        }
        Record::Link(link) => {
            names::check(link.name)?;
            make::link(edit, Ino(link.object.0), directory, link.name, now).map(drop)
        }
        Record::Rename(Rename { kind, target_directory, source_name, target_name }) => {
            names::check(target_name)?;
            if let fastness_store::record::RenameKind::Whiteout(object, attributes) = kind {
                check_new(*object, attributes.mode, &[])?;
                dataset.note_object(*object);
            }
            let from = Side { directory, name: source_name };
            let to = Side { directory: Ino(target_directory.0), name: target_name };
            rename::replay(edit, from, to, *kind, now, fate)
        }
        _ => Err(FsError::Invalid("a file system has no such records")),
    }
}

/// Refuses what no file is created as: a record has come from a medium.
fn check_new(object: fastness_store::ObjectId, mode: u32, target: &[u8]) -> Result<()> {
    let is_symlink = mode & mode::TYPE == mode::SYMLINK;
    if object.0 <= Ino::ROOT.0 || !mode::is_valid(mode) || is_symlink == target.is_empty() {
        return Err(FsError::Invalid("a record creates what no file can be"));
    }
    if target.len() > names::TARGET_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    Ok(())
}

/// Changes one file: its bytes at once, its inode in the edit.
fn change_file(
    replaying: &Replaying<'_>,
    tx: &Tx,
    edit: &mut Edit<'_>,
    (ino, mut inode): (Ino, Inode),
    record: &Record<'_>,
    now: fastness_store::record::Time,
) -> Result<()> {
    let is_data = !matches!(record, Record::SetAttr(_) | Record::SetXattr(_));
    if is_data && !inode.is_file() {
        return Err(FsError::Invalid("a record writes to what is no file"));
    }
    let dataset = replaying.dataset;
    match record {
        Record::Write(Write { offset, data: WriteData::Inline(data) }) => {
            with_object(dataset, tx, ino, &mut inode, offset + data.len() as u64, |object| {
                object.write(tx, *offset, data)
            })?;
        }
        Record::Write(Write { offset, data: WriteData::Indirect { len_bytes, address } }) => {
            with_object(dataset, tx, ino, &mut inode, offset + len_bytes, |object| {
                replaying.write_stored(tx, object, *offset, (address, *len_bytes))
            })?;
        }
        Record::TimedWrite(TimedWrite { offset, time, data }) => {
            with_object(dataset, tx, ino, &mut inode, offset + data.len() as u64, |object| {
                object.write(tx, *offset, data)
            })?;
            (inode.mtime, inode.ctime) = (*time, *time);
            edit.set_inode(ino, inode);
            return Ok(());
        }
        Record::Zeroes(zeroes) => {
            with_object(dataset, tx, ino, &mut inode, 0, |object| {
                object.punch(tx, zeroes.offset, zeroes.len_bytes)
            })?;
        }
        // A file that is about to get its bytes, which say how large its blocks are.
        Record::Truncate(Truncate { offset: 0, .. }) if inode.block_bytes == 0 => {}
        Record::Truncate(cut) => {
            with_object(dataset, tx, ino, &mut inode, cut.offset, |object| match cut.len_bytes {
                u64::MAX => object.truncate(tx, cut.offset),
                len_bytes => object.punch(tx, cut.offset, len_bytes),
            })?;
        }
        Record::SetAttr(set) => {
            set_attributes(edit, ino, &mut inode, set, now)?;
            edit.set_inode(ino, inode);
            return Ok(());
        }
        Record::SetXattr(SetXattr { name, value }) => {
            edit.set_inode(ino, inode);
            xattr::set(edit, ino, name, xattr::value_of(value))?;
            return edit.change(ino, now, |_| ());
        }
        _ => return Err(FsError::Invalid("a file system has no such records")),
    }
    (inode.mtime, inode.ctime) = (now, now);
    edit.set_inode(ino, inode);
    Ok(())
}

/// Changes the object with a file's bytes; creates it, if there is none.
fn with_object(
    dataset: &Dataset,
    tx: &Tx,
    ino: Ino,
    inode: &mut Inode,
    end: u64,
    change: impl FnOnce(&Object) -> PoolResult<()>,
) -> Result<()> {
    let known = match inode.block_bytes {
        0 => Err(PoolError::NoObject { dataset: dataset.id(), object: ino.object() }),
        _ => dataset.object(ino.object()),
    };
    let object = match known {
        Ok(object) => object,
        Err(PoolError::NoObject { .. }) => {
            let block_bytes = block_bytes_for(dataset, end);
            inode.block_bytes = block_bytes;
            dataset.create_object_with(tx, ino.object(), block_bytes)?
        }
        Err(error) => return Err(error.into()),
    };
    Ok(change(&object)?)
}

fn set_attributes(
    edit: &mut Edit<'_>,
    ino: Ino,
    inode: &mut Inode,
    set: &SetAttr<'_>,
    now: fastness_store::record::Time,
) -> Result<()> {
    let has = |bit| set.mask & bit != 0;
    if has(attribute::MODE) {
        inode.mode = inode.file_type() | set.mode & mode::PERMISSIONS;
        acl::follow_mode(edit, ino, inode.mode)?;
    }
    if has(attribute::UID) {
        inode.uid = set.uid as u32;
    }
    if has(attribute::GID) {
        inode.gid = set.gid as u32;
    }
    if has(attribute::ATIME) {
        inode.atime = set.atime;
    }
    if has(attribute::MTIME) {
        inode.mtime = set.mtime;
    }
    let ctime = has(attribute::EXTRA).then(|| ctime_of(set.extra)).flatten();
    inode.ctime = ctime.unwrap_or(now);
    Ok(())
}
