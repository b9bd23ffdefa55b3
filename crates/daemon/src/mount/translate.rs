//! The same values in the words of both sides: the kernel's (`fuse`) and the file system's (`zpl`).

use std::time::Duration;

use fastness_fuse::{Attr, Caller, Entry, Errno, NewNode, Opened, Reply, SetAttr, Space, WriteFlags};
use fastness_zpl::{
    Allocate, Attributes, NewFile, NewTime, RenameHow, Seek, SetAttributes, Time, WriteHow, XattrHow,
};

/// Names change through this mount only, so the kernel's own view of them is complete.
pub(super) const NAME_VALID: Duration = Duration::from_secs(3600);
/// The space that a file takes changes when txgs sync.
pub(super) const ATTR_VALID: Duration = Duration::from_secs(1);
const BLOCK_BYTES: u32 = 4096;

/// Flags of an open file. Source: Linux, `include/uapi/asm-generic/fcntl.h`.
pub(super) mod open {
    pub(in crate::mount) const ACCESS_MODE: u32 = 3;
    pub(in crate::mount) const EXCL: u32 = 0o200;
    /// `O_DSYNC`, which `O_SYNC` includes.
    pub(in crate::mount) const DSYNC: u32 = 0o10_000;
    /// Of x86-64.
    pub(in crate::mount) const DIRECT: u32 = 0o40_000;
    /// What `O_SYNC` has besides: times are durable as well.
    pub(in crate::mount) const SYNC: u32 = 0o4_000_000;
}

fn time(time: Time) -> fastness_fuse::Time {
    fastness_fuse::Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn back(time: fastness_fuse::Time) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

pub(super) fn attr(of: &Attributes) -> Attr {
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

pub(super) fn entry(of: &Attributes) -> Entry {
    let (attr, generation) = (attr(of), of.generation);
    Entry { attr, generation, name_valid: NAME_VALID, attr_valid: ATTR_VALID }
}

/// The kernel may remember that there is no such name.
pub(super) fn no_entry() -> Entry {
    Entry { attr: Attr::default(), generation: 0, name_valid: NAME_VALID, attr_valid: ATTR_VALID }
}

/// Only this mount changes the file: pages that the kernel has of it stay valid.
pub(super) fn opened() -> Opened {
    Opened { handle: 0, keeps_cache: true, is_direct: false }
}

pub(super) fn write_how(flags: WriteFlags) -> WriteHow {
    // Pages from the cache become durable with the `fsync` that the kernel sends after them.
    let is_sync = flags.open & open::DSYNC != 0 && !flags.is_from_cache;
    let keeps_times = is_sync && flags.open & open::SYNC != 0;
    WriteHow { is_sync, keeps_times, clears_set_id: flags.clears_set_id }
}

pub(super) fn new_file<'a>(caller: Caller<'_>, new: &NewNode<'a>) -> NewFile<'a> {
    NewFile {
        mode: new.mode,
        umask: new.umask,
        uid: caller.uid,
        gid: caller.gid,
        rdev: u64::from(new.rdev),
        target: new.target,
    }
}

pub(super) fn set_attributes(set: &SetAttr) -> SetAttributes {
    let new = |new: fastness_fuse::NewTime| match new {
        fastness_fuse::NewTime::Now => NewTime::Now,
        fastness_fuse::NewTime::At(time) => NewTime::At(back(time)),
    };
    SetAttributes {
        mode: set.mode,
        uid: set.uid,
        gid: set.gid,
        size_bytes: set.size_bytes,
        atime: set.atime.map(new),
        mtime: set.mtime.map(new),
        ctime: set.ctime.map(back),
        clears_set_id: set.clears_set_id,
        is_outsider: false,
    }
}

/// Flags of `renameat2`. The kernel has refused what cannot be combined; and, while nothing else can change
/// the directory, a name that must be free and is not: for a whiteout that is the only check.
pub(super) fn rename_how(flags: u32, caller: Caller<'_>) -> Reply<RenameHow> {
    match flags {
        0 => Ok(RenameHow::Replace),
        1 => Ok(RenameHow::NoReplace),
        2 => Ok(RenameHow::Exchange),
        4 | 5 => Ok(RenameHow::Whiteout { uid: caller.uid, gid: caller.gid }),
        _ => Err(Errno::INVAL),
    }
}

/// Flags of `setxattr`.
pub(super) fn xattr_how(flags: u32) -> Reply<XattrHow> {
    match flags {
        0 => Ok(XattrHow::Set),
        1 => Ok(XattrHow::Create),
        2 => Ok(XattrHow::Replace),
        _ => Err(Errno::INVAL),
    }
}

/// Mode of `fallocate`; collapsing and inserting ranges is not supported.
pub(super) fn allocate(mode: u32) -> Reply<Allocate> {
    const KEEP_SIZE: u32 = 1;
    const PUNCH: u32 = 2;
    const ZERO: u32 = 16;
    let keeps_size = mode & KEEP_SIZE != 0;
    match mode & !KEEP_SIZE {
        0 => Ok(Allocate::Reserve { keeps_size }),
        PUNCH if keeps_size => Ok(Allocate::Punch),
        ZERO => Ok(Allocate::Zero { keeps_size }),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// `whence` of `lseek`; the kernel does the others itself.
pub(super) fn seek(whence: u32) -> Reply<Seek> {
    match whence {
        3 => Ok(Seek::Data),
        4 => Ok(Seek::Hole),
        _ => Err(Errno::INVAL),
    }
}

pub(super) fn space(space: fastness_zpl::Space) -> Space {
    let free_blocks = space.free_bytes / u64::from(BLOCK_BYTES);
    Space {
        block_bytes: BLOCK_BYTES,
        blocks: space.total_bytes / u64::from(BLOCK_BYTES),
        free_blocks,
        available_blocks: free_blocks,
        // Inodes are rows, and nothing counts them: 0 of 0 means that only space limits them.
        files: 0,
        free_files: 0,
    }
}
