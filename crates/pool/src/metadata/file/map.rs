//! The page map: the place and checksum of each page of the metadata file.
//!
//! Shape on the medium: a block is 4 KiB of 256 entries (place + 1 as packed number, 0 for none; checksum).
//! Leaves describe pages, upper-level blocks describe leaves, and the root (in the uberblock) describes the
//! upper level.

use crate::codec::{Reader, Writer, checksum};
use crate::devices::run::{Run, write_all};
use crate::devices::vdev::Vdevs;
use crate::error::{PoolError, Result};
use crate::ids::{Place, UNIT_BYTES};
use crate::space::elsewhere::SharedAllocator;
use crate::space::elsewhere::with_room;
use fastness_sync::order::lock;

const FAN: usize = 256;
/// Most neighbouring units that are read together.
const NEIGHBOURS_MAX: usize = 256;
/// Entries of the root; 62.5 GiB of metadata.
const ROOT_MAX: usize = 240;

/// Place and checksum of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    pub(crate) sum: u64,
}

#[derive(Debug)]
struct Node {
    entries: Box<[Option<Entry>; FAN]>,
    stored: Option<Entry>,
    is_dirty: bool,
}

impl Default for Node {
    fn default() -> Node {
        Node { entries: Box::new([None; FAN]), stored: None, is_dirty: true }
    }
}

impl Node {
    fn is_empty(&self) -> bool {
        self.entries.iter().all(Option::is_none)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        self.entries.iter().for_each(|entry| encode(&mut out, *entry));
        out.bytes
    }

    fn load(stored: Option<Entry>, vdevs: &Vdevs) -> Result<Node> {
        let Some(entry) = stored else { return Ok(Node { is_dirty: false, ..Node::default() }) };
        let (bytes, _) = vdevs.read_verified(entry.place, UNIT_BYTES as usize, entry.sum, "page map")?;
        Node::decode(entry, &bytes)
    }

    fn decode(entry: Entry, bytes: &[u8]) -> Result<Node> {
        let mut input = Reader::new(bytes);
        let mut node = Node { stored: Some(entry), is_dirty: false, ..Node::default() };
        for entry in node.entries.iter_mut() {
            *entry = decode(&mut input).ok_or_else(|| PoolError::bad_value("page map", "too short"))?;
        }
        Ok(node)
    }
}

impl Node {
    /// Loads many nodes: a map is written in sequence, so neighbours are read together, and importing a large
    /// pool takes few reads. A node that fails verification is then read again by itself, and healed.
    fn load_all(stored: &[Option<Entry>], vdevs: &Vdevs) -> Result<Vec<Node>> {
        let mut nodes = Vec::with_capacity(stored.len());
        nodes.resize_with(stored.len(), || Node { is_dirty: false, ..Node::default() });
        let mut used: Vec<_> =
            stored.iter().enumerate().filter_map(|(at, entry)| Some((at, (*entry)?))).collect();
        used.sort_unstable_by_key(|(_, entry)| entry.place);
        let follows = |(_, a): &(usize, Entry), (_, b): &(usize, Entry)| {
            (a.place.vdev, a.place.unit + 1) == (b.place.vdev, b.place.unit)
        };
        for run in used.chunk_by(follows).flat_map(|run| run.chunks(NEIGHBOURS_MAX)) {
            let bytes = if run.len() > 1 { vdevs.read_unverified(run[0].1.place, run.len()) } else { None };
            let pages = bytes.as_ref().map(|bytes| bytes.chunks_exact(UNIT_BYTES as usize));
            let mut pages = pages.into_iter().flatten();
            for (at, entry) in run {
                nodes[*at] = match pages.next().filter(|page| checksum(page) == entry.sum) {
                    Some(page) => Node::decode(*entry, page)?,
                    None => Node::load(Some(*entry), vdevs)?,
                };
            }
        }
        Ok(nodes)
    }
}

fn encode(out: &mut Writer, entry: Option<Entry>) {
    out.u64(entry.map_or(0, |entry| entry.place.pack() + 1)).u64(entry.map_or(0, |entry| entry.sum));
}

fn decode(input: &mut Reader<'_>) -> Option<Option<Entry>> {
    let (packed, sum) = (input.u64()?, input.u64()?);
    Some((packed != 0).then(|| Entry { place: Place::unpack(packed - 1), sum }))
}

#[derive(Debug, Default)]
pub(crate) struct PageMap {
    leaves: Vec<Node>,
    upper: Vec<Node>,
}

impl PageMap {
    pub(crate) fn get(&self, page: u64) -> Option<Entry> {
        self.leaves.get(page as usize / FAN)?.entries[page as usize % FAN]
    }

    /// Replaces an entry, and returns the old one.
    pub(crate) fn set(&mut self, page: u64, entry: Option<Entry>) -> Option<Entry> {
        let index = page as usize / FAN;
        if self.leaves.len() <= index {
            self.leaves.resize_with(index + 1, Node::default);
        }
        let leaf = &mut self.leaves[index];
        leaf.is_dirty = true;
        std::mem::replace(&mut leaf.entries[page as usize % FAN], entry)
    }

    /// Forgets the pages from `end` on; returns their entries.
    pub(crate) fn truncate(&mut self, end: u64) -> Vec<Entry> {
        let mut gone = Vec::new();
        for page in end..(self.leaves.len() * FAN) as u64 {
            if self.get(page).is_some() {
                gone.extend(self.set(page, None));
            }
        }
        gone
    }

    /// Every unit that the map describes or is stored in.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let nodes = self.leaves.iter().chain(&self.upper).filter_map(|node| node.stored);
        self.leaves.iter().flat_map(|leaf| leaf.entries.iter().flatten().copied()).chain(nodes).collect()
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        self.entries().into_iter().map(|entry| entry.place)
    }

    /// Writes the changed blocks to new places; returns the root.
    pub(crate) fn write(
        &mut self,
        len_bytes: u64,
        vdevs: &Vdevs,
        allocator: &SharedAllocator,
    ) -> Result<Vec<u8>> {
        self.upper.resize_with(self.leaves.len().div_ceil(FAN).max(self.upper.len()), Node::default);
        let (leaves, upper) = with_room(vdevs, allocator, || {
            write_all(vdevs, false, 0, |run| {
                let mut leaves = Vec::new();
                for (index, leaf) in self.leaves.iter().enumerate().filter(|(_, leaf)| leaf.is_dirty) {
                    let stored = store(leaf, allocator, run)?;
                    let upper = &mut self.upper[index / FAN];
                    upper.entries[index % FAN] = stored;
                    upper.is_dirty = true;
                    leaves.push(stored);
                }
                let upper = self.upper.iter().filter(|node| node.is_dirty);
                let upper = upper.map(|node| store(node, allocator, run)).collect::<Result<Vec<_>>>()?;
                Ok((leaves, upper))
            })
        })?;
        // Up to here the nodes are unchanged, so that they can be written again.
        for (nodes, stored) in [(&mut self.leaves, leaves), (&mut self.upper, upper)] {
            for (node, stored) in nodes.iter_mut().filter(|node| node.is_dirty).zip(stored) {
                if let Some(old) = std::mem::replace(&mut node.stored, stored) {
                    lock(allocator).free_meta(old.place);
                }
                node.is_dirty = false;
            }
        }
        if self.upper.len() > ROOT_MAX {
            return Err(PoolError::MetadataTooLarge);
        }
        let mut root = Writer::default();
        root.u64(len_bytes).u32(self.upper.len() as u32);
        self.upper.iter().for_each(|node| encode(&mut root, node.stored));
        Ok(root.bytes)
    }

    pub(crate) fn load(root: &[u8], vdevs: &Vdevs) -> Result<(PageMap, u64)> {
        let strange = || PoolError::bad_value("uberblock", "the root of the page map");
        let mut input = Reader::new(root);
        let len_bytes = input.u64().ok_or_else(strange)?;
        let count = input.u32().filter(|count| *count as usize <= ROOT_MAX).ok_or_else(strange)?;
        let mut map = PageMap::default();
        for _ in 0..count {
            let stored = decode(&mut input).ok_or_else(strange)?;
            let node = Node::load(stored, vdevs)?;
            map.leaves.extend(Node::load_all(&node.entries[..], vdevs)?);
            map.upper.push(node);
        }
        input.end().ok_or_else(strange)?;
        Ok((map, len_bytes))
    }
}

/// Writes a node to a new place, or nothing if it is empty; returns its entry.
fn store(node: &Node, allocator: &SharedAllocator, run: &mut Run<'_>) -> Result<Option<Entry>> {
    if node.is_empty() {
        return Ok(None);
    }
    let place = lock(allocator).place_meta()?;
    let bytes = node.encode();
    run.push(place, &bytes)?;
    Ok(Some(Entry { place, sum: checksum(&bytes) }))
}

#[cfg(test)]
mod tests;
