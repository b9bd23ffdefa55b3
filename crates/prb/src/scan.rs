//! The contents of the chunks at import: every entry, by log, found in one pass for all logs.
//!
//! Source: zil-pmem thesis, 5.10 (scan by claim); there each log scans for itself.

use std::collections::HashMap;
use std::sync::Arc;

use fastness_pmem::Medium;

use crate::chunk::Chunk;
use crate::ids::{ChunkId, LogGuid};
use crate::traverse::{BodyError, End, Located, Traversal, read_body};

/// An entry found by a scan: its header in DRAM and its place.
#[derive(Debug)]
pub(crate) struct Node<M> {
    pub(crate) chunk: Arc<Chunk<M>>,
    pub(crate) entry: Located,
}

impl<M> Clone for Node<M> {
    fn clone(&self) -> Self {
        Self { chunk: Arc::clone(&self.chunk), entry: self.entry }
    }
}

impl<M: Medium> Node<M> {
    pub(crate) fn region_offset(&self) -> u64 {
        self.chunk.medium().region_offset() + self.entry.offset as u64
    }

    pub(crate) fn read_body(&self, buffer: &mut [u8]) -> Result<(), BodyError> {
        read_body(self.chunk.medium(), &self.entry, buffer)
    }
}

/// How the scan of one chunk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkEnd {
    /// The chunk.
    pub chunk: ChunkId,
    /// Region offset at which traversal stopped.
    pub region_offset: u64,
    /// Entries before it.
    pub entries: u64,
    /// Why it stopped.
    pub end: End,
}

/// All entries of all chunks.
#[derive(Debug)]
pub(crate) struct Scan<M> {
    pub(crate) by_log: HashMap<LogGuid, Vec<Node<M>>>,
    pub(crate) ends: Vec<ChunkEnd>,
}

impl<M: Medium> Scan<M> {
    pub(crate) fn new(chunks: &[Arc<Chunk<M>>]) -> Self {
        let mut by_log: HashMap<LogGuid, Vec<Node<M>>> = HashMap::new();
        let mut ends = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let medium = chunk.medium();
            for mut traversal in Traversal::of_chunk(medium) {
                let mut entries = 0;
                for entry in traversal.by_ref() {
                    entries += 1;
                    let node = Node { chunk: Arc::clone(chunk), entry };
                    by_log.entry(entry.header.log).or_default().push(node);
                }
                ends.push(ChunkEnd {
                    chunk: chunk.id,
                    region_offset: medium.region_offset() + traversal.offset() as u64,
                    entries,
                    end: traversal.end().unwrap_or(End::Full),
                });
            }
        }
        Self { by_log, ends }
    }
}
