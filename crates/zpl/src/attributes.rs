//! Attributes of files: reading and setting them.

use std::sync::Arc;

use fastness_store::record::{Record, SetAttr, Time, Truncate, attribute};
use fastness_store::{Itx, Object, PoolResult, Records, Tx};

use crate::acl;
use crate::edit::Edit;
use crate::error::{FsError, Result};
use crate::file_system::FileSystem;
use crate::ino::Ino;
use crate::inode::{Inode, mode};

/// Unit of `blocks`.
const SECTOR_BYTES: u64 = 512;
/// What a reader should read at once.
const PREFERRED_BYTES: u32 = 128 << 10;
/// Largest file: offsets end where the pool's do.
pub const FILE_BYTES_MAX: u64 = 1 << 62;

/// What programs see of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Its number.
    pub ino: Ino,
    /// Distinguishes files with the same number.
    pub generation: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Units of 512 bytes that it takes.
    pub blocks: u64,
    /// What a program should read at once, in bytes.
    pub preferred_bytes: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of contents or attributes.
    pub ctime: Time,
    /// Creation.
    pub btime: Time,
}

/// A new time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewTime {
    /// The current one.
    Now,
    /// This one.
    At(Time),
}

/// Attributes to be set; what is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttributes {
    /// Permissions; bits of the type are ignored.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size_bytes: Option<u64>,
    /// Last access.
    pub atime: Option<NewTime>,
    /// Last change of the contents.
    pub mtime: Option<NewTime>,
    /// Last change of all; if not given, the current time.
    pub ctime: Option<Time>,
    /// The bits that run a program as another user or group are cleared.
    pub clears_set_id: bool,
    /// With `clears_set_id`: the set-group bit of a file that its group may not execute is, too. For callers
    /// outside of the [group](FileSystem::set_group).
    pub is_outsider: bool,
}

impl SetAttributes {
    fn is_size_alone(&self) -> bool {
        let without = SetAttributes { size_bytes: None, ..*self };
        self.size_bytes.is_some() && without == SetAttributes::default()
    }
}

/// Clears the bits that run a program as its owner or group, as a write by another user does, and a new owner
/// of whatever is no directory.
pub(crate) fn clear_set_id(inode: &mut Inode, is_outsider: bool) {
    if !inode.is_directory() {
        inode.mode &= !mode::SET_UID;
        if is_outsider || inode.mode & mode::GROUP_EXECUTE != 0 {
            inode.mode &= !mode::SET_GID;
        }
    }
}

/// Refuses a size that cannot be set.
fn check_size(inode: &Inode, size_bytes: u64) -> Result<()> {
    match inode.file_type() {
        mode::FILE if size_bytes > FILE_BYTES_MAX => Err(FsError::TooLarge),
        mode::FILE => Ok(()),
        mode::DIRECTORY => Err(FsError::IsADirectory),
        _ => Err(FsError::Invalid("only files have a size that can be set")),
    }
}

impl FileSystem {
    /// Attributes of a file.
    ///
    /// # Errors
    /// [`FsError::Stale`]; those of reading the tables.
    pub fn attributes(&self, ino: Ino) -> Result<Attributes> {
        let inode = self.inode(ino)?;
        self.shown(ino, &inode)
    }

    /// The group of a file that has the set-group bit, and that its group may not execute: only callers
    /// outside of it clear that bit with what they change.
    ///
    /// # Errors
    /// As [`attributes`](Self::attributes).
    pub fn set_group(&self, ino: Ino) -> Result<Option<u32>> {
        let inode = self.inode(ino)?;
        let bits = inode.mode & (mode::SET_GID | mode::GROUP_EXECUTE);
        Ok((bits == mode::SET_GID && !inode.is_directory()).then_some(inode.gid))
    }

    pub(crate) fn shown(&self, ino: Ino, inode: &Inode) -> Result<Attributes> {
        let (size_bytes, blocks) = match inode.file_type() {
            mode::FILE if inode.block_bytes > 0 => match self.object(ino)? {
                Some(object) => (object.size_bytes(), object.taken_bytes()?.div_ceil(SECTOR_BYTES)),
                None => (0, 0),
            },
            mode::SYMLINK | mode::DIRECTORY => (inode.entries, 0),
            _ => (0, 0),
        };
        Ok(Attributes {
            ino,
            generation: inode.generation,
            mode: inode.mode,
            links: inode.links,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            size_bytes,
            blocks,
            preferred_bytes: PREFERRED_BYTES,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            btime: inode.btime,
        })
    }

    /// Sets attributes: all of them, or none. A change of the size changes the time of the contents as well.
    ///
    /// # Errors
    /// [`FsError::IsADirectory`], [`FsError::Invalid`] for a size of what is no file;
    /// [`FsError::TooLarge`]; those of a write.
    pub fn set_attributes(&self, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        let _guard = self.locks.one(ino);
        let now = self.now();
        let mut edit = self.edit();
        let mut inode = edit.inode(ino)?;
        if let Some(size_bytes) = set.size_bytes {
            check_size(&inode, size_bytes)?;
            inode.mtime = now;
        }
        let time = |new: NewTime| match new {
            NewTime::Now => now,
            NewTime::At(time) => time,
        };
        if let Some(permissions) = set.mode {
            inode.mode = inode.file_type() | permissions & mode::PERMISSIONS;
            acl::follow_mode(&mut edit, ino, inode.mode)?;
        }
        if set.clears_set_id {
            clear_set_id(&mut inode, set.is_outsider);
        }
        (inode.uid, inode.gid) = (set.uid.unwrap_or(inode.uid), set.gid.unwrap_or(inode.gid));
        inode.atime = set.atime.map_or(inode.atime, time);
        inode.mtime = set.mtime.map_or(inode.mtime, time);
        inode.ctime = set.ctime.unwrap_or(now);
        let is_size_alone = set.is_size_alone();
        let record = |records: &Records<'_>| {
            if inode.links > 0 && !is_size_alone {
                records.assign(attributes_itx(ino, &inode, attribute::ALL & !attribute::SIZE));
            }
        };
        match set.size_bytes {
            Some(size_bytes) => {
                let cut = Truncate { offset: size_bytes, len_bytes: u64::MAX };
                let itx = Itx::unordered(ino.object(), &Record::Truncate(cut));
                let block_bytes = self.block_bytes_for(size_bytes);
                let truncate = |tx: &Tx, object: &Object| object.truncate(tx, size_bytes);
                self.change_data(edit, (ino, inode), block_bytes, truncate, |records| {
                    records.assign(itx);
                    record(&records);
                })?;
            }
            None => {
                edit.set_inode(ino, inode);
                self.carry_out(&edit, |records| record(&records))?;
            }
        }
        if !is_size_alone {
            self.late.logged(ino);
        }
        self.attributes(ino)
    }

    /// Changes the bytes of a locked file, makes an edit, and stores the file's inode: all of it, or nothing.
    /// Creates its object if it has none.
    pub(crate) fn change_data(
        &self,
        mut edit: Edit<'_>,
        (ino, mut inode): (Ino, Inode),
        block_bytes: u32,
        change: impl Fn(&Tx, &Object) -> PoolResult<()>,
        record: impl FnOnce(Records<'_>),
    ) -> Result<()> {
        let known = self.object(ino)?;
        if known.is_none() {
            inode.block_bytes = block_bytes;
        }
        edit.set_inode(ino, inode);
        edit.frees();
        let change_object = |tx: &Tx| {
            let created = match &known {
                Some(_) => None,
                None => Some(self.dataset().create_object_with(tx, ino.object(), block_bytes)?),
            };
            let object = known.as_deref().or(created.as_ref()).expect("one of them is there");
            let done = change(tx, object);
            if done.is_err() && created.is_some() {
                self.dataset().destroy_object(tx, ino.object())?;
            }
            done.map(|()| (tx.txg(), created))
        };
        // There is room for the rows before the object changes.
        let made = |tx: &Tx| edit.apply_after(tx, || change_object(tx));
        let (txg, created) = self.open.transact(made, |records, _| {
            if inode.links > 0 {
                record(records);
            }
        })?;
        self.late.stored(ino, &inode, txg);
        if let Some(created) = created {
            self.objects.insert(ino, Arc::new(created));
        }
        Ok(())
    }
}

/// The record of an inode's attributes; the time of change is among the extras.
pub(crate) struct AttributesRecord<'a> {
    inode: &'a Inode,
    mask: u32,
    extra: [u8; 16],
}

impl AttributesRecord<'_> {
    pub(crate) fn new(inode: &Inode, mask: u32) -> AttributesRecord<'_> {
        let mut extra = [0; 16];
        extra[..8].copy_from_slice(&inode.ctime.seconds.to_le_bytes());
        extra[8..12].copy_from_slice(&inode.ctime.nanoseconds.to_le_bytes());
        AttributesRecord { inode, mask, extra }
    }

    pub(crate) fn with<T>(&self, then: impl FnOnce(&Record<'_>) -> T) -> T {
        let Inode { mode, uid, gid, atime, mtime, .. } = *self.inode;
        let (uid, gid, size_bytes) = (u64::from(uid), u64::from(gid), 0);
        let (mask, extra) = (self.mask, &self.extra[..]);
        then(&Record::SetAttr(SetAttr { mask, mode, uid, gid, size_bytes, atime, mtime, extra }))
    }
}

/// The same, for the file's own commits.
pub(crate) fn attributes_itx(ino: Ino, inode: &Inode, mask: u32) -> Itx {
    AttributesRecord::new(inode, mask).with(|record| Itx::unordered(ino.object(), record))
}

/// The time of change among the extras of such a record.
pub(crate) fn ctime_of(extra: &[u8]) -> Option<Time> {
    let seconds = i64::from_le_bytes(*extra.first_chunk()?);
    let nanoseconds = u32::from_le_bytes(*extra.get(8..12)?.first_chunk()?);
    (nanoseconds < 1_000_000_000).then_some(Time { seconds, nanoseconds })
}
