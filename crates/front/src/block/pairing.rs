//! A region and the origin of the cache in it: brought together, checked, recovered, and taken apart.

use std::path::Path;

use fastness_pmem::{PmRange, Region, RegionInfo};
use fastness_wcache::{Cache, Geometry, Inspection, Options, Parts, Replayed, Superblock, origin_named};

use crate::block::report::{Report, origin_of};
use crate::error::FrontError;
use crate::region::{RegionUse, open_region, options};

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

/// A cache that was taken up: the origin has everything that it had.
#[derive(Debug)]
pub struct Recovery {
    pub(super) cache: Cache<PmRange>,
    pub(super) info: RegionInfo,
    /// What that took; `None` if the cache was made just now.
    pub replayed: Option<Replayed>,
}

fn opened(
    path: &Path,
    create_bytes: Option<u64>,
    how: RegionUse,
) -> Result<(Region, PmRange, bool), FrontError> {
    let (region, is_new) = open_region(path, create_bytes, how)?;
    let descriptor = region.descriptor().map_err(|error| FrontError::io("map twice", path, error))?;
    let view = Region::join(descriptor, &options(how))?.into_range();
    Ok((region, view, is_new))
}

fn parts(region: Region, view: PmRange, path: &Path) -> Result<(Parts<PmRange>, Superblock), FrontError> {
    let range = region.into_range();
    let fail = "cannot use";
    let superblock = Superblock::of(&range).map_err(FrontError::block(fail, path))?;
    let parts = Parts::divide(range, view, superblock.geometry).map_err(FrontError::block(fail, path))?;
    Ok((parts, superblock))
}

impl Pair {
    /// Makes a cache in `region`, which is made if it is not there, in front of `origin`.
    ///
    /// Persistence: as [`Cache::create`].
    ///
    /// # Errors
    /// [`FrontError`]; nothing was changed, and no file is left.
    pub fn create(&self, region: &Path, origin: &Path) -> Result<Recovery, FrontError> {
        let (opened, view, is_new) = opened(region, Some(self.region_bytes), self.region_use)?;
        let info = opened.info().clone();
        let fail = |error| FrontError::block("cannot make a cache in", region)(error);
        let made = Geometry::dividing(info.len_bytes, None)
            .and_then(|geometry| Parts::divide(opened.into_range(), view, geometry))
            .and_then(|parts| Cache::create(parts, origin_named(origin), &self.options))
            .map_err(fail);
        if made.is_err() && is_new {
            // Of no use; nothing can be done if it stays.
            let _ = std::fs::remove_file(region);
        }
        Ok(Recovery { cache: made?, info, replayed: None })
    }
}

/// What a region says of itself; nothing is changed, and its origin is not needed.
///
/// # Errors
/// [`FrontError`]; of kind Retry if a process has it.
pub fn inspect(region: &Path) -> Result<Report, FrontError> {
    // How an ordinary file was used is not known: what is said of it errs towards emulation.
    let (opened, view, _) = opened(region, None, RegionUse::Emulated)?;
    let info = opened.info().clone();
    let (parts, _) = parts(opened, view, region)?;
    let found = Inspection::of(parts, &Options::new()).map_err(FrontError::block("cannot use", region))?;
    Ok(Report::of_inspection(&found, &info))
}

impl Recovery {
    /// Takes up the cache of a region that no process has; `origin` only if it is elsewhere now.
    ///
    /// Persistence: on return the origin has everything that was acknowledged.
    ///
    /// # Errors
    /// [`FrontError`]; everything is in the region still.
    pub fn of(
        region: &Path,
        origin: Option<&Path>,
        how: RegionUse,
        options: &Options,
    ) -> Result<Recovery, FrontError> {
        let (opened, view, _) = opened(region, None, how)?;
        let info = opened.info().clone();
        let (parts, superblock) = parts(opened, view, region)?;
        let origin = origin.map_or_else(|| origin_of(&superblock), Path::to_owned);
        let (cache, replayed) = Cache::open(parts, origin_named(&origin), options)
            .map_err(FrontError::block("cannot take up the cache in", region))?;
        Ok(Recovery { cache, info, replayed: Some(replayed) })
    }

    /// What there is.
    pub fn report(&self) -> Report {
        Report::of(&self.cache, &self.info, self.replayed.as_ref())
    }

    /// Ends the cache: the origin has everything, and the region holds nothing.
    ///
    /// # Errors
    /// [`FrontError::Block`]: the cache is there still.
    pub fn detach(self) -> Result<(), FrontError> {
        let region = self.info.path.clone().unwrap_or_default();
        self.cache.detach().map_err(FrontError::block("cannot end the cache in", &region))
    }
}
