//! Makes a cache in a region, or takes up what is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastness_pmem::NoSum;
use fastness_sync::Mutex;
use fastness_sync::atomic::AtomicBool;

use crate::backing::{Backing, CacheId, Mark, Opening};
use crate::board::Board;
use crate::cache::Cache;
use crate::chunks::ChunkStore;
use crate::error::Error;
use crate::file::FileTable;
use crate::geometry::{Geometry, INTENTS_OFFSET, TAGS_OFFSET};
use crate::intent::Intents;
use crate::key::Keys;
use crate::kind::{ProtocolKind, operation_logs};
use crate::log::LogStore;
use crate::medium::CacheMedium;
use crate::names::{Log, Names};
use crate::opening::{Openings, drawn};
use crate::operation::log_bytes;
use crate::options::Options;
use crate::protocols::Protocols;
use crate::superblock::{BLOCK_BYTES, Superblock};
use crate::tag::{LINE, Seed};

/// The front with superblock and intents, what the protocol has, and the log of names.
fn divide<M: CacheMedium>(region: M, geometry: &Geometry) -> (M, M, M) {
    let (front, rest) = region.divide(TAGS_OFFSET);
    let (rest, last) = rest.divide(geometry.names_offset() - TAGS_OFFSET);
    (front, rest, last.divide(geometry.names_bytes as usize).0)
}

impl<M: CacheMedium> Cache<M> {
    /// Makes an empty cache of `region`, for a directory that has none.
    ///
    /// Persistence: durable on return. A crash inside leaves a region that holds no cache, and perhaps a
    /// directory that names one; the next creation has to be told to overwrite that.
    ///
    /// # Errors
    /// [`Error`]; [`Error::Exists`] if the region holds a cache, [`Error::WrongDirectory`] if the directory
    /// has one.
    pub fn create(region: M, backing: Arc<dyn Backing>, options: &Options) -> Result<Cache<M>, Error> {
        let region_bytes = region.len_bytes() as u64;
        let geometry = match options.protocol {
            ProtocolKind::Log => Geometry::of_log(region_bytes, options.names_bytes)?,
            protocol => {
                let logs = operation_logs(protocol);
                Geometry::new(region_bytes, options.chunk_bytes, logs, options.names_bytes)?
            }
        };
        if !options.overwrite && Superblock::is_there(&region)? {
            return Err(Error::Exists);
        }
        if !options.overwrite && backing.mark().map_err(Error::backing("say which cache it has"))?.is_some() {
            return Err(Error::WrongDirectory("the directory belongs to another region"));
        }
        let mark = Mark { cache: CacheId(drawn()?), opening: Opening::first()? };
        let directory = backing.directory().map_err(Error::backing("say which directory it is"))?;
        let (protocol, path) = (options.protocol, backing.path().unwrap_or_default());
        let superblock = Superblock { protocol, cache: mark.cache, geometry, directory, path };
        let mut region = region;
        for offset in [0, BLOCK_BYTES] {
            region.copy(offset, &[], BLOCK_BYTES, &mut NoSum);
        }
        // PERSIST: no superblock is there before the first tag goes. Excludes an earlier cache that lacks
        // some.
        region.fence()?;
        region.copy(INTENTS_OFFSET, &[], TAGS_OFFSET - INTENTS_OFFSET, &mut NoSum);
        let (mut front, mut rest, mut last) = divide(region, &geometry);
        if options.protocol != ProtocolKind::Log {
            rest.copy(0, &[], geometry.tags_bytes(), &mut NoSum);
        }
        for log in 0..geometry.operation_logs {
            let offset = geometry.logs_offset() + log as u64 * log_bytes(geometry.chunk_bytes);
            rest.copy(offset as usize - TAGS_OFFSET, &[], LINE, &mut NoSum);
        }
        Openings::format(&mut front, mark.cache, mark.opening);
        Log::format(&mut last, 0, Seed::new(superblock.cache));
        // PERSIST: all tags, intents and logs are empty, and the opening is there, before a superblock says
        // that there is a cache.
        // Excludes a cache with tags that were something else.
        front.fence()?;
        // PERSIST: the same, of what follows the intents, and of the log of names.
        rest.fence()?;
        last.fence()?;
        let (files, shared) = (Arc::new(FileTable::default()), Arc::clone(&backing));
        let protocol = match options.protocol {
            ProtocolKind::Log => {
                if options.overwrite {
                    // What an earlier cache has kept may be lost.
                    LogStore::<M>::forget_orphans(&*backing, superblock.cache)?;
                }
                let what = (geometry, superblock.cache, options.clock);
                let log = LogStore::create(what, rest, shared, Arc::clone(&files))?;
                Protocols::Log(Box::new(log))
            }
            _ => Self::chunks_of(&superblock, rest, &files, options)?,
        };
        backing.set_mark(Some(mark)).map_err(Error::backing("note its cache"))?;
        let bytes = superblock.encode();
        for offset in [0, BLOCK_BYTES] {
            front.copy(offset, &bytes, BLOCK_BYTES, &mut NoSum);
        }
        // PERSIST: the superblock is durable before any write is acknowledged. Excludes acknowledged data in
        // a region that holds no cache.
        front.fence()?;
        Ok(Cache::assemble((front, last), protocol, files, backing, (superblock, options.files_max)))
    }

    /// The cache of a region without a recovery.
    pub(crate) fn taken_up(
        region: M,
        backing: Arc<dyn Backing>,
        superblock: Superblock,
        options: &Options,
    ) -> Result<Cache<M>, Error> {
        let (front, rest, last) = divide(region, &superblock.geometry);
        let files = Arc::new(FileTable::default());
        let protocol = match superblock.protocol {
            ProtocolKind::Log => {
                let what = (superblock.geometry, superblock.cache, options.clock);
                let log = LogStore::found(what, rest, Arc::clone(&backing), Arc::clone(&files));
                Protocols::Log(Box::new(log))
            }
            _ => Self::chunks_of(&superblock, rest, &files, options)?,
        };
        Ok(Cache::assemble((front, last), protocol, files, backing, (superblock, options.files_max)))
    }

    fn chunks_of(
        superblock: &Superblock,
        rest: M,
        files: &Arc<FileTable>,
        options: &Options,
    ) -> Result<Protocols<M>, Error> {
        let (geometry, cache) = (superblock.geometry, superblock.cache);
        let board = match options.is_shared && superblock.protocol == ProtocolKind::Fr {
            true => {
                let board = Board::create(geometry.groups(), geometry.slots as usize);
                Some(board.map_err(Error::backing("give shared memory"))?)
            }
            false => None,
        };
        let files = Some(Arc::clone(files));
        let (kind, board) = (superblock.protocol, board.map(Arc::new));
        let chunks = ChunkStore::new(kind, (geometry, cache), rest, files, options.clock, board);
        Ok(Protocols::Chunks(Box::new(chunks)))
    }

    fn assemble(
        (front, last): (M, M),
        protocol: Protocols<M>,
        files: Arc<FileTable>,
        backing: Arc<dyn Backing>,
        (superblock, files_max): (Superblock, usize),
    ) -> Cache<M> {
        let intents = Mutex::new(Intents::new(front, superblock.cache));
        let keys = Mutex::new(Keys::default());
        let orphans = Mutex::new(BTreeMap::new());
        let (seed, root) = (Seed::new(superblock.cache), superblock.directory.id);
        let names = Arc::new(Names::new(last, seed, Arc::clone(&backing), root, files_max));
        let (departed, has_lost) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        Cache {
            protocol,
            backing,
            files,
            intents,
            keys,
            orphans,
            names,
            departed,
            has_lost,
            superblock,
            files_max,
        }
    }
}
