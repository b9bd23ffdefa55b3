//! A pool that is suspended, and goes on, with crashes and faults inside.

use fastness_pool::{ErrorKind, PoolError};
use fastness_testkit::media::Bank;
use fastness_zvol::{Volume, VolumeError};

use crate::met::note;
use crate::oracle::Model;
use crate::program::Step;
use crate::rng::Rng;
use crate::volumes::{Fate, Vol};
use crate::world::{Done, Failure, World};

impl World<'_> {
    /// What can be done with a pool that takes no changes.
    pub fn draw_suspended(&self, rng: &mut Rng) -> Step {
        let open: Vec<usize> = (0..self.volumes.len()).filter(|at| self.volumes[*at].is_open()).collect();
        let is_given_up = self.is_given_up;
        match rng.below(8) {
            0..2 => Step::Heal,
            2..5 => Step::Clear { seed: rng.next() },
            5 if !is_given_up && !open.is_empty() => Step::Flush { volume: rng.pick(&open), client: 0 },
            6 if !is_given_up && !open.is_empty() => {
                let volume = rng.pick(&open);
                let size = self.volumes[volume].model.now.len();
                let offset = rng.index(size.min(100_000));
                let data = vec![rng.next() as u8; 6000.min(size - offset)].into();
                Step::Write { volume, client: 0, offset, data, is_fua: rng.one_in(2) }
            }
            7 if self.has_files() => Step::ChangeFiles { seed: rng.next() },
            _ if !is_given_up && self.has_files() && rng.one_in(2) => Step::SyncFiles { seed: rng.next() },
            _ if !is_given_up => Step::Sync,
            _ => Step::Heal,
        }
    }

    /// Imports the pool again, with what was in memory only.
    pub fn clear(&mut self, seed: u64) -> Done {
        let mut rng = Rng::new(seed);
        self.volumes.iter_mut().for_each(Vol::let_go);
        self.close_files();
        self.is_given_up = true;
        self.disks.iter().for_each(|disk| disk.reopen(rng.next()));
        self.banks.iter_mut().for_each(Bank::reopen);
        let store = self.store().clone();
        self.each_source(|source| store.clear(source, false, &mut Vec::new()).map(drop))?;
        // The power may fail when it is durable, while a region is told of it: that is seen later.
        if self.power.is_off() {
            return Err(PoolError::Closed.into());
        }
        self.is_given_up = false;
        self.pool().note_freed(true);
        note(&self.met.cleared, 1);
        note(&self.met.cleared_full, u64::from(self.is_full()));
        let power = self.power.clone();
        power.without_faults(|| self.judge_cleared());
        Ok(())
    }

    /// All reads as before.
    fn judge_cleared(&mut self) {
        self.settle_promotion();
        self.settle_arrivals(false);
        let (store, pool) = (self.store().clone(), self.pool());
        let mut volumes = std::mem::take(&mut self.volumes);
        volumes.retain_mut(|open| match Volume::open(&store, &open.name) {
            Ok(volume) => {
                let mut found = vec![0xaa; volume.size_bytes() as usize];
                volume.read(0, &mut found).unwrap_or_else(|error| panic!("{}: {error:?}", open.name));
                let has_rolled_back = open.has_rolled_back(&found);
                if has_rolled_back {
                    open.model = Model::new(found.clone(), open.block_bytes);
                } else if open.fate == Fate::Certain && !open.model.is_vague {
                    let differs = found.iter().zip(&open.model.now).position(|(found, now)| found != now);
                    let is_same = differs.is_none() && found.len() == open.model.now.len();
                    assert!(
                        is_same,
                        "{} is not as it was before a clear, from byte {differs:?} on",
                        open.name
                    );
                } else {
                    let judged = open.model.judge(&found);
                    judged.unwrap_or_else(|why| panic!("{} after a clear: {why}", open.name));
                }
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
        self.judge_files_cleared();
        self.note_devices();
        let report = pool.check().unwrap_or_else(|error| panic!("a check after a clear: {error}"));
        assert!(report.is_clean(), "after a clear: {report:?}");
    }

    /// Whether a clear may fail: a device does.
    pub fn excuses_clear(&self, failure: &Failure) -> bool {
        let is_refused = self.was_cut && failure.kind == ErrorKind::Corrupt;
        is_refused || self.is_any_loud() || self.lacks_room()
    }
}
