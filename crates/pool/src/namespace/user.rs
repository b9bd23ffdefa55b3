//! Properties with names of their owners' choice, which mean nothing to the pool; and when datasets were
//! made.
//!
//! Both are aux data of their dataset: what older programs do not know, they keep. A pool made by one has
//! datasets without a time.

use std::collections::BTreeMap;

use crate::error::{PoolError, Result};
use crate::ids::UNIT_BYTES;
use crate::metadata::snapshot::Snapshot;
use crate::namespace::created::CREATED;
use crate::namespace::dataset::Dataset;
use crate::pool::{Pool, Tx};
use crate::space::room::{Charge, Claim};
use crate::state::Shared;

/// Longest name of a user property. Source: OpenZFS, zfsprops(7), "User Properties".
pub const USER_NAME_BYTES_MAX: usize = 256;
/// Longest value of one.
pub const USER_VALUE_BYTES_MAX: usize = 8192;
/// All names and values of a pool together: they fit into an answer, and into memory.
pub const USER_BYTES_MAX: usize = 1 << 20;
/// Keys of user properties begin so.
const USER: &[u8] = b"user:";

/// Names and new values of user properties; `None` removes one.
pub type UserChanges<'a> = &'a [(String, Option<String>)];

/// Whether a name is that of a user property, right or wrong: it has a colon.
pub fn is_user_property(name: &str) -> bool {
    name.contains(':')
}

fn check(name: &str, value: Option<&str>) -> Result<()> {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b":-._".contains(&byte);
    let is_name = is_user_property(name)
        && name.len() <= USER_NAME_BYTES_MAX
        && !name.starts_with('-')
        && name.bytes().all(is_allowed);
    if !is_name {
        let what = "name of a user property (a-z, 0-9, :, -, ., _; with a colon; 256 bytes at most)";
        return Err(PoolError::invalid(what, name));
    }
    let Some(value) = value else { return Ok(()) };
    if value.len() > USER_VALUE_BYTES_MAX {
        let what = "length of a value of a user property (8192 bytes at most)";
        return Err(PoolError::invalid(what, value.len()));
    }
    if value.chars().any(char::is_control) {
        return Err(PoolError::invalid("value of a user property (no control characters)", value));
    }
    Ok(())
}

fn bytes_of((name, value): &(String, Option<String>)) -> usize {
    USER.len() + name.len() + value.as_ref().map_or(0, String::len)
}

fn key(name: &str) -> Vec<u8> {
    [USER, name.as_bytes()].concat()
}

/// Pages of the tables that a row of this length may copy: its own, and that of a neighbour.
fn charge_of(bytes: usize) -> Charge {
    Charge::rows(2 + (bytes as u64).next_power_of_two() / UNIT_BYTES)
}

/// What is stored of a dataset, without what nobody could have set.
fn stored(tables: &Snapshot, dataset: u64) -> Result<BTreeMap<String, String>> {
    let end = [&USER[..USER.len() - 1], &[USER[USER.len() - 1] + 1]].concat();
    let mut found = BTreeMap::new();
    for row in tables.aux.range::<(u64, &[u8])>((dataset, USER)..(dataset, &end))? {
        let (key, value) = row?;
        let name = std::str::from_utf8(&key.value().1[USER.len()..]);
        if let (Ok(name), Ok(value)) = (name, std::str::from_utf8(value.value()))
            && check(name, Some(value)).is_ok()
        {
            found.insert(name.to_owned(), value.to_owned());
        }
    }
    Ok(found)
}

impl Shared {
    /// Refuses changes of user properties that no dataset may have, or for which the pool has too many.
    ///
    /// # Errors
    /// [`PoolError::Invalid`]; those of reading the tables.
    pub(super) fn check_users(&self, changes: UserChanges<'_>) -> Result<()> {
        changes.iter().try_for_each(|(name, value)| check(name, value.as_deref()))?;
        if changes.iter().all(|(_, value)| value.is_none()) {
            return Ok(());
        }
        let new_bytes = changes.iter().map(bytes_of).sum::<usize>();
        let all_bytes = self.tables.explained(self.user_bytes())?;
        if new_bytes + all_bytes > USER_BYTES_MAX {
            let what = "size of all user properties of a pool in bytes (1 MiB at most)";
            return Err(PoolError::invalid(what, new_bytes + all_bytes));
        }
        Ok(())
    }

    /// Bytes of all user properties as of the last synced txg.
    fn user_bytes(&self) -> Result<usize> {
        let tables = self.tables.current();
        let mut bytes = 0;
        for row in tables.aux.range::<(u64, &[u8])>(..)? {
            let (key, value) = row?;
            let name = key.value().1;
            bytes += if name.starts_with(USER) { name.len() + value.value().len() } else { 0 };
        }
        Ok(bytes)
    }
}

impl Pool {
    /// Whether user properties could be set: before a dataset is made that is to have them.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for a name or value, and if the pool has too many.
    pub fn check_user_properties(&self, changes: UserChanges<'_>) -> Result<()> {
        self.shared.check_users(changes)
    }
}

impl Dataset {
    /// Stores what [`check_users`](Shared::check_users) has accepted.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`]; nothing was stored.
    pub(super) fn store_users(&self, tx: &Tx, changes: UserChanges<'_>) -> Result<()> {
        let is_more = changes.iter().any(|(_, value)| value.is_some());
        let charge = changes.iter().map(|change| charge_of(bytes_of(change)));
        let charge = charge.fold(Charge::default(), |all, one| all + one);
        let claim = tx.claim(if is_more { Claim::Data } else { Claim::Free });
        self.shared.reserve_rows(&mut self.shared.txgs.changes(tx.txg()), charge, claim)?;
        for (name, value) in changes {
            self.put_aux(tx, &key(name), value.as_deref().map(str::as_bytes));
        }
        Ok(())
    }

    /// User properties of its own, as of the last synced txg. Datasets below inherit them, which is for the
    /// caller to say.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn user_properties(&self) -> Result<BTreeMap<String, String>> {
        self.shared.tables.explained(stored(&self.shared.tables.current(), self.core.id.0))
    }

    /// When it was made, in seconds since the beginning of 1970: what the machine's clock said then. `None`
    /// if it was made by a program that did not note that, or is not durable yet.
    pub fn created_unix_s(&self) -> Option<u64> {
        let stored = self.synced_aux(CREATED).ok().flatten()?;
        Some(u64::from_le_bytes(stored.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_have_limits() {
        let long = |len: usize| "x".repeat(len);
        for (name, value, is_right) in [
            ("org:name", "value", true),
            ("a-b_c.d:1", "", true),
            (":", "ä € =", true),
            (&format!("a:{}", long(254)), &long(8192), true),
            (&format!("a:{}", long(255)), "", false),
            ("a:b", &long(8193), false),
            ("name", "", false),
            ("", "", false),
            ("-a:b", "", false),
            ("A:b", "", false),
            ("a:b c", "", false),
            ("a:b@c", "", false),
            ("a:ä", "", false),
            ("a:b", "line\nline", false),
        ] {
            assert_eq!(check(name, Some(value)).is_ok(), is_right, "{name} {}", value.len());
        }
    }

    #[test]
    fn a_row_of_any_length_is_charged_its_pages() {
        assert_eq!(charge_of(0), Charge::rows(2));
        assert_eq!(charge_of(USER_VALUE_BYTES_MAX + 1), Charge::rows(6));
    }
}
