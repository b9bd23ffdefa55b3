//! The metadata engine's storage: a file of pages that is replaced as a whole, once a txg.
//!
//! Motivation: the tables must commit together with the data that they refer to, every page must be verified
//! and healed from a mirror, and none of this may depend on how the engine writes (redb overwrites its first
//! page in place, and handles a torn write of it by itself). So the engine gets a *virtual* file. A page that
//! it writes goes to a new place on the vdevs; the page map records each page's place and checksum; the map
//! is stored the same way, in two levels, and the uberblock holds the places and checksums of the upper
//! level.
//!
//! Crash cases. Until the uberblock is durable, everything that the previous one refers to is untouched: its
//! pages are busy in the allocator until `release`. So a crash leaves the whole file of the last synced txg,
//! and the engine never sees a torn or reordered write: its syncs do nothing.
//!
//! A page that cannot be read on any side: from then on the engine refuses everything that it does not have
//! in memory, until the pool is imported again. Each such refusal is reported as the error of that page, with
//! its place. What is in memory (cached blocks, unsynced changes, pages that the engine has) can still be
//! read, and the next sync suspends the pool.
//!
//! Performance: an entry costs 16 bytes of memory for each page of 4 KiB. The map is read at import: 0.4 % of
//! the metadata, which is itself about 1 % of the data with 4 KiB blocks.

mod map;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use fastness_sync::undisturbed;
use redb::StorageBackend;

use crate::codec::checksum;
use crate::devices::run::write_all;
use crate::devices::vdev::Vdevs;
use crate::error::{PoolError, Result};
use crate::ids::UNIT_BYTES;
use crate::order;
use crate::space::elsewhere::{SharedAllocator, with_room};
use fastness_sync::order::{Mutex, lock};
use map::{Entry, PageMap};

const PAGE: usize = UNIT_BYTES as usize;
/// Unwritten pages that are kept in memory before some are written early.
const SPILL_PAGES: usize = 16 << 10;

type Page = Box<[u8]>;

#[derive(Debug, Default)]
struct State {
    map: PageMap,
    len_bytes: u64,
    /// Newest contents of pages that are not written yet.
    unwritten: BTreeMap<u64, Page>,
    /// The first page that could not be read.
    failed: Option<PoolError>,
}

/// The virtual file, shared by the engine and the pool.
#[derive(Clone)]
pub(crate) struct MetaFile {
    vdevs: Arc<Vdevs>,
    allocator: Arc<SharedAllocator>,
    state: Arc<Mutex<State, { order::META }>>,
    /// Whether several threads may write when there are many pages.
    has_threads: bool,
}

impl std::fmt::Debug for MetaFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MetaFile")
    }
}

impl MetaFile {
    /// An empty file.
    pub(crate) fn new(vdevs: Arc<Vdevs>, allocator: Arc<SharedAllocator>, has_threads: bool) -> MetaFile {
        MetaFile { vdevs, allocator, state: Arc::default(), has_threads }
    }

    /// The file that [`write_out`](Self::write_out) described as `root`; claims its pages in the allocator.
    pub(crate) fn load(&self, root: &[u8]) -> Result<()> {
        let (map, len_bytes) = PageMap::load(root, &self.vdevs)?;
        let mut allocator = lock(&self.allocator);
        for place in map.places() {
            allocator.claim_meta(place)?;
        }
        drop(allocator);
        *lock(&self.state) = State { map, len_bytes, ..State::default() };
        Ok(())
    }

    /// Writes all changed pages, and the parts of the map that changed with them; returns the new root for
    /// the uberblock. Durable after a flush, and in force with the uberblock.
    pub(crate) fn write_out(&self) -> Result<Vec<u8>> {
        let mut state = lock(&self.state);
        self.write_pages(&mut state)?;
        let len_bytes = state.len_bytes;
        state.map.write(len_bytes, &self.vdevs, &self.allocator)
    }

    /// Places of all pages, and the checksum of each.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        lock(&self.state).map.entries()
    }

    /// The error behind one of the engine's: after a page that could not be read, the engine refuses
    /// everything that it does not have in memory, and forgets why.
    pub(crate) fn explain(&self, error: PoolError) -> PoolError {
        match &error {
            PoolError::Engine(engine) if matches!(**engine, redb::Error::PreviousIo) => {
                lock(&self.state).failed.clone().unwrap_or(error)
            }
            _ => error,
        }
    }

    fn write_pages(&self, state: &mut State) -> Result<()> {
        let pages = std::mem::take(&mut state.unwritten);
        let entries = with_room(&self.vdevs, &self.allocator, || {
            write_all(&self.vdevs, self.has_threads, (pages.len() * PAGE) as u64, |run| {
                let mut entries = Vec::with_capacity(pages.len());
                for page in pages.values() {
                    // Not held while a page is written: a log block must not wait for a txg's I/O.
                    let place = lock(&self.allocator).place_meta()?;
                    run.push(place, page)?;
                    entries.push(Entry { place, sum: checksum(page) });
                }
                Ok(entries)
            })
        })?;
        for (number, entry) in pages.keys().zip(entries) {
            if let Some(old) = state.map.set(*number, Some(entry)) {
                lock(&self.allocator).free_meta(old.place);
            }
        }
        Ok(())
    }

    fn page(&self, number: u64) -> Result<Page> {
        let entry = {
            let state = lock(&self.state);
            if let Some(page) = state.unwritten.get(&number) {
                return Ok(page.clone());
            }
            state.map.get(number)
        };
        match entry {
            // Never written: the engine's file is sparse.
            None => Ok(vec![0; PAGE].into()),
            Some(entry) => {
                let (page, _) = self.vdevs.read_verified(entry.place, PAGE, entry.sum, "metadata")?;
                Ok(page.to_vec().into())
            }
        }
    }

    fn write_range(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (number, within) = (at / UNIT_BYTES, (at % UNIT_BYTES) as usize);
            let part = &data[done..data.len().min(done + PAGE - within)];
            if part.len() == PAGE {
                lock(&self.state).unwritten.insert(number, part.into());
            } else {
                let mut page = self.page(number)?;
                page[within..within + part.len()].copy_from_slice(part);
                lock(&self.state).unwritten.insert(number, page);
            }
            done += part.len();
        }
        let mut state = lock(&self.state);
        if state.unwritten.len() > SPILL_PAGES {
            self.write_pages(&mut state)?;
        }
        Ok(())
    }
}

impl StorageBackend for MetaFile {
    fn len(&self) -> io::Result<u64> {
        undisturbed(|| Ok(lock(&self.state).len_bytes))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        undisturbed(|| self.read_range(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        undisturbed(|| self.cut(len));
        Ok(())
    }

    /// Does nothing: the txg's uberblock makes everything durable at once.
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        undisturbed(|| self.write_range(offset, data).map_err(io::Error::other))
    }
}

impl MetaFile {
    fn read_range(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > lock(&self.state).len_bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let (number, within) = (at / UNIT_BYTES, (at % UNIT_BYTES) as usize);
            let page = self.page(number).map_err(|error| {
                lock(&self.state).failed.get_or_insert_with(|| error.clone());
                io::Error::other(error)
            })?;
            let len = (PAGE - within).min(out.len() - done);
            out[done..done + len].copy_from_slice(&page[within..within + len]);
            done += len;
        }
        Ok(())
    }

    fn cut(&self, len: u64) {
        let mut state = lock(&self.state);
        let end = len.div_ceil(UNIT_BYTES);
        state.unwritten.split_off(&end);
        let mut allocator = lock(&self.allocator);
        for entry in state.map.truncate(end) {
            allocator.free_meta(entry.place);
        }
        state.len_bytes = len;
    }
}
