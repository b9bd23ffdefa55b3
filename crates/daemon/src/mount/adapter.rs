//! A file system as the kernel asks for it: only translates operations, values and errors, and counts what the
//! kernel knows.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use fastness_error::chain;
use fastness_fuse::{
    Attr, Caller, Entry, Errno, Files, Listed, Listing, Name, NewNode, Open, Opened, Reply, SetAttr, Space,
    WriteFlags,
};
use fastness_store::{Attached, Outcome};
use fastness_zpl::{
    Allocate, Attributes, FileSystem, FsError, Ino, NewFile, NewTime, RenameHow, Seek, SetAttributes, Time,
    WriteHow, XattrHow,
};

use crate::journal::Journal;
use crate::mount::known::Known;

/// Names change through this mount only, so the kernel's own view of them is complete.
const NAME_VALID: Duration = Duration::from_secs(3600);
/// The space that a file takes changes when txgs sync.
const ATTR_VALID: Duration = Duration::from_secs(1);
const BLOCK_BYTES: u32 = 4096;
const O_SYNC: u32 = 0o4_000_000 | O_DSYNC;
const O_DSYNC: u32 = 0o10_000;
const O_TRUNC: u32 = 0o1000;
const O_EXCL: u32 = 0o200;
const O_ACCMODE: u32 = 3;
const ENTRIES_AT_ONCE: usize = 64;

/// A mounted file system.
pub(crate) struct Adapter {
    pub(crate) fs: Arc<Attached<FileSystem>>,
    pub(crate) known: Known,
    pub(crate) journal: Arc<Journal>,
    pub(crate) is_read_only: bool,
}

fn time(time: Time) -> fastness_fuse::Time {
    fastness_fuse::Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn back(time: fastness_fuse::Time) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn attr(of: &Attributes) -> Attr {
    Attr {
        node: of.ino.0,
        size_bytes: of.size_bytes,
        blocks: of.blocks,
        block_bytes: of.preferred_bytes,
        mode: of.mode,
        links: of.links,
        uid: of.uid,
        gid: of.gid,
        rdev: of.rdev as u32,
        atime: time(of.atime),
        mtime: time(of.mtime),
        ctime: time(of.ctime),
        btime: Some(time(of.btime)),
    }
}

fn entry(of: &Attributes) -> Entry {
    let (attr, generation) = (attr(of), of.generation);
    Entry { attr, generation, name_valid: NAME_VALID, attr_valid: ATTR_VALID }
}

fn opened() -> Opened {
    Opened { handle: 0, keeps_cache: true, is_direct: false }
}

fn how(flags: WriteFlags) -> WriteHow {
    // Pages from the cache become durable with the `fsync` that the kernel sends after them.
    let is_sync = flags.open & O_SYNC != 0 && !flags.is_from_cache;
    WriteHow { is_sync, clears_set_id: flags.clears_set_id }
}

fn new_file<'a>(caller: Caller<'_>, new: &NewNode<'a>) -> NewFile<'a> {
    NewFile {
        mode: new.mode,
        umask: new.umask,
        uid: caller.uid,
        gid: caller.gid,
        rdev: u64::from(new.rdev),
        target: new.target,
    }
}

impl Adapter {
    /// Carries out an operation; waits while the pool is suspended and `failmode` says to wait. Errors of media
    /// go to the journal, with their causes.
    pub(crate) fn run<T>(
        &self,
        caller: Option<Caller<'_>>,
        mut act: impl FnMut(&FileSystem) -> Result<T, FsError>,
    ) -> Reply<T> {
        let mut value = None;
        let is_given_up = || caller.is_some_and(|caller| caller.is_interrupted());
        let outcome = self.fs.run_until(is_given_up, |fs| {
            value = Some(act(fs)?);
            Ok(())
        });
        match outcome {
            Outcome::Done(Ok(())) => Ok(value.expect("it was carried out")),
            Outcome::Done(Err(error)) => {
                let errno = error.errno();
                if errno == Errno::IO {
                    self.journal.note(format!("{}: {}", self.fs.name(), chain(&error)));
                }
                Err(errno)
            }
            Outcome::Ended if is_given_up() => Err(Errno::INTR),
            Outcome::Ended => Err(Errno::NOTCONN),
        }
    }

    fn change<T>(&self, caller: Caller<'_>, act: impl FnMut(&FileSystem) -> Result<T, FsError>) -> Reply<T> {
        if self.is_read_only {
            return Err(Errno::ROFS);
        }
        self.run(Some(caller), act)
    }

    /// Tells the kernel of a new file.
    fn told(&self, of: Attributes) -> Entry {
        self.known.add(of.ino);
        entry(&of)
    }

    /// A file has lost its last name. The kernel knows it, or nothing uses it.
    fn gone(&self, gone: Option<Ino>) {
        if let Some(ino) = gone {
            self.reap(ino);
        }
    }

    fn reap(&self, ino: Ino) {
        // If this fails, the file is erased when the file system is mounted the next time.
        let _ = self.run(None, |fs| fs.reap_unless(ino, || self.known.has(ino)));
    }

    fn forgotten(&self, ino: Ino, times: u64) {
        if self.known.sub(ino, times) && ino != Ino::ROOT {
            self.reap(ino);
        }
    }

    /// Attributes of a file that the kernel is to be told of: counted first, so that it is not erased meanwhile.
    fn known_attributes(&self, fs: &FileSystem, ino: Ino) -> Result<Attributes, FsError> {
        self.known.add(ino);
        fs.attributes(ino).map_err(|error| {
            self.known.sub(ino, 1);
            match error {
                FsError::Stale(_) => FsError::NotFound,
                error => error,
            }
        })
    }
}

impl Files for Adapter {
    fn lookup(&self, caller: Caller<'_>, parent: u64, name: Name<'_>) -> Reply<Entry> {
        let found = self.run(Some(caller), |fs| {
            let ino = match name {
                b"." | b".." => fs.lookup(Ino(parent), name)?.ino,
                _ => fs.find(Ino(parent), name)?,
            };
            self.known_attributes(fs, ino)
        });
        match found {
            Ok(found) => Ok(entry(&found)),
            // The kernel may remember that there is no such name.
            Err(Errno::NOENT) => {
                let attr = Attr::default();
                Ok(Entry { attr, generation: 0, name_valid: NAME_VALID, attr_valid: ATTR_VALID })
            }
            Err(error) => Err(error),
        }
    }

    fn attributes(&self, caller: Caller<'_>, node: u64, _: Option<u64>) -> Reply<(Attr, Duration)> {
        Ok((attr(&self.run(Some(caller), |fs| fs.attributes(Ino(node)))?), ATTR_VALID))
    }

    fn set_attributes(&self, caller: Caller<'_>, node: u64, set: &SetAttr) -> Reply<(Attr, Duration)> {
        let new = |new: fastness_fuse::NewTime| match new {
            fastness_fuse::NewTime::Now => NewTime::Now,
            fastness_fuse::NewTime::At(time) => NewTime::At(back(time)),
        };
        let set = SetAttributes {
            mode: set.mode,
            uid: set.uid,
            gid: set.gid,
            size_bytes: set.size_bytes,
            atime: set.atime.map(new),
            mtime: set.mtime.map(new),
            ctime: set.ctime.map(back),
            clears_set_id: set.clears_set_id,
        };
        Ok((attr(&self.change(caller, |fs| fs.set_attributes(Ino(node), &set))?), ATTR_VALID))
    }

    fn read_link(&self, caller: Caller<'_>, node: u64) -> Reply<Vec<u8>> {
        self.run(Some(caller), |fs| fs.read_link(Ino(node)))
    }

    fn make(&self, caller: Caller<'_>, parent: u64, name: Name<'_>, new: &NewNode<'_>) -> Reply<Entry> {
        let new = new_file(caller, new);
        Ok(self.told(self.change(caller, |fs| fs.make(Ino(parent), name, &new))?))
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
        let how = match flags {
            0 => RenameHow::Replace,
            1 => RenameHow::NoReplace,
            2 => RenameHow::Exchange,
            4 => RenameHow::Whiteout { uid: caller.uid, gid: caller.gid },
            _ => return Err(Errno::INVAL),
        };
        let rename = |fs: &FileSystem| fs.rename((Ino(from.0), from.1), (Ino(to.0), to.1), how);
        self.gone(self.change(caller, rename)?);
        Ok(())
    }

    fn link(&self, caller: Caller<'_>, node: u64, parent: u64, name: Name<'_>) -> Reply<Entry> {
        Ok(self.told(self.change(caller, |fs| fs.link(Ino(node), Ino(parent), name))?))
    }

    fn open(&self, caller: Caller<'_>, node: u64, flags: u32, clears_set_id: bool) -> Reply<Opened> {
        if self.is_read_only && flags & O_ACCMODE != 0 {
            return Err(Errno::ROFS);
        }
        if flags & O_TRUNC != 0 {
            let set = SetAttributes { size_bytes: Some(0), clears_set_id, ..SetAttributes::default() };
            self.change(caller, |fs| fs.set_attributes(Ino(node), &set))?;
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
        let (new, is_linkable) = (new_file(caller, new), flags & O_EXCL == 0);
        let made = self.change(caller, |fs| fs.make_unnamed(Ino(parent), &new, is_linkable))?;
        Ok((self.told(made), opened()))
    }

    fn read(&self, caller: Caller<'_>, file: Open, offset: u64, buffer: &mut [u8]) -> Reply<usize> {
        let is_read_only = self.is_read_only;
        self.run(Some(caller), |fs| {
            let len = fs.read(Ino(file.node), offset, buffer)?;
            if !is_read_only {
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
        self.change(caller, |fs| fs.write(Ino(file.node), offset, data, how(flags)))?;
        Ok(data.len())
    }

    fn flush(&self, _: Caller<'_>, _: Open) -> Reply<()> {
        Ok(())
    }

    fn sync(&self, caller: Caller<'_>, file: Open, is_data_alone: bool) -> Reply<()> {
        self.run(Some(caller), |fs| fs.sync_file(Ino(file.node), is_data_alone))
    }

    fn sync_all(&self, caller: Caller<'_>) -> Reply<()> {
        self.run(Some(caller), FileSystem::sync_all)
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
        let mut after = after;
        loop {
            // Attributes are looked up when the scan has ended: a scan holds what others may wait for.
            let mut found: Vec<(Vec<u8>, Ino, u32, u64)> = Vec::with_capacity(ENTRIES_AT_ONCE);
            self.run(Some(caller), |fs| {
                found.clear();
                fs.list(Ino(file.node), after, |entry| {
                    found.push((entry.name.to_vec(), entry.ino, entry.file_type, entry.cookie));
                    if found.len() < ENTRIES_AT_ONCE {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    }
                })
            })?;
            for (name, ino, file_type, cookie) in &found {
                let listed = Listed { node: ino.0, cookie: *cookie, file_type: *file_type, name };
                let is_special = name == b"." || name == b"..";
                let attributes = (is_plus && !is_special)
                    .then(|| self.run(Some(caller), |fs| self.known_attributes(fs, *ino)).ok())
                    .flatten();
                if !listing.add(&listed, attributes.as_ref().map(entry).as_ref()) {
                    if attributes.is_some() {
                        self.forgotten(*ino, 1);
                    }
                    return Ok(());
                }
                after = *cookie;
            }
            if found.len() < ENTRIES_AT_ONCE {
                return Ok(());
            }
        }
    }

    fn space(&self, caller: Caller<'_>) -> Reply<Space> {
        let space = self.run(Some(caller), |fs| Ok(fs.space()))?;
        let free_blocks = space.free_bytes / u64::from(BLOCK_BYTES);
        Ok(Space {
            block_bytes: BLOCK_BYTES,
            blocks: space.total_bytes / u64::from(BLOCK_BYTES),
            free_blocks,
            available_blocks: free_blocks,
            // Inodes are rows: there can be as many as there is space for.
            files: u64::from(u32::MAX).max(free_blocks),
            free_files: free_blocks,
        })
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
        let how = match flags {
            0 => XattrHow::Set,
            1 => XattrHow::Create,
            2 => XattrHow::Replace,
            _ => return Err(Errno::INVAL),
        };
        self.change(caller, |fs| fs.set_xattr(Ino(node), name, value, how, clears_set_gid))
    }

    fn xattr(&self, caller: Caller<'_>, node: u64, name: Name<'_>) -> Reply<Vec<u8>> {
        self.run(Some(caller), |fs| fs.xattr(Ino(node), name))
    }

    fn xattr_names(&self, caller: Caller<'_>, node: u64) -> Reply<Vec<u8>> {
        self.run(Some(caller), |fs| fs.xattr_names(Ino(node)))
    }

    fn remove_xattr(&self, caller: Caller<'_>, node: u64, name: Name<'_>) -> Reply<()> {
        self.change(caller, |fs| fs.remove_xattr(Ino(node), name))
    }

    fn allocate(&self, caller: Caller<'_>, file: Open, offset: u64, len_bytes: u64, mode: u32) -> Reply<()> {
        const KEEP_SIZE: u32 = 1;
        const PUNCH: u32 = 2;
        const ZERO: u32 = 16;
        let keeps_size = mode & KEEP_SIZE != 0;
        let what = match mode & !KEEP_SIZE {
            0 => Allocate::Reserve { keeps_size },
            PUNCH if keeps_size => Allocate::Punch,
            ZERO => Allocate::Zero { keeps_size },
            _ => return Err(Errno::OPNOTSUPP),
        };
        self.change(caller, |fs| fs.allocate(Ino(file.node), offset, len_bytes, what))
    }

    fn seek(&self, caller: Caller<'_>, file: Open, offset: u64, whence: u32) -> Reply<u64> {
        let what = match whence {
            3 => Seek::Data,
            4 => Seek::Hole,
            _ => return Err(Errno::INVAL),
        };
        self.run(Some(caller), |fs| fs.seek(Ino(file.node), offset, what))
    }

    fn copy(&self, caller: Caller<'_>, from: (Open, u64), to: (Open, u64), len_bytes: u64) -> Reply<u64> {
        let (from, to) = ((Ino(from.0.node), from.1), (Ino(to.0.node), to.1));
        self.change(caller, |fs| fs.copy(from, to, len_bytes))
    }

    fn forget(&self, node: u64, lookups: u64) {
        self.forgotten(Ino(node), lookups);
    }

    fn release(&self, file: Open) {
        // If this fails, times may be those of the last txg.
        let _ = self.run(None, |fs| fs.settle(Ino(file.node)));
    }
}
