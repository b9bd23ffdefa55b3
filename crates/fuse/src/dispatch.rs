//! From a request to a call of [`Files`], and from its result to an answer.

use rustix::io::Errno;

use crate::answer::Answer;
use crate::files::{Caller, Files, NewNode, NewTime, Open, Reply, SetAttr, Time, WriteFlags};
use crate::wire::{self, Head, Input, READ_BYTES_MAX, fattr};

/// Carries out a request; `None`: the kernel expects no answer.
pub(crate) fn dispatch(
    files: &dyn Files,
    caller: Caller<'_>,
    head: &Head,
    input: Input<'_>,
    answer: &mut Answer,
) -> Option<Reply<()>> {
    match head.opcode {
        wire::FORGET | wire::BATCH_FORGET => {
            // What cannot be decoded forgets nothing.
            let _ = forget(files, head, input);
            None
        }
        wire::DESTROY => Some(Ok(())),
        wire::LOOKUP
        | wire::MKNOD
        | wire::MKDIR
        | wire::SYMLINK
        | wire::UNLINK
        | wire::RMDIR
        | wire::RENAME
        | wire::RENAME2
        | wire::LINK
        | wire::CREATE
        | wire::TMPFILE => Some(names(files, caller, head, input, answer)),
        wire::SETXATTR | wire::GETXATTR | wire::LISTXATTR | wire::REMOVEXATTR => {
            Some(xattrs(files, caller, head, input, answer))
        }
        wire::GETATTR | wire::STATX | wire::SETATTR | wire::READLINK | wire::STATFS => {
            Some(attributes(files, caller, head, input, answer))
        }
        _ => Some(open_files(files, caller, head, input, answer)),
    }
}

fn forget(files: &dyn Files, head: &Head, mut input: Input<'_>) -> Reply<()> {
    if head.opcode == wire::FORGET {
        files.forget(head.node, input.u64()?);
        return Ok(());
    }
    let count = input.u32()?;
    input.skip(4)?;
    for _ in 0..count {
        let node = input.u64()?;
        files.forget(node, input.u64()?);
    }
    Ok(())
}

fn names(
    files: &dyn Files,
    caller: Caller<'_>,
    head: &Head,
    mut input: Input<'_>,
    answer: &mut Answer,
) -> Reply<()> {
    const DIRECTORY: u32 = 0o040_000;
    const SYMLINK: u32 = 0o120_000;
    let parent = head.node;
    let entry = match head.opcode {
        wire::LOOKUP => files.lookup(caller, parent, input.name()?)?,
        wire::MKNOD => {
            let (mode, rdev, umask) = (input.u32()?, input.u32()?, input.u32()?);
            input.skip(4)?;
            files.make(caller, parent, input.name()?, &NewNode { mode, umask, rdev, target: &[] })?
        }
        wire::MKDIR => {
            let (mode, umask) = (input.u32()? & 0o7777 | DIRECTORY, input.u32()?);
            files.make(caller, parent, input.name()?, &NewNode { mode, umask, ..NewNode::default() })?
        }
        wire::SYMLINK => {
            let (name, target) = (input.name()?, input.string()?);
            let new = NewNode { mode: SYMLINK | 0o777, target, ..NewNode::default() };
            files.make(caller, parent, name, &new)?
        }
        wire::LINK => {
            let node = input.u64()?;
            files.link(caller, node, parent, input.name()?)?
        }
        wire::CREATE | wire::TMPFILE => {
            let (flags, mode, umask) = (input.u32()?, input.u32()?, input.u32()?);
            input.skip(4)?;
            let new = NewNode { mode, umask, ..NewNode::default() };
            let (entry, opened) = match head.opcode {
                wire::CREATE => files.create(caller, parent, input.name()?, &new, flags)?,
                _ => files.create_unnamed(caller, parent, &new, flags)?,
            };
            answer.entry(&entry).opened(&opened);
            return Ok(());
        }
        wire::UNLINK => return files.unlink(caller, parent, input.name()?),
        wire::RMDIR => return files.remove_directory(caller, parent, input.name()?),
        wire::RENAME | wire::RENAME2 => {
            let to = input.u64()?;
            let flags = if head.opcode == wire::RENAME2 { input.u64()? as u32 } else { 0 };
            let (old, new) = (input.name()?, input.name()?);
            return files.rename(caller, (parent, old), (to, new), flags);
        }
        _ => return Err(Errno::NOSYS),
    };
    answer.entry(&entry);
    Ok(())
}

fn xattrs(
    files: &dyn Files,
    caller: Caller<'_>,
    head: &Head,
    mut input: Input<'_>,
    answer: &mut Answer,
) -> Reply<()> {
    let node = head.node;
    match head.opcode {
        wire::SETXATTR => {
            let (size, flags, more) = (input.u32()?, input.u32()?, input.u32()?);
            input.skip(4)?;
            let name = input.attribute()?;
            let value = input.bytes(size as usize)?;
            files.set_xattr(caller, node, name, value, flags, more & wire::SETXATTR_ACL_KILL_SGID != 0)
        }
        wire::REMOVEXATTR => files.remove_xattr(caller, node, input.attribute()?),
        _ => {
            let size = input.u32()?;
            input.skip(4)?;
            let value = match head.opcode {
                wire::GETXATTR => files.xattr(caller, node, input.attribute()?)?,
                _ => files.xattr_names(caller, node)?,
            };
            answer.sized(&value, size)
        }
    }
}

fn attributes(
    files: &dyn Files,
    caller: Caller<'_>,
    head: &Head,
    mut input: Input<'_>,
    answer: &mut Answer,
) -> Reply<()> {
    match head.opcode {
        wire::GETATTR | wire::STATX => {
            let flags = input.u32()?;
            input.skip(4)?;
            let handle = input.u64()?;
            let handle = (flags & wire::GETATTR_FH != 0).then_some(handle);
            let found = files.attributes(caller, head.node, handle)?;
            match head.opcode {
                wire::GETATTR => answer.attributes(&found),
                _ => answer.statx(&found),
            };
        }
        wire::SETATTR => {
            let set = set_attr(&mut input)?;
            answer.attributes(&files.set_attributes(caller, head.node, &set)?);
        }
        wire::READLINK => {
            answer.bytes(&files.read_link(caller, head.node)?);
        }
        _ => {
            answer.space(&files.space(caller)?);
        }
    }
    Ok(())
}

fn set_attr(input: &mut Input<'_>) -> Reply<SetAttr> {
    let valid = input.u32()?;
    input.skip(4)?;
    let (handle, size_bytes) = (input.u64()?, input.u64()?);
    input.skip(8)?;
    let seconds = [input.u64()? as i64, input.u64()? as i64, input.u64()? as i64];
    let nanoseconds = [input.u32()?, input.u32()?, input.u32()?];
    let mode = input.u32()?;
    input.skip(4)?;
    let (uid, gid) = (input.u32()?, input.u32()?);
    let has = |flag| valid & flag != 0;
    if nanoseconds.iter().any(|nanoseconds| *nanoseconds >= 1_000_000_000) {
        return Err(Errno::INVAL);
    }
    let time = |at: usize| Time { seconds: seconds[at], nanoseconds: nanoseconds[at] };
    let new = |set, is_now, at| match has(set) {
        true if has(is_now) => Some(NewTime::Now),
        true => Some(NewTime::At(time(at))),
        false => None,
    };
    Ok(SetAttr {
        mode: has(fattr::MODE).then_some(mode & 0o7777),
        uid: has(fattr::UID).then_some(uid),
        gid: has(fattr::GID).then_some(gid),
        size_bytes: has(fattr::SIZE).then_some(size_bytes),
        atime: new(fattr::ATIME, fattr::ATIME_NOW, 0),
        mtime: new(fattr::MTIME, fattr::MTIME_NOW, 1),
        ctime: has(fattr::CTIME).then(|| time(2)),
        clears_set_id: has(fattr::KILL_SUIDGID),
        handle: has(fattr::FH).then_some(handle),
    })
}

fn open_files(
    files: &dyn Files,
    caller: Caller<'_>,
    head: &Head,
    mut input: Input<'_>,
    answer: &mut Answer,
) -> Reply<()> {
    let node = head.node;
    match head.opcode {
        wire::OPEN | wire::OPENDIR => {
            let (flags, more) = (input.u32()?, input.u32()?);
            let opened = match head.opcode {
                wire::OPEN => files.open(caller, node, flags, more & wire::OPEN_KILL_SUIDGID != 0)?,
                _ => files.open_directory(caller, node)?,
            };
            answer.opened(&opened);
            return Ok(());
        }
        wire::SYNCFS => return files.sync_all(caller),
        // Of FLUSH, once: then the kernel sends none when a descriptor is closed. What is dirty in its page
        // cache it has written before; locks it keeps itself.
        wire::ACCESS | wire::FLUSH => return Err(Errno::NOSYS),
        _ => {}
    }
    // Everything else begins with a handle.
    let file = Open { node, handle: input.u64()? };
    match head.opcode {
        wire::READ => {
            let (offset, size) = (input.u64()?, input.u32()? as usize);
            answer.fill(size.min(READ_BYTES_MAX), |buffer| files.read(caller, file, offset, buffer))
        }
        wire::WRITE => {
            let (offset, size, flags) = (input.u64()?, input.u32()?, input.u32()?);
            input.skip(8)?;
            let open = input.u32()?;
            input.skip(4)?;
            let flags = WriteFlags {
                open,
                is_from_cache: flags & wire::WRITE_CACHE != 0,
                clears_set_id: flags & wire::WRITE_KILL_SUIDGID != 0,
            };
            let written = files.write(caller, file, offset, input.bytes(size as usize)?, flags)?;
            answer.u32(written as u32).u32(0);
            Ok(())
        }
        wire::READDIR | wire::READDIRPLUS => {
            let (after, size) = (input.u64()?, input.u32()? as usize);
            let is_plus = head.opcode == wire::READDIRPLUS;
            let mut listing = answer.listing(size.min(READ_BYTES_MAX), is_plus);
            files.list(caller, file, after, is_plus, &mut listing)
        }
        wire::FSYNC | wire::FSYNCDIR => files.sync(caller, file, input.u32()? & wire::FSYNC_FDATASYNC != 0),
        wire::RELEASE => {
            files.release(file);
            Ok(())
        }
        wire::RELEASEDIR => {
            files.release_directory(file);
            Ok(())
        }
        wire::FALLOCATE => {
            let (offset, len_bytes, mode) = (input.u64()?, input.u64()?, input.u32()?);
            files.allocate(caller, file, offset, len_bytes, mode)
        }
        wire::LSEEK => {
            let (offset, whence) = (input.u64()?, input.u32()?);
            answer.u64(files.seek(caller, file, offset, whence)?);
            Ok(())
        }
        wire::COPY_FILE_RANGE | wire::COPY_FILE_RANGE_64 => {
            let offset = input.u64()?;
            let to = Open { node: input.u64()?, handle: input.u64()? };
            let (to_offset, len_bytes) = (input.u64()?, input.u64()?);
            let is_long = head.opcode == wire::COPY_FILE_RANGE_64;
            // The short answer has 32 bits.
            let len_bytes = if is_long { len_bytes } else { len_bytes.min(1 << 30) };
            let copied = files.copy(caller, (file, offset), (to, to_offset), len_bytes)?;
            if is_long {
                answer.u64(copied)
            } else {
                answer.u32(copied as u32).u32(0)
            };
            Ok(())
        }
        _ => Err(Errno::NOSYS),
    }
}
