//! What is served: a trait, and the values that go in and out.

use std::time::Duration;

use rustix::io::Errno;

use crate::request::{PutOff, RequestState};

/// Result of an operation: a value, or the number that the program sees.
pub type Reply<T> = Result<T, Errno>;
/// A name: 1 to 255 bytes without NUL, those of files without slashes.
pub type Name<'a> = &'a [u8];

/// Who asks, and whether the answer is still wanted.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// User, for checks of permissions.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process.
    pub pid: u32,
    pub(crate) state: &'a RequestState,
}

impl Caller<'_> {
    /// Whether the program was interrupted by a signal while it waits: an operation that itself waits may
    /// then end with [`Errno::INTR`].
    pub fn is_interrupted(&self) -> bool {
        self.state.is_interrupted()
    }

    /// Whether the operation may wait for something that may take for ever. If not, it is put off instead.
    pub fn may_wait(&self) -> bool {
        self.state.may_wait()
    }

    /// The operation would have to wait, and has done nothing yet. It returns any error, and is carried out
    /// again by a thread where it may wait.
    pub fn put_off(&self) {
        self.state.put_off(PutOff::Whole);
    }

    /// The operation is done but for [`Files::complete`], which would have to wait. It returns its result,
    /// which is answered after that.
    pub fn put_off_the_rest(&self) {
        self.state.put_off(PutOff::Rest);
    }

    /// Whether one of the two was called.
    pub fn is_put_off(&self) -> bool {
        self.state.put_off_now() != PutOff::Nothing
    }
}

/// Seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds after that second.
    pub nanoseconds: u32,
}

/// Attributes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attr {
    /// Its number.
    pub node: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Units of 512 bytes that it takes.
    pub blocks: u64,
    /// What a program should read at once.
    pub block_bytes: u32,
    /// Type and permissions.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change.
    pub ctime: Time,
    /// Creation, if it is known.
    pub btime: Option<Time>,
}

/// A file that was found or created. The kernel then knows it, until a [`Files::forget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Attributes; 0 as the node: there is no such name, and the kernel may remember that.
    pub attr: Attr,
    /// Distinguishes files with the same number.
    pub generation: u64,
    /// How long the name stays valid without asking.
    pub name_valid: Duration,
    /// How long the attributes stay valid without asking.
    pub attr_valid: Duration,
}

/// How an open file is to be treated by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// Given back with every operation on it.
    pub handle: u64,
    /// Pages that the kernel has of the file stay valid.
    pub keeps_cache: bool,
    /// Reads and writes go past the page cache.
    pub is_direct: bool,
}

/// A new time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewTime {
    /// The current one.
    Now,
    /// This one.
    At(Time),
}

/// Attributes to be set; what is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size.
    pub size_bytes: Option<u64>,
    /// Last access.
    pub atime: Option<NewTime>,
    /// Last change of the contents.
    pub mtime: Option<NewTime>,
    /// Last change.
    pub ctime: Option<Time>,
    /// Bits that run a program as another user or group are cleared.
    pub clears_set_id: bool,
    /// The open file, if there is one.
    pub handle: Option<u64>,
}

/// A file to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewNode<'a> {
    /// Type and permissions.
    pub mode: u32,
    /// Permissions to be left out, unless the directory has a default access control list.
    pub umask: u32,
    /// Device number.
    pub rdev: u32,
    /// Target of a symlink.
    pub target: &'a [u8],
}

/// An open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// Its node.
    pub node: u64,
    /// As `open` returned it.
    pub handle: u64,
}

/// How bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteFlags {
    /// Current flags of the open file (`O_SYNC`, ...).
    pub open: u32,
    /// They come from the page cache: of any process that has mapped the file.
    pub is_from_cache: bool,
    /// Bits that run a program as another user or group are cleared.
    pub clears_set_id: bool,
}

/// What `statfs` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Unit of the next three, in bytes.
    pub block_bytes: u32,
    /// All.
    pub blocks: u64,
    /// Free.
    pub free_blocks: u64,
    /// Free for users.
    pub available_blocks: u64,
    /// Files that there could be.
    pub files: u64,
    /// Files that there could still be.
    pub free_files: u64,
}

/// A name of a directory that is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Its node.
    pub node: u64,
    /// Where a listing goes on after this name.
    pub cookie: u64,
    /// As bits of a mode.
    pub file_type: u32,
    /// The name.
    pub name: Name<'a>,
}

/// Takes the names of a directory, until it is full.
pub trait Listing {
    /// Whether the entry fits; if not, it was not taken. With `attributes` the kernel then knows the file,
    /// as after a lookup; without, it does not.
    fn add(&mut self, listed: &Listed<'_>, attributes: Option<&Entry>) -> bool;
}

macro_rules! absent {
    ($($(#[$doc:meta])* fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $reply:ty;)+) => {
        $($(#[$doc])*
        ///
        /// # Errors
        /// As the system call; by default [`Errno::NOSYS`].
        #[allow(unused_variables)]
        fn $name(&self, caller: Caller<'_> $(, $argument: $type)*) -> Reply<$reply> {
            Err(Errno::NOSYS)
        })+
    };
}

/// A file system that is served. Nodes are its own numbers; the root is 1.
///
/// Concurrency: operations come from many threads at once; the kernel keeps changes of one directory, and
/// writes to one file, apart. A panic is answered with EIO, and the mount goes on.
pub trait Files: Send + Sync + 'static {
    absent! {
        /// Finds a name.
        fn lookup(&self, parent: u64, name: Name<'_>) -> Entry;
        /// Attributes of a file.
        fn attributes(&self, node: u64, handle: Option<u64>) -> (Attr, Duration);
        /// Sets attributes. The kernel asks for none of them when `chown` names neither owner nor group, and
        /// before `fallocate` and copies of another user than root: bits that run a program as another user
        /// are then to be cleared, the first time if the caller owns the file. It checks nothing.
        fn set_attributes(&self, node: u64, set: &SetAttr) -> (Attr, Duration);
        /// The target of a symlink.
        fn read_link(&self, node: u64) -> Vec<u8>;
        /// Creates a file of any type.
        fn make(&self, parent: u64, name: Name<'_>, new: &NewNode<'_>) -> Entry;
        /// Removes a name.
        fn unlink(&self, parent: u64, name: Name<'_>) -> ();
        /// Removes an empty directory.
        fn remove_directory(&self, parent: u64, name: Name<'_>) -> ();
        /// Renames a file; `flags` as of `renameat2`.
        fn rename(&self, from: (u64, Name<'_>), to: (u64, Name<'_>), flags: u32) -> ();
        /// Gives a file one more name.
        fn link(&self, node: u64, parent: u64, name: Name<'_>) -> Entry;
        /// Opens a file; `flags` as of `open`, without those that create.
        fn open(&self, node: u64, flags: u32, clears_set_id: bool) -> Opened;
        /// Creates and opens a file.
        fn create(&self, parent: u64, name: Name<'_>, new: &NewNode<'_>, flags: u32) -> (Entry, Opened);
        /// Creates and opens a file without a name.
        fn create_unnamed(&self, parent: u64, new: &NewNode<'_>, flags: u32) -> (Entry, Opened);
        /// Fills `buffer`, and returns how many bytes there were.
        fn read(&self, file: Open, offset: u64, buffer: &mut [u8]) -> usize;
        /// Writes, and returns how many bytes.
        fn write(&self, file: Open, offset: u64, data: &[u8], flags: WriteFlags) -> usize;
        /// Makes a file or directory durable.
        fn sync(&self, file: Open, is_data_alone: bool) -> ();
        /// Makes everything durable.
        fn sync_all(&self) -> ();
        /// Opens a directory.
        fn open_directory(&self, node: u64) -> Opened;
        /// Lists names after a cookie (0: all); `is_plus`: with attributes, except of `.` and `..`.
        fn list(&self, file: Open, after: u64, is_plus: bool, listing: &mut dyn Listing) -> ();
        /// Space.
        fn space(&self) -> Space;
        /// Sets an attribute; `flags` as of `setxattr`.
        fn set_xattr(&self, node: u64, name: Name<'_>, value: &[u8], flags: u32, clears_set_gid: bool) -> ();
        /// The value of an attribute.
        fn xattr(&self, node: u64, name: Name<'_>) -> Vec<u8>;
        /// The names of all attributes, each followed by NUL.
        fn xattr_names(&self, node: u64) -> Vec<u8>;
        /// Removes an attribute.
        fn remove_xattr(&self, node: u64, name: Name<'_>) -> ();
        /// Allocates, punches, zeroes; `mode` as of `fallocate`.
        fn allocate(&self, file: Open, offset: u64, len_bytes: u64, mode: u32) -> ();
        /// Finds data or holes; `whence` as of `lseek`.
        fn seek(&self, file: Open, offset: u64, whence: u32) -> u64;
        /// Copies bytes between files, and returns how many.
        fn copy(&self, from: (Open, u64), to: (Open, u64), len_bytes: u64) -> u64;
        /// Does what is left of an operation that called [`Caller::put_off_the_rest`].
        fn complete(&self) -> ();
    }

    /// The kernel has forgotten `lookups` of the times that it was given a file.
    fn forget(&self, node: u64, lookups: u64);

    /// The last descriptor of an open file was closed.
    fn release(&self, file: Open);

    /// The last descriptor of an open directory was closed.
    fn release_directory(&self, _file: Open) {}

    /// The mount has ended.
    fn ended(&self) {}
}
