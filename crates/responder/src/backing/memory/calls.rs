//! The calls of a directory in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use fastness_sync::lock;

use super::tree::{Change, ROOT};
use super::{Call, Edit, MemoryBacking, Verdict};
use crate::backing::{
    Attributes, Backing, BackingFile, BackingNode, DirectoryId, FileId, Mark, Named, Renaming, Stat,
};

/// Something that is open or held.
#[derive(Debug)]
pub(super) struct MemoryNode {
    pub(super) backing: MemoryBacking,
    pub(super) serial: u64,
}

impl Drop for MemoryNode {
    fn drop(&mut self) {
        let mut state = lock(&self.backing.state);
        if let Some(count) = state.held.get_mut(&self.serial) {
            *count = count.saturating_sub(1);
        }
        state.forget_unnamed();
    }
}

impl Backing for MemoryBacking {
    fn directory(&self) -> io::Result<DirectoryId> {
        Ok(DirectoryId { device: 1, id: FileId { inode: 1, generation: 1 } })
    }

    fn mark(&self) -> io::Result<Option<Mark>> {
        self.call(Call::Read, |state| Ok(state.mark))
    }

    fn set_mark(&self, mark: Option<Mark>) -> io::Result<()> {
        self.call(Call::Names, |state| {
            state.mark = mark;
            Ok(())
        })
    }

    fn open(&self, path: &Path, create: Option<u32>) -> io::Result<(Arc<dyn BackingFile>, bool)> {
        let found = lock(&self.state).now.serial(path);
        let (serial, created) = match (found, create) {
            (Ok(serial), _) => (serial, false),
            (Err(error), None) => return Err(error),
            (Err(_), Some(mode)) => {
                (self.call(Call::Names, |state| state.make(path, 0o100_000 | mode & 0o7777))?, true)
            }
        };
        Ok((self.hold(&mut lock(&self.state), serial), created))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let state = lock(&self.state);
        Ok(state.stat(state.now.serial(path)?))
    }

    fn node(&self, path: &Path, _follows: bool) -> io::Result<Arc<dyn BackingNode>> {
        let mut state = lock(&self.state);
        let serial = state.now.serial(path)?;
        Ok(self.hold(&mut state, serial))
    }

    fn find(&self, files: &BTreeSet<FileId>) -> io::Result<BTreeMap<FileId, Arc<dyn BackingFile>>> {
        self.call(Call::Read, |state| {
            let mut serials = Vec::new();
            state.visit(ROOT, Path::new(""), &mut |_, _, serial| serials.push(serial));
            let mut found: BTreeMap<FileId, Arc<dyn BackingFile>> = BTreeMap::new();
            serials.retain(|serial| state.contents.contains_key(serial));
            for serial in serials {
                let id = state.stat(serial).id;
                if files.contains(&id) && !found.contains_key(&id) {
                    found.insert(id, self.hold(state, serial));
                }
            }
            Ok(found)
        })
    }

    fn search(&self, visit: &mut dyn FnMut(Named<'_>)) -> io::Result<()> {
        self.call(Call::Read, |state| {
            let mut see = |path: &Path, parent: u64, serial: u64| {
                let (parent, found) = (state.now.attributes(parent).id, state.now.attributes(serial));
                let name = path.file_name().expect("it has a name");
                visit(Named { parent, name, id: found.id, is_directory: found.is_directory() });
            };
            state.visit(ROOT, Path::new(""), &mut see);
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(Call::Names, |state| {
            let (at, serial) = state.named(path)?;
            if state.now.attributes(serial).is_directory() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            state.change(Change::Remove { at, serial }, io::ErrorKind::NotFound)
        })
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.call(Call::Names, |state| {
            let (at, serial) = state.named(path)?;
            if !state.now.attributes(serial).is_directory() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            state.change(Change::Remove { at, serial }, io::ErrorKind::DirectoryNotEmpty)
        })
    }

    fn rename(&self, from: &Path, to: &Path, how: Renaming) -> io::Result<()> {
        self.call(Call::Names, |state| {
            let ((from, serial), to) = (state.named(from)?, state.now.place(to)?);
            let other = state.now.at(&to);
            match (other, how) {
                (Some(other), Renaming::Replace) if other == serial => return Ok(()),
                (Some(_), Renaming::Keep) => return Err(io::ErrorKind::AlreadyExists.into()),
                (None, Renaming::Exchange) => return Err(io::ErrorKind::NotFound.into()),
                _ => {}
            }
            let is_directory = |serial: u64| state.now.attributes(serial).is_directory();
            if how == Renaming::Replace
                && other.is_some_and(|other| is_directory(other) != is_directory(serial))
            {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            let change = Change::Rename { from, to, serial, other, how };
            state.change(change, io::ErrorKind::DirectoryNotEmpty)
        })
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(Call::Names, |state| {
            let (serial, at) = (state.now.serial(from)?, state.now.place(to)?);
            if state.now.attributes(serial).is_directory() {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            state.change(Change::Link { at, serial }, io::ErrorKind::AlreadyExists)
        })
    }

    fn make(&self, path: &Path, like: &Attributes) -> io::Result<()> {
        self.call(Call::Names, |state| state.make(path, like.mode).map(drop))
    }

    fn set_attributes(&self, path: &Path, like: &Attributes) -> io::Result<()> {
        self.call(Call::Names, |state| {
            let serial = state.now.serial(path)?;
            if let Some(content) = state.contents.get_mut(&serial) {
                content.modified_ns = like.modified_ns;
            }
            let Attributes { id, links, .. } = state.now.attributes(serial);
            let attributes = Attributes { id, links, ..like.clone() };
            state.change(Change::Attributes { serial, attributes }, io::ErrorKind::NotFound)
        })
    }

    fn sync_all(&self) -> io::Result<()> {
        self.call(Call::SyncNames, |state| {
            state.sync_all();
            Ok(())
        })
    }
}

impl BackingNode for MemoryNode {
    fn id(&self) -> io::Result<FileId> {
        Ok(BackingFile::stat(self)?.id)
    }

    fn attributes(&self) -> io::Result<Attributes> {
        let state = lock(&self.backing.state);
        let modified_ns = state.contents.get(&self.serial).map_or(0, |content| content.modified_ns);
        Ok(Attributes { modified_ns, ..state.now.attributes(self.serial) })
    }

    fn target(&self) -> io::Result<Vec<u8>> {
        Ok(lock(&self.backing.state).now.attributes(self.serial).target)
    }

    fn sync(&self) -> io::Result<bool> {
        self.backing.call(Call::SyncNames, |state| {
            state.sync_of(self.serial);
            Ok(true)
        })
    }
}

impl MemoryNode {
    fn edit(&self, verdict: Verdict, call: Call, edit: Edit) -> io::Result<()> {
        self.backing.call_as(verdict, call, |state| {
            let time_ns = state.time_ns;
            let content = state.contents.get_mut(&self.serial).expect("open files stay");
            if time_ns > 0 {
                (content.modified_ns, content.changed_ns) = (time_ns, content.changed_ns.max(time_ns) + 1);
            }
            edit.apply(&mut content.now);
            content.pending.push(edit);
            Ok(())
        })
    }
}

impl BackingFile for MemoryNode {
    fn stat(&self) -> io::Result<Stat> {
        Ok(lock(&self.backing.state).stat(self.serial))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.backing.call(Call::Read, |state| {
            let content = &state.contents[&self.serial].now;
            let start = content.len().min(offset as usize);
            let len = buffer.len().min(content.len() - start);
            buffer[..len].copy_from_slice(&content[start..start + len]);
            Ok(len)
        })
    }

    fn write_some(&self, offset: u64, data: &[u8]) -> io::Result<usize> {
        let size = BackingFile::stat(self)?.size;
        let grows = (offset + data.len() as u64).saturating_sub(size);
        let call = Call::Write { len: data.len(), grows };
        let verdict = self.backing.verdict(call);
        let fits = match verdict {
            Verdict::DoSome(len) => len.min(data.len()),
            _ => data.len(),
        };
        if fits == 0 && !data.is_empty() {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()));
        }
        self.edit(verdict, call, Edit::Write(offset, data[..fits].to_vec()))?;
        Ok(fits)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        let verdict = self.backing.verdict(Call::Truncate);
        self.edit(verdict, Call::Truncate, Edit::Truncate(size))
    }

    fn set_modified(&self, modified_ns: u64) -> io::Result<()> {
        let mut state = lock(&self.backing.state);
        let content = state.contents.get_mut(&self.serial).expect("open files stay");
        (content.modified_ns, content.changed_ns) = (modified_ns, content.changed_ns + 1);
        Ok(())
    }

    /// A sync that fails forgets what was written, as page caches do: the next one says that all is well, and
    /// does not make it durable. What has to be durable must be written again.
    fn sync(&self) -> io::Result<()> {
        let synced = self.backing.call(Call::Sync, |state| {
            let content = state.contents.get_mut(&self.serial).expect("open files stay");
            for edit in content.pending.drain(..) {
                edit.apply(&mut content.durable);
            }
            Ok(())
        });
        if synced.is_err() {
            let mut state = lock(&self.backing.state);
            let content = state.contents.get_mut(&self.serial).expect("open files stay");
            content.pending.retain(|edit| matches!(edit, Edit::Truncate(_)));
        }
        synced
    }
}
