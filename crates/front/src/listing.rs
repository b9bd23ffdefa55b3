//! Listing a directory.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;

use fastness_fuse::{Listed, Listing, Open, Reply};
use fastness_sync::lock;
use rustix::fs::{RawDir, SeekFrom};

use crate::contents::Contents;
use crate::nodes::is_own;
use crate::server::{DIRECTORY, PassThrough};

/// Names that the directory is asked for at once.
const BUFFER_BYTES: usize = 32 << 10;

impl<C: Contents> PassThrough<C> {
    pub(crate) fn list_directory(
        &self,
        of: Open,
        after: u64,
        is_plus: bool,
        listing: &mut dyn Listing,
    ) -> Reply<()> {
        let (open, node) = (self.directories.get(of.handle & !DIRECTORY)?, self.nodes.get(of.node)?);
        let directory = lock(&open.file);
        rustix::fs::seek(&*directory, SeekFrom::Start(after))?;
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut entries = RawDir::new(&*directory, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if is_own(of.node, name) {
                continue;
            }
            let is_special = name == b"." || name == b"..";
            // One that is gone meanwhile has no attributes, and the kernel looks it up itself.
            let found = match is_plus && !is_special {
                true => self.nodes.find(of.node, &node, OsStr::from_bytes(name)).ok(),
                false => None,
            };
            let attributes = found.map(|(found, metadata)| self.entry(&found, &metadata));
            let number = self.nodes.number(entry.ino());
            let file_type = entry.file_type().as_raw_mode();
            let listed = Listed { node: number, cookie: entry.next_entry_cookie(), file_type, name };
            if !listing.add(&listed, attributes.as_ref()) {
                if let Some(told) = attributes {
                    self.nodes.forget(told.attr.node, 1);
                }
                return Ok(());
            }
        }
        Ok(())
    }
}
