//! Contents of memory or disks: thousands of images that hardly differ.
//!
//! Motivation: every failure point of a trace has images that differ from each other in a few lines, and a
//! test has to know which of them it has seen. Copies of hundreds of MiB, and hashes over them, would be most
//! of its work.
//!
//! Design: a tree of pages, which are not changed while they are shared. A clone shares everything; a write
//! copies the page that it changes, and the nodes above it. Each node remembers its hash (BLAKE3) until
//! it is changed, so the hash of an image costs what was changed since the last one. Zeroes take no memory.
//!
//! Performance: of a change of one line, three nodes and a page are copied and hashed for an image of up to 1
//! GiB.
//!
//! Source: PM file systems dissertation, 9.2 (memory images).

mod differ;
mod node;

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

pub use node::PAGE_BYTES;
use node::{Inner, Node, WIDTH};

/// Tells images apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageHash(pub [u8; 32]);

impl std::fmt::Display for ImageHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for ImageHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ImageHash(")?;
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, ")")
    }
}

/// Contents of a fixed length. Clones share what neither changes.
#[derive(Debug, Clone)]
pub struct Image {
    len_bytes: u64,
    /// Levels of inner nodes above the pages; at least one.
    height: u32,
    root: Option<Node>,
}

impl Image {
    /// Zeroes.
    pub fn zeroed(len_bytes: u64) -> Image {
        let mut height = 1;
        while pages_below(height).saturating_mul(PAGE_BYTES as u64) < len_bytes {
            height += 1;
        }
        Image { len_bytes, height, root: None }
    }

    /// Writes the contents of a file, up to its end and at most `len_bytes`, at `offset`, over zeroes.
    ///
    /// # Errors
    /// Those of the file.
    ///
    /// # Panics
    /// Caller bug only: not inside of the image.
    pub fn read_into(&mut self, offset: u64, mut file: impl Read, len_bytes: u64) -> io::Result<()> {
        self.check(offset, len_bytes as usize);
        let mut page = Vec::with_capacity(PAGE_BYTES);
        let mut at = 0;
        while at < len_bytes {
            page.clear();
            let wanted = (len_bytes - at).min(PAGE_BYTES as u64);
            let filled = file.by_ref().take(wanted).read_to_end(&mut page)? as u64;
            // Zeroes over zeroes would only take memory.
            if page.iter().any(|byte| *byte != 0) {
                self.write(offset + at, &page);
            }
            if filled < wanted {
                break;
            }
            at += filled;
        }
        Ok(())
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Fills `buffer` from `offset` on.
    ///
    /// # Panics
    /// Caller bug only: not inside of the image.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        self.check(offset, buffer.len());
        let mut done = 0;
        for (page, within) in parts(offset, buffer.len()) {
            let part = &mut buffer[done..done + within.len()];
            match self.page(page) {
                Some(bytes) => part.copy_from_slice(&bytes[within.clone()]),
                None => part.fill(0),
            }
            done += within.len();
        }
    }

    /// Puts `data` at `offset`; clones keep what they had.
    ///
    /// # Panics
    /// Caller bug only: not inside of the image.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        self.check(offset, data.len());
        let mut done = 0;
        for (page, within) in parts(offset, data.len()) {
            let part = &data[done..done + within.len()];
            done += within.len();
            self.page_mut(page)[within].copy_from_slice(part);
        }
    }

    /// Its hash: the same for the same contents and length, however they came about.
    pub fn hash(&self) -> ImageHash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.len_bytes.to_le_bytes());
        if let Some(root) = self.root.as_ref().and_then(Node::hash) {
            hasher.update(&root);
        }
        ImageHash(*hasher.finalize().as_bytes())
    }

    /// Ranges of whole units of `unit_bytes` in which two images differ, in order; neighbours are one range.
    /// Costs what is not shared.
    ///
    /// # Panics
    /// Caller bug only: their lengths differ, or a unit is no power of two of at most a page.
    pub fn differences(&self, other: &Image, unit_bytes: usize) -> Vec<Range<u64>> {
        assert_eq!(self.len_bytes, other.len_bytes, "images of one thing");
        assert!(unit_bytes.is_power_of_two() && unit_bytes <= PAGE_BYTES, "a unit of {unit_bytes} bytes");
        let mut found = differ::Differences::new(unit_bytes);
        found.compare(self.root.as_ref(), other.root.as_ref(), self.height, 0);
        found.ranges
    }

    /// Writes `len_bytes` bytes from `start` on into a file, from its beginning, and makes that its length.
    /// The file was empty: pages that were never written are left out, and read as zeroes.
    ///
    /// # Errors
    /// Those of the file.
    ///
    /// # Panics
    /// Caller bug only: not inside of the image, or `start` is not the border of a page.
    pub fn write_sparse(&self, file: &File, start: u64, len_bytes: u64) -> io::Result<()> {
        self.check(start, len_bytes as usize);
        assert!(start.is_multiple_of(PAGE_BYTES as u64), "from {start}, within a page");
        file.set_len(len_bytes)?;
        for at in (0..len_bytes).step_by(PAGE_BYTES) {
            if let Some(bytes) = self.page((start + at) / PAGE_BYTES as u64) {
                let len = (len_bytes - at).min(PAGE_BYTES as u64);
                file.write_all_at(&bytes[..len as usize], at)?;
            }
        }
        Ok(())
    }

    /// As [`write_sparse`](Self::write_sparse), into a file that has the same range of `other`: writes the
    /// pages that differ.
    ///
    /// # Errors
    /// Those of the file.
    ///
    /// # Panics
    /// As [`write_sparse`](Self::write_sparse), and [`differences`](Self::differences).
    pub fn write_differences(
        &self,
        other: &Image,
        file: &File,
        start: u64,
        len_bytes: u64,
    ) -> io::Result<()> {
        self.check(start, len_bytes as usize);
        let mut buffer = vec![0; PAGE_BYTES];
        for range in self.differences(other, PAGE_BYTES) {
            for at in range.step_by(PAGE_BYTES).filter(|at| (start..start + len_bytes).contains(at)) {
                let len = (start + len_bytes - at).min(PAGE_BYTES as u64) as usize;
                self.read(at, &mut buffer[..len]);
                file.write_all_at(&buffer[..len], at - start)?;
            }
        }
        Ok(())
    }

    fn check(&self, offset: u64, len: usize) {
        let is_inside = offset.checked_add(len as u64).is_some_and(|end| end <= self.len_bytes);
        assert!(is_inside, "{len} bytes at {offset} of an image of {}", self.len_bytes);
    }

    fn page(&self, page: u64) -> Option<&[u8; PAGE_BYTES]> {
        let mut node = self.root.as_ref()?;
        for level in (0..self.height).rev() {
            node = node.inner().children[child(page, level)].as_ref()?;
        }
        Some(node.bytes())
    }

    fn page_mut(&mut self, page: u64) -> &mut [u8; PAGE_BYTES] {
        let mut node = self.root.get_or_insert_with(|| Node::Inner(Arc::new(Inner::default())));
        for level in (0..self.height).rev() {
            let empty = || if level == 0 { Node::Page(Arc::default()) } else { Node::Inner(Arc::default()) };
            node = node.inner_mut().children[child(page, level)].get_or_insert_with(empty);
        }
        node.bytes_mut()
    }
}

/// Pages below a node of this height.
fn pages_below(height: u32) -> u64 {
    (WIDTH as u64).saturating_pow(height)
}

/// Index of the child with a page, `level` levels above the pages' parents.
fn child(page: u64, level: u32) -> usize {
    (page / pages_below(level)) as usize % WIDTH
}

/// The pages of a range: number, and the bytes within it.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>)> {
    let mut at = offset;
    let end = offset + len as u64;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let (page, start) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
            let len = (end - at).min((PAGE_BYTES - start) as u64) as usize;
            at += len as u64;
            (page, start..start + len)
        })
    })
}

#[cfg(test)]
mod tests;
