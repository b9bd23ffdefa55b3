//! What the records of a log come to: which file each of their names leads to in the end.

use std::collections::{BTreeMap, BTreeSet};

use crate::backing::{Attributes, FileId};

use super::record::{Assignment, Place, Record};
use super::ring::Noted;

/// What a name is to lead to.
#[derive(Debug, Default)]
pub(super) struct Wish {
    pub(super) after: Option<FileId>,
    /// Everything that it has led to, as far as the records know.
    pub(super) known: BTreeSet<FileId>,
}

/// A file that the records have attributes of: it can be made again.
#[derive(Debug)]
pub(super) struct Made<'a> {
    /// Its first record, which can name a substitute.
    pub(super) noted: &'a Noted,
    pub(super) attributes: &'a Attributes,
}

/// What the records come to.
#[derive(Debug, Default)]
pub(super) struct Wishes<'a> {
    pub(super) names: BTreeMap<Place, Wish>,
    pub(super) made: BTreeMap<FileId, Made<'a>>,
    /// Which file something is that an earlier recovery has made.
    originals: BTreeMap<FileId, FileId>,
    lost_names: BTreeSet<FileId>,
    /// What was about to be done, and has no later record.
    announced: Vec<&'a Record>,
}

impl<'a> Wishes<'a> {
    pub(super) fn of(all: &'a [Noted]) -> Wishes<'a> {
        let mut wishes = Wishes::default();
        for noted in all {
            let record = &noted.record;
            let is_later = |one: &&Record| !one.names.iter().any(|name| record.changes(&name.place));
            wishes.announced.retain(is_later);
            match record.is_announced {
                true => wishes.announced.push(record),
                false => wishes.add(record),
            }
            if let Some(attributes) = &noted.record.attributes {
                let made = wishes.made.entry(attributes.id).or_insert(Made { noted, attributes });
                made.attributes = attributes;
            }
        }
        for (id, made) in &wishes.made {
            wishes.originals.extend(made.noted.substitute.map(|substitute| (substitute, *id)));
        }
        wishes
    }

    fn add(&mut self, record: &Record) {
        for assignment in &record.names {
            let wish = self.names.entry(assignment.place.clone()).or_default();
            wish.after = assignment.after;
            wish.known.extend(assignment.before);
            wish.known.extend(assignment.after);
            self.lost_names.extend(assignment.before);
        }
    }

    /// What was about to be done when the crash came, and was done: `leads_to` says what a name leads to.
    pub(super) fn add_what_was_done(&mut self, leads_to: impl Fn(&Place) -> Option<FileId>) {
        for record in std::mem::take(&mut self.announced) {
            let is_done = |name: &Assignment| name.after.is_some() && leads_to(&name.place) == name.after;
            if record.names.iter().any(is_done) {
                self.add(record);
            }
        }
    }

    /// Names of what was about to be done.
    pub(super) fn announced(&self) -> BTreeSet<Place> {
        let names = self.announced.iter().flat_map(|record| &record.names);
        names.map(|name| name.place.clone()).collect()
    }

    /// Which file something is: itself, or the one in whose place it was made.
    pub(super) fn original(&self, id: FileId) -> FileId {
        self.originals.get(&id).copied().unwrap_or(id)
    }

    pub(super) fn set_substitute(&mut self, substitute: FileId, original: FileId) {
        self.originals.retain(|_, of| *of != original);
        self.originals.insert(substitute, original);
    }

    /// Files that were made in place of others, by those.
    pub(super) fn substitutes(&self) -> BTreeMap<FileId, FileId> {
        self.originals.iter().map(|(substitute, original)| (*original, *substitute)).collect()
    }

    /// Every file that a name of the records leads to in the end.
    pub(super) fn wanted(&self) -> BTreeSet<FileId> {
        self.names.values().filter_map(|wish| wish.after).collect()
    }

    /// Files that the records know.
    pub(super) fn known(&self) -> BTreeSet<FileId> {
        let named = self.names.values().flat_map(|wish| wish.known.iter().copied());
        let announced = self.announced.iter().flat_map(|record| &record.names);
        let announced = announced.flat_map(|name| name.before.into_iter().chain(name.after));
        named.chain(announced).chain(self.made.keys().copied()).collect()
    }

    /// Files that have lost a name, and that no name of the records leads to.
    pub(super) fn given_up(&self) -> BTreeSet<FileId> {
        self.lost_names.difference(&self.wanted()).copied().collect()
    }
}
