//! Clones that are promoted: a clone and the volume that it began in change places, all at once or not at
//! all. Each keeps its name and its bytes; the snapshots up to the one between them get the clone's name.

use fastness_pool::ErrorKind;

use crate::met::note;
use crate::program::Step;
use crate::rng::Rng;
use crate::volumes::Fate;
use crate::world::{Done, Failure, World};

/// One that has begun, and nobody was told that it was made.
#[derive(Debug, Clone)]
pub struct Promotion {
    clone: String,
    volume: String,
    /// The snapshot that the clone begins as.
    base: String,
    /// Snapshots, as they are called before and after it.
    renamed: Vec<(String, String)>,
}

impl Promotion {
    fn renamed(&self, name: &str) -> Option<&String> {
        self.renamed.iter().find(|(before, _)| before == name).map(|(_, after)| after)
    }
}

impl World<'_> {
    pub fn draw_promotion(&self, rng: &mut Rng) -> Option<Step> {
        let clones: Vec<usize> =
            (0..self.volumes.len()).filter(|at| self.volumes[*at].origin.is_some()).collect();
        (!clones.is_empty()).then(|| Step::Promote { volume: rng.pick(&clones) })
    }

    pub fn promote(&mut self, at: usize) -> Done {
        let Some(promotion) = self.promotion(at) else { return Ok(()) };
        let is_taken = |name: &String| self.snapshots.iter().any(|snap| snap.name == *name);
        let is_double = promotion.renamed.iter().any(|(_, after)| is_taken(after));
        let both = [&promotion.clone, &promotion.volume];
        self.volumes.iter_mut().filter(|open| both.contains(&&open.name)).for_each(|open| open.close());
        self.promoting = (!is_double).then(|| promotion.clone());
        // Another than that of which the step was drawn.
        let mut rng = Rng::of_step(self.seed, self.life, !self.step);
        self.cut_soon(&mut rng, 8);
        let promoted = self.store().promote(&promotion.clone).map_err(Failure::from);
        if is_double {
            note(&self.met.promotions_refused, 1);
            let refused = promoted.expect_err("two snapshots of one name");
            return if refused.kind == ErrorKind::Invalid { Ok(()) } else { Err(refused) };
        }
        if !self.power.is_off() && !self.is_suspended() {
            let is_made = self.settle_promotion();
            assert_eq!(is_made, promoted.is_ok(), "{promotion:?}: {promoted:?}");
        }
        note(&self.met.promoted, u64::from(promoted.is_ok()));
        promoted
    }

    /// What the promotion of a volume changes, if it is a clone and everything about it is certain.
    fn promotion(&self, at: usize) -> Option<Promotion> {
        let clone = self.volumes.get(at).filter(|open| open.is_there())?;
        let base = clone.origin.clone()?;
        let volume = base.split('@').next()?.to_owned();
        let is_there = self.volumes.iter().any(|open| open.name == volume && open.is_there());
        let of_both = || self.snapshots.iter().filter(|snap| snap.is_of(&volume) || snap.is_of(&clone.name));
        if !is_there || of_both().any(|snap| snap.fate != Fate::Certain) {
            return None;
        }
        let last = self.snapshots.iter().position(|snap| snap.name == base)?;
        let up_to_base = self.snapshots[..=last].iter().filter(|snap| snap.is_of(&volume));
        let after = |last_name: &str| format!("{}@{last_name}", clone.name);
        let renamed = up_to_base.map(|snap| (snap.name.clone(), after(snap.last_name()))).collect();
        Some(Promotion { clone: clone.name.clone(), volume, base, renamed })
    }

    /// Looks whether a promotion that had begun was made; if so, all of it was.
    pub fn settle_promotion(&mut self) -> bool {
        let Some(promotion) = self.promoting.take() else { return false };
        let clone = self.pool().dataset(&promotion.clone).unwrap_or_else(|error| panic!("{error}"));
        let is_made = clone.origin().as_ref() != Some(&promotion.base);
        if !is_made {
            return false;
        }
        let origin_of = |world: &Self, name: &str| {
            world.volumes.iter().find(|open| open.name == name).and_then(|open| open.origin.clone())
        };
        let origin = origin_of(self, &promotion.volume);
        for open in &mut self.volumes {
            if open.name == promotion.clone {
                open.origin.clone_from(&origin);
            } else if open.name == promotion.volume {
                open.origin = promotion.renamed(&promotion.base).cloned();
            } else if let Some(after) = open.origin.as_ref().and_then(|base| promotion.renamed(base)) {
                open.origin = Some(after.clone());
            }
        }
        for on in self.arrivals.iter_mut().filter_map(|arrival| arrival.on.as_mut()) {
            if let Some(after) = promotion.renamed(on) {
                on.clone_from(after);
            }
        }
        for snap in &mut self.snapshots {
            if let Some(after) = promotion.renamed(&snap.name) {
                snap.name.clone_from(after);
            }
        }
        true
    }

    /// Every volume began where it is said to have begun.
    pub fn judge_origins(&self) {
        let pool = self.pool();
        for open in &self.volumes {
            let found = pool.dataset(&open.name).unwrap_or_else(|error| panic!("{}: {error}", open.name));
            assert_eq!(found.origin(), open.origin, "where {} began", open.name);
        }
    }
}
