//! Makes a cache in a region.
//!
//! Crash cases: before a superblock is whole, the region holds no cache, and the origin is as it was; after
//! that there is a cache that is empty, whether its origin is marked or not. If the origin belonged to
//! another cache, it is that one's, or nobody's, until then.

use std::sync::Arc;

use fastness_pmem::{Medium, Mirror};
use fastness_prb::{HdlHeader, Prb, SetupError};
use fastness_sync::atomic::{AtomicBool, AtomicU64};
use fastness_sync::{Condvar, Mutex, RwLock};

use crate::blocks::Blocks;
use crate::cache::{Cache, Closed, Counts, Log};
use crate::error::Error;
use crate::front::{Front, check_free};
use crate::id::CacheId;
use crate::mirror::{MirrorInfo, superblocks};
use crate::options::Options;
use crate::origin::{Mark, Origin};
use crate::sides::{Sides, mirrored};
use crate::slot::{MirrorState, Slot};
use crate::superblock::{PATH_BYTES_MAX, Superblock};
use crate::target::{Marked, Target};
use crate::throttle::Throttle;
use crate::views::Views;
use crate::write_back::WriteBack;

impl<M: Medium + Sync> Cache<M> {
    /// Makes an empty cache in front of `origin`.
    ///
    /// Persistence: on return the cache exists durably, and the origin is marked as its own.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Occupied`], [`Error::Foreign`] without [`Options::force`]: nothing was
    /// changed. Others of the region and of the origin.
    pub fn create(
        sides: impl Into<Sides<M>>,
        origin: Box<dyn Origin>,
        options: &Options,
    ) -> Result<Cache<M>, Error> {
        let Sides { first, second } = sides.into();
        let second = second.transpose().map_err(Error::Refused)?;
        let parts: Vec<_> = [Some(first), second].into_iter().flatten().collect();
        let geometry = parts[0].geometry.checked()?;
        assert!(parts.iter().all(|parts| parts.geometry == geometry), "sides are divided in the same way");
        let target = Target::open(origin)?;
        let path_bytes = target.origin().path().len();
        if path_bytes > PATH_BYTES_MAX {
            let text =
                format!("the origin's name has {path_bytes} bytes, and there is room for {PATH_BYTES_MAX}");
            return Err(Error::Refused(text));
        }
        if !options.is_forced {
            parts.iter().try_for_each(|parts| check_free(&parts.front))?;
        }
        let marked = if options.is_forced { target.mark().unwrap_or(Marked::Not) } else { target.mark()? };
        if let (Marked::By(Mark { cache, .. }), false) = (marked, options.is_forced) {
            return Err(Error::Foreign { cache });
        }
        let mut id = [0; 16];
        id[..8].copy_from_slice(&options.random().to_le_bytes());
        id[8..].copy_from_slice(&options.random().to_le_bytes());
        let (id, opening) = (CacheId(id), options.random());
        let superblock = Superblock {
            id,
            geometry,
            origin: target.identity(),
            origin_path: target.origin().path(),
            side: None,
        };
        let (mut fronts, mut chunks, mut views, mut paths) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for parts in parts {
            fronts.push(parts.front);
            chunks.push(parts.chunks);
            views.push(parts.view);
            paths.push(parts.path);
        }
        let number = (fronts.len() > 1).then(|| options.random());
        let superblocks = superblocks(&superblock, number, &paths)?;

        let config = options.config(&geometry);
        let (committers, header) = (config.ncommitters, HdlHeader::NoZil);
        let mirror = number.map(|mirror| MirrorState { mirror, out: None });
        let slot = Slot { id, committers, sequence: 0, synced: 0, openings: [opening; 2], header, mirror };
        let mut front = Front::wipe(fronts, slot.clone())?;
        if options.is_forced {
            // Before the new cache exists: a crash must not leave it with the mark of another one.
            target.set_mark(None)?;
        }
        let prb = Prb::format(config, mirrored(chunks))?;
        let mut hdl = prb.setup_hdl(&HdlHeader::NoZil)?;
        let header = hdl.create_log()?.expect("there was no log").into_header();
        front.update(Slot { header, ..slot })?;
        hdl.header_synced()?;
        front.write_superblocks(&superblocks)?;
        if let Some(side) = front.lost() {
            return Err(SetupError::SideLost { side }.into());
        }
        target.set_mark(Some(Mark { cache: id, opening }))?;
        let log = Log { hdl, txg: 1 };
        let mirror = number.map(|_| MirrorInfo::new(paths, Some(0), None));
        let blocks = Blocks::new(Views::new(views));
        let superblock = superblocks.into_iter().next().expect("one for each side");
        Ok(Cache::assemble(superblock, mirror, options, prb, log, front, blocks, target))
    }

    #[expect(clippy::too_many_arguments, reason = "what a cache consists of")]
    pub(crate) fn assemble(
        superblock: Superblock,
        mirror: Option<MirrorInfo>,
        options: &Options,
        prb: Arc<Prb<Mirror<M>>>,
        log: Log<M>,
        front: Front<M>,
        blocks: Blocks,
        target: Target,
    ) -> Cache<M> {
        let closed = Closed { synced: log.txg - 1, ..Closed::default() };
        Cache {
            superblock,
            mirror,
            options: options.clone(),
            prb,
            log: RwLock::new(log),
            front: Mutex::new(front),
            blocks,
            target,
            throttle: Throttle::new(),
            open_bytes: AtomicU64::new(0),
            closed: Mutex::new(closed),
            work: Condvar::new(),
            room: Condvar::new(),
            write_back: Mutex::new(WriteBack::default()),
            has_cleaner: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            is_region_failed: AtomicBool::new(false),
            counts: Counts::default(),
        }
    }
}
