//! Access control lists, as extended attributes in the form that Linux has for them.
//!
//! The kernel checks permissions; what is left to a file system: new files inherit the default list of their
//! directory, and the permissions of the mode and those of the list are the same thing. A list that says no
//! more than a mode is not stored.
//!
//! Shape of the value: version 2 (4), then entries: tag (2), permissions (2), id (4). Little endian.

use crate::edit::Edit;
use crate::error::{FsError, Result};
use crate::ino::Ino;
use crate::tables::ATTRIBUTES;

/// Name of the list that counts for the file itself.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the list that new files in a directory get.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: [u8; 4] = 2_u32.to_le_bytes();
const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;
/// Entries of one list.
const ENTRIES_MAX: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// A list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

impl Acl {
    /// Reads a value. `None`: a list without entries, which says nothing.
    pub(crate) fn decode(value: &[u8]) -> Result<Option<Acl>> {
        let invalid = FsError::Invalid("this is no access control list");
        let (head, entries) = value.split_at_checked(4).ok_or(invalid.clone())?;
        if head != VERSION || !entries.len().is_multiple_of(8) || entries.len() / 8 > ENTRIES_MAX {
            return Err(invalid);
        }
        let entry = |bytes: &[u8]| Entry {
            tag: u16::from_le_bytes([bytes[0], bytes[1]]),
            permissions: u16::from_le_bytes([bytes[2], bytes[3]]),
            id: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        };
        let acl = Acl(entries.chunks_exact(8).map(entry).collect());
        if acl.0.is_empty() {
            return Ok(None);
        }
        if acl.is_valid() { Ok(Some(acl)) } else { Err(invalid) }
    }

    fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_vec();
        for entry in &self.0 {
            value.extend_from_slice(&entry.tag.to_le_bytes());
            value.extend_from_slice(&entry.permissions.to_le_bytes());
            value.extend_from_slice(&entry.id.to_le_bytes());
        }
        value
    }

    /// One entry each for owner, owning group and others; a mask if users or groups are named.
    fn is_valid(&self) -> bool {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let known = [OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHER];
        let named = count(USER) + count(GROUP);
        self.0.iter().all(|entry| known.contains(&entry.tag) && entry.permissions <= 7)
            && [OWNER, OWNING_GROUP, OTHER].iter().all(|tag| count(*tag) == 1)
            && (count(MASK) == 1 || (count(MASK) == 0 && named == 0))
    }

    fn of(&self, tag: u16) -> Option<u32> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| u32::from(entry.permissions))
    }

    fn set(&mut self, tag: u16, permissions: u32) {
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.tag == tag) {
            entry.permissions = (permissions & 7) as u16;
        }
    }

    /// The permissions of the mode that goes with it: those of the group are the mask's, if there is one.
    pub(crate) fn mode(&self) -> u32 {
        let of = |tag| self.of(tag).unwrap_or(0);
        of(OWNER) << 6 | self.of(MASK).unwrap_or(of(OWNING_GROUP)) << 3 | of(OTHER)
    }

    /// Sets the permissions that a mode has too.
    fn set_mode(&mut self, mode: u32) {
        self.set(OWNER, mode >> 6);
        self.set(if self.of(MASK).is_some() { MASK } else { OWNING_GROUP }, mode >> 3);
        self.set(OTHER, mode);
    }

    /// Whether a mode says all of it.
    pub(crate) fn is_mode_alone(&self) -> bool {
        self.0.len() == 3
    }
}

/// Key of an attribute.
pub(crate) fn key(ino: Ino, name: &[u8]) -> Vec<u8> {
    [&ino.key(), name].concat()
}

fn read(edit: &Edit<'_>, ino: Ino, name: &[u8]) -> Result<Option<Acl>> {
    if edit.inode(ino)?.is_bare {
        return Ok(None);
    }
    let tables = edit.tables();
    let stored = tables.look(&tables.table(ATTRIBUTES), &key(ino, name), Acl::decode)?;
    Ok(stored.flatten())
}

/// The permissions of a file were set to `mode`: so is its list.
pub(crate) fn follow_mode(edit: &mut Edit<'_>, ino: Ino, mode: u32) -> Result<()> {
    if let Some(mut acl) = read(edit, ino, ACCESS)? {
        acl.set_mode(mode);
        edit.put(ATTRIBUTES, key(ino, ACCESS), Some(acl.encode()));
    }
    Ok(())
}

/// What a new file inherits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Inherited {
    /// Its own list.
    pub(crate) access: Option<Vec<u8>>,
    /// Of a directory: the list that it hands on.
    pub(crate) default: Option<Vec<u8>>,
}

/// What a new file of `mode` gets from its directory, and its mode: where there is no default list, the mask
/// of the process (`umask`) counts.
pub(crate) fn inherit(
    edit: &Edit<'_>,
    directory: Ino,
    mode: u32,
    umask: u32,
    is_directory: bool,
) -> Result<(u32, Inherited)> {
    let Some(mut acl) = read(edit, directory, DEFAULT)? else {
        return Ok((mode & !(umask & 0o777), Inherited::default()));
    };
    let default = is_directory.then(|| acl.encode());
    let mode = mode & !0o777 | mode & acl.mode();
    acl.set_mode(mode);
    let access = (!acl.is_mode_alone()).then(|| acl.encode());
    Ok((mode, Inherited { access, default }))
}

impl Inherited {
    pub(crate) fn is_nothing(&self) -> bool {
        self.access.is_none() && self.default.is_none()
    }

    /// As a record has it: length of the access list (4), the access list, the default list.
    pub(crate) fn to_record(&self) -> Vec<u8> {
        if self.is_nothing() {
            return Vec::new();
        }
        let access = self.access.as_deref().unwrap_or_default();
        [&(access.len() as u32).to_le_bytes(), access, self.default.as_deref().unwrap_or_default()].concat()
    }

    pub(crate) fn of_record(record: &[u8]) -> Result<Inherited> {
        if record.is_empty() {
            return Ok(Inherited::default());
        }
        let parts = record
            .split_first_chunk()
            .and_then(|(len, rest)| rest.split_at_checked(u32::from_le_bytes(*len) as usize));
        let damaged = FsError::Invalid("a record's access control list is damaged");
        let (access, default) = parts.ok_or(damaged.clone())?;
        for list in [access, default] {
            if !list.is_empty() && Acl::decode(list)?.is_none() {
                return Err(damaged);
            }
        }
        if access.is_empty() && default.is_empty() {
            return Err(damaged);
        }
        let list = |bytes: &[u8]| (!bytes.is_empty()).then(|| bytes.to_vec());
        Ok(Inherited { access: list(access), default: list(default) })
    }

    pub(crate) fn put(self, edit: &mut Edit<'_>, ino: Ino) {
        for (name, list) in [(ACCESS, self.access), (DEFAULT, self.default)] {
            if list.is_some() {
                edit.put(ATTRIBUTES, key(ino, name), list);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let entry = |&(tag, permissions, id): &(u16, u16, u32)| Entry { tag, permissions, id };
        Acl(entries.iter().map(entry).collect()).encode()
    }

    #[test]
    fn the_group_of_a_mode_is_the_mask() {
        let stored = value(&[(1, 7, 0), (2, 6, 1000), (4, 5, 0), (16, 4, 0), (32, 0, 0)]);
        let mut acl = Acl::decode(&stored).unwrap().unwrap();
        assert_eq!(acl.mode(), 0o740);
        acl.set_mode(0o621);
        assert_eq!((acl.mode(), acl.of(OWNING_GROUP), acl.of(MASK)), (0o621, Some(5), Some(2)));
        assert!(!acl.is_mode_alone());
    }

    #[test]
    fn what_is_no_list_is_refused() {
        assert_eq!(Acl::decode(&value(&[])).unwrap(), None);
        let whole = value(&[(1, 7, 0), (4, 5, 0), (32, 0, 0)]);
        assert!(Acl::decode(&whole).unwrap().unwrap().is_mode_alone());
        for len in 0..whole.len() {
            assert!(len == 4 || Acl::decode(&whole[..len]).is_err(), "{len}");
        }
        for wrong in [
            &[(1, 7, 0), (4, 5, 0)][..],
            &[(1, 8, 0), (4, 5, 0), (32, 0, 0)],
            &[(1, 7, 0), (4, 5, 0), (32, 0, 0), (2, 7, 5)],
            &[(1, 7, 0), (4, 5, 0), (32, 0, 0), (64, 7, 5)],
        ] {
            assert!(Acl::decode(&value(wrong)).is_err());
        }
    }

    #[test]
    fn what_is_inherited_goes_through_a_record() {
        let list = || Some(value(&[(1, 7, 0), (2, 6, 1000), (4, 5, 0), (16, 4, 0), (32, 0, 0)]));
        for inherited in [
            Inherited::default(),
            Inherited { access: list(), default: None },
            Inherited { access: None, default: list() },
            Inherited { access: list(), default: list() },
        ] {
            let record = inherited.to_record();
            assert_eq!(Inherited::of_record(&record).unwrap(), inherited);
            for len in 1..record.len() {
                assert!(Inherited::of_record(&record[..len]).is_err() || len == 4 + 44);
            }
        }
    }
}
