//! The regions of a cache: one, or the two sides of a mirror, of which each knows where the other was.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fastness_base::{ErrorKind, HasKind, chain};
use fastness_pmem::{Durability, PmRange, Region, RegionInfo};
use fastness_wcache::{Geometry, MirrorSide, Parts, Sides, Superblock};

use crate::error::FrontError;
use crate::region::{RegionUse, open_region, options};

/// The regions of a cache, open.
pub(super) struct Regions {
    pub(super) sides: Sides<PmRange>,
    pub(super) superblock: Superblock,
    pub(super) info: RegionInfo,
}

/// A region, mapped twice.
pub(super) struct Mapped {
    pub(super) range: PmRange,
    pub(super) view: PmRange,
    pub(super) info: RegionInfo,
    /// It was made just now.
    pub(super) is_new: bool,
}

impl Mapped {
    pub(super) fn open(path: &Path, create_bytes: Option<u64>, how: RegionUse) -> Result<Mapped, FrontError> {
        let (region, is_new) = open_region(path, create_bytes, how)?;
        let descriptor = region.descriptor().map_err(|error| FrontError::io("map twice", path, error))?;
        let view = Region::join(descriptor, &options(how))?.into_range();
        let info = region.info().clone();
        Ok(Mapped { range: region.into_range(), view, info, is_new })
    }

    pub(super) fn divide(self, path: &Path, geometry: Geometry) -> Result<Parts<PmRange>, FrontError> {
        let parts = Parts::divide(self.range, self.view, geometry);
        Ok(parts.map_err(FrontError::block("cannot use", path))?.at(&absolute(path)))
    }
}

/// Where the other side finds a region, from whichever folder it is used.
pub(super) fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// A region with a cache.
struct Found {
    parts: Parts<PmRange>,
    superblock: Superblock,
    info: RegionInfo,
}

/// A region with a cache, or why it cannot be used; and what it says of the other side in either case.
fn with_cache(path: &Path, how: RegionUse) -> (Option<MirrorSide>, Result<Found, FrontError>) {
    let opened = Mapped::open(path, None, how).and_then(|mapped| {
        let found = Superblock::of(&mapped.range).map_err(FrontError::block("cannot use", path));
        Ok((found?, mapped))
    });
    let (superblock, mapped) = match opened {
        Ok(opened) => opened,
        Err(error) => return (None, Err(error)),
    };
    let (side, info) = (superblock.side.clone(), mapped.info.clone());
    let parts = mapped.divide(path, superblock.geometry);
    (side, parts.map(|parts| Found { parts, superblock, info }))
}

/// Of two regions what is said of both: what the one keeps that keeps less.
pub(super) fn weaker(mut one: RegionInfo, other: RegionInfo) -> RegionInfo {
    if other.durability != Durability::PowerFail {
        (one.durability, one.kind, one.msync) = (other.durability, other.kind, other.msync);
    }
    one
}

impl Regions {
    /// Opens the region at `region`, and the other side of its mirror: at `other`, or where it was last. One
    /// of the two suffices here; which of them may be read is not decided here.
    ///
    /// # Errors
    /// [`FrontError`]: neither can be used, or a process has one of them.
    pub(super) fn find(region: &Path, other: Option<&Path>, how: RegionUse) -> Result<Regions, FrontError> {
        let (side, first) = with_cache(region, how);
        let first = match first {
            Err(error) if error.kind() == ErrorKind::Retry => return Err(error),
            first => first,
        };
        let last = side.map(|side| PathBuf::from(OsStr::from_bytes(&side.other_path)));
        // One that was named at another place is there, or that was a mistake.
        let is_asked_for = other.is_some_and(|other| last.as_ref() != Some(&absolute(other)));
        let second = match other.map(Path::to_owned).or(last) {
            None => None,
            Some(path) => match with_cache(&path, how).1 {
                // Somebody uses it: then this cache is in use, or was.
                Err(error) if is_asked_for || error.kind() == ErrorKind::Retry => return Err(error),
                Ok(found)
                    if is_asked_for
                        && first.as_ref().is_ok_and(|it| it.superblock.id != found.superblock.id) =>
                {
                    let (path, region) = (path.display(), region.display());
                    return Err(FrontError::Refused(format!("{path} is no side of the cache in {region}")));
                }
                second => Some(second),
            },
        };
        match (first, second) {
            (Ok(Found { parts, superblock, info }), None) => {
                Ok(Regions { sides: parts.into(), superblock, info })
            }
            (Ok(one), Some(Ok(other))) => {
                let (superblock, info) = (one.superblock, weaker(one.info, other.info));
                Ok(Regions { sides: Sides::pair(one.parts, Ok(other.parts)), superblock, info })
            }
            (Ok(found), Some(Err(error))) | (Err(error), Some(Ok(found))) => {
                let Found { parts, superblock, info } = found;
                Ok(Regions { sides: Sides::pair(parts, Err(chain(&error))), superblock, info })
            }
            (Err(error), _) => Err(error),
        }
    }
}
