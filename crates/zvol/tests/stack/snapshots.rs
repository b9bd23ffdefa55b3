//! Snapshots of volumes, and clones: each holds exactly what its volume was when it was asked for, or is not
//! there at all, as long as nobody was told that it is.

use fastness_pool::PoolError;
use fastness_zvol::{Volume, VolumeError};

use crate::met::note;
use crate::oracle::Model;
use crate::program::Step;
use crate::rng::Rng;
use crate::volumes::{Fate, Vol};
use crate::world::{Done, World};

/// Snapshots of all volumes, at most.
const SNAPSHOTS_MAX: usize = 6;

/// A snapshot and what it must hold.
pub struct Snap {
    pub name: String,
    pub bytes: Vec<u8>,
    pub fate: Fate,
    /// The same for all that show the same: one that was received has that of the one that was sent.
    pub number: u64,
}

impl Snap {
    pub fn is_of(&self, volume: &str) -> bool {
        self.name.split('@').next() == Some(volume)
    }

    pub fn volume(&self) -> &str {
        self.name.split_once('@').expect("of a volume").0
    }

    /// What it is called in its volume.
    pub fn last_name(&self) -> &str {
        self.name.split_once('@').expect("of a volume").1
    }
}

impl World<'_> {
    pub fn draw_snapshot(&self, volume: usize, rng: &mut Rng) -> Step {
        let nth = rng.index(self.snapshots.len().max(1));
        match rng.below(10) {
            _ if self.snapshots.is_empty() => Step::Snapshot { volume },
            0..4 if self.snapshots.len() < SNAPSHOTS_MAX => Step::Snapshot { volume },
            4 if self.volumes.len() < self.swarm.volumes_max + 1 => Step::Clone { nth },
            5 | 6 => Step::Rollback { nth },
            8 | 9 => self.draw_promotion(rng).unwrap_or(Step::Clone { nth }),
            _ => Step::DestroySnapshot { nth },
        }
    }

    pub fn step_of_snapshots(&mut self, step: &Step) -> Done {
        match step {
            Step::Snapshot { volume } => self.snapshot(*volume),
            Step::DestroySnapshot { nth } => self.destroy_snapshot(*nth),
            Step::Rollback { nth } => self.roll_back(*nth),
            Step::Clone { nth } => self.make_clone(*nth),
            Step::Promote { volume } => self.promote(*volume),
            _ => unreachable!("a step on snapshots"),
        }
    }

    fn snapshot(&mut self, at: usize) -> Done {
        let open = &self.volumes[at];
        // Of a change that failed in part, nobody knows what it holds.
        if open.model.is_vague || !open.is_there() {
            return Ok(());
        }
        // Of two with one name, no clone takes the other one's.
        let is_same = |snap: &Snap, last: &str| {
            snap.last_name() == last && (!self.seed.is_multiple_of(4) || snap.is_of(&open.name))
        };
        let comes = |last: &str| {
            let name = format!("{}@{last}", open.name);
            self.arrivals.iter().any(|arrival| arrival.snapshot == name)
        };
        let is_free = |last: &String| self.snapshots.iter().all(|snap| !is_same(snap, last)) && !comes(last);
        let last = (0..).map(|n| format!("s{n}")).find(is_free).expect("there are few");
        let name = format!("{}@{last}", open.name);
        let bytes = open.model.now.clone();
        let made = self.store().snapshot(&name);
        let is_left = self.pool().dataset(&name).is_ok();
        if made.is_ok() || is_left {
            let fate = if made.is_ok() { Fate::Certain } else { Fate::Making };
            self.snapshots_ever += 1;
            self.snapshots.push(Snap { name, bytes, fate, number: self.snapshots_ever });
        }
        note(&self.met.snapshots, u64::from(made.is_ok()));
        Ok(made?)
    }

    /// Whether a clone began here, or an increment on it is being received.
    fn has_clones(&self, name: &str) -> bool {
        let is_here = |origin: &Option<String>| origin.as_deref() == Some(name);
        self.volumes.iter().any(|open| is_here(&open.origin))
            || self.arrivals.iter().any(|arrival| is_here(&arrival.on))
    }

    fn destroy_snapshot(&mut self, nth: usize) -> Done {
        let Some(snap) = self.snapshots.get(nth) else { return Ok(()) };
        let name = snap.name.clone();
        if snap.fate != Fate::Certain || self.has_clones(&name) {
            return Ok(());
        }
        self.snapshots[nth].fate = Fate::Going;
        self.store().destroy_datasets(vec![name])?;
        self.snapshots.remove(nth);
        note(&self.met.snapshots_gone, 1);
        Ok(())
    }

    /// Snapshots of a volume that is going; `None`: one of them has a clone, or the volume receives.
    pub fn end_snapshots(&mut self, volume: &str) -> Option<Vec<String>> {
        let of_it = || self.snapshots.iter().filter(|snap| snap.is_of(volume));
        let receives = self.arrivals.iter().any(|arrival| arrival.volume == volume);
        if receives || of_it().any(|snap| self.has_clones(&snap.name)) {
            return None;
        }
        let names = of_it().map(|snap| snap.name.clone()).collect();
        self.snapshots.iter_mut().filter(|snap| snap.is_of(volume)).for_each(|snap| snap.fate = Fate::Going);
        Some(names)
    }

    fn roll_back(&mut self, nth: usize) -> Done {
        let Some(snap) = self.snapshots.get(nth) else { return Ok(()) };
        let (name, bytes) = (snap.name.clone(), snap.bytes.clone());
        let is_newer = |at: usize, snap: &Snap| at > nth && snap.is_of(name.split('@').next().unwrap());
        let newer: Vec<usize> =
            (0..self.snapshots.len()).filter(|at| is_newer(*at, &self.snapshots[*at])).collect();
        let is_kept = newer.iter().any(|at| self.has_clones(&self.snapshots[*at].name));
        let of_it = self.volumes.iter().position(|open| snap.is_of(&open.name) && open.is_there());
        let (Some(at), Fate::Certain, false) = (of_it, snap.fate, is_kept) else { return Ok(()) };
        self.volumes[at].close();
        self.volumes[at].rolling = Some(bytes.clone());
        newer.iter().for_each(|at| self.snapshots[*at].fate = Fate::Going);
        if let Err(error) = self.store().rollback(&name, true) {
            if !self.power.is_off() && !self.is_suspended() {
                // It was refused, and nothing has changed.
                self.volumes[at].rolling = None;
                newer.iter().for_each(|at| self.snapshots[*at].fate = Fate::Certain);
            }
            return Err(error.into());
        }
        newer.iter().rev().for_each(|at| drop(self.snapshots.remove(*at)));
        let open = &mut self.volumes[at];
        open.rolling = None;
        open.model = Model::new(bytes, open.block_bytes);
        note(&self.met.rolled_back, 1);
        Ok(())
    }

    fn make_clone(&mut self, nth: usize) -> Done {
        let Some(snap) = self.snapshots.get(nth).filter(|snap| snap.fate == Fate::Certain) else {
            return Ok(());
        };
        let (origin, bytes) = (snap.name.clone(), snap.bytes.clone());
        let is_free = |name: &String| self.volumes.iter().all(|open| open.name != *name);
        let name = (0..).map(|n| format!("tank/c{n}")).find(is_free).expect("there are few");
        let made = self.store().clone_snapshot(&origin, &name, &[]);
        if made.is_ok() || self.pool().dataset(&name).is_ok() {
            let of_it = self.volumes.iter().find(|open| snap.is_of(&open.name));
            let block_bytes = of_it.map_or(4096, |open| open.block_bytes);
            let fate = if made.is_ok() { Fate::Certain } else { Fate::Making };
            let mut vol = Vol::new(name, Model::new(bytes, block_bytes), fate, block_bytes);
            vol.origin = Some(origin);
            self.volumes.push(vol);
        }
        note(&self.met.cloned, u64::from(made.is_ok()));
        Ok(made?)
    }

    /// Every snapshot holds what it must hold.
    pub fn judge_snapshots(&mut self) {
        let store = self.store().clone();
        let mut snapshots = std::mem::take(&mut self.snapshots);
        snapshots.retain_mut(|snap| match Volume::open(&store, &snap.name) {
            Ok(volume) => {
                let mut found = vec![0xaa; volume.size_bytes() as usize];
                volume.read(0, &mut found).unwrap_or_else(|error| panic!("{}: {error}", snap.name));
                let differs = found.iter().zip(&snap.bytes).position(|(found, then)| found != then);
                assert!(
                    differs.is_none() && found.len() == snap.bytes.len(),
                    "{} is not what its volume was, from byte {differs:?} on",
                    snap.name
                );
                snap.fate = Fate::Certain;
                true
            }
            Err(VolumeError::Pool(PoolError::NoDataset(_))) if snap.fate != Fate::Certain => false,
            Err(error) => panic!("{}: {error:?}", snap.name),
        });
        self.snapshots = snapshots;
        let found = self.pool().snapshots().len();
        assert_eq!(found, self.snapshots.len(), "no snapshot is left over");
    }
}
