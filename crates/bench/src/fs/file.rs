//! A file to write to.

use fastness_store::{Property, Store};
use fastness_zpl::{FileSystem, FileSystemOptions, Ino, NewFile, WriteHow, mode};

use crate::error::Result;
use crate::sync_write::stack::BLOCK_BYTES;

pub(super) fn new_file(permissions: u32) -> NewFile<'static> {
    NewFile { mode: mode::FILE | permissions, ..NewFile::default() }
}

/// The only file of a new file system with records of 4 KiB.
pub(crate) struct OneFile {
    pub(super) fs: FileSystem,
    ino: Ino,
}

impl OneFile {
    /// In a new file system `bench/name`.
    pub(crate) fn new(store: &Store, name: &str) -> Result<OneFile> {
        let properties = vec![(Property::RecordSize, BLOCK_BYTES)];
        let options = FileSystemOptions { properties, ..Default::default() };
        let fs = FileSystem::create(store, &format!("bench/{name}"), &options)?;
        let ino = fs.make(Ino::ROOT, b"file", &new_file(0o600))?.ino;
        Ok(OneFile { fs, ino })
    }

    pub(crate) fn write(&self, at: u64, data: &[u8], how: WriteHow) -> Result<()> {
        self.fs.write(self.ino, at, data, how)?;
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<()> {
        Ok(self.fs.sync_file(self.ino, false)?)
    }
}
