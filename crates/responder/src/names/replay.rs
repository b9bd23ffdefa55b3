//! Makes a directory as the records of a log say: what they come to, not one after the other.
//!
//! What is there decides: a name that leads where it should is left alone, so this can be interrupted, and is
//! done again. Files are told by what they are, wherever they are found.
//!
//! 1. What a name leads to, and should not: it goes to a folder of its own ([`NAMES_FOLDER`]), if a name is
//!    to lead to it; if not, the name is removed.
//! 2. Files that are not there are made again in that folder. The log notes which is which.
//! 3. They get their names: a directory before what is in it.
//! 4. Directories that are to be gone are removed; attributes are set; everything is synced.
//!
//! Then the log notes that this is done: what gets data after that has newer times than the records know.
//!
//! A name that the records do not know, or whose directory is gone past the cache, is left as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::backing::{Attributes, Backing, FileId, Named, Renaming};
use crate::error::Error;
use crate::own_files::NAMES_FOLDER;

use super::record::Place;
use super::resolve::Wishes;
use super::ring::Noted;

/// What a replay has found.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    /// What was made in place of files that a crash has lost.
    pub(crate) substitutes: BTreeMap<FileId, FileId>,
    /// Files that have no name any more.
    pub(crate) gone: BTreeSet<FileId>,
}

/// A directory on its way to what the records say.
struct Replay<'a> {
    backing: &'a dyn Backing,
    root: FileId,
    wishes: Wishes<'a>,
    /// Names of directories, and of what the records know.
    names_of: BTreeMap<FileId, BTreeSet<Place>>,
    /// What the names of the records lead to now, and those in the folder.
    leads_to: BTreeMap<Place, FileId>,
    directories: BTreeSet<FileId>,
    folder: Option<FileId>,
}

fn fail(error: io::Error) -> Error {
    Error::backing("make names again")(error)
}

/// Makes the directory as the records say; `substitute` notes what is made in place of a file. `is_done`: an
/// earlier recovery has done all of it, and attributes are not set again.
///
/// Persistence: the directory alone has all of it on return. A crash inside is followed by the same.
///
/// # Errors
/// Of the backing store: a part was done. Those of `substitute`.
pub(crate) fn replay(
    backing: &dyn Backing,
    (noted, is_done): (&[Noted], bool),
    substitute: &dyn Fn(&Noted, FileId) -> Result<(), Error>,
) -> Result<Replayed, Error> {
    if noted.is_empty() {
        return Ok(Replayed::default());
    }
    let mut replay = Replay::look(backing, Wishes::of(noted)).map_err(fail)?;
    let mut missing = replay.missing();
    replay.clear_places(&missing).map_err(fail)?;
    replay.make_again(&mut missing, substitute)?;
    replay.give_names(missing).map_err(fail)?;
    replay.remove_directories().map_err(fail)?;
    if !is_done {
        replay.set_attributes().map_err(fail)?;
    }
    replay.remove_folder().map_err(fail)?;
    backing.sync_all().map_err(fail)?;
    let mut gone = replay.wishes.given_up();
    gone.retain(|id| !replay.has_name(*id));
    Ok(Replayed { substitutes: replay.wishes.substitutes(), gone })
}

impl<'a> Replay<'a> {
    /// Looks for what the records know.
    fn look(backing: &'a dyn Backing, wishes: Wishes<'a>) -> io::Result<Replay<'a>> {
        let root = backing.directory()?.id;
        let (names_of, leads_to) = (BTreeMap::new(), BTreeMap::new());
        let directories = BTreeSet::from([root]);
        let mut replay = Replay { backing, root, wishes, names_of, leads_to, directories, folder: None };
        let (known, announced) = (replay.wishes.known(), replay.wishes.announced());
        backing.search(&mut |Named { parent, name, id, is_directory }| {
            let (parent, id) = (replay.wishes.original(parent), replay.wishes.original(id));
            let place = Place { parent, name: name.to_owned() };
            if parent == root && name == NAMES_FOLDER {
                replay.folder = Some(id);
            }
            let matters = is_directory
                || known.contains(&id)
                || replay.wishes.names.contains_key(&place)
                || announced.contains(&place)
                || replay.folder == Some(parent);
            if matters {
                replay.note(place, id);
            }
            if is_directory {
                replay.directories.insert(id);
            }
        })?;
        replay.wishes.add_what_was_done(|place| replay.leads_to.get(place).copied());
        let known = replay.wishes.known();
        // Made by an earlier recovery, which had not noted it: nothing is in it.
        for (place, id) in replay.in_folder() {
            if !known.contains(&id) {
                replay.remove(&place, id)?;
            }
        }
        Ok(replay)
    }

    fn note(&mut self, place: Place, id: FileId) {
        self.names_of.entry(id).or_default().insert(place.clone());
        self.leads_to.insert(place, id);
    }

    fn forget(&mut self, place: &Place, id: FileId) {
        self.leads_to.remove(place);
        if let Some(names) = self.names_of.get_mut(&id) {
            names.remove(place);
        }
    }

    fn has_name(&self, id: FileId) -> bool {
        id == self.root || self.names_of.get(&id).is_some_and(|names| !names.is_empty())
    }

    fn in_folder(&self) -> Vec<(Place, FileId)> {
        let all = self.leads_to.iter().filter(|(place, _)| Some(place.parent) == self.folder);
        all.map(|(place, id)| (place.clone(), *id)).collect()
    }

    /// Where a directory is.
    fn directory(&self, id: FileId) -> io::Result<PathBuf> {
        if id == self.root {
            return Ok(PathBuf::new());
        }
        let place = self.names_of.get(&id).and_then(|names| names.first()).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.directory(place.parent)?.join(&place.name))
    }

    fn path(&self, place: &Place) -> io::Result<PathBuf> {
        Ok(self.directory(place.parent)?.join(&place.name))
    }

    fn remove(&mut self, place: &Place, id: FileId) -> io::Result<()> {
        let path = self.path(place)?;
        match self.directories.contains(&id) {
            true => self.backing.remove_directory(&path)?,
            false => self.backing.remove(&path)?,
        }
        self.forget(place, id);
        Ok(())
    }

    fn rename(&mut self, from: &Place, to: Place, id: FileId) -> io::Result<()> {
        self.backing.rename(&self.path(from)?, &self.path(&to)?, Renaming::Replace)?;
        self.forget(from, id);
        self.note(to, id);
        Ok(())
    }

    /// A place in the folder, which is made if it is not there.
    fn place_in_folder(&mut self, id: FileId) -> io::Result<Place> {
        let parent = match self.folder {
            Some(folder) => folder,
            None => {
                let (path, mode) = (PathBuf::from(NAMES_FOLDER), 0o040_700);
                self.backing.make(&path, &Attributes { mode, ..Attributes::default() })?;
                let folder = self.backing.node(&path, false)?.id()?;
                self.directories.insert(folder);
                self.note(Place { parent: self.root, name: NAMES_FOLDER.into() }, folder);
                self.folder = Some(folder);
                folder
            }
        };
        Ok(Place { parent, name: OsString::from(format!("{}-{}", id.inode, id.generation)) })
    }

    /// Names that do not lead where they should, by what they should lead to. Those in directories that are
    /// gone past the cache are not among them.
    fn missing(&self) -> BTreeMap<FileId, Vec<Place>> {
        let mut missing: BTreeMap<FileId, Vec<Place>> = BTreeMap::new();
        for (place, wish) in &self.wishes.names {
            let Some(id) = wish.after.filter(|id| self.leads_to.get(place) != Some(id)) else { continue };
            let can_be = self.has_name(id) || self.wishes.made.contains_key(&id);
            if can_be && self.will_be(place.parent, &mut BTreeSet::new()) {
                missing.entry(id).or_default().push(place.clone());
            }
        }
        missing
    }

    /// Whether a directory is there, or is made.
    fn will_be(&self, id: FileId, asked: &mut BTreeSet<FileId>) -> bool {
        if self.has_name(id) {
            return true;
        }
        let is_named = |place: &Place, asked: &mut BTreeSet<FileId>| self.will_be(place.parent, asked);
        asked.insert(id)
            && self.wishes.made.contains_key(&id)
            && self.wishes.names.iter().any(|(place, wish)| wish.after == Some(id) && is_named(place, asked))
    }

    /// Takes names from what should not have them.
    fn clear_places(&mut self, missing: &BTreeMap<FileId, Vec<Place>>) -> io::Result<()> {
        let wrong = self.leads_to.iter().filter_map(|(place, id)| {
            let wish = self.wishes.names.get(place)?;
            (wish.after != Some(*id)).then(|| (place.clone(), *id, wish.after, wish.known.contains(id)))
        });
        let wanted = self.wishes.wanted();
        for (place, id, after, is_known) in wrong.collect::<Vec<_>>() {
            let is_needed =
                after.is_some_and(|after| missing.get(&after).is_some_and(|places| places.contains(&place)));
            let only = self.names_of.get(&id).is_none_or(|names| names.len() == 1);
            let has_place = missing.contains_key(&id);
            if !is_known {
                // Made past the cache. What is to have the name takes it.
                if is_needed {
                    self.remove(&place, id)?;
                }
            } else if only && has_place
                || is_needed && (self.directories.contains(&id) || only && wanted.contains(&id))
            {
                let aside = self.place_in_folder(id)?;
                self.rename(&place, aside, id)?;
            } else if only && wanted.contains(&id) || self.directories.contains(&id) {
                // Its name is in a directory that is gone; or it is removed once it is empty.
            } else {
                self.remove(&place, id)?;
            }
        }
        Ok(())
    }

    /// Makes files that are not there.
    fn make_again(
        &mut self,
        missing: &mut BTreeMap<FileId, Vec<Place>>,
        substitute: &dyn Fn(&Noted, FileId) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for id in missing.keys().copied().filter(|id| !self.has_name(*id)).collect::<Vec<_>>() {
            let (noted, attributes) = (self.wishes.made[&id].noted, self.wishes.made[&id].attributes);
            // Later records do not say where a link leads: that does not change.
            let first = noted.record.attributes.as_ref().map(|first| first.target.clone());
            let attributes = &Attributes { target: first.unwrap_or_default(), ..attributes.clone() };
            let place = self.place_in_folder(id).map_err(fail)?;
            let path = self.path(&place).map_err(fail)?;
            self.backing.make(&path, attributes).map_err(fail)?;
            let made = self.backing.node(&path, false).and_then(|node| node.id()).map_err(fail)?;
            substitute(noted, made)?;
            self.wishes.set_substitute(made, id);
            if attributes.is_directory() {
                self.directories.insert(id);
            }
            self.note(place, id);
        }
        Ok(())
    }

    fn give_names(&mut self, mut missing: BTreeMap<FileId, Vec<Place>>) -> io::Result<()> {
        while let Some(id) = missing.keys().next().copied() {
            self.give_names_to(id, &mut missing)?;
        }
        Ok(())
    }

    fn give_names_to(&mut self, id: FileId, missing: &mut BTreeMap<FileId, Vec<Place>>) -> io::Result<()> {
        let Some(places) = missing.remove(&id) else { return Ok(()) };
        let count = places.len();
        for (at, place) in places.into_iter().enumerate() {
            self.give_names_to(place.parent, missing)?;
            let names = self.names_of.get(&id).cloned().unwrap_or_default();
            let aside = names.iter().find(|name| Some(name.parent) == self.folder);
            match (aside, names.first()) {
                (Some(aside), _) if at + 1 == count => self.rename(aside, place, id)?,
                (_, Some(name)) => {
                    self.backing.link(&self.path(name)?, &self.path(&place)?)?;
                    self.note(place, id);
                }
                (_, None) => {}
            }
        }
        Ok(())
    }

    /// Removes directories that no name is to lead to, from the innermost on. What has something in it that
    /// the records do not know stays.
    fn remove_directories(&mut self) -> io::Result<()> {
        let wanted = self.wishes.wanted();
        let is_wrong = |place: &Place, id: &FileId| {
            let wish = self.wishes.names.get(place);
            let is_known = wish.is_some_and(|wish| wish.known.contains(id) && wish.after != Some(*id));
            is_known || Some(place.parent) == self.folder
        };
        let wrong = self.leads_to.iter().filter(|(place, id)| {
            self.directories.contains(id) && !wanted.contains(id) && is_wrong(place, id)
        });
        let mut all = Vec::new();
        for (place, id) in wrong {
            all.push((self.path(place)?.components().count(), place.clone(), *id));
        }
        all.sort();
        for (_, place, id) in all.into_iter().rev() {
            match self.remove(&place, id) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    fn set_attributes(&self) -> io::Result<()> {
        for (id, made) in &self.wishes.made {
            if let Some(place) = self.names_of.get(id).and_then(|names| names.first()) {
                self.backing.set_attributes(&self.path(place)?, made.attributes)?;
            }
        }
        Ok(())
    }

    fn remove_folder(&mut self) -> io::Result<()> {
        let Some(folder) = self.folder else { return Ok(()) };
        let place = Place { parent: self.root, name: NAMES_FOLDER.into() };
        match self.remove(&place, folder) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => removed,
        }
    }
}
