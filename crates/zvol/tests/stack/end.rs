//! The end of a world: when all is destroyed, no space is in use but what was at the beginning.

use fastness_zvol::abort_receiving;

use crate::files;
use crate::volumes::Vol;
use crate::world::World;

/// Txgs that free what was destroyed, at most.
const TXGS_MAX: usize = 1000;

impl World<'_> {
    /// Units of data, and rows for them.
    pub fn in_use(&self) -> (u64, u64) {
        let report = self.pool().check().unwrap_or_else(|error| panic!("a check: {error}"));
        assert!(report.is_clean(), "{report:?}");
        (report.referenced_units, report.rows)
    }

    /// Destroys everything.
    pub fn destroy_all(&mut self) {
        let (pool, store) = (self.pool(), self.store().clone());
        self.volumes.iter_mut().for_each(Vol::close);
        for arrival in std::mem::take(&mut self.arrivals) {
            let aborted = abort_receiving(&store, &arrival.volume);
            aborted.unwrap_or_else(|error| panic!("what came of {}: {error}", arrival.volume));
        }
        let volumes = self.volumes.drain(..).map(|open| open.name);
        let mut names: Vec<String> = volumes.chain(self.snapshots.drain(..).map(|snap| snap.name)).collect();
        self.close_files();
        names.extend(self.files.take().map(|_| files::NAME.to_owned()));
        let left = store.destroy_datasets(names).unwrap_or_else(|error| panic!("at the end: {error}"));
        assert!(left.is_empty(), "{left:?}");
        for _ in 0..TXGS_MAX {
            pool.sync().unwrap_or_else(|error| panic!("a sync at the end: {error}"));
            if !pool.is_freeing() {
                break;
            }
        }
        assert_eq!(self.in_use(), self.in_use_first, "all was destroyed: units, rows");
    }
}
