//! Dependencies: what has to be there before an operation, as commands.
//!
//! A small model of a file system says what is there. Rules: missing parents are made; a file is opened with
//! O_CREAT, and stays open; it gets 4096 bytes before it is allocated in, cut, or written over; it is closed
//! before its name goes or changes; a name in use is freed before a link, a new file or a new directory takes
//! it; a directory is emptied before it goes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Amount, Operation};
use crate::jlang::{Command, FallocFlags, OpenFlags, Path};

const DATA_BYTES: u64 = 4096;
const MODE: u32 = 0o777;

/// What is there, and the commands that made it so.
#[derive(Default)]
pub(super) struct Resolver {
    entries: BTreeMap<Path, Entry>,
    /// Sizes in bytes, by the number in [`Entry::File`]: names may share one.
    sizes: Vec<u64>,
    open: BTreeSet<Path>,
    commands: Vec<Command>,
    /// Operations that cannot succeed.
    pub(super) fails: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Entry {
    Directory,
    File(usize),
}

impl Resolver {
    /// Puts what `operation` needs, a mark if it is the `last` one, and the operation itself.
    pub(super) fn resolve(&mut self, operation: &Operation, last: bool) {
        self.prepare(operation);
        if last {
            self.commands.push(Command::Mark);
        }
        let (command, succeeds) = self.apply(operation);
        self.commands.push(command);
        self.fails += usize::from(!succeeds);
        if last {
            self.commands.push(Command::Checkpoint(1));
        }
    }

    /// Closes what is open; all commands.
    pub(super) fn finish(mut self) -> Vec<Command> {
        let open = std::mem::take(&mut self.open);
        self.commands.extend(open.into_iter().map(|file| Command::Close { file }));
        self.commands
    }

    fn prepare(&mut self, operation: &Operation) {
        match operation {
            Operation::Creat { file } => {
                self.parents(file);
                self.free(file);
            }
            Operation::Mkdir { directory } => {
                self.parents(directory);
                if self.entries.contains_key(directory) {
                    self.empty(directory);
                    self.entries.remove(directory);
                    self.commands.push(Command::Rmdir { directory: directory.clone() });
                }
            }
            Operation::Dwrite { file, amount: Amount::Append } => self.opened(file),
            Operation::Falloc { file, .. }
            | Operation::Dwrite { file, .. }
            | Operation::Truncate { file, .. } => {
                self.opened(file);
                self.filled(file);
            }
            Operation::Link { file, name } => {
                self.parents(name);
                self.exists(file);
                self.free(name);
            }
            Operation::Unlink { file } | Operation::Remove { file } => {
                self.exists(file);
                self.closed(file);
            }
            Operation::Rename { from, to } if is_directory(from) => {
                self.parents(to);
                self.directory(from);
                self.close_below(from);
            }
            Operation::Rename { from, to } => {
                self.parents(to);
                self.exists(from);
                self.closed(from);
                self.closed(to);
            }
            Operation::Rmdir { directory } => {
                self.directory(directory);
                self.empty(directory);
            }
        }
    }

    /// The operation as a command, and whether it succeeds.
    fn apply(&mut self, operation: &Operation) -> (Command, bool) {
        match operation.clone() {
            Operation::Creat { file } => (self.create(file), true),
            Operation::Mkdir { directory } => (self.make(directory), true),
            Operation::Falloc { file, amount } => {
                let (offset, len) = amount.range(self.size(&file));
                (Command::Falloc { file, flags: FallocFlags::KEEP_SIZE, offset, len }, true)
            }
            Operation::Dwrite { file, amount } => {
                let (offset, len) = amount.range(self.size(&file));
                self.grow(&file, offset + len);
                (Command::Dwrite { file, offset, len }, true)
            }
            Operation::Link { file, name } => {
                self.entries.insert(name.clone(), self.entries[&file]);
                (Command::Link { file, name }, true)
            }
            Operation::Unlink { file } => {
                self.entries.remove(&file);
                (Command::Unlink { file }, true)
            }
            Operation::Remove { file } => {
                self.entries.remove(&file);
                (Command::Remove { file }, true)
            }
            Operation::Rename { from, to } => {
                let succeeds = self.rename(&from, &to);
                (Command::Rename { from, to }, succeeds)
            }
            Operation::Truncate { file, len } => {
                if let Some(Entry::File(number)) = self.entries.get(&file) {
                    self.sizes[*number] = len;
                }
                (Command::Truncate { file, len }, true)
            }
            Operation::Rmdir { directory } => {
                self.entries.remove(&directory);
                (Command::Rmdir { directory }, true)
            }
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> bool {
        // Two names of one file: nothing happens.
        if self.entries.get(from) == self.entries.get(to) && !is_directory(from) {
            return true;
        }
        let in_use = self.entries.keys().any(|path| path.is_below(to));
        if is_directory(from) && (to.is_below(from) || in_use) {
            return false;
        }
        let moves = |path: &Path| path == from || path.is_below(from);
        let moved: Vec<_> =
            self.entries.iter().filter(|(path, _)| moves(path)).map(|(p, e)| (p.clone(), *e)).collect();
        for (path, entry) in moved {
            self.entries.remove(&path);
            self.entries.insert(path.moved(from, to), entry);
        }
        true
    }

    /// Its parents are there.
    fn parents(&mut self, path: &Path) {
        if let Some(parent) = path.parent() {
            self.directory(&parent);
        }
    }

    fn directory(&mut self, directory: &Path) {
        self.parents(directory);
        if !self.entries.contains_key(directory) {
            let command = self.make(directory.clone());
            self.commands.push(command);
        }
    }

    fn make(&mut self, directory: Path) -> Command {
        self.entries.insert(directory.clone(), Entry::Directory);
        Command::Mkdir { directory, mode: MODE }
    }

    /// The file is there and open, perhaps made for that.
    fn opened(&mut self, file: &Path) {
        self.parents(file);
        if !self.open.contains(file) {
            let command = self.create(file.clone());
            self.commands.push(command);
        }
    }

    fn exists(&mut self, file: &Path) {
        if !self.entries.contains_key(file) {
            self.opened(file);
        }
    }

    /// Opens a file with O_CREAT.
    fn create(&mut self, file: Path) -> Command {
        if !self.entries.contains_key(&file) {
            self.entries.insert(file.clone(), Entry::File(self.sizes.len()));
            self.sizes.push(0);
        }
        self.open.insert(file.clone());
        Command::Open { file, flags: OpenFlags::RDWR.with(OpenFlags::CREAT), mode: MODE }
    }

    /// The open file has data.
    fn filled(&mut self, file: &Path) {
        if self.size(file) == 0 {
            self.commands.push(Command::Write { file: file.clone(), offset: 0, len: DATA_BYTES });
            self.grow(file, DATA_BYTES);
        }
    }

    fn size(&self, file: &Path) -> u64 {
        match self.entries.get(file) {
            Some(Entry::File(number)) => self.sizes[*number],
            _ => 0,
        }
    }

    fn grow(&mut self, file: &Path, end: u64) {
        if let Some(Entry::File(number)) = self.entries.get(file) {
            self.sizes[*number] = self.sizes[*number].max(end);
        }
    }

    fn closed(&mut self, file: &Path) {
        if self.open.remove(file) {
            self.commands.push(Command::Close { file: file.clone() });
        }
    }

    /// The name is not in use.
    fn free(&mut self, file: &Path) {
        if self.entries.contains_key(file) {
            self.closed(file);
            self.entries.remove(file);
            self.commands.push(Command::Unlink { file: file.clone() });
        }
    }

    fn below(&self, directory: &Path) -> Vec<Path> {
        self.entries.keys().filter(|path| path.is_below(directory)).cloned().collect()
    }

    fn close_below(&mut self, directory: &Path) {
        for path in self.below(directory) {
            self.closed(&path);
        }
    }

    fn empty(&mut self, directory: &Path) {
        // The deepest first: a directory sorts before what it has.
        for path in self.below(directory).into_iter().rev() {
            if self.entries[&path] == Entry::Directory {
                self.entries.remove(&path);
                self.commands.push(Command::Rmdir { directory: path });
            } else {
                self.free(&path);
            }
        }
    }
}

/// Is this a name of directories?
fn is_directory(path: &Path) -> bool {
    matches!(path.as_str(), "A" | "B" | "A/C")
}
