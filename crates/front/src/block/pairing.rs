//! A region and the origin of the cache in it: brought together, checked, recovered, and taken apart.

use std::path::{Path, PathBuf};

use fastness_pmem::{PmRange, RegionInfo};
use fastness_wcache::{Cache, Geometry, Inspection, Options, Replayed, Sides, origin_named};

use crate::block::regions::{Mapped, Regions, absolute, weaker};
use crate::block::report::{Report, origin_of};
use crate::error::FrontError;
use crate::region::RegionUse;

/// A region without a cache, and what the cache is to be in front of.
#[derive(Debug, Clone)]
pub struct Pair {
    /// Length of a file that is made for the region.
    pub region_bytes: u64,
    /// How the file of the region is used.
    pub region_use: RegionUse,
    /// How the cache works.
    pub options: Options,
}

/// Where the parts of a cache are now.
#[derive(Debug, Clone, Default)]
pub struct TakeUp {
    /// The origin, if it is not where it was.
    pub origin: Option<PathBuf>,
    /// The other side of a mirror, if that is not where it was.
    pub other: Option<PathBuf>,
}

/// A cache that was taken up: the origin has everything that it had.
#[derive(Debug)]
pub struct Recovery {
    pub(super) cache: Cache<PmRange>,
    pub(super) info: RegionInfo,
    /// As it was named.
    region: PathBuf,
    /// What that took; `None` if the cache was made just now.
    pub replayed: Option<Replayed>,
}

impl Pair {
    /// Makes a cache in `regions`, one or the two sides of a mirror, in front of `origin`. Those that are not
    /// there are made.
    ///
    /// Persistence: as [`Cache::create`].
    ///
    /// # Errors
    /// [`FrontError`]; nothing was changed, and no file is left.
    pub fn create(&self, regions: &[PathBuf], origin: &Path) -> Result<Recovery, FrontError> {
        let mut made = Vec::new();
        let result = self.create_in(regions, origin, &mut made);
        if result.is_err() {
            // Of no use; nothing can be done if they stay.
            made.iter().for_each(|region| drop(std::fs::remove_file(region)));
        }
        result
    }

    fn create_in(
        &self,
        regions: &[PathBuf],
        origin: &Path,
        made: &mut Vec<PathBuf>,
    ) -> Result<Recovery, FrontError> {
        let [region, ..] = regions else { return Err(FrontError::Refused("no region was named".to_owned())) };
        let mut opened = Vec::new();
        for (at, path) in regions.iter().enumerate() {
            refuse_same(path, &regions[..at])?;
            let mapped = Mapped::open(path, Some(self.region_bytes), self.region_use)?;
            made.extend(mapped.is_new.then(|| path.clone()));
            opened.push(mapped);
        }
        let info = opened.iter().map(|mapped| mapped.info.clone()).reduce(weaker).expect("there is one");
        // A side that is longer than the other has a rest that nobody uses.
        let len_bytes = opened.iter().map(|mapped| mapped.info.len_bytes).min().expect("there is one");
        let fail = |error| FrontError::block("cannot make a cache in", region)(error);
        let geometry = Geometry::dividing(len_bytes, None).map_err(fail)?;
        let mut parts = Vec::new();
        for (mapped, path) in opened.into_iter().zip(regions) {
            parts.push(mapped.divide(path, geometry)?);
        }
        let mut parts = parts.into_iter();
        let sides = match (parts.next().expect("there is one"), parts.next()) {
            (only, None) => only.into(),
            (first, Some(second)) => Sides::pair(first, Ok(second)),
        };
        let cache = Cache::create(sides, origin_named(origin), &self.options).map_err(fail)?;
        Ok(Recovery { cache, info, region: region.clone(), replayed: None })
    }
}

/// A region cannot be both sides.
fn refuse_same(region: &Path, others: &[PathBuf]) -> Result<(), FrontError> {
    match others.iter().any(|other| absolute(other) == absolute(region)) {
        true => Err(FrontError::Refused(format!("{} cannot be both sides of a mirror", region.display()))),
        false => Ok(()),
    }
}

/// What a region says of itself, and the other side of its mirror; nothing is changed, and the origin is not
/// needed.
///
/// # Errors
/// [`FrontError`]; of kind Retry if a process has it.
pub fn inspect(region: &Path, other: Option<&Path>) -> Result<Report, FrontError> {
    // How an ordinary file was used is not known: what is said of it errs towards emulation.
    let Regions { sides, info, .. } = Regions::find(region, other, RegionUse::Emulated)?;
    let found = Inspection::of(sides, &Options::new()).map_err(FrontError::block("cannot use", region))?;
    Ok(Report::of_inspection(&found, &info))
}

impl TakeUp {
    /// Takes up the cache of a region that no process has.
    ///
    /// Persistence: on return the origin has everything that was acknowledged.
    ///
    /// # Errors
    /// [`FrontError`]; everything is in the region still.
    pub fn open(&self, region: &Path, how: RegionUse, options: &Options) -> Result<Recovery, FrontError> {
        let Regions { sides, superblock, info } = Regions::find(region, self.other.as_deref(), how)?;
        let origin = self.origin.clone().unwrap_or_else(|| origin_of(&superblock));
        let (cache, replayed) = Cache::open(sides, origin_named(&origin), options)
            .map_err(FrontError::block("cannot take up the cache in", region))?;
        Ok(Recovery { cache, info, region: region.to_owned(), replayed: Some(replayed) })
    }
}

impl Recovery {
    /// What there is.
    pub fn report(&self) -> Report {
        Report::of(&self.cache, &self.info, self.replayed.as_ref())
    }

    /// Ends the cache: the origin has everything, and the region holds nothing.
    ///
    /// # Errors
    /// [`FrontError::Block`]: the cache is there still.
    pub fn detach(self) -> Result<(), FrontError> {
        self.cache.detach().map_err(FrontError::block("cannot end the cache in", &self.region))
    }

    /// Makes `new` a side of the cache's mirror: its second one, or in the place of the one that is out. A
    /// file is made if it is not there. The origin has everything, and the cache can be served again.
    ///
    /// # Errors
    /// [`FrontError`]: the cache is as it was, and no file is left.
    pub fn attach(self, new: &Path, how: RegionUse) -> Result<(), FrontError> {
        let geometry = self.cache.superblock().geometry;
        refuse_same(new, &self.regions())?;
        refuse_same(new, std::slice::from_ref(&self.region))?;
        let mapped = Mapped::open(new, Some(geometry.region_bytes), how)?;
        let is_new = mapped.is_new;
        let used = self.regions().into_iter().next().unwrap_or_else(|| absolute(&self.region));
        let attached = mapped.divide(new, geometry).and_then(|parts| {
            self.cache.attach(parts, used).map_err(FrontError::block("cannot attach", new))
        });
        if attached.is_err() && is_new {
            // Of no use; nothing can be done if it stays.
            let _ = std::fs::remove_file(new);
        }
        attached
    }

    /// Makes the cache one of the region that was named alone: the other side leaves.
    ///
    /// # Errors
    /// [`FrontError`]: the cache has both sides still.
    pub fn detach_side(self) -> Result<(), FrontError> {
        let refused = "the region that is to stay is not in use";
        if !self.regions().contains(&absolute(&self.region)) {
            return Err(FrontError::Refused(refused.to_owned()));
        }
        self.cache.detach_side().map_err(FrontError::block("cannot part the sides of", &self.region))
    }

    /// The sides of a mirror that are in use; of a cache in one region none.
    pub fn regions(&self) -> Vec<PathBuf> {
        let sides = self.cache.status().sides.into_iter();
        sides.filter(|side| side.out.is_none()).map(|side| side.path).collect()
    }
}
