//! A directory with a cache in front of it, in this process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastness_pmem::{PmRange, WriteMethod};
use fastness_responder::{Cache, Directory, Flusher, Handle, Options, ProtocolKind};

use crate::error::Result;
use crate::folder::Folder;
use crate::medium::emulated_pm;

/// The protocols that are compared.
pub(super) const PROTOCOLS: [(ProtocolKind, &str); 4] = [
    (ProtocolKind::Fr, "FR"),
    (ProtocolKind::Melo, "MeLo@V"),
    (ProtocolKind::Pmal, "PMAL"),
    (ProtocolKind::PmalOrdered, "PMAL-O"),
];

/// A cache, and what flushes it; its directory goes with it.
pub(super) struct Cached {
    pub(super) cache: Arc<Cache<PmRange>>,
    directory: PathBuf,
    _flusher: Option<Flusher>,
}

impl Drop for Cached {
    fn drop(&mut self) {
        // What is left is seen by who runs this.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Cached {
    /// In front of a new directory, flushed in that period if there is one.
    pub(super) fn new(
        folder: &Folder,
        name: &str,
        what: (ProtocolKind, usize),
        period: Option<Duration>,
    ) -> Result<Cached> {
        Cached::at(folder.join(name), what, period)
    }

    /// In front of a directory in memory, where a sync costs nothing, as in the source's machine for PMAL.
    pub(super) fn in_memory(what: (ProtocolKind, usize)) -> Result<Cached> {
        Cached::at(format!("/dev/shm/fastness-bench-directory-{}", std::process::id()).into(), what, None)
    }

    fn at(
        directory: PathBuf,
        (protocol, region_bytes): (ProtocolKind, usize),
        period: Option<Duration>,
    ) -> Result<Cached> {
        std::fs::create_dir(&directory)?;
        let region = emulated_pm(region_bytes, WriteMethod::Auto)?;
        let backing = Arc::new(Directory::open(&directory)?);
        let cache = Arc::new(Cache::create(region, backing, &Options::new().protocol(protocol))?);
        let flusher = period.map(|period| Flusher::start(cache.clone(), period));
        Ok(Cached { cache, directory, _flusher: flusher })
    }

    /// A new file of `len_bytes`, which the directory has.
    pub(super) fn file(&self, name: &str, len_bytes: u64) -> Result<Handle> {
        fill(&self.directory.join(name), len_bytes)?;
        Ok(self.cache.open_file(Path::new(name), None, 0)?)
    }
}

/// Makes a file with all its blocks, durably.
pub(super) fn fill(path: &Path, len_bytes: u64) -> Result<()> {
    let mut file = std::fs::File::create(path)?;
    let block = crate::pool::noise(1 << 20, len_bytes);
    let mut left = len_bytes;
    while left > 0 {
        let len = left.min(block.len() as u64);
        std::io::Write::write_all(&mut file, &block[..len as usize])?;
        left -= len;
    }
    Ok(file.sync_all()?)
}
