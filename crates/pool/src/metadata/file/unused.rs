//! Giving back the pages that the engine does not use.
//!
//! Motivation: the engine keeps the pages of removed rows for later rows, and does not say which they are. In
//! the page map they still have places, so a pool that was filled with rows would stay full when they are
//! gone.
//!
//! Which pages are in use: the engine says it by reading them. A second engine opens the file as of the last
//! commit and checks all of it, which reads every page that a root leads to; what it writes stays in memory.
//! A page that it did not read holds nothing, and goes out of the map: if the engine ever reads it, it finds
//! zeroes, and before it uses it, it writes it.
//!
//! What else may be needed, and is kept: pages that were written since the txg before the last one ended.
//! After each commit the engine takes a further step in memory (it frees what the commit has replaced), and
//! that state has pages of its own, to which no stored root leads. The next commit supersedes them. Readers
//! of older states would be a third party; the caller makes sure that there are none.
//!
//! Cost: all pages in use are read and verified once, so the caller does this rarely.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use fastness_sync::undisturbed;
use redb::{Database, StorageBackend};

use crate::error::Result;
use crate::ids::UNIT_BYTES;
use crate::metadata::file::map::FAN;
use crate::metadata::file::{MetaFile, PAGE, Page};
use crate::sync_util::lock;

/// Memory of the second engine.
const CACHE_BYTES: usize = 4 << 20;

impl MetaFile {
    /// Pages of the file, used or not.
    pub(crate) fn pages(&self) -> u64 {
        lock(&self.state).len_bytes / UNIT_BYTES
    }

    /// A txg begins to sync: from now on pages that are written are noted for the next
    /// [`give_back`](Self::give_back).
    pub(crate) fn txg_begins(&self) {
        lock(&self.state).written.clear();
    }

    /// Takes the pages that are not in use out of the map, in at most `leaves_max` leaves of it. Must be
    /// called between two transactions of the engine, before [`txg_begins`](Self::txg_begins); there must be
    /// no readers of states older than the last commit.
    ///
    /// Persistence: with the txg that is written out next; until it is durable their places are not reused.
    ///
    /// If something cannot be read, or does not verify, nothing is given back. Whoever needs it finds
    /// out.
    ///
    /// Returns whether there are more.
    pub(crate) fn give_back(&self, leaves_max: usize) -> bool {
        let Some(used) = self.pages_in_use() else { return false };
        let mut state = lock(&self.state);
        let mut allocator = lock(&self.allocator);
        let mut leaves = BTreeSet::new();
        for number in 0..state.len_bytes / UNIT_BYTES {
            let is_needed = used.contains(&number)
                || state.written.contains(&number)
                || state.unwritten.contains_key(&number);
            if is_needed || state.map.get(number).is_none() {
                continue;
            }
            leaves.insert(number as usize / FAN);
            if leaves.len() > leaves_max {
                return true;
            }
            if let Some(old) = state.map.set(number, None) {
                allocator.free_meta(old.place);
            }
        }
        false
    }

    /// Pages to which the last commit leads; `None` if that cannot be said.
    fn pages_in_use(&self) -> Option<BTreeSet<u64>> {
        let len_bytes = lock(&self.state).len_bytes;
        let overlay = Overlay { len_bytes, ..Overlay::default() };
        let watched = Watched { file: self.clone(), overlay: Arc::new(Mutex::new(overlay)) };
        let overlay = watched.overlay.clone();
        let mut database =
            Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(watched).ok()?;
        let is_whole = database.check_integrity().ok()?;
        let read = std::mem::take(&mut lock(&overlay).read);
        is_whole.then_some(read)
    }
}

/// What the second engine has done to the file.
#[derive(Debug, Default)]
struct Overlay {
    len_bytes: u64,
    written: BTreeMap<u64, Page>,
    read: BTreeSet<u64>,
}

/// The file as a second engine sees it: it notes what is read, and keeps what is written to itself.
struct Watched {
    file: MetaFile,
    overlay: Arc<Mutex<Overlay>>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watched")
    }
}

impl Watched {
    fn page(&self, overlay: &mut Overlay, number: u64) -> Result<Page> {
        overlay.read.insert(number);
        overlay.written.get(&number).map_or_else(|| self.file.page(number), |page| Ok(page.clone()))
    }

    /// Calls `each` with the page of every part of a range, and where it is in the page and in the range.
    fn parts(
        offset: u64,
        len: usize,
        mut each: impl FnMut(u64, usize, std::ops::Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let within = (at % UNIT_BYTES) as usize;
            let part = done..len.min(done + PAGE - within);
            done = part.end;
            each(at / UNIT_BYTES, within, part)?;
        }
        Ok(())
    }
}

impl StorageBackend for Watched {
    fn len(&self) -> io::Result<u64> {
        undisturbed(|| Ok(lock(&self.overlay).len_bytes))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        undisturbed(|| {
            let mut overlay = lock(&self.overlay);
            if offset.checked_add(out.len() as u64).is_none_or(|end| end > overlay.len_bytes) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let len = out.len();
            let copy = |number, within, part: std::ops::Range<usize>| {
                let page = self.page(&mut overlay, number)?;
                out[part.clone()].copy_from_slice(&page[within..within + part.len()]);
                Ok(())
            };
            Watched::parts(offset, len, copy).map_err(io::Error::other)
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        undisturbed(|| lock(&self.overlay).len_bytes = len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        undisturbed(|| {
            let mut overlay = lock(&self.overlay);
            let put = |number, within, part: std::ops::Range<usize>| {
                let mut page =
                    if part.len() == PAGE { vec![0; PAGE].into() } else { self.page(&mut overlay, number)? };
                page[within..within + part.len()].copy_from_slice(&data[part]);
                overlay.written.insert(number, page);
                Ok(())
            };
            Watched::parts(offset, data.len(), put).map_err(io::Error::other)
        })
    }
}
