//! Opens the cache of a region: brings everything in its log to the origin, and starts an empty log.
//!
//! Crash cases: until the header of the new log is durable, the next opening finds the same entries, and
//! brings them to the origin again, in order: doing so twice changes nothing. The origin's mark is one of the
//! last two openings at any time. A side of a mirror that is not used is out from the first update of the
//! state on, before anything is changed that it lacks.

use std::path::PathBuf;

use fastness_pmem::{Medium, Mirror};
use fastness_prb::{BodyError, Claimed, Config, HEADER_BYTES, Hdl, HdlHeader, OnLoss, Prb, ReplayError, Txg};

use crate::block::Order;
use crate::blocks::Blocks;
use crate::cache::{Cache, Log};
use crate::error::Error;
use crate::front::Front;
use crate::loss;
use crate::mirror::MirrorInfo;
use crate::options::Options;
use crate::origin::{Mark, Origin};
use crate::record::{RECORD_BYTES, Record};
use crate::sides::{Absent, Chosen, Sides, choose};
use crate::slot::{MirrorState, Slot};
use crate::status::SideStatus;
use crate::superblock::Superblock;
use crate::target::{Marked, Target};
use crate::write_back::WriteBack;

/// What an opening found, and did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Entries that the origin may not have had.
    pub entries: u64,
    /// Bytes written to the origin.
    pub bytes: u64,
    /// Entries given up ([`OnLoss::DropTail`](fastness_prb::OnLoss)).
    pub dropped: u64,
}

/// What a region says of its cache, without an origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The cache.
    pub superblock: Superblock,
    /// Entries that the origin may not have.
    pub entries: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// The sides of a mirror.
    pub sides: Vec<SideStatus>,
}

/// A cache whose entries are known.
struct Opened<M: Medium + Sync> {
    front: Front<M>,
    prb: std::sync::Arc<Prb<Mirror<M>>>,
    hdl: Hdl<Mirror<M>>,
    claimed: Claimed,
}

impl Inspection {
    /// Looks at a region that no process has. Nothing is changed; what was visible is made durable.
    ///
    /// # Errors
    /// [`Error`]: no cache, or a damaged one.
    pub fn of<M: Medium + Sync>(sides: impl Into<Sides<M>>, options: &Options) -> Result<Inspection, Error> {
        let Chosen { mut superblocks, fronts, chunks, slot, paths, named, absent, .. } =
            choose(sides.into(), None, options.is_degraded)?;
        let superblock = superblocks.swap_remove(0);
        let mut config = options.config(&superblock.geometry);
        config.repairs_sides = false;
        let Opened { claimed, .. } = claim(Front::new(fronts, slot), chunks, config, options.on_loss)?;
        let mirror = mirror_info(&superblock, paths, named, absent);
        let sides = mirror.map_or(Vec::new(), |mirror| mirror.state());
        Ok(Inspection { superblock, entries: claimed.entries as u64, bytes: claimed.body_bytes, sides })
    }
}

fn mirror_info(
    superblock: &Superblock,
    paths: Vec<PathBuf>,
    named: Option<usize>,
    absent: Option<Absent>,
) -> Option<MirrorInfo> {
    superblock.side.as_ref().map(|_| MirrorInfo::new(paths, named, absent))
}

fn claim<M: Medium + Sync>(
    mut front: Front<M>,
    chunks: Vec<Mirror<M>>,
    config: Config,
    on_loss: OnLoss,
) -> Result<Opened<M>, Error> {
    let prb = Prb::open(config, chunks)?;
    if let Some(side) = prb.lost_side() {
        // Its state is not read here; from now on it is not written either.
        front.lose(side);
    }
    let slot = front.slot();
    let mut hdl = prb.setup_hdl(&slot.header)?;
    let first_txg = Txg(slot.synced + 1);
    if let (HdlHeader::Logging { log }, OnLoss::Fail) = (&slot.header, on_loss) {
        let tails = prb.chunk_tails(first_txg);
        if let Some(hidden) = tails.iter().find_map(|tail| tail.hides(*log)) {
            return Err(Error::Hidden(hidden));
        }
    }
    let claimed = hdl.claim(first_txg, on_loss).map_err(Error::Claim)?;
    let is_first = matches!(slot.header, HdlHeader::Logging { .. });
    let (missing, in_flight) = (claimed.gaps, u64::from(slot.committers));
    if is_first && missing > in_flight && on_loss == OnLoss::Fail {
        return Err(Error::Gaps { missing, in_flight });
    }
    Ok(Opened { front, prb, hdl, claimed })
}

/// Whether an origin is that of a cache whose region was not copied before its last use.
fn check_origin(
    superblock: &Superblock,
    slot: &Slot,
    target: &Target,
    entries: usize,
    is_forced: bool,
) -> Result<Marked, Error> {
    let (expected, found) = (superblock.origin, target.identity());
    if expected.len_bytes != found.len_bytes {
        return Err(Error::Resized { expected: expected.len_bytes, found: found.len_bytes });
    }
    if found.block_bytes > expected.block_bytes {
        let text = format!(
            "the origin has blocks of {} bytes now, and the cache was made for blocks of {}",
            found.block_bytes, expected.block_bytes
        );
        return Err(Error::Refused(text));
    }
    let marked = target.mark()?;
    let is_same_place = (expected.device, expected.inode) == (found.device, found.inode);
    match marked {
        _ if is_forced => Ok(marked),
        Marked::By(mark) if mark.cache != superblock.id => Err(Error::Foreign { cache: mark.cache }),
        Marked::By(mark) if !slot.openings.contains(&mark.opening) => Err(Error::OldCopy),
        // A file may be moved to another file system, with its mark. An image keeps its number: what has the
        // mark with another one is a clone.
        Marked::By(_) if found.inode == 0 && !is_same_place => Err(Error::OtherOrigin),
        Marked::By(_) => Ok(marked),
        // The creation was cut short before the mark, or a detachment after it was removed: nothing is lost.
        Marked::Not if entries == 0 && is_same_place => Ok(marked),
        Marked::Never if is_same_place => Ok(marked),
        Marked::Not | Marked::Never => Err(Error::OtherOrigin),
    }
}

/// Takes the entries of a log into an index, in order; returns the last generation.
fn take_in<M: Medium + Sync>(
    hdl: &mut Hdl<Mirror<M>>,
    blocks: &Blocks,
    origin_bytes: u64,
) -> Result<u64, Error> {
    let (mut buffer, mut last) = (Vec::new(), 0);
    let replayed = hdl.replay(|entry, _update| {
        let len = entry.body_len_bytes();
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        match entry.read_body(&mut buffer) {
            Ok(()) | Err(BodyError::Padding { .. }) => {}
            Err(source) => return Err(Error::Entry { id: entry.id(), source }),
        }
        let (txg, at) = (entry.txg().0, entry.region_offset());
        let record = Record::decode(&buffer[..len], origin_bytes, at)?;
        if txg < last {
            // Writers take generations in their order.
            return Err(Error::Record { region_offset: at });
        }
        last = txg;
        let order = Order { txg, gsid: entry.id().gsid.0 };
        let data = at + (HEADER_BYTES + RECORD_BYTES) as u64;
        blocks.put(&record, order, data, &buffer[RECORD_BYTES..len]);
        Ok(())
    });
    match replayed {
        Ok(_) => Ok(last),
        Err(ReplayError::Callback { source, .. }) => Err(source),
        Err(ReplayError::Misuse(error)) => Err(Error::Misuse(error)),
        Err(ReplayError::Log(error)) => Err(Error::Replay(error)),
        Err(_) => unreachable!("replay has no other errors"),
    }
}

impl<M: Medium + Sync> Cache<M> {
    /// Takes up the cache of a region. What its log has is brought to the origin first, in order.
    ///
    /// Persistence: on return the origin has everything that was acknowledged, and the log is empty. After a
    /// crash inside, the next opening does the same.
    ///
    /// # Errors
    /// [`Error`]: the region or the origin is not what it should be; nothing was changed. Those of the origin
    /// while it is written: everything is in the log still.
    pub fn open(
        sides: impl Into<Sides<M>>,
        origin: Box<dyn Origin>,
        options: &Options,
    ) -> Result<(Cache<M>, Replayed), Error> {
        let target = Target::open(origin)?;
        let mark = target.mark().ok().and_then(|marked| marked.opening());
        let Chosen { superblocks, fronts, chunks, views, slot, paths, named, absent } =
            choose(sides.into(), mark, options.is_degraded)?;
        let superblock = superblocks[0].clone();
        let config = options.config(&superblock.geometry);
        let front = Front::new(fronts, slot);
        let opened = claim(front, chunks, config, options.on_loss)?;
        let Opened { mut front, prb, mut hdl, mut claimed } = opened;
        let marked = check_origin(&superblock, front.slot(), &target, claimed.entries, options.is_forced)?;
        let is_known = matches!(marked, Marked::By(_)) || options.is_degraded;
        if let (Some(Absent { path, why, may_be_newer: true, .. }), false) = (&absent, is_known) {
            return Err(Error::SideMissing { path: path.clone(), why: why.clone() });
        }

        let before = match marked {
            Marked::By(mark) => mark.opening,
            Marked::Not | Marked::Never => front.slot().openings[1],
        };
        let slot = front.slot().clone();
        let header = claimed.update.take().map_or(slot.header.clone(), |update| update.into_header());
        let out = absent.as_ref().map(|absent| absent.side).or(front.lost());
        let mirror = superblock.side.as_ref().map(|side| MirrorState { mirror: side.mirror, out });
        // The set of entries is fixed before the first is carried out, and the mark is known to the region
        // before the origin has it.
        front.update(Slot { openings: [before, options.random()], header, mirror, ..slot })?;
        if loss::record(&mut front, &prb, &target, options)?.is_none() {
            target.set_mark(Some(Mark { cache: superblock.id, opening: front.slot().openings[1] }))?;
        }

        let mirror = mirror_info(&superblock, paths, named, absent);
        if let Some(mirror) = &mirror {
            mirror.note_damage(&prb.side_repairs().damaged);
        }
        let blocks = Blocks::new(views);
        let last = take_in(&mut hdl, &blocks, superblock.origin.len_bytes)?;
        let mut write_back = WriteBack::default();
        let written = write_back.run(&blocks, &target, last)?;
        blocks.retire(&write_back.blocks, last);

        let synced = Txg(front.slot().synced + 1);
        // The header without a log needs no update of its own: that of the new log replaces it.
        let _nozil = hdl.replay_done(synced)?;
        let header = hdl.create_log()?.expect("the log was replayed").into_header();
        let committers = options.config(&superblock.geometry).ncommitters;
        front.update(Slot { synced: synced.0, committers, header, ..front.slot().clone() })?;
        // Before chunks are emptied that a side which did not get the header still asks for.
        loss::record(&mut front, &prb, &target, options)?;
        hdl.header_synced()?;
        prb.finish_claiming()?;
        prb.collect(synced)?;
        if let Some(mirror) = &mirror {
            front.write_superblocks(&mirror.found_at(superblocks))?;
        }
        let replayed = Replayed {
            entries: claimed.entries as u64,
            bytes: written.bytes,
            dropped: claimed.dropped as u64,
        };
        let log = Log { hdl, txg: synced.0 + 1 };
        let cache = Cache::assemble(superblock, mirror, options, prb, log, front, blocks, target);
        cache.record_loss(&mut fastness_sync::lock(&cache.front))?;
        Ok((cache, replayed))
    }

    /// Ends the cache: the origin has everything and is marked no more, and the region holds nothing.
    ///
    /// Persistence: durable on return; after a crash inside, there is a clean cache, or none.
    ///
    /// # Errors
    /// Of the write-back, and [`Error::NotClean`] if a write came meanwhile: the cache goes on.
    pub fn detach(&self) -> Result<(), Error> {
        let mut front = self.close()?;
        self.target.set_mark(None)?;
        let ended = front.end();
        ended.map_err(|error| self.note_region(error.into()))
    }
}
