//! Looks at a region without recovering it, and without its directory.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fastness_pmem::Medium;

use crate::backing::{CacheId, DirectoryId, FileId};
use crate::cache::Cache;
use crate::error::Error;
use crate::geometry::{Geometry, TAGS_OFFSET};
use crate::kind::ProtocolKind;
use crate::log::records_of;
use crate::medium::CacheMedium;
use crate::names::Ring;
use crate::superblock::Superblock;
use crate::tag::{LINE, Seed, Tag};

/// What a region says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The cache.
    pub cache: CacheId,
    /// How it writes.
    pub protocol: ProtocolKind,
    /// How the region is divided.
    pub geometry: Geometry,
    /// The directory that it belongs to.
    pub directory: DirectoryId,
    /// Where that was when the cache was created, if it is known.
    pub path: Option<PathBuf>,
    /// Chunks that the directory does not have, or syncs in the log, of each file.
    pub dirty_chunks: BTreeMap<FileId, u64>,
    /// Tags that contradict themselves.
    pub damaged_tags: u64,
    /// Changes of names that the directory may not have; `None`: the log of names is damaged.
    pub unsynced_names: Option<u64>,
    /// With the protocol Log: what is wrong with its records; those that follow are not counted.
    pub log_damage: Option<String>,
}

impl<M: CacheMedium> Cache<M> {
    /// What its region says of itself, without the chunks.
    pub fn inspection(&self) -> Inspection {
        Inspection::about(self.superblock.clone())
    }
}

impl Inspection {
    fn about(superblock: Superblock) -> Inspection {
        let Superblock { protocol, cache, geometry, directory, path } = superblock;
        let path = Some(path).filter(|path| !path.as_os_str().is_empty());
        let (dirty_chunks, damaged_tags, unsynced_names) = (BTreeMap::new(), 0, Some(0));
        Inspection {
            cache,
            protocol,
            geometry,
            directory,
            path,
            dirty_chunks,
            damaged_tags,
            unsynced_names,
            log_damage: None,
        }
    }

    /// Looks at the region that begins with the first byte of `region`. Nothing is changed. Chunks of writes
    /// that a recovery would undo are counted, too. Of the protocol Log nothing is counted.
    ///
    /// # Errors
    /// [`Error`]: it holds no cache, or cannot be read.
    pub fn of(region: &impl Medium) -> Result<Inspection, Error> {
        let superblock = Superblock::read(region)?;
        let (geometry, seed) = (superblock.geometry, Seed::new(superblock.cache));
        if geometry.region_bytes > region.len_bytes() as u64 {
            return Err(Error::Geometry("the region is shorter than when the cache was created"));
        }
        let mut found = Inspection::about(superblock);
        let (start, len_bytes) = (geometry.names_offset(), geometry.names_bytes as usize);
        found.unsynced_names = match (Ring { medium: region, start, len_bytes, seed }).look() {
            Err(Error::Names { .. }) => None,
            names => Some(names?.records.len() as u64),
        };
        if found.protocol == ProtocolKind::Log {
            return Ok(found);
        }
        for slot in 0..geometry.slots as usize {
            let mut lines = [[0; LINE]; 2];
            region.read(TAGS_OFFSET + slot * 2 * LINE, lines.as_flattened_mut())?;
            let tags = lines.map(|line| Tag::decode(&line, seed).ok());
            found.damaged_tags += tags.iter().filter(|tag| tag.is_none()).count() as u64;
            for (which, tag) in tags.iter().enumerate() {
                let other = tags[which ^ 1].unwrap_or_default();
                if let Some(tag) = tag.filter(|tag| tag.is_dirty() && !tag.is_superseded_by(&other)) {
                    *found.dirty_chunks.entry(tag.file).or_default() += 1;
                }
            }
        }
        Ok(found)
    }

    /// As [`of`](Self::of), with the syncs of the protocol Log.
    ///
    /// # Errors
    /// As [`of`](Self::of), and [`Error::Log`].
    pub fn of_whole(region: impl CacheMedium) -> Result<Inspection, Error> {
        let mut found = Inspection::of(&region)?;
        if found.protocol == ProtocolKind::Log {
            let (_, rest) = region.divide(TAGS_OFFSET);
            let (log, _) = rest.divide(found.geometry.names_offset() - TAGS_OFFSET);
            let damage;
            (found.dirty_chunks, damage) = records_of(log, &found.geometry)?;
            found.log_damage = damage.map(|error| fastness_base::chain(&error));
        }
        Ok(found)
    }

    /// Whether the region holds nothing at all where a cache would say that it is there.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn is_empty(region: &impl Medium) -> Result<bool, Error> {
        let mut front = vec![0; TAGS_OFFSET.min(region.len_bytes())];
        region.read(0, &mut front)?;
        Ok(front.iter().all(|&byte| byte == 0))
    }
}
