//! The parts of a region: the blocks in front, the chunks, and a view of all of it.

use std::path::{Path, PathBuf};

use fastness_pmem::{Medium, PmRange, View};

use crate::error::Error;
use crate::front::superblock;
use crate::geometry::{DATA_OFFSET, Geometry};
use crate::superblock::Superblock;

/// A region, divided.
pub struct Parts<M> {
    /// How it is divided.
    pub geometry: Geometry,
    /// Its first [`DATA_OFFSET`] bytes.
    pub front: M,
    /// Its chunks, in order.
    pub chunks: Vec<M>,
    /// All of it, to read what the log has.
    pub view: Box<dyn View>,
    /// Where it is; empty if nobody has to find it.
    pub path: PathBuf,
}

impl<M> std::fmt::Debug for Parts<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

impl<M> Parts<M> {
    /// The same, with the path at which the other side of a mirror finds it.
    #[must_use]
    pub fn at(self, path: &Path) -> Parts<M> {
        Parts { path: path.to_owned(), ..self }
    }
}

impl Parts<PmRange> {
    /// Divides a region. `view` is a second mapping of it.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    ///
    /// # Panics
    /// Caller bug only: the ranges are not whole regions of one length.
    pub fn divide(range: PmRange, view: PmRange, geometry: Geometry) -> Result<Parts<PmRange>, Error> {
        let (found, expected) = (range.len_bytes() as u64, geometry.region_bytes);
        assert!(range.region_offset() == 0 && view.len_bytes() == range.len_bytes(), "a whole region, twice");
        if found < expected {
            return Err(Error::Truncated { found, expected });
        }
        let split = |range: PmRange, at| range.split_at(at).expect("the geometry is inside of the region");
        let (front, mut rest) = split(range, DATA_OFFSET);
        let mut chunks = Vec::with_capacity(geometry.chunks as usize);
        for _ in 0..geometry.chunks {
            let (chunk, after) = split(rest, geometry.chunk_bytes as usize);
            chunks.push(chunk);
            rest = after;
        }
        Ok(Parts { geometry, front, chunks, view: Box::new(view), path: PathBuf::new() })
    }
}

impl Superblock {
    /// What a region that begins with `range` says of the cache in it; nothing is changed.
    ///
    /// # Errors
    /// [`Error::NoCache`], [`Error::Block`], [`Error::Version`], [`Error::Read`].
    pub fn of<M: Medium>(range: &M) -> Result<Superblock, Error> {
        superblock(range)
    }
}
