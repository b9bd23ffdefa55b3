//! The operations of a mount: translates values and errors, and counts what the kernel knows.

use std::ops::ControlFlow;
use std::time::Duration;

use fastness_fuse::{
    Attr, Caller, Entry, Errno, Files, Listed, Listing, Name, NewNode, Open, Opened, Reply, SetAttr, Space,
    WriteFlags,
};
use fastness_zpl::{FileSystem, FsError, Ino, SetAttributes};

use crate::mount::adapter::Adapter;
use crate::mount::groups;
use crate::mount::translate::{self, ATTR_VALID, attr, entry, new_file, no_entry, open, opened};

/// Names that are looked at in one scan of a directory.
const ENTRIES_AT_ONCE: usize = 64;

/// Bytes that are copied between two looks at whether the program was interrupted.
const COPY_BYTES: u64 = 16 << 20;

/// A name of a directory: name, file, type, cookie.
type Found = (Vec<u8>, Ino, u32, u64);

impl Files for Adapter {
    fn lookup(&self, caller: Caller<'_>, parent: u64, name: Name<'_>) -> Reply<Entry> {
        let found = self.run(caller, |fs| {
            let ino = match name {
                b"." | b".." => fs.lookup(Ino(parent), name)?.ino,
                _ => fs.find(Ino(parent), name)?,
            };
            self.known_attributes(fs, ino)
        });
        match found {
            Ok(found) => Ok(entry(&found)),
            Err(Errno::NOENT) => Ok(no_entry()),
            Err(error) => Err(error),
        }
    }

    fn attributes(&self, caller: Caller<'_>, node: u64, _: Option<u64>) -> Reply<(Attr, Duration)> {
        Ok((attr(&self.run(caller, |fs| fs.attributes(Ino(node)))?), ATTR_VALID))
    }

    fn set_attributes(&self, caller: Caller<'_>, node: u64, set: &SetAttr) -> Reply<(Attr, Duration)> {
        let set = translate::set_attributes(set);
        let change = |fs: &FileSystem| match set == SetAttributes::default() {
            true => {
                let owner = fs.attributes(Ino(node))?.uid;
                let clears_set_id = [0, owner].contains(&caller.uid);
                let is_outsider = clears_set_id && is_outsider(fs, caller, Ino(node))?;
                fs.set_attributes(Ino(node), &SetAttributes { clears_set_id, is_outsider, ..set })
            }
            false => {
                let is_outsider = set.clears_set_id && is_outsider(fs, caller, Ino(node))?;
                fs.set_attributes(Ino(node), &SetAttributes { is_outsider, ..set })
            }
        };
        Ok((attr(&self.change(caller, change)?), ATTR_VALID))
    }

    fn read_link(&self, caller: Caller<'_>, node: u64) -> Reply<Vec<u8>> {
        self.run(caller, |fs| fs.read_link(Ino(node)))
    }

    fn make(&self, caller: Caller<'_>, parent: u64, name: Name<'_>, new: &NewNode<'_>) -> Reply<Entry> {
        let new = new_file(caller, new);
        Ok(self.told(&self.change(caller, |fs| fs.make(Ino(parent), name, &new))?))
    }

    fn unlink(&self, caller: Caller<'_>, parent: u64, name: Name<'_>) -> Reply<()> {
        self.gone(self.change(caller, |fs| fs.unlink(Ino(parent), name))?);
        Ok(())
    }

    fn remove_directory(&self, caller: Caller<'_>, parent: u64, name: Name<'_>) -> Reply<()> {
        self.gone(self.change(caller, |fs| fs.remove_directory(Ino(parent), name))?);
        Ok(())
    }

    fn rename(
        &self,
        caller: Caller<'_>,
        from: (u64, Name<'_>),
        to: (u64, Name<'_>),
        flags: u32,
    ) -> Reply<()> {
        let how = translate::rename_how(flags, caller)?;
        let rename = |fs: &FileSystem| fs.rename((Ino(from.0), from.1), (Ino(to.0), to.1), how);
        self.gone(self.change(caller, rename)?);
        Ok(())
    }

    fn link(&self, caller: Caller<'_>, node: u64, parent: u64, name: Name<'_>) -> Reply<Entry> {
        Ok(self.told(&self.change(caller, |fs| fs.link(Ino(node), Ino(parent), name))?))
    }

    fn open(&self, _: Caller<'_>, _: u64, flags: u32, _: bool) -> Reply<Opened> {
        if self.is_read_only && flags & open::ACCESS_MODE != 0 {
            return Err(Errno::ROFS);
        }
        Ok(opened())
    }

    fn create(
        &self,
        caller: Caller<'_>,
        parent: u64,
        name: Name<'_>,
        new: &NewNode<'_>,
        _flags: u32,
    ) -> Reply<(Entry, Opened)> {
        Ok((self.make(caller, parent, name, new)?, opened()))
    }

    fn create_unnamed(
        &self,
        caller: Caller<'_>,
        parent: u64,
        new: &NewNode<'_>,
        flags: u32,
    ) -> Reply<(Entry, Opened)> {
        let (new, is_linkable) = (new_file(caller, new), flags & open::EXCL == 0);
        let made = self.change(caller, |fs| fs.make_unnamed(Ino(parent), &new, is_linkable))?;
        Ok((self.told(&made), opened()))
    }

    fn read(&self, caller: Caller<'_>, file: Open, offset: u64, buffer: &mut [u8]) -> Reply<usize> {
        let touches = !self.is_read_only && !self.keeps_access_time;
        self.run(caller, |fs| {
            let len = fs.read(Ino(file.node), offset, buffer)?;
            if touches {
                fs.touch(Ino(file.node))?;
            }
            Ok(len)
        })
    }

    fn write(
        &self,
        caller: Caller<'_>,
        file: Open,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Reply<usize> {
        let (ino, how) = (Ino(file.node), translate::write_how(flags));
        let is_direct = flags.open & open::DIRECT != 0;
        self.change(caller, |fs| {
            if how.clears_set_id && is_outsider(fs, caller, ino)? {
                // Before the bytes: no crash may leave what another user wrote with this bit.
                let set =
                    SetAttributes { clears_set_id: true, is_outsider: true, ..SetAttributes::default() };
                fs.set_attributes(ino, &set)?;
            }
            let mut done = fs.write(ino, offset, data, how)?;
            // Linux makes EIO of an answer that a part of a direct write was made; what keeps the rest from
            // being written is the better answer.
            while is_direct && done < data.len() {
                done += fs.write(ino, offset + done as u64, &data[done..], how)?;
            }
            Ok(done)
        })
    }

    fn sync(&self, caller: Caller<'_>, file: Open, is_data_alone: bool) -> Reply<()> {
        self.run(caller, |fs| fs.sync_file(Ino(file.node), is_data_alone))
    }

    fn sync_all(&self, caller: Caller<'_>) -> Reply<()> {
        self.run(caller, FileSystem::sync_all)
    }

    fn open_directory(&self, _: Caller<'_>, _: u64) -> Reply<Opened> {
        Ok(opened())
    }

    fn list(
        &self,
        caller: Caller<'_>,
        file: Open,
        after: u64,
        is_plus: bool,
        listing: &mut dyn Listing,
    ) -> Reply<()> {
        let (mut after, mut is_empty) = (after, true);
        loop {
            // Attributes are looked up when the scan has ended: a scan holds what others may wait for.
            let found = match self.scan(caller, Ino(file.node), after) {
                // The kernel must be told of what it was counted to know; it asks again for the rest.
                Err(_) if !is_empty => return Ok(()),
                found => found?,
            };
            for (name, ino, file_type, cookie) in &found {
                let listed = Listed { node: ino.0, cookie: *cookie, file_type: *file_type, name };
                let is_special = name == b"." || name == b"..";
                let attributes = (is_plus && !is_special)
                    .then(|| self.run(caller, |fs| self.known_attributes(fs, *ino)).ok())
                    .flatten();
                if !listing.add(&listed, attributes.as_ref().map(entry).as_ref()) {
                    if attributes.is_some() {
                        self.forgotten(*ino, 1);
                    }
                    return Ok(());
                }
                (after, is_empty) = (*cookie, false);
            }
            if found.len() < ENTRIES_AT_ONCE {
                return Ok(());
            }
        }
    }

    fn space(&self, caller: Caller<'_>) -> Reply<Space> {
        self.run(caller, |fs| Ok(translate::space(fs.space())))
    }

    fn set_xattr(
        &self,
        caller: Caller<'_>,
        node: u64,
        name: Name<'_>,
        value: &[u8],
        flags: u32,
        clears_set_gid: bool,
    ) -> Reply<()> {
        let how = translate::xattr_how(flags)?;
        self.change(caller, |fs| fs.set_xattr(Ino(node), name, value, how, clears_set_gid))
    }

    fn xattr(&self, caller: Caller<'_>, node: u64, name: Name<'_>) -> Reply<Vec<u8>> {
        self.run(caller, |fs| fs.xattr(Ino(node), name))
    }

    fn xattr_names(&self, caller: Caller<'_>, node: u64) -> Reply<Vec<u8>> {
        self.run(caller, |fs| fs.xattr_names(Ino(node)))
    }

    fn remove_xattr(&self, caller: Caller<'_>, node: u64, name: Name<'_>) -> Reply<()> {
        self.change(caller, |fs| fs.remove_xattr(Ino(node), name))
    }

    fn allocate(&self, caller: Caller<'_>, file: Open, offset: u64, len_bytes: u64, mode: u32) -> Reply<()> {
        let what = translate::allocate(mode)?;
        self.change(caller, |fs| {
            clear_set_id(fs, caller, Ino(file.node))?;
            fs.allocate(Ino(file.node), offset, len_bytes, what)
        })
    }

    fn seek(&self, caller: Caller<'_>, file: Open, offset: u64, whence: u32) -> Reply<u64> {
        let what = translate::seek(whence)?;
        self.run(caller, |fs| fs.seek(Ino(file.node), offset, what))
    }

    fn copy(&self, caller: Caller<'_>, from: (Open, u64), to: (Open, u64), len_bytes: u64) -> Reply<u64> {
        let (from, to) = ((Ino(from.0.node), from.1), (Ino(to.0.node), to.1));
        let mut done = 0;
        // What was copied before an error or a signal is an answer; the program asks for the rest.
        while done < len_bytes && !(done > 0 && (caller.is_interrupted() || caller.is_put_off())) {
            let part = (len_bytes - done).min(COPY_BYTES);
            let copy = |fs: &FileSystem| {
                clear_set_id(fs, caller, to.0)?;
                fs.copy_range(from.0, from.1 + done, to.0, to.1 + done, part)
            };
            match self.change(caller, copy) {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(copied) if copied < part => return Ok(done + copied),
                Ok(copied) => done += copied,
            }
        }
        Ok(done)
    }

    fn complete(&self, caller: Caller<'_>) -> Reply<()> {
        self.run(caller, FileSystem::commit_if_always)
    }

    fn forget(&self, node: u64, lookups: u64) {
        self.forgotten(Ino(node), lookups);
    }

    fn release(&self, file: Open) {
        // If this fails, times may be those of the last txg.
        self.tidy(|fs| fs.settle(Ino(file.node)));
    }
}

/// Clears the bits that run a program as another user or group, if another user than root changes its bytes.
/// For writes and truncations the kernel says whether; for `fallocate` and copies it does not.
fn clear_set_id(fs: &FileSystem, caller: Caller<'_>, ino: Ino) -> Result<(), FsError> {
    const SET_ID: u32 = 0o6000;
    if caller.uid == 0 || fs.attributes(ino)?.mode & SET_ID == 0 {
        return Ok(());
    }
    let is_outsider = is_outsider(fs, caller, ino)?;
    let set = SetAttributes { clears_set_id: true, is_outsider, ..SetAttributes::default() };
    fs.set_attributes(ino, &set).map(drop)
}

/// Whether a caller is outside of the group of a file, and so clears a set-group bit that members leave.
fn is_outsider(fs: &FileSystem, caller: Caller<'_>, ino: Ino) -> Result<bool, FsError> {
    Ok(fs.set_group(ino)?.is_some_and(|group| !groups::keeps_set_gid(caller, group)))
}

impl Adapter {
    /// The next names of a directory.
    fn scan(&self, caller: Caller<'_>, directory: Ino, after: u64) -> Reply<Vec<Found>> {
        let mut found: Vec<Found> = Vec::with_capacity(ENTRIES_AT_ONCE);
        self.run(caller, |fs| {
            found.clear();
            fs.list(directory, after, |entry| {
                found.push((entry.name.to_vec(), entry.ino, entry.file_type, entry.cookie));
                if found.len() < ENTRIES_AT_ONCE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
        })?;
        Ok(found)
    }
}
