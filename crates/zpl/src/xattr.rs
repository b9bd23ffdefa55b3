//! Extended attributes.
//!
//! Names begin with `user.`, `trusted.` or `security.`; who may use which is the kernel's to check. Access
//! control lists are attributes too, see `acl`.

use std::ops::ControlFlow;

use fastness_store::Itx;
use fastness_store::record::{Record, SetXattr};

use crate::acl::{self, ACCESS, Acl, DEFAULT};
use crate::attributes::attributes_itx;
use crate::edit::Edit;
use crate::error::{FsError, Result};
use crate::file_system::FileSystem;
use crate::ino::Ino;
use crate::inode::{Inode, mode};
use crate::names::NAME_BYTES_MAX;
use crate::tables::ATTRIBUTES;

/// Longest value in bytes.
pub const XATTR_BYTES_MAX: usize = 64 << 10;
/// Bytes of all names of one file together: what a list of them may have.
pub const XATTR_NAMES_BYTES_MAX: usize = 64 << 10;

/// Whether an attribute that is set may, must or must not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XattrHow {
    /// It may.
    #[default]
    Set,
    /// It must not.
    Create,
    /// It must.
    Replace,
}

fn check(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    let prefixes = [&b"user."[..], b"trusted.", b"security."];
    let is_known = prefixes.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len());
    if is_known || name == ACCESS || name == DEFAULT {
        return Ok(());
    }
    Err(FsError::NotSupported("attributes with names of this kind"))
}

/// A value as a record has it: an empty one means that the attribute is removed.
pub(crate) fn logged_value(value: Option<&[u8]>) -> Vec<u8> {
    value.map_or(Vec::new(), |value| [&[1], value].concat())
}

/// The value of a record; `None`: the attribute is removed.
pub(crate) fn value_of(logged: &[u8]) -> Option<&[u8]> {
    logged.split_first().map(|(_, value)| value)
}

/// Sets an attribute of an inode, or removes it; a list that says no more than a mode is not stored.
pub(crate) fn set(edit: &mut Edit<'_>, ino: Ino, name: &[u8], value: Option<&[u8]>) -> Result<()> {
    let mut value = value;
    if name == ACCESS
        && let Some(list) = value
    {
        let mut inode = edit.inode(ino)?;
        match Acl::decode(list)? {
            Some(acl) => {
                inode.mode = inode.mode & !0o777 | acl.mode();
                edit.set_inode(ino, inode);
                value = value.filter(|_| !acl.is_mode_alone());
            }
            None => value = None,
        }
    } else if name == DEFAULT
        && let Some(list) = value
    {
        value = value.filter(|_| matches!(Acl::decode(list), Ok(Some(_))));
    }
    edit.put(ATTRIBUTES, acl::key(ino, name), value.map(<[u8]>::to_vec));
    if value.is_some() {
        let inode = edit.inode(ino)?;
        edit.set_inode(ino, Inode { is_bare: false, ..inode });
    }
    Ok(())
}

impl FileSystem {
    /// The value of an attribute.
    ///
    /// # Errors
    /// [`FsError::NoAttribute`]; [`FsError::NotSupported`] for a name of another kind.
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        check(name)?;
        if self.tables.inode(ino)?.is_some_and(|inode| inode.is_bare) {
            return Err(FsError::NoAttribute);
        }
        let key = acl::key(ino, name);
        let value = self.tables.look(&self.tables.table(ATTRIBUTES), &key, |row| Ok(row.to_vec()))?;
        value.ok_or(FsError::NoAttribute)
    }

    /// The names of all attributes, each followed by NUL.
    ///
    /// # Errors
    /// [`FsError::Stale`]; those of reading the tables.
    pub fn xattr_names(&self, ino: Ino) -> Result<Vec<u8>> {
        let mut names = Vec::new();
        if self.inode(ino)?.is_bare {
            return Ok(names);
        }
        self.tables.of_inode(ATTRIBUTES, ino, |name, _| {
            names.extend_from_slice(name);
            names.push(0);
            ControlFlow::Continue(())
        })?;
        Ok(names)
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NoAttribute`] as `how` says; [`FsError::AttributeTooLong`];
    /// [`FsError::NotSupported`] for a name of another kind; [`FsError::Invalid`] for what is no access
    /// control list.
    pub fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
        clears_set_gid: bool,
    ) -> Result<()> {
        check(name)?;
        if value.len() > XATTR_BYTES_MAX {
            return Err(FsError::AttributeTooLong);
        }
        let _guard = self.locks.one(ino);
        let is_there = self.xattr(ino, name).map(|_| true).or_else(|error| match error {
            FsError::NoAttribute => Ok(false),
            error => Err(error),
        })?;
        match how {
            XattrHow::Create if is_there => return Err(FsError::Exists),
            XattrHow::Replace if !is_there => return Err(FsError::NoAttribute),
            _ => {}
        }
        if !is_there && self.xattr_names(ino)?.len() + name.len() >= XATTR_NAMES_BYTES_MAX {
            return Err(FsError::AttributeTooLong);
        }
        let inode = self.inode(ino)?;
        if name == DEFAULT && !inode.is_directory() {
            return Err(FsError::NotPermitted("only directories have a default access control list"));
        }
        if matches!(name, ACCESS | DEFAULT) && inode.file_type() == mode::SYMLINK {
            return Err(FsError::NotSupported("access control lists of symlinks"));
        }
        self.put_xattr(ino, name, Some(value), clears_set_gid)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// [`FsError::NoAttribute`]; [`FsError::NotSupported`] for a name of another kind.
    pub fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let _guard = self.locks.one(ino);
        match self.xattr(ino, name) {
            // A list that says no more than the mode is not stored.
            Err(FsError::NoAttribute) if matches!(name, ACCESS | DEFAULT) => return Ok(()),
            found => found?,
        };
        self.put_xattr(ino, name, None, false)
    }

    fn put_xattr(&self, ino: Ino, name: &[u8], value: Option<&[u8]>, clears_set_gid: bool) -> Result<()> {
        let (mut edit, now) = (self.edit(), self.now());
        let before = edit.inode(ino)?;
        set(&mut edit, ino, name, value)?;
        edit.change(ino, now, |inode| {
            if clears_set_gid {
                inode.mode &= !mode::SET_GID;
            }
        })?;
        let inode = edit.inode(ino)?;
        let logged = logged_value(value);
        let record = Record::SetXattr(SetXattr { name, value: &logged });
        self.carry_out(&edit, |records| {
            if inode.links > 0 {
                // The mode first, as with writes: a bit that is cleared does not outlive what clears it.
                if inode.mode != before.mode {
                    let mask = fastness_store::record::attribute::MODE;
                    records.assign(attributes_itx(ino, &inode, mask));
                }
                records.assign(Itx::unordered(ino.object(), &record));
            }
        })
    }
}
