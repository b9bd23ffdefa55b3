//! Thick volumes: whatever others store, and whichever snapshots there are, each of their blocks finds room.

use fastness_pool::{Property, thick_bytes};

use crate::met::note;
use crate::program::Step;
use crate::rng::Rng;
use crate::volumes::Vol;
use crate::world::{Done, Failure, World};

/// Txgs that free what was replaced, at most.
const TXGS_MAX: usize = 200;

/// More than full pools leave.
const LARGE_BYTES: usize = 3 << 20;

/// What a volume is sure to find room for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Thick {
    bytes: Option<u64>,
    /// It is being set to this, and nobody was told that it has been.
    next: Option<Option<u64>>,
}

impl Vol {
    /// Whether each block, if it is written, finds room.
    fn is_sure(&self) -> bool {
        let wanted = thick_bytes(self.model.now.len() as u64, self.block_bytes as u64);
        self.thick.next.is_none() && self.thick.bytes.is_some_and(|bytes| bytes >= wanted)
    }
}

impl World<'_> {
    pub fn draw_thick(&self, volume: usize, rng: &mut Rng) -> Step {
        let is_thick = self.volumes[volume].thick.bytes.is_some();
        if is_thick && self.is_full() && !rng.one_in(4) {
            return Step::Squeeze { volume, byte: rng.below(254) as u8 + 1 };
        }
        Step::SetThick { volume, is_on: !is_thick || rng.one_in(2) }
    }

    pub fn set_thick(&mut self, at: usize, is_on: bool) -> Done {
        let pool = self.pool();
        let open = &mut self.volumes[at];
        let bytes = is_on.then(|| thick_bytes(open.model.now.len() as u64, open.block_bytes as u64));
        open.thick.next = Some(bytes);
        let dataset = pool.dataset(&open.name)?;
        let set = pool.transact(|tx| dataset.set(tx, Property::RefReservation, bytes));
        let done = set.and_then(|((), txg)| pool.wait_synced(txg));
        if done.is_ok() || !self.power.is_off() && !self.is_suspended() {
            self.settle_thick(at);
            assert!(done.is_err() || self.volumes[at].thick.bytes == bytes, "{bytes:?} was set");
        }
        note(if is_on { &self.met.made_thick } else { &self.met.made_sparse }, u64::from(done.is_ok()));
        Ok(done?)
    }

    /// All other volumes take what they get; then each block of this one finds room.
    pub fn squeeze(&mut self, at: usize, byte: u8) -> Done {
        let is_full = |failure: &Failure| failure.is_for_room();
        for other in (0..self.volumes.len()).filter(|other| *other != at) {
            if !self.volumes[other].is_open() {
                continue;
            }
            if self.volumes[other].model.now.len() < LARGE_BYTES {
                self.resize(other, LARGE_BYTES as u64)?;
            }
            // What the first round replaces is free in the second.
            for _ in 0..2 {
                self.fill(other, byte)
                    .or_else(|failure| if is_full(&failure) { Ok(()) } else { Err(failure) })?;
                self.free_all()?;
            }
        }
        note(&self.met.squeezed, u64::from(self.volumes[at].is_sure()));
        self.fill(at, byte + 1)
    }

    /// What was replaced is free.
    fn free_all(&self) -> Done {
        for _ in 0..TXGS_MAX {
            self.pool().sync()?;
            if !self.pool().is_freeing() {
                break;
            }
        }
        Ok(())
    }

    fn settle_thick(&mut self, at: usize) {
        let open = &self.volumes[at];
        let dataset =
            self.pool().dataset(&open.name).unwrap_or_else(|error| panic!("{}: {error}", open.name));
        let (value, is_own) = dataset.get(Property::RefReservation);
        let (found, thick) = (is_own.then_some(value), open.thick);
        let is_right = found == thick.bytes || Some(found) == thick.next;
        assert!(is_right, "{} has {found:?} and not {thick:?}", open.name);
        self.volumes[at].thick = Thick { bytes: found, next: None };
    }

    /// After an import: each volume is as thick as it was made, or was to be made.
    pub fn judge_thick(&mut self) {
        (0..self.volumes.len()).for_each(|at| self.settle_thick(at));
    }

    /// Makes a change that found no room again when txgs have freed what was replaced: for a thick volume
    /// there is room then.
    pub fn try_again(&mut self, at: usize, act: impl FnOnce() -> Done) -> Option<Done> {
        if !self.volumes[at].is_sure() || self.lacks_room() {
            return None;
        }
        if let Err(failure) = self.free_all() {
            return Some(Err(failure));
        }
        note(&self.met.thick_again, 1);
        let done = act();
        let is_short = done.as_ref().is_err_and(|failure| failure.is_for_room());
        assert!(!is_short, "{} is thick, and finds no room: {done:?}", self.volumes[at].name);
        Some(done)
    }
}
