//! The operations of the kernel, on the directory.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fastness_fuse::{
    Attr, Caller, Entry, Errno, Files, Listing, MountOptions, Name, NewNode, Open, Opened, Reply, Session,
    SessionOptions, SetAttr, Space, Time, WriteFlags, mount,
};
use fastness_responder::{FileId, Stat};
use rustix::fs::{OFlags, SeekFrom, StatVfsMountFlags};

use crate::contents::{Contents, Writing};
use crate::descriptors::{Descriptors, Opening};
use crate::error::FrontError;
use crate::handles::{Handles, OpenDirectory};
use crate::nodes::{Node, Nodes, errno, is_own};
use crate::owners::Owners;

/// In the number of an open directory: the kernel asks for the sync of either.
pub(crate) const DIRECTORY: u64 = 1 << 63;

/// An open file, with its node.
#[derive(Debug)]
pub(crate) struct OpenFile<F> {
    pub(crate) node: Arc<Node>,
    pub(crate) file: F,
    _opening: Opening,
}

/// A directory that is served: every operation is the same one there, but for the contents of files.
#[derive(Debug)]
pub struct PassThrough<C: Contents> {
    pub(crate) contents: C,
    pub(crate) nodes: Nodes,
    pub(crate) files: Handles<OpenFile<C::File>>,
    pub(crate) directories: Handles<OpenDirectory>,
    pub(crate) owners: Owners,
    pub(crate) descriptors: Arc<Descriptors>,
}

/// Serves `root` at `mount_point`, as root does that or an ordinary user: with the restrictions that its file
/// system is mounted with. The caller ends the session by unmounting it.
///
/// # Errors
/// [`FrontError`]; nothing is mounted.
pub fn serve<C: Contents>(
    contents: C,
    root: File,
    mount_point: &Path,
    source: String,
) -> Result<(Session, Arc<PassThrough<C>>), FrontError> {
    serve_with(contents, root, mount_point, source, Arc::new(Descriptors::raised()?))
}

/// As [`serve`], with the descriptors that there are.
pub(crate) fn serve_with<C: Contents>(
    contents: C,
    root: File,
    mount_point: &Path,
    source: String,
    descriptors: Arc<Descriptors>,
) -> Result<(Session, Arc<PassThrough<C>>), FrontError> {
    let flags =
        rustix::fs::fstatvfs(&root).map_err(|error| FrontError::io("look at", mount_point, error))?.f_flag;
    let options = MountOptions {
        source,
        is_read_only: flags.contains(StatVfsMountFlags::RDONLY),
        no_set_id: flags.contains(StatVfsMountFlags::NOSUID),
        no_devices: flags.contains(StatVfsMountFlags::NODEV),
        no_exec: flags.contains(StatVfsMountFlags::NOEXEC),
        // Reads change no time: what is in PM is not read from the directory.
        no_access_time: true,
        allows_others: false,
    };
    let nodes = Nodes::new(root, descriptors.clone())
        .map_err(|error| FrontError::io("look at", mount_point, error))?;
    let (files, directories) = (Handles::default(), Handles::default());
    let owners = Owners::new();
    let server = Arc::new(PassThrough { contents, nodes, files, directories, owners, descriptors });
    let device = mount(mount_point, &options).map_err(FrontError::Mount)?;
    let usual = SessionOptions::default();
    let threads_max = server.descriptors.threads_max(usual.threads_max);
    let threads_idle = usual.threads_idle.min(threads_max);
    let options = SessionOptions { threads_max, threads_idle, ..usual };
    let session = Session::start(device, server.clone(), options).map_err(|error| {
        // Nothing serves it: a process that looked at it would fail.
        let _ = fastness_fuse::unmount(mount_point, fastness_fuse::Unmount::Force);
        FrontError::Session(error)
    })?;
    Ok((session, server))
}

/// Tells files apart that have had the same number, one after the other. The kernel has 32 bits for it.
fn generation(id: FileId) -> u64 {
    let folded = (id.generation ^ id.generation >> 32) as u32;
    u64::from(folded.max(1))
}

fn time(seconds: i64, nanoseconds: i64) -> Time {
    Time { seconds, nanoseconds: nanoseconds as u32 }
}

impl<C: Contents> PassThrough<C> {
    /// Attributes of a file of which the directory says `metadata`.
    pub(crate) fn attr(&self, node: &Node, metadata: &Metadata) -> Attr {
        let stat = Stat::from(metadata);
        let again = || Ok(Stat::from(&node.metadata()?));
        let now = if metadata.is_file() { self.contents.current(stat, again) } else { stat };
        // As the directory says, which may be before 1970, unless the contents say something else.
        let shown = |now_ns: u64, said_ns: u64, said: Time| match now_ns == said_ns {
            true => said,
            false => time((now_ns / 1_000_000_000) as i64, (now_ns % 1_000_000_000) as i64),
        };
        let (mtime, ctime) = (
            shown(now.modified_ns, stat.modified_ns, time(metadata.mtime(), metadata.mtime_nsec())),
            shown(now.changed_ns, stat.changed_ns, time(metadata.ctime(), metadata.ctime_nsec())),
        );
        let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        let is_device = metadata.file_type().is_block_device() || metadata.file_type().is_char_device();
        Attr {
            node: self.nodes.number(metadata.ino()),
            size_bytes: now.size,
            blocks: metadata.blocks(),
            block_bytes: metadata.blksize() as u32,
            mode: metadata.mode(),
            links: metadata.nlink() as u32,
            uid: metadata.uid(),
            gid: self.owners.group(metadata),
            rdev: if is_device { metadata.rdev() as u32 } else { 0 },
            atime: time(metadata.atime(), metadata.atime_nsec()),
            mtime,
            ctime,
            btime: born.map(|born| time(born.as_secs() as i64, i64::from(born.subsec_nanos()))),
        }
    }

    pub(crate) fn entry(&self, node: &Node, metadata: &Metadata) -> Entry {
        let id = Stat::from(metadata).id;
        let attr_valid = self.contents.attributes_valid(id);
        let attr = self.attr(node, metadata);
        Entry { attr, generation: generation(id), name_valid: C::NAME_VALID, attr_valid }
    }

    /// Attributes as the kernel is told of them.
    pub(crate) fn attributes_of(&self, node: &Node) -> Reply<(Attr, Duration)> {
        let metadata = node.metadata()?;
        // Before the attributes: what changes after that is asked for.
        let valid = self.contents.attributes_valid(Stat::from(&metadata).id);
        Ok((self.attr(node, &metadata), valid))
    }

    /// A name that can be looked for: not that of a file of the cache itself.
    pub(crate) fn name<'a>(&self, parent: u64, name: Name<'a>) -> Reply<&'a OsStr> {
        match is_own(parent, name) {
            true => Err(Errno::NOENT),
            false => Ok(OsStr::from_bytes(name)),
        }
    }

    /// Opens a file of the directory for `opening`.
    pub(crate) fn open_node(&self, node: Arc<Node>, flags: u32, opening: Opening) -> Reply<Opened> {
        let unwanted = OFlags::NOFOLLOW | OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC | OFlags::TMPFILE;
        let flags = OFlags::from_bits_retain(flags) & !unwanted;
        let file = self.nodes.giving_up(|| self.contents.open(&node.path(), flags))?;
        let handle = self.files.add(OpenFile { node, file, _opening: opening });
        Ok(Opened { handle, keeps_cache: self.contents.keeps_pages(), is_direct: false })
    }
}

impl<C: Contents> Files for PassThrough<C> {
    fn lookup(&self, _: Caller<'_>, parent: u64, name: Name<'_>) -> Reply<Entry> {
        let (node, name) = (self.nodes.get(parent)?, self.name(parent, name)?);
        let (found, metadata) = self.nodes.find(parent, &node, name)?;
        Ok(self.entry(&found, &metadata))
    }

    fn attributes(&self, _: Caller<'_>, node: u64, _: Option<u64>) -> Reply<(Attr, Duration)> {
        self.attributes_of(&*self.nodes.get(node)?)
    }

    fn set_attributes(&self, caller: Caller<'_>, node: u64, set: &SetAttr) -> Reply<(Attr, Duration)> {
        let node = self.nodes.get(node)?;
        self.change_attributes(caller, &node, set)?;
        self.attributes_of(&node)
    }

    fn read_link(&self, _: Caller<'_>, node: u64) -> Reply<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&*self.nodes.get(node)?, "", Vec::new())?.into_bytes())
    }

    fn make(&self, caller: Caller<'_>, parent: u64, name: Name<'_>, new: &NewNode<'_>) -> Reply<Entry> {
        self.make_node(caller, parent, name, new)
    }

    fn unlink(&self, _: Caller<'_>, parent: u64, name: Name<'_>) -> Reply<()> {
        let (node, name) = (self.nodes.get(parent)?, self.name(parent, name)?);
        self.taking_a_name(parent, &node, name, || self.contents.unlink(&node.path_of(name)))
    }

    fn remove_directory(&self, _: Caller<'_>, parent: u64, name: Name<'_>) -> Reply<()> {
        let (node, name) = (self.nodes.get(parent)?, self.name(parent, name)?);
        self.taking_a_name(parent, &node, name, || self.contents.remove_directory(&node.path_of(name)))
    }

    fn rename(&self, _: Caller<'_>, from: (u64, Name<'_>), to: (u64, Name<'_>), flags: u32) -> Reply<()> {
        self.rename_node(from, to, flags)
    }

    fn link(&self, _: Caller<'_>, node: u64, parent: u64, name: Name<'_>) -> Reply<Entry> {
        self.link_node(node, parent, name)
    }

    fn open(&self, caller: Caller<'_>, node: u64, flags: u32, clears_set_id: bool) -> Reply<Opened> {
        let node = self.nodes.get(node)?;
        if clears_set_id {
            self.clear_set_id(&node)?;
        }
        let access = OFlags::from_bits_retain(flags) & OFlags::RWMODE;
        if access != OFlags::RDONLY {
            self.note_capabilities(&node);
        }
        self.open_node(node, flags, self.descriptors.open_for(caller)?)
    }

    fn create(
        &self,
        caller: Caller<'_>,
        parent: u64,
        name: Name<'_>,
        new: &NewNode<'_>,
        flags: u32,
    ) -> Reply<(Entry, Opened)> {
        self.create_file(caller, parent, name, new, flags)
    }

    fn create_unnamed(
        &self,
        caller: Caller<'_>,
        parent: u64,
        new: &NewNode<'_>,
        flags: u32,
    ) -> Reply<(Entry, Opened)> {
        self.create_unnamed_file(caller, parent, new, flags)
    }

    fn read(&self, _: Caller<'_>, of: Open, offset: u64, buffer: &mut [u8]) -> Reply<usize> {
        self.contents.read(&self.files.get(of.handle)?.file, offset, buffer)
    }

    fn write(&self, _: Caller<'_>, of: Open, offset: u64, data: &[u8], flags: WriteFlags) -> Reply<usize> {
        let open = self.files.get(of.handle)?;
        if flags.clears_set_id {
            self.clear_set_id(&open.node)?;
        }
        self.clear_capabilities(&open.node)?;
        let of_open = OFlags::from_bits_retain(flags.open);
        let appends = !flags.is_from_cache && of_open.contains(OFlags::APPEND);
        let how = Writing { appends, is_synced: of_open.contains(OFlags::DSYNC) };
        let mut done = self.contents.write(&open.file, offset, data, how)?;
        // Of pages of a mapping nobody writes the rest: the kernel has to hear why they are not written.
        while flags.is_from_cache && done < data.len() {
            match self.contents.write(&open.file, offset + done as u64, &data[done..], how)? {
                0 => return Err(Errno::IO),
                more => done += more,
            }
        }
        Ok(done)
    }

    // Names and attributes are durable when their calls return, and so is every write unless the contents say
    // otherwise: an answer that FSYNC is not needed keeps the kernel from asking. What is in its page cache
    // it writes first nevertheless.

    fn sync(&self, _: Caller<'_>, of: Open, _: bool) -> Reply<()> {
        if of.handle & DIRECTORY != 0 {
            return Err(Errno::NOSYS);
        }
        self.contents.sync(&self.files.get(of.handle)?.file)
    }

    fn sync_all(&self, _: Caller<'_>) -> Reply<()> {
        self.contents.flush_all()
    }

    fn open_directory(&self, caller: Caller<'_>, node: u64) -> Reply<Opened> {
        let (opening, node) = (self.descriptors.open_for(caller)?, self.nodes.get(node)?);
        let file = self.nodes.giving_up(|| File::open(node.path()).map_err(|error| errno(&error)))?;
        let handle = self.directories.add(OpenDirectory::new(file, opening)) | DIRECTORY;
        Ok(Opened { handle, keeps_cache: false, is_direct: false })
    }

    fn list(
        &self,
        _: Caller<'_>,
        file: Open,
        after: u64,
        is_plus: bool,
        listing: &mut dyn Listing,
    ) -> Reply<()> {
        self.list_directory(file, after, is_plus, listing)
    }

    fn space(&self, _: Caller<'_>) -> Reply<Space> {
        let found = rustix::fs::fstatvfs(self.nodes.root())?;
        Ok(Space {
            block_bytes: found.f_frsize as u32,
            blocks: found.f_blocks,
            free_blocks: found.f_bfree,
            available_blocks: found.f_bavail,
            files: found.f_files,
            free_files: found.f_ffree,
        })
    }

    fn set_xattr(
        &self,
        _: Caller<'_>,
        node: u64,
        name: Name<'_>,
        value: &[u8],
        flags: u32,
        clears_set_gid: bool,
    ) -> Reply<()> {
        self.set_attribute(&*self.nodes.get(node)?, name, value, flags, clears_set_gid)
    }

    fn xattr(&self, _: Caller<'_>, node: u64, name: Name<'_>) -> Reply<Vec<u8>> {
        self.attribute(&*self.nodes.get(node)?, name)
    }

    fn xattr_names(&self, caller: Caller<'_>, node: u64) -> Reply<Vec<u8>> {
        self.attribute_names(&*self.nodes.get(node)?, caller)
    }

    fn remove_xattr(&self, _: Caller<'_>, node: u64, name: Name<'_>) -> Reply<()> {
        self.remove_attribute(&*self.nodes.get(node)?, name)
    }

    fn allocate(&self, caller: Caller<'_>, of: Open, offset: u64, len_bytes: u64, mode: u32) -> Reply<()> {
        self.allocate_space(caller, &*self.files.get(of.handle)?, offset, len_bytes, mode)
    }

    fn seek(&self, _: Caller<'_>, of: Open, offset: u64, whence: u32) -> Reply<u64> {
        let open = self.files.get(of.handle)?;
        let to = match whence {
            3 => SeekFrom::Data(offset),
            4 => SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        self.contents.flush(&open.file)?;
        let file = File::open(open.node.path()).map_err(|error| errno(&error))?;
        rustix::fs::seek(file, to)
    }

    fn forget(&self, node: u64, lookups: u64) {
        self.nodes.forget(node, lookups);
    }

    fn release(&self, of: Open) {
        self.files.remove(of.handle);
    }

    fn release_directory(&self, of: Open) {
        self.directories.remove(of.handle & !DIRECTORY);
    }
}
