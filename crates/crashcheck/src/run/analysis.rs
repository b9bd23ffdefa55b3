//! From a trace to a report.

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::config::{ImagesConfig, NonTemporalConfig};
use crate::check::{
    BEYOND_IMAGES, BeyondStates, Explorer, Extract, Failure, FindingKind, Here, Judge, Log, Operations,
    Oracle, Passed, Prefix, Recovered, RecoveryCrashes, Seen, Shrink, State, StateLimits, States, Step,
    Stream, Workers,
};
use crate::error::Result;
use crate::explain::{Exclusion, Pattern, PatternKind, Search, patterns, pending_at};
use crate::generate::{Contents, KNOWN_IMAGES, Known, NonTemporal, Options, Recovery, generate, outline};
use crate::report::{Report, Source, build};
use crate::symbols::Find;
use crate::trace::open_trace;

/// More than can be on their way to a recovery.
const KNOWN_IMAGES_MIN: usize = 1024;

/// What bounds the memory of an analysis, whatever the number of its images.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Different states. No recovery begins when there are as many; the report says what was not reached.
    pub states: StateLimits,
    /// At least so many images, the newest, are known by their hashes, and not recovered again.
    pub known_images: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { states: StateLimits::default(), known_images: KNOWN_IMAGES }
    }
}

/// What to do with a trace.
pub struct Analysis<'a, E> {
    /// Name of the test.
    pub name: &'a str,
    /// The trace.
    pub trace: &'a Path,
    /// Which images.
    pub images: &'a ImagesConfig,
    /// Recovers them.
    pub extract: &'a E,
    /// Says which lines the recovery reads.
    pub recovery: Option<&'a mut dyn Recovery>,
    /// Further oracles.
    pub oracles: Vec<Box<dyn Oracle + 'a>>,
    /// Lines of a state are records, and checkpoints acknowledge them.
    pub has_prefix_oracle: bool,
    /// The program has logged its operations, which say what states may be ([`Operations`]).
    pub has_operations: bool,
    /// An operation has at most the states before and after it.
    pub must_be_atomic: bool,
    /// Crashes during recovery, if they are tested, too.
    pub in_recovery: Option<RecoveryCrashes<'a>>,
    /// Recoveries at a time.
    pub threads: usize,
    /// What no hint is about.
    pub exclude: &'a [Exclusion],
    /// Says where an instruction comes from.
    pub symbols: &'a Find<'a>,
    /// No recovery begins after this; the report says what was not reached. One may, all the same: that of
    /// the image with everything, by which records are judged.
    pub deadline: Option<Instant>,
    /// What bounds its memory.
    pub limits: Limits,
    /// Told of each recovery.
    pub progress: &'a (dyn Fn(&Step<'_>) + Sync),
}

/// What both passes through a trace share.
struct Passes<'a> {
    states: States,
    known: Known<Recovered>,
    explorer: Option<Explorer<'a>>,
    beyond: Option<BeyondStates>,
    seen: Seen,
    /// Recoveries so far.
    done: AtomicUsize,
    /// Failure points so far.
    points: u64,
    events: u64,
    /// In which time.
    time: Duration,
}

impl<'a, E: Extract> Analysis<'a, E> {
    /// Makes the crash images, recovers them, and judges the operations.
    ///
    /// # Errors
    /// Those of the trace, and of recoveries that cannot be run.
    pub fn run(mut self) -> Result<Report> {
        let outline = outline(&mut open_trace(self.trace)?)?;
        let events = outline.events;
        let mut options = self.images.options(outline);
        let known_images = self.limits.known_images.max(KNOWN_IMAGES_MIN);
        let explorer = self.in_recovery.map(|crashes| {
            Explorer::new(crashes, &options, self.deadline, self.limits.states, known_images / 2)
        });
        let mut passes = Passes {
            states: States::new(self.limits.states),
            known: Known::new(known_images),
            beyond: explorer.as_ref().map(|_| Known::new(BEYOND_IMAGES)),
            explorer,
            seen: Seen::default(),
            done: AtomicUsize::new(0),
            points: 0,
            events,
            time: Duration::ZERO,
        };
        let mut oracles = std::mem::take(&mut self.oracles);
        if self.has_prefix_oracle {
            let complete = self.state_at(u64::MAX, &options, &mut passes)?.text;
            oracles.push(Box::new(Prefix { complete }));
        }
        if self.has_operations {
            let log = Log::read(&mut open_trace(self.trace)?)?;
            options.outline.first_event = log.first_event();
            let initial = self.state_at(log.first_event(), &options, &mut passes)?;
            oracles.push(Box::new(Operations::new(log, &initial)));
        }
        let (is_atomic, has_operations) = (self.must_be_atomic, self.has_operations);
        let new_judge = || Judge::new(&oracles, is_atomic).left_to_oracles(has_operations);
        let mut judge = new_judge();
        let mut passed = self.pass(&options, &mut judge, &mut passes)?;
        if self.images.non_temporal == NonTemporalConfig::Auto && passed.unreached == 0 {
            let events = judge.depends_on_non_temporal();
            if !events.is_empty() {
                options.non_temporal = NonTemporal::PartialAt(events.clone());
                judge = new_judge();
                passed = self.pass(&options, &mut judge, &mut passes)?;
            }
        }
        self.report(&options, &judge, passed, passes)
    }

    fn report(
        &mut self,
        options: &Options,
        judge: &Judge<'_>,
        passed: Passed,
        passes: Passes<'a>,
    ) -> Result<Report> {
        let patterns = self.patterns(options)?;
        let recoveries = passes.done.load(Ordering::Relaxed).max(1);
        let recovery_us = passes.time.as_micros() as u64 / recoveries as u64;
        let recoveries_max = if self.is_over() { 0 } else { self.images.shrink };
        let counts = passes.explorer.as_ref().map(Explorer::counts);
        let (states, known) = (&passes.states, RefCell::new(passes.known));
        let forgotten = known.borrow().forgotten();
        let leads_to = |contents: &Contents, state: &State| {
            let number = known.borrow_mut().get_mut(&contents.hash()).and_then(|known| known.state());
            Ok(match number {
                Some(number) => states.by_number(number) == state,
                None => self.extract.extract(&mut self.extract.place()?, contents)? == *state,
            })
        };
        build(&Source {
            name: self.name,
            trace: self.trace,
            config: options.config,
            memory_max_bytes: options.memory_max_bytes,
            symbols: self.symbols,
            counts: judge.counts(),
            left_out: judge.left_out(),
            events: passes.events,
            per_point: self.images.per_point,
            recovery_us,
            passed,
            forgotten,
            states,
            operations: judge.operations(),
            patterns: &patterns,
            exclude: self.exclude,
            in_recovery: self.in_recovery.zip(counts),
            may_recover: !self.is_over(),
            shrink: Shrink { leads_to: &leads_to, recoveries_max },
        })
    }

    /// What the trace hints at. If flushes are missing, a recovery of everything is traced, to find out
    /// whether it reads what they would have made durable; if that fails, this is not known.
    fn patterns(&mut self, options: &Options) -> Result<Vec<Pattern>> {
        let search = Search { exclude: self.exclude, read: None };
        let found = patterns(&mut open_trace(self.trace)?, search)?;
        let is_missing =
            |found: &Pattern| matches!(found.kind, PatternKind::MissingFlush | PatternKind::MissingFence);
        let is_wanted = self.images.reads && found.iter().any(is_missing) && !self.is_over();
        let Some(recovery) = self.recovery.as_mut().filter(|_| is_wanted) else { return Ok(found) };
        let pending =
            pending_at(&mut open_trace(self.trace)?, options.config, options.memory_max_bytes, u64::MAX)?;
        match recovery.lines_read(&pending.replay.everything()) {
            Ok(read) => patterns(&mut open_trace(self.trace)?, Search { read: Some(&read), ..search }),
            Err(_) => Ok(found),
        }
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Makes images, and recovers and judges them on their way.
    fn pass(&mut self, options: &Options, judge: &mut Judge<'_>, passes: &mut Passes<'_>) -> Result<Passed> {
        let mut reader = open_trace(self.trace)?;
        let Passes { states, known, explorer, beyond, seen, done, points, events, time } = passes;
        let begun = Instant::now();
        let progress = self.progress;
        let told = |event, state: &State| {
            let (states, is_new) = seen.note(state);
            let kind = FindingKind::of_recovery(state).filter(|_| is_new);
            let failure = kind.map(|kind| Failure { kind, event, text: &state.text });
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress(&Step { done, event, events: *events, states, failure });
        };
        let (extract, threads, explorer) = (self.extract, self.threads, explorer.as_ref());
        let (passed, after) = Workers::run(extract, explorer, threads, self.deadline, &told, |workers| {
            let mut stream = Stream::new(workers, judge, states, known, self.deadline, *points)
                .with_recovery_crashes(beyond.as_mut());
            match &mut self.recovery {
                Some(recovery) if self.images.reads => {
                    generate(&mut reader, options, Some(&mut **recovery), &mut stream)?;
                }
                _ => generate(&mut reader, options, None, &mut stream)?,
            }
            stream.finish()
        })?;
        *points = after;
        *time += begun.elapsed();
        Ok(passed)
    }

    /// The state of a crash just before an event that loses nothing.
    fn state_at(&self, event: u64, options: &Options, passes: &mut Passes<'_>) -> Result<State> {
        let pending =
            pending_at(&mut open_trace(self.trace)?, options.config, options.memory_max_bytes, event)?;
        let contents = pending.replay.everything();
        let mut place = self.extract.place()?;
        let state = match &passes.explorer {
            Some(explorer) => {
                let work = Path::new("");
                let mut here = Here { extract: self.extract, place: &mut place, work, told: &|_| {} };
                explorer.state(&mut here, &contents)?.map(|state| State::clone(&state))
            }
            None => None,
        };
        // The one recovery that may begin whatever the time is.
        let state = state.map_or_else(|| self.extract.extract(&mut place, &contents), Ok)?;
        let again = self.extract.extract(&mut place, &contents)?;
        let is_same = state == again;
        let number = passes.states.number(state.clone());
        if !is_same {
            passes.states.note_again(number, again);
        }
        passes.known.put(&contents.hash(), Recovered::before(number));
        Ok(state)
    }
}
