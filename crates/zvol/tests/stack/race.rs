//! Several clients at one time, on one volume or on several, beside txgs, resizes, scrubs and changes of the
//! log.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use fastness_pool::ErrorKind;

use crate::draw::data;
use crate::met::note;
use crate::oracle::Change;
use crate::program::Step;
use crate::rng::Rng;
use crate::schedule;
use crate::trims::trim;
use crate::world::{Done, Was, World};

/// Clients at one time, at most.
const CLIENTS_MAX: u64 = 4;

/// Longer writes are not copied into the log at once.
const READ_BACK_BYTES: usize = 64 << 10;

/// The smallest volume that other steps can use.
const SIZE_MIN: usize = 16 << 10;

/// Range, contents (or zeroes), FUA.
type Changing = (Range<usize>, Option<Arc<[u8]>>, bool);
type Act = Box<dyn FnOnce() -> Done + Send>;

/// How a volume was before a race.
struct Before {
    changes: usize,
    unlogged: u64,
    size: usize,
}

impl World<'_> {
    /// Operations that change no byte that another one changes.
    pub fn draw_race(&self, open: &[usize], rng: &mut Rng) -> Step {
        if rng.one_in(6)
            && let Some(race) = self.draw_cut_through(open, rng)
        {
            return race;
        }
        let seed = rng.next();
        let volumes = [rng.pick(open), rng.pick(open)];
        let count = 2 + rng.below(CLIENTS_MAX - 1);
        let mut has = [false; 4];
        let mut once = |what: usize| !std::mem::replace(&mut has[what], true);
        let mut ops = Vec::new();
        for nth in 0..count {
            let volume = rng.pick(&volumes);
            let client = nth as usize;
            ops.push(match rng.below(16) {
                0 | 1 => Step::Sync,
                2..5 => Step::Flush { volume, client },
                5 if once(0) => self.draw_resize(volume, rng),
                6 if once(1) => Step::Scrub,
                7 if once(2) && self.log_vdevs.is_empty() && self.regions().is_empty() => {
                    Step::AddRegion { bank: rng.index(2) }
                }
                7 if once(2) && !self.regions().is_empty() => Step::RemoveRegion,
                8 if once(3) => Step::Trim { seed: rng.next() },
                _ => {
                    // Each in a part of its own.
                    let size = self.volumes[volume].model.now.len() / 512;
                    let (from, to) = (size as u64 * nth / count * 512, size as u64 * (nth + 1) / count * 512);
                    let offset = from + rng.below(to - from) / 512 * 512;
                    let len = (1 + rng.below((self.shape.write_max as u64).min(to - offset))) as usize;
                    let (offset, is_fua) = (offset as usize, rng.below(8) < self.swarm.fuas.max(2));
                    match rng.one_in(5) {
                        true => Step::Zero { volume, client, offset, len, is_fua, is_discard: rng.one_in(2) },
                        false => Step::Write { volume, client, offset, data: data(rng, len), is_fua },
                    }
                }
            });
        }
        Step::Race { ops, seed }
    }

    /// A resize that ends the volume within a write that is read back when it is committed.
    fn draw_cut_through(&self, open: &[usize], rng: &mut Rng) -> Option<Step> {
        let volume = rng.pick(open);
        let (block, size) = (self.volumes[volume].block_bytes, self.volumes[volume].model.now.len());
        let len_max = self.shape.write_max.min(size);
        let len = READ_BACK_BYTES + 1 + rng.index(len_max.checked_sub(READ_BACK_BYTES + 2)?);
        let offset = rng.index(size - len + 1);
        let last = len.min(READ_BACK_BYTES);
        let cut = (offset + len - rng.index(last)).max(SIZE_MIN).next_multiple_of(block);
        let write = Step::Write { volume, client: 0, offset, data: data(rng, len), is_fua: true };
        let ops = vec![write, Step::Resize { volume, size: cut as u64 }];
        Some(Step::Race { ops, seed: rng.next() << 1 })
    }

    /// Trims beside txgs: one that frees much, and one that stores as much.
    pub fn draw_trims(&self, open: &[usize], rng: &mut Rng) -> Step {
        let volume = rng.pick(open);
        let half = self.volumes[volume].model.now.len() / 1024 * 512;
        let len = half.min(self.shape.write_max);
        let data = data(rng, len);
        let mut ops = vec![
            Step::Zero { volume, client: 0, offset: 0, len: half, is_fua: false, is_discard: true },
            Step::Write { volume, client: 1, offset: half, data, is_fua: rng.one_in(2) },
            Step::Trim { seed: rng.next() },
            Step::Sync,
        ];
        if rng.one_in(2) {
            ops.extend([Step::Trim { seed: rng.next() }, Step::Sync]);
        }
        Step::Race { ops, seed: rng.next() << 1 | 1 }
    }

    /// The power fails as soon as a change with FUA has returned.
    fn act_and_end(&self, op: &Step) -> Act {
        let (act, power) = (self.act(op), self.power.clone());
        if !op.is_fua() {
            return act;
        }
        Box::new(move || {
            act()?;
            power.turn_off();
            Ok(())
        })
    }

    fn act(&self, op: &Step) -> Act {
        let (pool, log) = (self.pool(), self.log());
        let volume = |at: usize, client: usize| self.client(at, client);
        match op.clone() {
            Step::Sync => Box::new(move || Ok(pool.sync().map(drop)?)),
            Step::Scrub => Box::new(move || Ok(pool.scrub(|_| true).map(drop)?)),
            Step::Trim { seed } => {
                let from = self.trim_point;
                Box::new(move || Ok(trim(&pool, seed, from).map(drop)?))
            }
            Step::RemoveRegion => Box::new(move || Ok(log.remove_region()?)),
            Step::AddRegion { bank } => {
                let region = self.new_region(bank);
                Box::new(move || Ok(log.add_regions(|| Ok(vec![region]))?))
            }
            Step::Flush { volume: at, client } => {
                let volume = volume(at, client);
                Box::new(move || Ok(volume.flush()?))
            }
            Step::Resize { volume: at, size } => {
                let volume = volume(at, 0);
                Box::new(move || Ok(volume.resize(size)?))
            }
            Step::Write { volume: at, client, offset, data, is_fua } => {
                let volume = volume(at, client);
                Box::new(move || Ok(volume.write(offset as u64, &data, is_fua)?))
            }
            Step::Zero { volume: at, client, offset, len, is_fua, is_discard } => {
                let volume = volume(at, client);
                Box::new(move || match is_discard {
                    true => Ok(volume.discard(offset as u64, len as u64, is_fua)?),
                    false => Ok(volume.write_zeroes(offset as u64, len as u64, is_fua)?),
                })
            }
            other => unreachable!("{other} in a race"),
        }
    }

    pub fn race(&mut self, ops: &[Step], seed: u64, was: &Was) -> Done {
        let before: BTreeMap<usize, Before> =
            ops.iter().filter_map(Step::volume).map(|at| (at, self.before(at))).collect();
        let is_pmem = !self.is_lwb();
        let ends = seed.is_multiple_of(4);
        let act = |op| if ends { self.act_and_end(op) } else { self.act(op) };
        let acts: Vec<Act> = ops.iter().map(act).collect();
        if ops.iter().any(|op| matches!(op, Step::Trim { .. })) {
            self.cut_soon(&mut Rng::new(!seed), 2);
            note(&self.met.trims_raced, 1);
        }
        let Some(done) = schedule::run(acts, &mut Rng::new(seed)) else {
            panic!("nobody goes on in {}", Step::Race { ops: ops.to_vec(), seed });
        };
        note(&self.met.races, 1);
        let done: Vec<Done> =
            done.into_iter().map(|done| done.unwrap_or_else(|panic| panic!("{panic}"))).collect();
        let has_ended = ends && ops.iter().zip(&done).any(|(op, done)| op.is_fua() && done.is_ok());
        note(&self.met.cuts_after_fua, u64::from(has_ended));
        let is_pmem = is_pmem && !self.is_lwb() && !ops.iter().any(Step::is_of_log);
        for (at, before) in &before {
            self.settle_race(*at, before, ops, &done, is_pmem);
        }
        for (op, failure) in ops.iter().zip(&done).filter_map(|(op, done)| Some((op, done.as_ref().err()?))) {
            self.story.push(format!("  {op} FAILED: {failure}"));
            // A resize was first.
            let is_outside = failure.kind == ErrorKind::Invalid && ops.iter().any(Step::is_resize);
            if !is_outside {
                self.excuse(op, failure, was);
            }
        }
        Ok(())
    }

    fn before(&self, at: usize) -> Before {
        let model = &self.volumes[at].model;
        Before { changes: model.window.changes.len(), unlogged: self.unlogged(at), size: model.now.len() }
    }

    /// What the operations of a race on one volume came to.
    fn settle_race(&mut self, at: usize, before: &Before, ops: &[Step], done: &[Done], is_pmem: bool) {
        let is_logged = is_pmem && self.unlogged(at) == before.unlogged;
        let (txg, volume) = (self.pool().open_txg().0, self.client(at, 0));
        let (is_off, power) = (self.power.is_off(), self.power.clone());
        let of_volume = || ops.iter().zip(done).filter(|(op, _)| op.volume() == Some(at));
        let found_size = volume.size_bytes() as usize;
        let open = &mut self.volumes[at];
        open.model.is_listed = false;
        for (op, done) in of_volume() {
            let Some((range, data, is_fua)) = op.change() else { continue };
            let Range { start: offset, end } = range;
            let is_durable = done.is_ok() && (is_fua || is_logged);
            let mut change = Change { offset, len: end - offset, data, txg, is_durable };
            if done.is_ok() || is_off {
                open.model.change(change, false);
            } else if change.clip(found_size) {
                let mut seen = vec![0xaa; change.len];
                let changed = match power.without_faults(|| volume.read(offset as u64, &mut seen)) {
                    Ok(()) => open.model.change_failed(&change, &seen),
                    Err(_) => {
                        open.model.change_perhaps(change);
                        Ok(())
                    }
                };
                changed.unwrap_or_else(|why| panic!("{}: {why}", open.name));
            }
        }
        let settles = |(op, done): (&Step, &Done)| {
            done.is_ok() && matches!(op, Step::Flush { .. } | Step::Resize { .. })
        };
        if of_volume().any(settles) {
            // What had returned before they began.
            open.model.settle_first(before.changes, !is_pmem);
        }
        for (op, done) in of_volume() {
            let Step::Resize { size, .. } = op else { continue };
            let size = *size as usize;
            if is_off && done.is_err() {
                open.model.resizing = Some(size);
                continue;
            }
            assert!(done.is_err() || found_size == size, "{} has {found_size} bytes after {op}", open.name);
            if found_size != before.size {
                open.model.resize(found_size);
            }
            let is_new = done.is_err() && found_size != before.size;
            open.model.before = is_new.then_some(before.size);
        }
    }
}

impl Step {
    pub fn is_resize(&self) -> bool {
        matches!(self, Step::Resize { .. })
    }

    fn is_fua(&self) -> bool {
        matches!(self, Step::Write { is_fua: true, .. } | Step::Zero { is_fua: true, .. })
    }

    /// The volume that it is on.
    pub fn volume(&self) -> Option<usize> {
        match self {
            Step::Write { volume, .. } | Step::Zero { volume, .. } => Some(*volume),
            Step::Flush { volume, .. } | Step::Resize { volume, .. } => Some(*volume),
            _ => None,
        }
    }

    /// The range that it changes, to what, and whether that is durable then.
    fn change(&self) -> Option<Changing> {
        match self {
            Step::Write { offset, data, is_fua, .. } => {
                Some((*offset..offset + data.len(), Some(data.clone()), *is_fua))
            }
            Step::Zero { offset, len, is_fua, .. } => Some((*offset..offset + len, None, *is_fua)),
            _ => None,
        }
    }
}
