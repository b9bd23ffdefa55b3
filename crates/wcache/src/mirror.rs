//! What is known of the two sides of a cache.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use fastness_sync::{Mutex, lock};

use crate::error::Error;
use crate::sides::Absent;
use crate::status::SideStatus;
use crate::superblock::{MirrorSide, PATHS_BYTES_MAX, Superblock};

/// What is known of the sides of a cache.
#[derive(Debug)]
pub(crate) struct MirrorInfo {
    /// Which sides were used when the cache was opened, in the order of their media.
    pub(crate) sides: Vec<usize>,
    /// Which of these was named first.
    pub(crate) named: Option<usize>,
    pub(crate) state: Mutex<Vec<SideStatus>>,
}

impl MirrorInfo {
    /// `paths` of the sides that are used, in their order.
    pub(crate) fn new(paths: Vec<PathBuf>, named: Option<usize>, absent: Option<Absent>) -> MirrorInfo {
        let mut state: Vec<_> =
            paths.into_iter().map(|path| SideStatus { path, out: None, faults: 0 }).collect();
        let mut sides: Vec<_> = (0..state.len()).collect();
        if let Some(Absent { side, path, why, .. }) = absent {
            sides = vec![1 - side];
            state.insert(side, SideStatus { path, out: Some(why), faults: 0 });
        }
        MirrorInfo { sides, named, state: Mutex::new(state) }
    }

    /// What the sides are like.
    pub(crate) fn state(&self) -> Vec<SideStatus> {
        lock(&self.state).clone()
    }

    /// The superblocks of the sides that are used, with the paths at which the other ones were found.
    pub(crate) fn found_at(&self, mut superblocks: Vec<Superblock>) -> Vec<Superblock> {
        if let [first, second] = &mut superblocks[..] {
            let state = lock(&self.state);
            for (superblock, other) in [(first, &state[1]), (second, &state[0])] {
                let (path, most) = (other.path.as_os_str().as_bytes(), PATHS_BYTES_MAX);
                let fits = !path.is_empty() && path.len() + superblock.origin_path.len() <= most;
                if let (Some(side), true) = (&mut superblock.side, fits) {
                    side.other_path = path.to_vec();
                }
            }
        }
        superblocks
    }

    /// Counts entries that a side did not have when the cache was opened.
    pub(crate) fn note_damage(&self, damaged: &[u64]) {
        let mut state = lock(&self.state);
        self.sides.iter().zip(damaged).for_each(|(side, count)| state[*side].faults += count);
    }
}

/// The superblock of each region: of a mirror each with its own place and the path of the other.
///
/// # Errors
/// [`Error::Refused`]: the paths have no room.
pub(crate) fn superblocks(
    of_cache: &Superblock,
    number: Option<u64>,
    paths: &[PathBuf],
) -> Result<Vec<Superblock>, Error> {
    let Some(mirror) = number else { return Ok(vec![Superblock { side: None, ..of_cache.clone() }]) };
    let side = |side: usize| {
        let other_path = paths[1 - side].as_os_str().as_bytes().to_vec();
        let (found, most) = (other_path.len() + of_cache.origin_path.len(), PATHS_BYTES_MAX);
        if found > most {
            let text =
                format!("the names of origin and region have {found} bytes, and there is room for {most}");
            return Err(Error::Refused(text));
        }
        let side = Some(MirrorSide { mirror, side, other_path });
        Ok(Superblock { side, ..of_cache.clone() })
    };
    [0, 1].into_iter().map(side).collect()
}
