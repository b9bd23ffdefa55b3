//! Regions that an import finds but the pool does not name: they may know that the pool's devices are older
//! copies.
//!
//! Motivation: a device from before `pool add tank log REGION` does not name any region, so by its own
//! account nothing is missing. The region names the pool, and its marks say which txg of the pool has become
//! durable.
//!
//! Design: only superblocks and marks are read, [`FRONT_BYTES`] in all, and only of files and device-DAX
//! devices. Nothing is written. Files are not locked: one that another process holds says the same.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use fastness_pmem::Medium;
use fastness_pool::{Guid, Mark, Pool};

use crate::config::RegionId;
use crate::error::StoreError;
use crate::log::PoolLog;
use crate::marks::{self, Mismatch};
use crate::region::{self, FRONT_BYTES, RegionParts};

/// What a region says about its pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionWitness {
    /// Where it is.
    pub path: PathBuf,
    /// The identity in its superblock.
    pub id: RegionId,
    /// The pool whose log it is, or was.
    pub pool: Guid,
    /// The newest txg that it has seen become durable, if any.
    pub synced: Option<Mark>,
}

impl RegionWitness {
    /// Reads the region at `path`; `None` if there is none, or it cannot be read.
    pub fn at(path: &Path) -> Option<RegionWitness> {
        let front = front_of(path)?;
        let superblock = region::superblock_in(&front)?;
        let synced = marks::newest_synced(&front, superblock.id);
        Some(RegionWitness { path: path.to_owned(), id: superblock.id, pool: Guid(superblock.pool), synced })
    }

    /// Checks whether the regions at `paths`, wherever they come from, show the pool's devices to be older
    /// copies.
    ///
    /// # Errors
    /// [`StoreError::Copy`] with [`Mismatch::Newer`]: the region that has seen the newest txg.
    pub fn ask<'a>(pool: &Pool, paths: impl IntoIterator<Item = &'a Path>) -> Result<(), StoreError> {
        let (guid, synced) = (pool.config().guid, pool.synced_mark());
        let found = paths.into_iter().filter_map(RegionWitness::at).filter(|region| region.pool == guid);
        let newer = found.filter_map(|region| {
            let newest = region.synced.filter(|mark| mark.txg > synced.txg)?;
            Some((region, newest))
        });
        let Some((region, newest)) = newer.max_by_key(|(_, newest)| newest.txg) else { return Ok(()) };
        let error = StoreError::Copy {
            region: region.id,
            path: Some(region.path),
            mismatch: Mismatch::Newer(newest),
            synced,
            devices: Vec::new(),
        };
        Err(error.naming_devices(pool))
    }
}

/// The bytes before the chunks of the region at `path`.
fn front_of(path: &Path) -> Option<Vec<u8>> {
    let mut front = vec![0; FRONT_BYTES];
    let found = fs::metadata(path).ok()?.file_type();
    if found.is_file() {
        File::open(path).ok()?.read_exact(&mut front).ok()?;
    } else if found.is_char_device() {
        // Anything that is not a device-DAX device is refused before it is opened.
        let region = PoolLog::open_region(path, false).ok()?;
        RegionParts::of(region).ok()?.front.read(0, &mut front).ok()?;
    } else {
        return None;
    }
    Some(front)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_region_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            RegionWitness::at(&path)
        };
        assert_eq!(at("empty", &[]), None);
        assert_eq!(at("short", b"FSTNINTL"), None);
        assert_eq!(at("zeroes", &[0; 2 * FRONT_BYTES]), None);
        assert_eq!(at("magic", &[&b"FSTNINTL"[..], &[7; 2 * FRONT_BYTES]].concat()), None);
        for path in ["/dev/null", "/dev", "/nowhere"] {
            assert_eq!(RegionWitness::at(Path::new(path)), None, "{path}");
        }
    }
}
