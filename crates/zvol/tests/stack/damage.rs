//! What is done to the media between the end of a life and the import after it.

use std::fmt;

use fastness_base::chain;
use fastness_store::StoreError;
use fastness_testkit::media::{Bank, Disk};

use crate::met::note;
use crate::world::World;

/// Takes damage back.
pub enum Undo {
    Disk(Disk),
    Bank(usize, Bank),
}

/// Damage, and what an import may do about it.
#[derive(Default)]
pub struct Damage {
    /// In words; empty: there is none.
    pub what: String,
    /// What an error has to name.
    pub name: String,
    pub undo: Vec<Undo>,
    /// There is another copy of all that is damaged: nothing may be lost, and nothing refused.
    pub is_covered: bool,
    pub is_stale: bool,
    pub is_undone: bool,
}

impl fmt::Debug for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Damage {
    pub fn is_none(&self) -> bool {
        self.what.is_empty()
    }

    /// An import went on with it.
    pub fn is_accepted(&self) -> bool {
        !self.is_none() && !self.is_undone
    }
}

impl World<'_> {
    /// Damages a medium, in some lives.
    pub fn damage(&mut self, loses_power: bool) -> Damage {
        let is_whole = !self.is_any_loud();
        let damage = match self.rng.below(8) {
            roll if roll < self.swarm.stale => self.put_copy_back(),
            roll if roll >= 8 - self.swarm.flips && is_whole => self.flip(loses_power),
            _ if self.is_idle && is_whole && self.rng.one_in(2) => self.flip(loses_power),
            _ => Damage::default(),
        };
        if !damage.is_none() {
            self.has_wrong_copies = true;
            self.story.push(damage.what.clone());
        }
        self.needs_both_banks = !damage.is_none();
        damage
    }

    /// An import was refused: takes the damage back, if that was the reason. What must not be refused may
    /// not.
    pub fn undo(&mut self, damage: &mut Damage, error: &StoreError) -> bool {
        if !damage.is_accepted() || damage.is_covered {
            return false;
        }
        let text = chain(error);
        assert!(text.contains(&damage.name), "{damage:?}: {} is not named: {text}", damage.name);
        for undo in damage.undo.drain(..) {
            match undo {
                Undo::Disk(disk) => {
                    let old = self.disks.iter_mut().find(|old| old.path == disk.path).expect("it was there");
                    *old = disk;
                }
                Undo::Bank(index, bank) => self.banks[index] = bank,
            }
        }
        damage.is_undone = true;
        self.needs_both_banks = false;
        note(if damage.is_stale { &self.met.stale_refused } else { &self.met.flips_refused }, 1);
        true
    }
}
