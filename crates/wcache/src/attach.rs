//! A cache on two sides: one that is lost in use, one that joins or leaves.
//!
//! Crash cases of [`Cache::attach`]: the log is empty, and the origin has everything. The new region gets the
//! same empty log and state, which says that this region is out itself, so that it is not used; then its
//! superblock with the number of a new mirror. Once the superblock of the cache has that number, too, what
//! the cache's state says of another mirror counts no more; then the new side's state says that both are in.
//! Of [`Cache::detach_side`]: once the superblock of the region that stays names no mirror, the other one is
//! out; then that is wiped.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use fastness_base::chain;
use fastness_pmem::Medium;
use fastness_prb::Prb;
use fastness_sync::{MutexGuard, lock};

use crate::cache::{Cache, LOOK_AGAIN};
use crate::error::Error;
use crate::front::{Front, check_free, superblock};
use crate::loss;
use crate::mirror::superblocks;
use crate::options::WhenFull;
use crate::parts::Parts;
use crate::sides::mirrored;
use crate::slot::{MirrorState, Slot};
use crate::status::SideStatus;
use crate::superblock::Superblock;

impl<M: Medium + Sync> Cache<M> {
    /// The sides of a mirror.
    pub(crate) fn sides(&self) -> Vec<SideStatus> {
        let Some(mirror) = &self.mirror else { return Vec::new() };
        let mut state = mirror.state();
        if let [first, _] = mirror.sides[..] {
            state[first].faults += self.blocks.views.faults();
        }
        state
    }

    /// Records the side that is lost, if one is: entries are taken again after that.
    pub(crate) fn record_loss(&self, front: &mut Front<M>) -> Result<(), Error> {
        if let Some(side) = loss::record(front, &self.prb, &self.target, &self.options)? {
            self.blocks.views.leave_out(side);
            if let Some(mirror) = &self.mirror {
                let why = || "it failed while it was in use".to_owned();
                lock(&mirror.state)[side].out.get_or_insert_with(why);
            }
        }
        Ok(())
    }

    /// The same, if the log has noticed a loss.
    pub(crate) fn try_to_settle_loss(&self) -> Result<(), Error> {
        match self.prb.lost_side() {
            None => Ok(()),
            Some(_) => self.record_loss(&mut lock(&self.front)).map_err(|error| self.note_region(error)),
        }
    }

    /// Waits until the loss of a side is recorded, as writers wait for an origin while the log is full.
    ///
    /// # Errors
    /// Of the side that is left; [`Error::MarkOrigin`] if nobody is to wait.
    #[cold]
    pub(crate) fn settle_loss(&self) -> Result<(), Error> {
        loop {
            let Err(error) = self.try_to_settle_loss() else { return Ok(()) };
            if error.is_of_region() || self.options.when_full == WhenFull::Fail {
                return Err(error);
            }
            lock(&self.closed).failure = Some(chain(&error));
            if self.is_ended.load(Ordering::SeqCst) {
                return Err(Error::Ended);
            }
            fastness_sync::sleep(LOOK_AGAIN);
        }
    }

    /// Ends the service of this object: the origin has everything, and nothing comes any more.
    pub(crate) fn close(&self) -> Result<MutexGuard<'_, Front<M>>, Error> {
        self.flush()?;
        self.is_ended.store(true, Ordering::SeqCst);
        // Writes that did not see that have ended with the generation.
        self.close_generation(1);
        if !lock(&self.closed).queue.is_empty() {
            self.is_ended.store(false, Ordering::SeqCst);
            return Err(Error::NotClean);
        }
        Ok(lock(&self.front))
    }

    /// Makes the cache a mirror: `new` becomes its second side, or takes the place of the one that is out.
    /// `path` is where the region of this cache is. This object takes nothing any more: the next opening uses
    /// both.
    ///
    /// Persistence: durable on return; after a crash inside the cache is as it was, or has both sides.
    ///
    /// # Errors
    /// [`Error::Mirrored`]; [`Error::Exists`], [`Error::Occupied`] of the new region; those of the
    /// write-back, and of either region: the cache is as it was.
    pub fn attach(&self, new: Parts<M>, path: PathBuf) -> Result<(), Error> {
        let used: Vec<_> = self.sides().iter().map(|side| side.out.is_none()).collect();
        let own = match used[..] {
            [true, true] => return Err(Error::Mirrored),
            [false, true] => 1,
            _ => 0,
        };
        let Parts { geometry, front: new_front, chunks, path: new_path, .. } = new;
        if geometry != self.superblock.geometry {
            return Err(Error::Refused("the new region is divided in another way".to_owned()));
        }
        // One that was a side of this cache is out, whatever it has.
        let was_side = superblock(&new_front).is_ok_and(|found| found.id == self.superblock.id);
        if !was_side && !self.options.is_forced {
            check_free(&new_front)?;
        }
        let number = self.options.random();
        let mut paths = vec![path, new_path];
        paths.rotate_left(own);
        let superblocks = superblocks(&self.superblock, Some(number), &paths)?;
        let mut front = self.close()?;
        let state = front.slot().clone();
        let slot = |out| Slot { mirror: Some(MirrorState { mirror: number, out }), ..state.clone() };
        let mut joins = Front::wipe(vec![new_front], Slot { sequence: state.sequence - 2, ..state.clone() })?;
        drop(Prb::format(self.options.config(&geometry), mirrored(vec![chunks]))?);
        joins.update(slot(Some(1 - own)))?;
        joins.write_superblocks(&superblocks[1 - own..2 - own])?;
        // Of one that was lost since the opening there are blocks, too, and nothing is written to them.
        let of_front = if front.sides() == 1 { &superblocks[own..=own] } else { &superblocks[..] };
        front.write_superblocks(of_front).map_err(|error| self.note_region(error.into()))?;
        Ok(joins.update(slot(None))?)
    }

    /// Makes the cache one of a single region: the one that was named first when it was opened stays, the
    /// other holds nothing any more. This object takes nothing any more.
    ///
    /// Persistence: durable on return; after a crash inside the cache has both sides, or one.
    ///
    /// # Errors
    /// [`Error::NotMirrored`]; those of the write-back and of the region that stays: the cache is as it was.
    pub fn detach_side(&self) -> Result<(), Error> {
        let Some(mirror) = &self.mirror else { return Err(Error::NotMirrored) };
        let is_used = |named: &usize| lock(&mirror.state)[mirror.sides[*named]].out.is_none();
        let Some(named) = mirror.named.filter(is_used) else {
            return Err(Error::Refused("the region that is to stay is the one that is out".to_owned()));
        };
        let mut front = self.close()?;
        let alone = Superblock { side: None, ..self.superblock.clone() };
        front.leave_mirror(named, &alone).map_err(|error| self.note_region(error.into()))
    }
}
