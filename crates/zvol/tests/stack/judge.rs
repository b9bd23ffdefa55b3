//! What must hold after an import.

use fastness_pool::PoolError;
use fastness_zvol::{Volume, VolumeError, drop_interrupted};

use crate::damage::Damage;
use crate::met::{Met, note};
use crate::oracle::Model;
use crate::program::Step;
use crate::volumes::Fate;
use crate::world::World;

impl World<'_> {
    /// Every volume holds what it may hold.
    pub fn judge(&mut self, damage: &Damage) {
        note(&self.met.promotions_cut, u64::from(self.promoting.is_some()));
        self.settle_promotion();
        drop_interrupted(self.store()).unwrap_or_else(|error| panic!("what streams have left: {error}"));
        self.settle_arrivals(true);
        let store = self.store().clone();
        let mut volumes = std::mem::take(&mut self.volumes);
        volumes.retain_mut(|open| match Volume::open(&store, &open.name) {
            Ok(volume) => {
                let mut found = vec![0xaa; volume.size_bytes() as usize];
                volume.read(0, &mut found).unwrap_or_else(|error| panic!("{}: {error}", open.name));
                let has_changes = !open.model.window.changes.is_empty();
                if open.has_rolled_back(&found) {
                    open.model = Model::new(found.clone(), open.block_bytes);
                }
                let judged = open.model.judge(&found);
                let left = judged.unwrap_or_else(|why| panic!("{}: {why}", open.name));
                let Met { left_nothing, left_part, left_all, .. } = self.met;
                note([left_nothing, left_part, left_all][left as usize], u64::from(has_changes));
                open.model = Model::new(found, open.block_bytes);
                open.fate = Fate::Certain;
                true
            }
            Err(VolumeError::Pool(PoolError::NoDataset(_))) if open.fate != Fate::Certain => false,
            Err(error) => panic!("{}: {error:?}", open.name),
        });
        self.volumes = volumes;
        self.judge_snapshots();
        self.judge_origins();
        self.judge_thick();
        self.judge_guids();
        self.judge_files();
        self.note_devices();
        self.judge_filling();
        if damage.is_accepted() {
            note(if damage.is_stale { &self.met.stale_harmless } else { &self.met.flips_harmless }, 1);
            let report = self.pool().scrub(|_| true).unwrap_or_else(|error| panic!("a scrub: {error}"));
            assert!(report.lost.is_empty(), "after an import that took {damage:?}: {report:?}");
        }
    }

    /// Forgets devices that are no part of the pool.
    pub fn note_devices(&mut self) {
        self.note_log_vdevs();
        let vdevs = self.pool().status().vdevs;
        let names: Vec<&String> = vdevs.iter().flat_map(|(.., sides)| sides).map(|side| &side.path).collect();
        self.disks.retain(|disk| names.contains(&&disk.path));
    }

    /// Allocated is what is reachable, now and after another sync; a volume can be used.
    pub fn check(&mut self) {
        let pool = self.pool();
        for when in ["after the import", "after a sync", "after use"] {
            let report = pool.check().unwrap_or_else(|error| panic!("a check {when}: {error}"));
            assert!(report.is_clean(), "{when}: {report:?}");
            assert!(
                self.is_lwb() || report.log_units == 0 || when == "after the import",
                "{when}: {report:?}"
            );
            if when == "after a sync" {
                self.use_all();
            }
            pool.sync().unwrap_or_else(|error| panic!("a sync {when}: {error:?}"));
        }
        self.settle_synced();
        self.judge_snapshots();
    }

    fn use_all(&mut self) {
        if self.has_files() {
            self.use_files();
        }
        for volume in 0..self.volumes.len() {
            self.run(&Step::Open { volume }, "check");
            let size = self.volumes[volume].model.now.len();
            let (offset, data) = (self.rng.index(size - 5000), vec![0x77; 5000].into());
            self.run(&Step::Write { volume, client: 0, offset, data, is_fua: false }, "check");
            self.run(&Step::Flush { volume, client: 0 }, "check");
            self.run(&Step::Compare { volume }, "check");
        }
    }
}
