//! Crash images on their way from the generator, through recoveries, to the judge.
//!
//! Images are recovered in parallel, and judged in the order in which they were made. Only those that are on
//! their way are in memory: a window, which is smaller where images share little. An image that was seen at
//! an earlier point is not recovered again ([`Known`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::in_recovery::{Beyond, Link, after_chain};
use super::judge::{Judge, Judged};
use super::state::{State, States};
use super::workers::{Task, Workers};
use crate::Result;
use crate::generate::{Contents, Known, Part, Point, Sink};
use crate::image::ImageHash;

/// Most images on their way, and about how many bytes they may have that are not shared, or print.
const WINDOW_MAX: usize = 256;
const WINDOW_MAX_BYTES: usize = 64 << 20;
/// What a changed line costs at most in an image: its page, and the nodes above it.
const BYTES_OF_A_LINE: usize = 4096 + 3 * 1200;

/// What is known of an image.
#[derive(Debug, Clone, Copy)]
pub struct Recovered {
    result: Outcome,
    /// Number of the last point that had it.
    point: u64,
    /// Crashes in its recovery are known, or on their way.
    is_explored: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It is on its way.
    Waits,
    /// No recovery could begin any more.
    Unreached,
    /// Number of its state.
    State(u32),
}

impl Recovered {
    /// One with a state, at no point so far.
    pub fn before(state: u32) -> Recovered {
        Recovered { result: Outcome::State(state), point: 0, is_explored: false }
    }

    /// Number of its state, if it has one.
    pub fn state(&self) -> Option<u32> {
        match self.result {
            Outcome::State(state) => Some(state),
            Outcome::Waits | Outcome::Unreached => None,
        }
    }
}

enum Entry {
    Begin(Point, Contents),
    Image(Waiting),
    End(Point),
}

/// An image on its way.
struct Waiting {
    contents: Contents,
    hash: ImageHash,
    part: Part,
    has_nt: bool,
    is_new: bool,
    from: From,
    /// What explores crashes in its recovery; none if that has been done, or is not asked for.
    explored: Option<u64>,
}

/// A state that crashes in the recovery of an image lead to, by its number.
pub(super) type BeyondState = (u32, Vec<Arc<Link>>);
/// Such states of the newest images that have any.
pub(crate) type BeyondStates = Known<Arc<[BeyondState]>>;
/// Of so many images at least.
pub(crate) const BEYOND_IMAGES: usize = 1 << 14;

/// Where the state of an image comes from.
enum From {
    /// A recovery, by its number.
    Recovery(u64),
    /// It is known, or will be once the images before it are.
    Known,
    /// Nowhere.
    Nothing,
}

/// Why recoveries have ended before all were done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The time was over.
    Budget,
    /// There are too many different states.
    States,
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stop::Budget => write!(f, "the budget was used up"),
            Stop::States => write!(
                f,
                "there are too many different states (does the recovery print what is different each time?)"
            ),
        }
    }
}

/// How many images there were.
#[derive(Debug, Clone, Copy, Default)]
pub struct Passed {
    /// Distinct ones that have a state.
    pub images: usize,
    /// Distinct ones that have none.
    pub unreached: usize,
    /// Why.
    pub stop: Option<Stop>,
}

/// The way of one pass through a trace.
pub(crate) struct Stream<'a, 'b> {
    workers: Workers,
    judge: &'a mut Judge<'b>,
    states: &'a mut States,
    known: &'a mut Known<Recovered>,
    /// What crashes in recoveries lead to; none if that is not asked for.
    beyond: Option<&'a mut BeyondStates>,
    deadline: Option<Instant>,
    /// Points of all passes are counted in one sequence, from 1.
    points: u64,
    first_point: u64,
    queue: VecDeque<Entry>,
    queued_images: usize,
    window: usize,
    text_bytes: usize,
    /// The point that is being judged, and whether all its images have a state.
    at: Option<(Point, bool)>,
    event: u64,
    passed: Passed,
}

impl<'a, 'b> Stream<'a, 'b> {
    pub(crate) fn new(
        workers: Workers,
        judge: &'a mut Judge<'b>,
        states: &'a mut States,
        known: &'a mut Known<Recovered>,
        deadline: Option<Instant>,
        points: u64,
    ) -> Stream<'a, 'b> {
        states.begin_pass();
        Stream {
            workers,
            judge,
            states,
            known,
            beyond: None,
            deadline,
            points,
            first_point: points + 1,
            queue: VecDeque::new(),
            queued_images: 0,
            window: WINDOW_MAX,
            text_bytes: 1,
            at: None,
            event: 0,
            passed: Passed::default(),
        }
    }

    /// With crashes in recoveries, of which `beyond` keeps what passes before this one have found.
    pub(crate) fn with_recovery_crashes(self, beyond: Option<&'a mut BeyondStates>) -> Stream<'a, 'b> {
        Stream { beyond, ..self }
    }

    /// Waits for what is on its way; says what there was, and how many points with those of earlier passes.
    pub(crate) fn finish(&mut self) -> Result<(Passed, u64)> {
        while !self.queue.is_empty() {
            self.judge_next()?;
        }
        Ok((self.passed, self.points))
    }

    fn judge_next(&mut self) -> Result<()> {
        match self.queue.pop_front() {
            Some(Entry::Begin(point, everything)) => {
                self.judge.begin(&point, everything);
                self.at = Some((point, true));
            }
            Some(Entry::Image(image)) => {
                self.queued_images -= 1;
                self.judge_image(image)?;
            }
            Some(Entry::End(point)) => {
                let is_whole = self.at.take().is_none_or(|(_, is_whole)| is_whole);
                self.judge.end(self.states, &point, is_whole);
            }
            None => {}
        }
        Ok(())
    }

    fn judge_image(&mut self, image: Waiting) -> Result<()> {
        let Waiting { contents, hash, part, has_nt, is_new, from, explored } = image;
        let state = self.state(&hash, from, &contents)?;
        let beyond = self.beyond(&hash, explored, &contents)?;
        self.passed.images += usize::from(is_new && state.is_some());
        self.passed.unreached += usize::from(is_new && state.is_none());
        let Some((point, is_whole)) = &mut self.at else { return Ok(()) };
        *is_whole &= state.is_some();
        if let Some(state) = state {
            let image = Judged { contents: &contents, hash, part, has_non_temporal: has_nt, is_new, state };
            self.judge.image(self.states, point, &image)?;
            for (state, chain) in beyond.iter().flat_map(|beyond| beyond.iter()) {
                self.judge.in_recovery(self.states, point, &Judged { state: *state, ..image }, chain)?;
            }
        }
        Ok(())
    }

    /// What crashes in the recovery of an image lead to; none if nothing else than the image itself.
    fn beyond(
        &mut self,
        hash: &ImageHash,
        explored: Option<u64>,
        contents: &Contents,
    ) -> Result<Option<Arc<[BeyondState]>>> {
        let Some(number) = explored else {
            return Ok(self.beyond.as_mut().and_then(|beyond| beyond.get_mut(hash).cloned()));
        };
        let found = self.workers.beyond(number)?;
        if found.is_empty() {
            return Ok(None);
        }
        let mut states = Vec::new();
        for Beyond { state, chain } in found.iter() {
            let contents = after_chain(contents, chain);
            states.push((self.number(State::clone(state), contents.as_ref())?, chain.clone()));
        }
        let states: Arc<[BeyondState]> = states.into();
        if let Some(beyond) = &mut self.beyond {
            beyond.put(hash, states.clone());
        }
        Ok(Some(states))
    }

    fn state(&mut self, hash: &ImageHash, from: From, contents: &Contents) -> Result<Option<u32>> {
        match from {
            From::Nothing => Ok(None),
            From::Known => Ok(self.known.get_mut(hash).and_then(|known| known.state())),
            From::Recovery(number) => {
                let state = self.workers.state(number)?;
                if let Some(state) = &state {
                    self.text_bytes = self.text_bytes.max(state.text.len());
                } else {
                    self.passed.stop.get_or_insert(Stop::Budget);
                }
                let number = state
                    .map(|state| self.number(Arc::unwrap_or_clone(state), Some(contents)))
                    .transpose()?;
                if let Some(known) = self.known.get_mut(hash) {
                    known.result = number.map_or(Outcome::Unreached, Outcome::State);
                }
                Ok(number)
            }
        }
    }
}

impl Stream<'_, '_> {
    /// The number of the state of an image. If it is new the image is recovered once more: does the recovery
    /// say the same again? Others on their way are recovered meanwhile.
    fn number(&mut self, state: State, contents: Option<&Contents>) -> Result<u32> {
        let count = self.states.count();
        let number = self.states.number(state);
        if let Some(contents) = contents.filter(|_| number as usize == count) {
            let event = self.at.as_ref().map_or(self.event, |(point, _)| point.event);
            let again = self.workers.submit(event, contents.clone(), Task::RecoverAgain);
            let again = self.workers.state(again)?;
            if let Some(again) = again.filter(|again| **again != *self.states.by_number(number)) {
                self.states.note_again(number, Arc::unwrap_or_clone(again));
            }
        }
        Ok(number)
    }
}

impl Sink for Stream<'_, '_> {
    fn begin(&mut self, point: &Point, everything: &Contents) -> Result<()> {
        self.points += 1;
        self.event = point.event;
        let lines = point.dirty_lines + point.dirty_blocks;
        self.window = WINDOW_MAX_BYTES / (BYTES_OF_A_LINE * lines.max(1));
        self.queue.push_back(Entry::Begin(point.clone(), everything.clone()));
        Ok(())
    }

    fn image(&mut self, contents: Contents, part: Part, has_nt: bool) -> Result<()> {
        let hash = contents.hash();
        let seen = self.known.get_mut(&hash).map(|known| {
            let before = std::mem::replace(&mut known.point, self.points);
            (known.result, before, std::mem::replace(&mut known.is_explored, true))
        });
        // One that was not reached can still be, in a later pass.
        let is_known = seen
            .is_some_and(|(result, before, _)| result != Outcome::Unreached || before >= self.first_point);
        let is_new = seen.is_none_or(|(_, before, _)| before < self.first_point);
        let is_explored =
            self.beyond.is_none() || is_known && seen.is_some_and(|(.., is_explored)| is_explored);
        let is_over = !(is_known && is_explored) && self.is_over();
        let from = if is_known {
            From::Known
        } else {
            let result = if is_over { Outcome::Unreached } else { Outcome::Waits };
            self.known.put(&hash, Recovered { result, point: self.points, is_explored: true });
            match is_over {
                true => From::Nothing,
                false => From::Recovery(self.workers.submit(self.event, contents.clone(), Task::Recover)),
            }
        };
        let is_wanted = !is_explored && !is_over;
        let explored = is_wanted.then(|| self.workers.submit(self.event, contents.clone(), Task::Explore));
        let window = self.window.min(WINDOW_MAX_BYTES / self.text_bytes).clamp(8, WINDOW_MAX);
        let image = Waiting { contents, hash, part, has_nt, is_new, from, explored };
        self.queue.push_back(Entry::Image(image));
        self.queued_images += 1;
        while self.queued_images > window {
            self.judge_next()?;
        }
        Ok(())
    }

    fn is_over(&mut self) -> bool {
        if self.passed.stop.is_none() {
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.passed.stop = Some(Stop::Budget);
            } else if self.states.is_full() || self.judge.is_full() {
                self.passed.stop = Some(Stop::States);
            }
        }
        self.passed.stop.is_some()
    }

    fn end(&mut self, point: &Point) -> Result<()> {
        self.queue.push_back(Entry::End(point.clone()));
        // Points without new images do not wait for any.
        while self.queue.len() > 4 * WINDOW_MAX {
            self.judge_next()?;
        }
        Ok(())
    }
}
