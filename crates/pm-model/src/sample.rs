//! Random allowed images, for machines with too many to enumerate.

use std::ops::ControlFlow;

use crate::line::{Line, Time};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::rng::Rng;
use crate::scope::{CrashImage, Scope};

/// How a sample leans; changing it from sample to sample reaches corners that a uniform choice misses.
#[derive(Debug, Clone, Copy)]
enum Lean {
    /// Each line is anywhere.
    None,
    /// Most lines have lost everything.
    Empty,
    /// Most lines have lost nothing.
    Full,
    /// Lines are all or nothing.
    Whole,
}

const LEANS: [Lean; 4] = [Lean::None, Lean::Empty, Lean::Full, Lean::Whole];

/// Part of a line's stores: the first `full` ones and some pieces of the following.
struct Cut<'a> {
    number: u64,
    line: &'a Line,
    limits: Vec<Time>,
    full: usize,
    /// Store index and subset of its pieces.
    torn: Vec<(usize, u64)>,
}

impl Cut<'_> {
    /// Time of the newest cached store of which the cut contains a piece.
    fn newest(&self) -> Time {
        let full = self.line.stores[..self.full].iter();
        let torn = self.torn.iter().filter(|torn| torn.1 != 0).map(|torn| &self.line.stores[torn.0]);
        full.chain(torn).filter(|store| !store.nt).map(|store| store.time).max().unwrap_or(0)
    }

    /// Extends the cut by what must have persisted before a cached store at `newest` could.
    fn raise(&mut self, newest: Time) {
        let required = self.limits.iter().rposition(|&limit| limit < newest).map_or(0, |index| index + 1);
        self.full = self.full.max(required);
        let full = self.full;
        self.torn.retain(|torn| torn.0 >= full);
    }

    fn put(&self, image: &mut impl Memory) {
        let mut bytes = image.line(self.number);
        self.line.stores[..self.full].iter().for_each(|store| store.apply(&mut bytes));
        for &(index, subset) in &self.torn {
            let store = &self.line.stores[index];
            for (_, piece) in store.pieces().enumerate().filter(|(bit, _)| subset >> bit & 1 == 1) {
                store.apply_piece(piece, &mut bytes);
            }
        }
        image.put_line(self.number, &bytes);
    }

    fn has_nt(&self) -> bool {
        let torn = self.torn.iter().filter(|torn| torn.1 != 0).map(|torn| &self.line.stores[torn.0]);
        self.line.stores[..self.full].iter().chain(torn).any(|store| store.nt)
    }

    /// All or none of the non-temporal stores that follow each other ([`Scope::whole_nt`]).
    fn make_nt_whole(&mut self) {
        let stores = &self.line.stores;
        self.torn.retain(|torn| !stores[torn.0].nt);
        while self.full > 0 && self.full < stores.len() && stores[self.full - 1].nt && stores[self.full].nt {
            self.full += 1;
        }
        let full = self.full;
        self.torn.retain(|torn| torn.0 >= full);
    }
}

impl<M: Memory> Machine<M> {
    /// Calls `visit` with the minimal image, the maximal image and allowed images of `scope` chosen at
    /// random: `count` in all, but at least the first two. The same seed gives the same images; an image may
    /// repeat. Says whether the visitor has stopped it.
    pub fn sample(
        &self,
        scope: Scope<'_>,
        seed: u64,
        count: usize,
        visit: &mut dyn FnMut(CrashImage<'_, M>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        visit(CrashImage { memory: self.persistent(), has_nt: false })?;
        visit(CrashImage { memory: &self.volatile(), has_nt: self.has_pending_nt() })?;
        let mut rng = Rng::new(seed);
        let mut scratch = self.persistent().clone();
        for index in 2..count {
            let cuts = self.random_cuts(&mut rng, LEANS[index % LEANS.len()], scope);
            cuts.iter().for_each(|cut| cut.put(&mut scratch));
            visit(CrashImage { memory: &scratch, has_nt: cuts.iter().any(Cut::has_nt) })?;
            for cut in &cuts {
                scratch.put_line(cut.number, &self.persistent().line(cut.number));
            }
        }
        ControlFlow::Continue(())
    }

    /// An allowed combination: a random cut of each line up to a random time, then raised to what the
    /// newest store in it requires of all lines.
    fn random_cuts(&self, rng: &mut Rng, lean: Lean, scope: Scope<'_>) -> Vec<Cut<'_>> {
        let context = self.context();
        let is_cut = rng.one_in(if context.is_ordered { 2 } else { 4 });
        let until = if is_cut { self.random_time(rng) } else { Time::MAX };
        let mut cuts = Vec::new();
        for (number, line) in self.lines() {
            if !scope.wants(number) && !context.is_ordered {
                continue;
            }
            let left_out = match lean {
                _ if !scope.wants(number) => true,
                Lean::None => rng.one_in(4),
                Lean::Empty => !rng.one_in(8),
                Lean::Full => rng.one_in(8),
                Lean::Whole => rng.one_in(2),
            };
            if context.config.has_line_subsets() && left_out {
                continue;
            }
            let mut cut = self.random_cut(number, line, until, rng, lean, left_out);
            if context.config.has_line_subsets() {
                let forced = line.forced_prefix(context.fence);
                cut.full = cut.full.max(forced);
                let full = cut.full;
                cut.torn.retain(|torn| torn.0 >= full);
            }
            cuts.push(cut);
        }
        let newest = cuts.iter().map(Cut::newest).max().unwrap_or(0);
        cuts.iter_mut().for_each(|cut| cut.raise(newest));
        if scope.whole_nt {
            // Orders nothing on other lines, so no other cut has to be raised for it.
            cuts.iter_mut().for_each(Cut::make_nt_whole);
        }
        cuts
    }

    fn random_time(&self, rng: &mut Rng) -> Time {
        let times = || self.lines().flat_map(|(_, line)| line.stores.iter().map(|store| store.time));
        let (first, last) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        first + rng.below(last - first + 1)
    }

    fn random_cut<'a>(
        &self,
        number: u64,
        line: &'a Line,
        until: Time,
        rng: &mut Rng,
        lean: Lean,
        left_out: bool,
    ) -> Cut<'a> {
        let config = self.config();
        let limits = line.limits(config);
        let mut cut = Cut { number, line, limits, full: 0, torn: Vec::new() };
        let available = line.stores.iter().take_while(|store| store.time <= until).count();
        cut.full = match lean {
            _ if left_out => 0,
            Lean::None | Lean::Empty => rng.index(available + 1),
            Lean::Full => available.saturating_sub(rng.index(2)),
            Lean::Whole => available,
        };
        // A run of unordered stores can be cut in its middle, but later stores cannot be kept without it.
        if cut.full < available && !matches!(lean, Lean::Whole) && !rng.one_in(4) {
            let end = line.group_end(cut.full, config);
            cut.torn = (cut.full..end).map(|index| (index, rng.next_u64())).collect();
        }
        cut
    }
}

impl Machine {
    /// [`Machine::sample`] of all lines, as bytes.
    pub fn sample_crash_images(
        &self,
        seed: u64,
        count: usize,
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) {
        let _ = self.sample(Scope::default(), seed, count, &mut |image| visit(image.memory));
    }
}
