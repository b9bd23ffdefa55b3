//! The regions of a log of kind pmem: one, or a mirror of two.
//!
//! Each region has its own superblocks, with its own number; the chunks of both form one PRB, see
//! `docs/adr/2026-11-22-mirrored-pm-log.md`.

use std::sync::{Arc, Mutex, PoisonError};

use fastness_sync::lock;

use fastness_pmem::{AnyRange, Medium, Mirror, PersistError, RegionInfo, View};
use fastness_pool::{Mark, Pool};
use fastness_zil::PmemLogs;

use crate::config::RegionId;
use crate::config::{LogConfig, REGIONS_MAX, RegionConfig};
use crate::error::StoreError;
use crate::marks::{self, Mismatch, Phase};
use crate::region::{self, RegionParts, Superblock};
use crate::tuning::Tuning;

/// A region in use.
pub(crate) struct OpenRegion {
    pub(crate) id: RegionId,
    pub(crate) info: RegionInfo,
    /// Superblocks and marks.
    front: Mutex<AnyRange>,
    /// Chunks after those that are in use.
    rest: Vec<AnyRange>,
    /// All of it.
    pub(crate) view: Option<Arc<dyn View>>,
}

impl OpenRegion {
    /// Notes durably how far a txg has come. A region that fails a fence stops taking records by itself.
    ///
    /// # Errors
    /// That of the fence.
    pub(crate) fn mark(&self, phase: Phase, mark: Mark) -> Result<(), PersistError> {
        let mut front = lock(&self.front);
        marks::write(&mut *front, self.id, phase, mark)
    }

    /// Checks whether a fence of the region would fail.
    ///
    /// # Errors
    /// That of the fence.
    pub(crate) fn check(&self) -> Result<(), PersistError> {
        lock(&self.front).check()
    }

    /// Refuses a region that is an older copy of itself, or whose pool is one; `synced`: the pool's last
    /// synced txg.
    pub(crate) fn check_marks(&self, synced: Mark) -> Result<(), StoreError> {
        let front = lock(&self.front);
        check_marks(&*front, self.id, &self.info, synced)
    }
}

/// See [`OpenRegion::check_marks`].
pub(crate) fn check_marks(
    front: &impl Medium,
    region: RegionId,
    info: &RegionInfo,
    synced: Mark,
) -> Result<(), StoreError> {
    let path = || info.path.clone();
    marks::check(front, region, synced).map_err(|mismatch| StoreError::Copy {
        region,
        path: path(),
        mismatch,
        synced,
        devices: Vec::new(),
    })
}

/// A region of a log and its chunks that are in use.
pub(crate) struct Side {
    pub(crate) region: OpenRegion,
    chunks: Vec<AnyRange>,
}

impl Side {
    fn new(parts: RegionParts, id: RegionId, used_bytes: u64) -> Side {
        let RegionParts { info, front, mut chunks, view } = parts;
        let mut end = front.len_bytes() as u64;
        let fits = |chunk: &AnyRange| {
            end += chunk.len_bytes() as u64;
            end <= used_bytes
        };
        let count = chunks.iter().map(fits).take_while(|fits| *fits).count();
        let rest = chunks.split_off(count);
        Side { region: OpenRegion { id, info, front: Mutex::new(front), rest, view }, chunks }
    }

    /// A region that was a log.
    pub(crate) fn open(mut parts: RegionParts) -> Result<Side, StoreError> {
        let len_bytes = parts.len_bytes();
        // Stores of a process that died may still be only in the CPU's caches.
        parts.front.write_back(0, parts.front.len_bytes());
        // PERSIST: the superblocks are durable before anything is done because of them.
        parts.front.fence()?;
        let found = region::read(&parts.front, len_bytes)?;
        Ok(Side::new(parts, found.id, found.region_bytes))
    }

    /// The region as it was passed in.
    fn into_parts(self) -> RegionParts {
        let Side { region: OpenRegion { info, front, rest, view, .. }, mut chunks } = self;
        let front = front.into_inner().unwrap_or_else(PoisonError::into_inner);
        chunks.extend(rest);
        RegionParts { info, front, chunks, view }
    }

    fn shape(&self) -> Vec<usize> {
        self.chunks.iter().map(Medium::len_bytes).collect()
    }
}

/// The regions of a log that are present.
pub(crate) struct Sides(Vec<Side>);

impl Sides {
    /// Takes those of `regions` that belong to the pool's log; one suffices.
    ///
    /// # Errors
    /// What is wrong with the first one that does not belong to it; [`StoreError::Missing`].
    pub(crate) fn find(
        config: &LogConfig,
        regions: Vec<Result<RegionParts, StoreError>>,
        synced: Mark,
    ) -> Result<Sides, StoreError> {
        let wanted: Vec<_> = config.in_use().map(|region| region.id).collect();
        let first = config.in_use().next().expect("kind pmem has a region in use");
        let (expected, last) = (first.id, || first.path.clone());
        let (mut found, mut why) = (Vec::<Side>::new(), None);
        for region in regions {
            match region.and_then(Side::open) {
                Ok(side) if wanted.contains(&side.region.id) => match side.region.check_marks(synced) {
                    Ok(()) => found.push(side),
                    // Whatever the other side says: what it lacks, if it was lost in use, is in this one and
                    // was in the pool.
                    Err(error @ StoreError::Copy { mismatch: Mismatch::Newer(_), .. }) => return Err(error),
                    // This says more than that another region is missing.
                    Err(error) => why = Some(error),
                },
                Ok(side) => {
                    let OpenRegion { id: found, info, .. } = side.region;
                    why.get_or_insert(StoreError::OtherLog {
                        found,
                        path: info.path,
                        last: last(),
                        expected,
                    });
                }
                Err(error) => {
                    why.get_or_insert(error);
                }
            }
        }
        found.sort_by_key(|side| wanted.iter().position(|id| *id == side.region.id));
        // A copy of a region does not belong to the log; and sides that differ in shape cannot have been
        // written together.
        found.dedup_by(|later, first| later.region.id == first.region.id || later.shape() != first.shape());
        match found.is_empty() {
            true => Err(why.unwrap_or(StoreError::Missing { last: last(), expected })),
            false => Ok(Sides(found)),
        }
    }

    /// A region, if it is among them.
    pub(crate) fn region(&self, id: RegionId) -> Option<&OpenRegion> {
        self.0.iter().map(|side| &side.region).find(|region| region.id == id)
    }

    /// The regions, and the chunks that all of them have.
    pub(crate) fn mirrored(self) -> (Vec<OpenRegion>, Vec<Mirror<AnyRange>>) {
        let (regions, chunks): (Vec<_>, Vec<_>) =
            self.0.into_iter().map(|side| (side.region, side.chunks)).unzip();
        let mut sides = chunks.into_iter();
        let (first, second) = (sides.next().unwrap_or_default(), sides.next());
        let chunks = match second {
            None => first.into_iter().map(Mirror::single).collect(),
            Some(second) => {
                first.into_iter().zip(second).map(|(first, second)| Mirror::pair(first, second)).collect()
            }
        };
        (regions, chunks)
    }
}

/// Restores the parts of each region, after [`Sides::mirrored`].
pub(crate) fn apart(regions: Vec<OpenRegion>, chunks: Vec<Mirror<AnyRange>>) -> Vec<(RegionId, RegionParts)> {
    let (first, second): (Vec<_>, Vec<_>) = chunks.into_iter().map(Mirror::into_sides).unzip();
    let sides = [first, second.into_iter().flatten().collect()];
    let part =
        |(region, chunks): (OpenRegion, Vec<AnyRange>)| (region.id, Side { region, chunks }.into_parts());
    regions.into_iter().zip(sides).map(part).collect()
}

/// A region that becomes one of a log; its contents are lost.
#[derive(Debug)]
pub struct NewRegion {
    /// The region.
    pub parts: RegionParts,
    /// Path, recorded for the next import.
    pub path: std::path::PathBuf,
    /// Whether it only stands in for persistent memory.
    pub emulates: bool,
}

/// What a log consists of, before the pool records it.
pub(crate) struct Formatted {
    pub(crate) logs: PmemLogs<Mirror<AnyRange>>,
    pub(crate) regions: Vec<OpenRegion>,
    pub(crate) configs: Vec<RegionConfig>,
}

/// Makes regions the log of a pool; the pool does not record it yet. Their contents are lost.
pub(crate) fn format(pool: &Pool, new: Vec<NewRegion>, tuning: Tuning) -> Result<Formatted, StoreError> {
    if !(1..=REGIONS_MAX).contains(&new.len()) {
        return Err(StoreError::Mixed(
            "a log is on one region of persistent memory, or on two that are a mirror",
        ));
    }
    let used_bytes = new.iter().map(|new| new.parts.len_bytes()).min().expect("there is one");
    let (mut sides, mut configs) = (Vec::new(), Vec::new());
    for NewRegion { parts, path, emulates } in new {
        let id = RegionId(getrandom::u64().expect("the operating system gives random numbers"));
        sides.push(Side::new(parts, id, used_bytes));
        configs.push(RegionConfig { id, emulates, is_out: false, path });
    }
    if sides.iter().any(|side| side.shape() != sides[0].shape()) {
        return Err(StoreError::Mixed("the regions of a mirror are divided in another way"));
    }
    let (mut regions, chunks) = Sides(sides).mirrored();
    let logs = PmemLogs::format(tuning.config(chunks.len()), chunks)?;
    for region in &mut regions {
        let superblock = Superblock::new(region.id, pool.config().guid.0, used_bytes);
        let front = region.front.get_mut().unwrap_or_else(PoisonError::into_inner);
        region::format(front, &superblock)?;
    }
    Ok(Formatted { logs, regions, configs })
}
