//! Operations on a tree, drawn at random, and what a program sees of each.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fastness_testkit::Rng;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

/// Open files that a sequence has at one time.
const SLOTS: usize = 3;
/// No name may be longer than 255 bytes.
const LONG: usize = 255;

const ACLS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// What a program sees: text, or an error.
pub type Seen = Result<String, Errno>;

/// An operation.
#[derive(Debug, Clone)]
pub struct Op {
    /// As this user, who is not root.
    pub is_user: bool,
    pub what: What,
}

#[derive(Debug, Clone)]
pub enum What {
    Open { slot: usize, path: PathBuf, flags: OFlags, mode: u32 },
    Unnamed { slot: usize, path: PathBuf },
    LinkUnnamed { slot: usize, path: PathBuf },
    Close { slot: usize },
    Write { slot: usize, offset: Option<u64>, len: usize, byte: u8 },
    Read { slot: usize, offset: u64, len: usize },
    Truncate { slot: usize, size: u64 },
    Allocate { slot: usize, flags: FallocateFlags, offset: u64, len: u64 },
    Copy { from: (usize, u64), to: (usize, u64), len: usize },
    Sync { slot: usize },
    StatOpen { slot: usize },
    Stat { path: PathBuf },
    List { path: PathBuf },
    MakeFolder { path: PathBuf, mode: u32 },
    MakeNode { path: PathBuf, kind: u32, mode: u32 },
    Symlink { target: PathBuf, path: PathBuf },
    ReadLink { path: PathBuf },
    Link { from: PathBuf, to: PathBuf, follows: bool },
    Rename { from: PathBuf, to: PathBuf, flags: RenameFlags },
    Unlink { path: PathBuf },
    RemoveFolder { path: PathBuf },
    Mode { path: PathBuf, mode: u32 },
    Owner { path: PathBuf, uid: Option<u32>, gid: Option<u32> },
    Times { path: PathBuf, seconds: Option<i64> },
    SetXattr { path: PathBuf, name: &'static str, value: Vec<u8>, flags: XattrFlags },
    RemoveXattr { path: PathBuf, name: &'static str },
}

/// A tree on one of the two file systems, with the files that are open.
pub struct Tree {
    pub at: PathBuf,
    folder: File,
    slots: [Option<File>; SLOTS],
}

fn name(rng: &mut Rng) -> PathBuf {
    match rng.below(60) {
        0 => ".".into(),
        1 => "..".into(),
        2 => std::ffi::OsStr::from_bytes(b"\xff\xfe\x80").into(),
        3 => "n".repeat(LONG).into(),
        4 => "n".repeat(LONG + 1).into(),
        n => ["a", "b", "c", "d", "e"][n as usize % 5].into(),
    }
}

fn path(rng: &mut Rng) -> PathBuf {
    let mut path = name(rng);
    for _ in 0..[0, 0, 0, 1, 1, 2][rng.index(6)] {
        path = path.join(name(rng));
    }
    if rng.below(25) == 0 {
        path = path.join("");
    }
    // Not out of the tree.
    let depth = |depth: i32, part: std::path::Component<'_>| match part {
        std::path::Component::ParentDir => depth - 1,
        std::path::Component::CurDir => depth,
        _ => depth + 1,
    };
    let mut at = 0;
    let stays = path.components().all(|part| {
        at = depth(at, part);
        at >= 0
    });
    if stays { path } else { "a".into() }
}

fn mode(rng: &mut Rng) -> u32 {
    [0o644, 0o755, 0o777, 0o600, 0o000, 0o4755, 0o2755, 0o6777, 0o1777, 0o444, 0o2666, 0o6646][rng.index(12)]
}

fn open_flags(rng: &mut Rng) -> OFlags {
    let mut flags = [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR, OFlags::RDWR][rng.index(4)];
    let more = [
        (OFlags::CREATE, 2),
        (OFlags::EXCL, 6),
        (OFlags::TRUNC, 5),
        (OFlags::APPEND, 6),
        (OFlags::NOFOLLOW, 8),
        (OFlags::DIRECTORY, 15),
        (OFlags::SYNC, 10),
        (OFlags::DSYNC, 10),
    ];
    more.into_iter().filter(|(_, one_in)| rng.below(*one_in) == 0).for_each(|(flag, _)| flags |= flag);
    // A FIFO would wait for its other end. CREATE with DIRECTORY is EINVAL on newer kernels.
    flags | OFlags::NONBLOCK | OFlags::CLOEXEC
}

fn offset(rng: &mut Rng) -> u64 {
    match rng.below(12) {
        0 => rng.below(1 << 20),
        1 => 4096 * rng.below(20),
        _ => rng.below(40_000),
    }
}

/// An access control list of version 2: tag (2), permissions (2), id (4) for each entry. Not all are valid.
fn access_list(rng: &mut Rng) -> Vec<u8> {
    const TAGS: [(u16, u32); 7] =
        [(1, u32::MAX), (2, 1000), (2, 2000), (4, u32::MAX), (8, 1000), (16, u32::MAX), (32, u32::MAX)];
    let kinds: [&[usize]; 5] =
        [&[0, 3, 6], &[0, 1, 3, 5, 6], &[0, 1, 2, 3, 4, 5, 6], &[0, 3, 5, 6], &[0, 1, 3, 6]];
    let mut value = 2_u32.to_le_bytes().to_vec();
    for entry in kinds[rng.index(5)] {
        let (tag, id) = TAGS[*entry];
        value.extend(tag.to_le_bytes());
        value.extend((rng.below(8) as u16).to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// The next operation.
pub fn draw(rng: &mut Rng) -> Op {
    let (slot, is_user) = (rng.index(SLOTS), rng.below(4) == 0);
    let what = match rng.below(48) {
        0..6 => What::Open { slot, path: path(rng), flags: open_flags(rng), mode: mode(rng) },
        6 => What::Unnamed { slot, path: path(rng) },
        7 => What::LinkUnnamed { slot, path: path(rng) },
        8 => What::Close { slot },
        9..14 => {
            let offset = (rng.below(3) > 0).then(|| offset(rng));
            What::Write { slot, offset, len: rng.index(20_000), byte: rng.next() as u8 }
        }
        14..16 => What::Read { slot, offset: offset(rng), len: rng.index(20_000) },
        16 | 17 => What::Truncate { slot, size: offset(rng) },
        18 => {
            let flags = [
                FallocateFlags::empty(),
                FallocateFlags::KEEP_SIZE,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                FallocateFlags::PUNCH_HOLE,
            ];
            What::Allocate { slot, flags: flags[rng.index(4)], offset: offset(rng), len: rng.below(30_000) }
        }
        19 => What::Copy {
            from: (slot, offset(rng)),
            to: (rng.index(SLOTS), offset(rng)),
            len: rng.index(30_000),
        },
        20 => What::Sync { slot },
        21 => What::StatOpen { slot },
        22 => What::Stat { path: path(rng) },
        23 => What::List { path: path(rng) },
        24..27 => What::MakeFolder { path: path(rng), mode: mode(rng) },
        27 => What::MakeNode { path: path(rng), kind: rng.below(4) as u32, mode: mode(rng) },
        28 | 29 => What::Symlink { target: path(rng), path: path(rng) },
        30 => What::ReadLink { path: path(rng) },
        31 | 32 => What::Link { from: path(rng), to: path(rng), follows: rng.below(2) == 0 },
        33..37 => {
            let flags = [
                RenameFlags::empty(),
                RenameFlags::empty(),
                RenameFlags::NOREPLACE,
                RenameFlags::EXCHANGE,
                RenameFlags::WHITEOUT,
                RenameFlags::NOREPLACE | RenameFlags::WHITEOUT,
                RenameFlags::EXCHANGE | RenameFlags::WHITEOUT,
            ];
            What::Rename { from: path(rng), to: path(rng), flags: flags[rng.index(7)] }
        }
        37 | 38 => What::Unlink { path: path(rng) },
        39 => What::RemoveFolder { path: path(rng) },
        40 | 41 => What::Mode { path: path(rng), mode: mode(rng) },
        42 => {
            let id = |rng: &mut Rng| [None, Some(0), Some(1000), Some(2000)][rng.index(4)];
            let (uid, gid) = (id(rng), id(rng));
            // Who may ask for no new owner at all is not checked by FUSE in Linux; it then does nothing.
            let uid = if is_user && gid.is_none() { uid.or(Some(1000)) } else { uid };
            What::Owner { path: path(rng), uid, gid }
        }
        43 => What::Times { path: path(rng), seconds: (rng.below(3) > 0).then(|| rng.below(1 << 29) as i64) },
        44 => What::SetXattr {
            path: path(rng),
            name: ["user.a", "user.b", "trusted.a", "security.a", "nothing.a"][rng.index(5)],
            value: vec![rng.next() as u8; rng.index(200)],
            flags: [XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE][rng.index(3)],
        },
        45 => What::RemoveXattr {
            path: path(rng),
            name: ["user.a", "trusted.a", ACLS[0], ACLS[1]][rng.index(4)],
        },
        _ => What::SetXattr {
            path: path(rng),
            name: ACLS[rng.index(2)],
            value: access_list(rng),
            flags: XattrFlags::empty(),
        },
    };
    Op { is_user, what }
}

fn mode_of(mode: u32) -> Mode {
    Mode::from_raw_mode(mode)
}

/// What `stat` tells, as far as file systems agree.
pub fn stat_text(stat: &rustix::fs::Stat) -> String {
    let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let size = if is_folder { 0 } else { stat.st_size };
    format!(
        "mode {:o} links {} owner {}:{} size {size} device {}",
        stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_gid, stat.st_rdev
    )
}

fn done(result: rustix::io::Result<()>) -> Seen {
    result.map(|()| String::new())
}

impl Tree {
    pub fn new(at: &Path) -> Tree {
        std::fs::create_dir(at).unwrap();
        let folder = File::open(at).unwrap();
        rustix::fs::fchmod(&folder, mode_of(0o777)).unwrap();
        Tree { at: at.to_owned(), folder, slots: [const { None }; SLOTS] }
    }

    fn slot(&self, slot: usize) -> Result<&File, Errno> {
        self.slots[slot].as_ref().ok_or(Errno::BADF)
    }

    /// Carries out an operation.
    pub fn run(&mut self, op: &Op) -> Seen {
        let id = if op.is_user { 1000 } else { 0 };
        // SAFETY: they change what this thread may do in file systems, and nothing else.
        #[expect(unsafe_code, reason = "in no safe interface")]
        let set = |id| unsafe { (libc::setfsgid(id), libc::setfsuid(id)) };
        set(id);
        let seen = self.run_here(&op.what);
        set(0);
        seen
    }

    fn run_here(&mut self, what: &What) -> Seen {
        use rustix::fs as sys;
        let at = self.folder.as_fd();
        match what {
            What::Open { slot, path, flags, mode } => {
                let opened = sys::openat(at, path, *flags, mode_of(*mode))?;
                self.slots[*slot] = Some(opened.into());
                Ok(String::new())
            }
            What::Unnamed { slot, path } => {
                let opened = sys::openat(at, path, OFlags::TMPFILE | OFlags::RDWR, mode_of(0o640))?;
                self.slots[*slot] = Some(opened.into());
                Ok(String::new())
            }
            What::LinkUnnamed { slot, path } => {
                done(sys::linkat(self.slot(*slot)?, "", at, path, AtFlags::EMPTY_PATH))
            }
            What::Close { slot } => {
                self.slots[*slot] = None;
                Ok(String::new())
            }
            What::Write { slot, offset, len, byte } => {
                let (file, bytes) = (self.slot(*slot)?, vec![*byte; *len]);
                let written = match offset {
                    Some(offset) => rustix::io::pwrite(file, &bytes, *offset)?,
                    None => rustix::io::write(file, &bytes)?,
                };
                Ok(written.to_string())
            }
            What::Read { slot, offset, len } => {
                let mut bytes = vec![0; *len];
                let read = rustix::io::pread(self.slot(*slot)?, &mut bytes, *offset)?;
                Ok(runs(&bytes[..read]))
            }
            What::Truncate { slot, size } => done(sys::ftruncate(self.slot(*slot)?, *size)),
            What::Allocate { slot, flags, offset, len } => {
                done(sys::fallocate(self.slot(*slot)?, *flags, *offset, *len))
            }
            What::Copy { from, to, len } => {
                let (source, target) = (self.slot(from.0)?, self.slot(to.0)?);
                let (mut start, mut end) = (from.1, to.1);
                let copied = sys::copy_file_range(source, Some(&mut start), target, Some(&mut end), *len)?;
                Ok(copied.to_string())
            }
            What::Sync { slot } => done(sys::fsync(self.slot(*slot)?)),
            What::StatOpen { slot } => Ok(stat_text(&sys::fstat(self.slot(*slot)?)?)),
            What::Stat { path } => Ok(stat_text(&sys::statat(at, path, AtFlags::SYMLINK_NOFOLLOW)?)),
            What::List { path } => {
                let folder = sys::openat(at, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
                let mut names: Vec<String> = sys::Dir::new(folder)?
                    .map(|entry| entry.map(|of| format!("{:?} {:?}", of.file_name(), of.file_type())))
                    .collect::<Result<_, _>>()?;
                names.sort();
                Ok(names.join(", "))
            }
            What::MakeFolder { path, mode } => done(sys::mkdirat(at, path, mode_of(*mode))),
            What::MakeNode { path, kind, mode } => {
                let kinds =
                    [FileType::Fifo, FileType::Socket, FileType::CharacterDevice, FileType::RegularFile];
                let kind = kinds[*kind as usize];
                let device = if kind == FileType::CharacterDevice { sys::makedev(1, 3) } else { 0 };
                done(sys::mknodat(at, path, kind, mode_of(*mode), device))
            }
            What::Symlink { target, path } => done(sys::symlinkat(target, at, path)),
            What::ReadLink { path } => Ok(format!("{:?}", sys::readlinkat(at, path, Vec::new())?)),
            What::Link { from, to, follows } => {
                let flags = if *follows { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
                done(sys::linkat(at, from, at, to, flags))
            }
            What::Rename { from, to, flags } => done(sys::renameat_with(at, from, at, to, *flags)),
            What::Unlink { path } => done(sys::unlinkat(at, path, AtFlags::empty())),
            What::RemoveFolder { path } => done(sys::unlinkat(at, path, AtFlags::REMOVEDIR)),
            What::Mode { path, mode } => done(sys::chmodat(at, path, mode_of(*mode), AtFlags::empty())),
            What::Owner { path, uid, gid } => {
                let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                done(sys::chownat(at, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW))
            }
            What::Times { path, seconds } => {
                let time = match seconds {
                    Some(seconds) => Timespec { tv_sec: *seconds, tv_nsec: 123_456_789 },
                    None => Timespec { tv_sec: 0, tv_nsec: sys::UTIME_NOW },
                };
                let times = Timestamps { last_access: time, last_modification: time };
                done(sys::utimensat(at, path, &times, AtFlags::SYMLINK_NOFOLLOW))
            }
            What::SetXattr { path, name, value, flags } => {
                done(sys::lsetxattr(self.at.join(path), *name, value, *flags))
            }
            What::RemoveXattr { path, name } => done(sys::lremovexattr(self.at.join(path), *name)),
        }
    }
}

/// Bytes as runs of the same value.
pub fn runs(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|one, two| one == two);
    runs.map(|run| format!("{}x{:02x}", run.len(), run[0])).collect::<Vec<_>>().join(" ")
}
