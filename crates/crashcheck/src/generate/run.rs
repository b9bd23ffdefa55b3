//! Walks along a trace, and takes the images of its failure points.

use std::collections::HashSet;
use std::io::Read;
use std::ops::ControlFlow;

use fastness_crashcheck_trace::hypercall::OPERATION_ACTION;
use fastness_crashcheck_trace::{Event, Hypercall, Kind, Reader};
use fastness_pm_model::Scope;

use super::options::{Options, Pick};
use super::point::{Contents, Part, Point, PointKind};
use super::reads::{Reads, Recovery};
use super::replay::{Medium, Replay};
use super::sink::{Out, Sink};
use crate::Result;
use crate::image::Image;

/// Hands the crash images of the rest of a trace to `sink`. With a `recovery`, the lines that it reads are
/// varied where there are too many.
///
/// The same trace, options and recovery give the same images in the same order.
///
/// # Errors
/// Those of the trace, of the recovery, and of the sink.
pub fn generate<'a>(
    reader: &mut Reader<impl Read>,
    options: &'a Options,
    recovery: Option<&'a mut dyn Recovery>,
    sink: &mut dyn Sink,
) -> Result<()> {
    let replay = Replay::new(reader.header(), options.config, options.memory_max_bytes)?;
    let reads = recovery.map(Reads::new);
    let mut run = Run { options, replay, reads, out: Out::new(sink), stacks: HashSet::new() };
    loop {
        let number = reader.count();
        let Some(event) = reader.next()? else {
            return run.point(number, PointKind::End, None);
        };
        run.event(&event, number)?;
    }
}

struct Run<'a, 'b> {
    options: &'a Options,
    replay: Replay,
    reads: Option<Reads<'a>>,
    out: Out<'b>,
    /// Stacks of failure points ([`Pick::Fast`]).
    stacks: HashSet<(Option<u64>, Vec<u64>)>,
}

impl Run<'_, '_> {
    fn event(&mut self, event: &Event<'_>, number: u64) -> Result<()> {
        let outline = &self.options.outline;
        let is_tested = number >= outline.first_event;
        if let Some(checkpoint) = outline.moved.get(&number).copied() {
            if is_tested {
                self.point(number, PointKind::Checkpoint(checkpoint), None)?;
            }
            self.replay.reach(checkpoint);
        }
        if let Some((kind, reach)) = is_tested.then(|| self.point_before(event, number)).flatten() {
            self.point(number, kind, reach)?;
        }
        self.replay.apply(event, number)?;
        Ok(())
    }

    fn point_before(&mut self, event: &Event<'_>, number: u64) -> Option<(PointKind, Option<Medium>)> {
        if let Kind::Hypercall(Hypercall::Checkpoint(checkpoint)) = event.kind {
            let is_here = !self.options.outline.behind.contains(&number);
            return is_here.then_some((PointKind::Checkpoint(checkpoint), None));
        }
        // What was logged before is certain for an oracle from here on, not from the next fence.
        if matches!(event.kind, Kind::Hypercall(Hypercall::Other { action: OPERATION_ACTION, .. })) {
            return Some((PointKind::Logged, None));
        }
        let is_fast = self.options.pick == Pick::Fast;
        let point = match (self.replay.shrinks(event), event.kind) {
            (Some(Medium::Memory), _) => (PointKind::Fence, Medium::Memory),
            (Some(disk), _) => (PointKind::Completion, disk),
            (None, Kind::Flush { .. }) if is_fast => (PointKind::Flush, Medium::Memory),
            (None, _) => return None,
        };
        if is_fast {
            let stack = event.origin.stack.unwrap_or_default().to_vec();
            if (event.origin.pc.is_some() || !stack.is_empty())
                && !self.stacks.insert((event.origin.pc, stack))
            {
                return None;
            }
        }
        Some((point.0, Some(point.1)))
    }

    fn point(&mut self, event: u64, kind: PointKind, reach: Option<Medium>) -> Result<()> {
        let mut point = Point {
            event,
            checkpoint: self.replay.checkpoint(),
            kind,
            dirty_lines: self.replay.machine().pending_lines(),
            dirty_blocks: self.replay.disks().iter().map(|disk| disk.pending_blocks()).sum(),
            is_exhaustive: true,
            is_cut: false,
            possible: None,
            is_mixed: false,
        };
        let disks = Extremes::of(&self.replay);
        let everything = disks.with_all(self.replay.machine().volatile());
        self.out.sink().begin(&point, &everything)?;
        let has_nt = self.replay.machine().has_pending_nt();
        // First, so that an image that is both is said to have everything.
        let _ = self.out.add(everything.clone(), Part::Everything, has_nt);
        match self.options.pick {
            Pick::Fast => point.is_exhaustive = false,
            Pick::Subsets => self.subsets(&mut point, reach, &disks, &everything)?,
        }
        self.out.check()?;
        self.out.sink().end(&point)
    }

    fn subsets(
        &mut self,
        point: &mut Point,
        reach: Option<Medium>,
        disks: &Extremes,
        everything: &Contents,
    ) -> Result<()> {
        let nothing = disks.with_none(self.replay.machine().persistent().clone());
        let _ = self.out.add(nothing.clone(), Part::Nothing, false);
        if reach.is_none_or(|medium| medium == Medium::Memory) {
            self.memory(point, disks, &nothing, everything)?;
        }
        for disk in 0..self.replay.disks().len() {
            if reach.is_none_or(|medium| medium == Medium::Disk(disk)) {
                self.disk(point, disk, disks);
            }
        }
        point.is_mixed = !self.varies_all(reach);
        point.is_exhaustive &= !point.is_mixed;
        if !point.is_exhaustive {
            let memory = self.replay.machine().count_images();
            let disks = self.replay.disks().iter();
            point.possible = Some(disks.fold(memory, |all, disk| all.times(disk.count_upper_bound())));
        }
        Ok(())
    }

    /// Whether nothing is left out by varying these: parts of one medium are not combined with parts of
    /// another.
    fn varies_all(&self, reach: Option<Medium>) -> bool {
        let memory = (self.replay.machine().pending_lines() > 0).then_some(Medium::Memory);
        let disks = self.replay.disks().iter().enumerate().filter(|(_, disk)| disk.pending_blocks() > 0);
        let mut dirty = memory.into_iter().chain(disks.map(|(index, _)| Medium::Disk(index)));
        match (dirty.next(), dirty.next()) {
            (None, _) => true,
            (Some(one), None) => reach.is_none_or(|medium| medium == one),
            _ => false,
        }
    }

    /// Takes images of PM: all if they are few; otherwise those that differ in what a recovery reads;
    /// otherwise some.
    fn memory(
        &mut self,
        point: &mut Point,
        disks: &Extremes,
        nothing: &Contents,
        everything: &Contents,
    ) -> Result<()> {
        if self.take(Scope::default(), disks) {
            return Ok(());
        }
        let is_over = self.out.sink().is_over();
        let lines = match &mut self.reads {
            Some(reads) if !is_over => Some(reads.lines(nothing, everything)?),
            _ => None,
        };
        let whole_nt = self.options.non_temporal.is_whole_at(point.event);
        let scope = Scope { lines: lines.as_ref(), whole_nt };
        let is_complete = (lines.is_some() || whole_nt) && self.take(scope, disks);
        if !is_complete {
            let Run { options, replay, out, .. } = self;
            let seed = options.seed.wrapping_add(point.event);
            let _ = replay.machine().sample(scope, seed, options.images_per_point, &mut |image| {
                disks.add(out, image.memory, image.has_nt)
            });
        }
        point.is_exhaustive = false;
        point.is_cut |= !is_complete;
        Ok(())
    }

    /// Takes all images of a scope, if there are few enough.
    fn take(&mut self, scope: Scope<'_>, disks: &Extremes) -> bool {
        let Run { options, replay, out, .. } = self;
        let taken = replay.machine().enumerate(scope, options.images_per_point, &mut |image| {
            disks.add(out, image.memory, image.has_nt)
        });
        taken.is_ok()
    }

    fn disk(&mut self, point: &mut Point, index: usize, disks: &Extremes) {
        let Run { options, replay, out, .. } = self;
        let memories = [replay.machine().persistent().clone(), replay.machine().volatile()];
        let seed = options.seed.wrapping_add(point.event).wrapping_add(index as u64);
        let (is_all, _) = replay.disks()[index].for_each(seed, options.images_per_point, &mut |disk| {
            for (memory, others) in memories.iter().zip([&disks.none, &disks.all]) {
                let mut others = others.clone();
                others[index] = disk.clone();
                out.add(Contents { memory: memory.clone(), disks: others }, Part::Subset, false)?;
            }
            ControlFlow::Continue(())
        });
        point.is_exhaustive &= is_all;
        point.is_cut |= !is_all;
    }
}

/// The disks without, and with, everything that is pending.
struct Extremes {
    none: Vec<Image>,
    all: Vec<Image>,
}

impl Extremes {
    fn of(replay: &Replay) -> Extremes {
        let none = replay.disks().iter().map(|disk| disk.persistent()).collect();
        let all = replay.disks().iter().map(|disk| disk.volatile()).collect();
        Extremes { none, all }
    }

    fn with_none(&self, memory: Image) -> Contents {
        Contents { memory, disks: self.none.clone() }
    }

    fn with_all(&self, memory: Image) -> Contents {
        Contents { memory, disks: self.all.clone() }
    }

    /// Hands over an image of PM with both; without disks they are one.
    fn add(&self, out: &mut Out<'_>, memory: &Image, has_nt: bool) -> ControlFlow<()> {
        out.add(self.with_none(memory.clone()), Part::Subset, has_nt)?;
        if self.all.is_empty() {
            return ControlFlow::Continue(());
        }
        out.add(self.with_all(memory.clone()), Part::Subset, has_nt)
    }
}
