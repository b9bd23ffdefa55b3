//! The calls that change names: the directory first, then the record.

use std::io;
use std::path::Path;
use std::sync::Arc;

use fastness_sync::lock;
use rustix::io::Errno;

use crate::backing::{Attributes, BackingNode, FileId, Renaming};
use crate::cache::Cache;
use crate::error::Error;
use crate::intent::Intent;
use crate::medium::CacheMedium;
use crate::names::{Assignment, At, Done, HeldNames, Names, Record, Wanted};
use crate::protocol::Protocol;

/// What a name leads to, held.
type Found = (Arc<dyn BackingNode>, Attributes);

impl<M: CacheMedium> Cache<M> {
    /// Makes something in the backing store by `act`, which gives it the name `path`: a file, a directory, a
    /// symbolic link, a device. `act` says whether it has made it: what was there is not noted as new.
    ///
    /// Persistence: durable on return, with its attributes. A crash inside leaves it or nothing.
    ///
    /// # Errors
    /// Those of `act`; of the backing store, and it may be there.
    pub fn make<T>(&self, path: &Path, act: impl Fn() -> io::Result<(T, bool)>) -> Result<T, Error> {
        let (names, room) = (&*self.names, self.names.reserve()?);
        let at = names.at(path)?;
        let _held = names.hold(&Wanted { places: vec![&at.place], ..Wanted::default() });
        let _making = names.making.begin();
        let done = match act() {
            Err(error) if names.frees_space(&error) => act(),
            done => done,
        };
        let (made, is_new) = match done {
            Ok(made) => made,
            Err(error) => {
                let kind = error.kind();
                if ![io::ErrorKind::AlreadyExists, io::ErrorKind::PermissionDenied].contains(&kind)
                    && self.backing.stat(path).is_ok()
                {
                    // It may have been made all the same, or was there before.
                    names.sync_debt()?;
                }
                return Err(Error::backing("make a file")(error));
            }
        };
        if !is_new {
            return Ok(made);
        }
        let read = |node: Arc<dyn BackingNode>| node.target().map_err(Error::backing("read a link"));
        let found = names.node(path, false);
        let attributes = match found.and_then(|(node, found)| Ok(Attributes { target: read(node)?, ..found }))
        {
            Ok(attributes) => attributes,
            Err(error) => return names.sync_debt().and(Err(error)),
        };
        // A sync of the directory includes what the name leads to.
        let assignment = Assignment { place: at.place, before: None, after: Some(attributes.id) };
        let changed = vec![(assignment.place.parent, at.parent)];
        let record = Record { names: vec![assignment], attributes: Some(attributes), ..Record::default() };
        names.note(&room, Done { record, changed, grave: None })?;
        Ok(made)
    }

    /// Gives a file one more name. Chunks belong to files, not to names.
    ///
    /// Persistence: durable on return.
    ///
    /// # Errors
    /// Of the backing store; it may have been done.
    pub fn link(&self, from: &Path, to: &Path) -> Result<(), Error> {
        self.link_by(from, false, to, || self.backing.link(from, to))
    }

    /// As [`link`](Self::link), by `act`; `follows`: `from` leads through a descriptor to the file itself.
    ///
    /// # Errors
    /// As [`link`](Self::link).
    pub fn link_by(
        &self,
        from: &Path,
        follows: bool,
        to: &Path,
        act: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), Error> {
        let (names, room) = (&*self.names, self.names.reserve()?);
        let at = names.at(to)?;
        let source = if follows { None } else { Some(names.at(from)?) };
        let (_held, id, links) = loop {
            let id = names.node(from, follows)?.1.id;
            names.settle(id)?;
            let places = source.iter().chain([&at]).map(|at| &at.place).collect();
            let held = names.hold(&Wanted { places, files: vec![id], removed: Vec::new() });
            let now = names.node(from, follows)?.1;
            if now.id == id {
                break (held, id, now.links);
            }
        };
        let done = act().map_err(Error::backing("give a file a name"));
        // An error may leave it done, or it was there before.
        let is_there = || names.node(to, false).is_ok_and(|(_, found)| found.id == id);
        let exists = |error: &Error| error.errno() == Errno::EXIST.raw_os_error();
        if done.as_ref().is_err_and(|error| exists(error) || !is_there()) {
            return done;
        }
        self.changed(id);
        if links == 0 {
            // No record has its attributes, and bytes that were flushed may be lost with it: a sync has all.
            let synced = names.sync_debt();
            return self.named_again(id).and(synced).and(done);
        }
        let changed = vec![(at.place.parent, at.parent)];
        let names_now = vec![Assignment { place: at.place, before: None, after: Some(id) }];
        let record = Record { names: names_now, ..Record::default() };
        names.note(&room, Done { record, changed, grave: None })?;
        done
    }

    /// A file that had no name has one, durably: what is in PM of it does not go when it is closed.
    fn named_again(&self, id: FileId) -> Result<(), Error> {
        let removal = self.files.by_id(id).and_then(|file| lock(&file.state).removal.take());
        removal.map_or(Ok(()), |intent| lock(&self.intents).end(intent))
    }

    /// Removes a name. The file's chunks go with its last name, once nothing has it open.
    ///
    /// Persistence: durable on return; a crash inside leaves the name with everything that was written, or
    /// neither.
    ///
    /// # Errors
    /// [`Error`]; the name is there still, unless the backing store failed after it had removed it.
    pub fn unlink(&self, path: &Path) -> Result<(), Error> {
        self.remove(path, false)
    }

    /// Removes an empty directory.
    ///
    /// Persistence: durable on return.
    ///
    /// # Errors
    /// As [`unlink`](Self::unlink).
    pub fn remove_directory(&self, path: &Path) -> Result<(), Error> {
        self.remove(path, true)
    }

    fn remove(&self, path: &Path, is_directory: bool) -> Result<(), Error> {
        self.protocol.prepare_cut()?;
        let (names, room) = (&*self.names, self.names.reserve()?);
        let at = names.at(path)?;
        let (_held, found) = names.hold_named(path, &at)?;
        let id = found.1.id;
        let act = || match is_directory {
            true => self.backing.remove_directory(path).map_err(Error::backing("remove a directory")),
            false => self.backing.remove(path).map_err(Error::backing("remove a name")),
        };
        let is_done = || !names.node(path, false).is_ok_and(|(_, now)| now.id == id);
        self.losing_a_name(&found, act, is_done, |grave| {
            let changed = vec![(at.place.parent, Arc::clone(&at.parent))];
            let assignment = Assignment { place: at.place.clone(), before: Some(id), after: None };
            let record = Record { names: vec![assignment], ..Record::default() };
            names.note(&room, Done { record, changed, grave })
        })
    }

    /// Renames, in place of what has the name `to`.
    ///
    /// Persistence: as [`unlink`](Self::unlink), for both names at once.
    ///
    /// # Errors
    /// As [`unlink`](Self::unlink).
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        self.rename_with(from, to, Renaming::Replace)
    }

    /// As [`rename`](Self::rename), or otherwise.
    ///
    /// # Errors
    /// As [`unlink`](Self::unlink).
    pub fn rename_with(&self, from: &Path, to: &Path, how: Renaming) -> Result<(), Error> {
        self.protocol.prepare_cut()?;
        let (names, room) = (&*self.names, self.names.reserve()?);
        let (old, new) = (names.at(from)?, names.at(to)?);
        let (_held, moved, other) = names.hold_both(from, to, [&old, &new], how)?;
        let (id, other_id) = (moved.1.id, other.as_ref().map(|(_, other)| other.id));
        if let Some(refused) = is_refused(&moved.1, other.as_ref().map(|(_, other)| other), how) {
            return Err(Error::backing("rename a file")(refused.into()));
        }
        if other_id == Some(id) {
            // Two names of one file: nothing happens.
            return self.backing.rename(from, to, how).map_err(Error::backing("rename a file"));
        }
        // What the two names lead to if it is done, and if not.
        let record = |is_done: bool| {
            let back = other_id.filter(|_| how == Renaming::Exchange);
            let (first, second) = if is_done { (back, Some(id)) } else { (Some(id), other_id) };
            let first = Assignment { place: old.place.clone(), before: Some(id), after: first };
            let second = Assignment { place: new.place.clone(), before: other_id, after: second };
            Record { names: vec![first, second], ..Record::default() }
        };
        let changed = || [&old, &new].map(|at| (at.place.parent, Arc::clone(&at.parent))).to_vec();
        let is_done = || !names.node(from, false).is_ok_and(|(_, now)| now.id == id);
        let act = || {
            names.announce(&room, &record(true))?;
            let done = self.backing.rename(from, to, how).map_err(Error::backing("rename a file"));
            if done.is_err() && !is_done() {
                // What was announced does not count.
                names.note(&room, Done { record: record(false), changed: changed(), grave: None })?;
            }
            done
        };
        let note = |grave| names.note(&room, Done { record: record(true), changed: changed(), grave });
        let done = match other.filter(|_| how == Renaming::Replace) {
            Some(replaced) => self.losing_a_name(&replaced, act, is_done, note),
            None => {
                let done = act();
                if done.is_ok() || is_done() { note(None).and(done) } else { done }
            }
        };
        [Some(id), other_id].into_iter().flatten().for_each(|id| self.changed(id));
        done
    }

    /// Makes attributes durable that were changed in the backing store, of what `path` leads to through a
    /// descriptor. Of symbolic links and devices they are not, unless they are new.
    ///
    /// Persistence: durable on return.
    ///
    /// # Errors
    /// Of the backing store.
    pub fn settle(&self, path: &Path) -> Result<(), Error> {
        let names = &*self.names;
        let (node, found) = names.node(path, true)?;
        self.changed(found.id);
        names.settle(found.id)?;
        if !names.is_recent(found.id) {
            return node.sync().map(drop).map_err(Error::backing("sync attributes"));
        }
        let room = names.reserve()?;
        let _held = names.hold(&Wanted { files: vec![found.id], ..Wanted::default() });
        let now = node.attributes().map_err(Error::backing("say what a file is"))?;
        let record = Record { attributes: Some(now), ..Record::default() };
        names.note(&room, Done { record, changed: vec![(found.id, node)], grave: None })
    }

    /// Does what takes a name from the file that has it, and notes it. The caller holds the file.
    fn losing_a_name(
        &self,
        (node, found): &Found,
        act: impl FnOnce() -> Result<(), Error>,
        is_done: impl Fn() -> bool,
        note: impl FnOnce(Option<Arc<dyn BackingNode>>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let grave = Some(Arc::clone(node));
        let file = self.files.by_id(found.id).filter(|_| found.links == 1 && !found.is_directory());
        // The directory may be durable without the name before there is a record; and of a file that is
        // open, chunks outlast the record.
        let intent = match file {
            Some(_) => Some(lock(&self.intents).begin(Intent::Remove(found.id))?),
            None => None,
        };
        let done = act();
        if done.is_err() && !is_done() {
            intent.map_or(Ok(()), |intent| lock(&self.intents).end(intent))?;
            return done;
        }
        self.changed(found.id);
        note(grave)?;
        let Some(file) = file else { return done };
        let mut state = lock(&file.state);
        if state.opens > 0 || self.departs_later(&file) {
            state.removal = intent;
            return done;
        }
        drop(state);
        self.forget(&file, intent)?;
        done
    }
}

/// Why a renaming cannot be: what is never done must not be announced.
fn is_refused(moved: &Attributes, other: Option<&Attributes>, how: Renaming) -> Option<Errno> {
    match (how, other) {
        (Renaming::Keep, Some(_)) => Some(Errno::EXIST),
        (Renaming::Exchange, None) => Some(Errno::NOENT),
        (Renaming::Replace, Some(other)) if moved.is_directory() && !other.is_directory() => {
            Some(Errno::NOTDIR)
        }
        (Renaming::Replace, Some(other)) if !moved.is_directory() && other.is_directory() => {
            Some(Errno::ISDIR)
        }
        _ => None,
    }
}

impl<M: CacheMedium> Names<M> {
    /// Holds a name and what it leads to.
    fn hold_named(&self, path: &Path, at: &At) -> Result<(HeldNames<'_>, Found), Error> {
        loop {
            let found = self.node(path, false)?.1;
            let removed = if found.is_directory() { vec![found.id] } else { Vec::new() };
            let held = self.hold(&Wanted { places: vec![&at.place], files: vec![found.id], removed });
            let now = self.node(path, false)?;
            if now.1.id == found.id {
                return Ok((held, now));
            }
        }
    }

    /// Holds two names and what they lead to, if the second leads to anything.
    fn hold_both(
        &self,
        from: &Path,
        to: &Path,
        at: [&At; 2],
        how: Renaming,
    ) -> Result<(HeldNames<'_>, Found, Option<Found>), Error> {
        loop {
            let (moved, other) = (self.node(from, false)?.1, self.node(to, false).ok().map(|found| found.1));
            let mut files = vec![moved.id];
            files.extend(other.as_ref().map(|other| other.id));
            let goes = other.as_ref().filter(|other| how == Renaming::Replace && other.is_directory());
            let removed = goes.map(|other| other.id).into_iter().collect();
            let held = self.hold(&Wanted { places: at.map(|at| &at.place).to_vec(), files, removed });
            let (again, after) = (self.node(from, false)?, self.node(to, false).ok());
            let id = |found: &Attributes| found.id;
            if again.1.id == moved.id && after.as_ref().map(|(_, found)| id(found)) == other.as_ref().map(id)
            {
                return Ok((held, again, after));
            }
        }
    }
}
