//! A pool that is suspended, and goes on: what `pool clear` does in the daemon, with crashes and faults
//! inside.

use fastness_pool::{ErrorKind, PoolError};
use fastness_zvol::{Volume, VolumeError};

use crate::met::note;
use crate::oracle::Model;
use crate::program::Step;
use crate::rng::Rng;
use crate::volumes::{Fate, Vol};
use crate::world::{Done, Failure, World};
use fastness_store::Txgs;

impl World<'_> {
    /// What can be done with a pool that takes no changes.
    pub fn draw_suspended(&self, rng: &mut Rng) -> Step {
        let open: Vec<usize> = (0..self.volumes.len()).filter(|at| self.volumes[*at].is_open()).collect();
        let is_given_up = self.kept.is_some();
        match rng.below(8) {
            0..2 => Step::Heal,
            2..5 => Step::Clear { seed: rng.next() },
            5 if !is_given_up && !open.is_empty() => Step::Flush { volume: rng.pick(&open), client: 0 },
            6 if !is_given_up && !open.is_empty() => {
                let volume = rng.pick(&open);
                let (offset, data) = (rng.index(100_000), vec![rng.next() as u8; 6000].into());
                Step::Write { volume, client: 0, offset, data, is_fua: rng.one_in(2) }
            }
            _ if !is_given_up => Step::Sync,
            _ => Step::Heal,
        }
    }

    /// Imports the pool again, and writes what was in memory only.
    pub fn clear(&mut self, seed: u64) -> Done {
        let mut rng = Rng::new(seed);
        if self.kept.is_none() {
            let (pool, log) = self.stack.take().expect("suspended");
            self.volumes.iter_mut().for_each(Vol::let_go);
            drop(log);
            self.kept = Some(pool.abandon()?);
        }
        self.disks.iter().for_each(|disk| disk.reopen(rng.next()));
        self.banks.iter_mut().for_each(crate::bank::Bank::reopen);
        self.import_as(Txgs::Paused)?;
        let synced = self.pool().synced_txg();
        if let Err(failure) = self.apply() {
            let (pool, _) = self.stack.take().expect("imported");
            assert_eq!(pool.synced_txg(), synced, "a part of what was in memory is durable");
            return Err(failure);
        }
        let synced = self.pool().sync();
        // The power may fail when it is durable, while a region is told of it: that is seen later.
        if synced.is_err() || self.power.is_off() {
            self.stack = None;
            return Err(synced.err().unwrap_or(PoolError::Closed).into());
        }
        self.kept = None;
        note(&self.met.cleared, 1);
        note(&self.met.cleared_full, u64::from(self.is_full()));
        let power = self.power.clone();
        power.without_faults(|| self.judge_cleared());
        Ok(())
    }

    /// What was in memory only is in the first txg, with what the log has replayed.
    fn apply(&mut self) -> Done {
        let pool = self.pool().clone();
        let unsynced = self.kept.as_mut().expect("kept");
        unsynced.apply(&pool, &pool.begin_replay_tx()?)?;
        Ok(pool.start_txgs()?)
    }

    /// All reads as before.
    fn judge_cleared(&mut self) {
        let (pool, log) = self.stack.clone().expect("imported");
        let mut volumes = std::mem::take(&mut self.volumes);
        volumes.retain_mut(|open| match Volume::open(&pool, Some(&*log), &open.name) {
            Ok(volume) => {
                let mut found = vec![0xaa; volume.size_bytes() as usize];
                volume.read(0, &mut found).unwrap_or_else(|error| panic!("{}: {error:?}", open.name));
                if open.fate == Fate::Certain && !open.model.is_vague {
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
        self.note_devices();
        let report = pool.check().unwrap_or_else(|error| panic!("a check after a clear: {error}"));
        assert!(report.is_clean(), "after a clear: {report:?}");
    }

    /// Whether a clear may fail: a device does.
    pub fn excuses_clear(&self, failure: &Failure) -> bool {
        let is_refused = self.was_cut && failure.kind == ErrorKind::Corrupt;
        is_refused || self.is_any_loud() && failure.kind != ErrorKind::NoSpace
    }
}
