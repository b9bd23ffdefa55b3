//! Follows crashes of recoveries from an image on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use fastness_crashcheck_trace::Kind;

use super::once::Once;
use super::{Beyond, Link, RecoveryCounts, RecoveryCrashes};
use crate::check::extract::{Extract, WorkDir};
use crate::check::losses::{Held, Losses, bytes_lost};
use crate::check::state::{State, StateLimits};
use crate::check::stream::Stop;
use crate::error::{Result, make_dir};
use crate::generate::{
    Contents, Known, Layout, NonTemporal, Options, Outline, Part, Place, Point, Sink, generate,
};
use crate::image::ImageHash;
use crate::trace::open_trace;

/// Most states that are kept of the crashes in the recovery of one image.
const STATES_OF_AN_IMAGE_MAX: usize = 64;
/// Images of one recovery that are known not to come a second time.
const IMAGES_OF_A_RECOVERY: usize = 1 << 14;
/// Images at whose recovery a chain has arrived a second time, and what was found there.
const EXPLORED: usize = 1 << 14;

/// Its recovery was traced, it is the image of a crash of a recovery, or was not reached: each counts once.
const TRACED: u8 = 1;
const IMAGE: u8 = 2;
const UNREACHED: u8 = 4;

/// Finds what crashes in recoveries lead to, for several threads at once.
pub(crate) struct Explorer<'a> {
    crashes: RecoveryCrashes<'a>,
    options: Options,
    deadline: Option<Instant>,
    limits: StateLimits,
    /// States of images, those of the program's crashes as well.
    states: Once<Arc<State>>,
    distinct: Mutex<Distinct>,
    /// By how many crashes are still to come, less one.
    explored: Vec<Once<Arc<[Beyond]>>>,
    seen: Mutex<Known<u8>>,
    counts: Mutex<RecoveryCounts>,
    held: Held,
}

/// Different states, which images share.
#[derive(Default)]
struct Distinct {
    states: HashMap<[u8; 32], Arc<State>>,
    text_bytes: usize,
}

/// With what a thread recovers images, and where.
pub(crate) struct Here<'a, E: Extract> {
    pub(crate) extract: &'a E,
    pub(crate) place: &'a mut E::Place,
    /// For traces of recoveries.
    pub(crate) work: &'a Path,
    /// Hears of each recovery.
    pub(crate) told: &'a dyn Fn(&State),
}

impl<'a> Explorer<'a> {
    /// `options` are those for the program's own crashes. `known_images` of the newest images are not
    /// recovered again.
    pub(crate) fn new(
        crashes: RecoveryCrashes<'a>,
        options: &Options,
        deadline: Option<Instant>,
        limits: StateLimits,
        known_images: usize,
    ) -> Explorer<'a> {
        // Which lines a recovery of a recovery reads is not looked at: that would be traced, too.
        let non_temporal = match options.non_temporal {
            NonTemporal::Partial => NonTemporal::Partial,
            NonTemporal::Whole | NonTemporal::PartialAt(_) => NonTemporal::Whole,
        };
        let options = Options {
            outline: Outline::default(),
            images_per_point: crashes.per_point,
            non_temporal,
            ..options.clone()
        };
        Explorer {
            crashes,
            options,
            deadline,
            limits,
            states: Once::new(known_images),
            distinct: Mutex::default(),
            explored: (0..crashes.depth).map(|_| Once::new(EXPLORED.min(known_images))).collect(),
            seen: Mutex::new(Known::new(known_images)),
            counts: Mutex::default(),
            held: Held::default(),
        }
    }

    /// A folder for a thread.
    pub(crate) fn work(&self) -> Result<WorkDir> {
        WorkDir::new(self.crashes.work)
    }

    pub(crate) fn counts(&self) -> RecoveryCounts {
        *self.count()
    }

    /// The state of an image, found out if it is not known; none if no recovery may begin any more.
    pub(crate) fn state<E: Extract>(
        &self,
        here: &mut Here<'_, E>,
        contents: &Contents,
    ) -> Result<Option<Arc<State>>> {
        self.states.get(&contents.hash(), || {
            if self.is_over() {
                return Ok(None);
            }
            let state = here.extract.extract(here.place, contents)?;
            (here.told)(&state);
            Ok(Some(self.share(state)))
        })
    }

    /// The states that crashes in the recovery of an image lead to, other than its own, in the order in which
    /// they are found.
    pub(crate) fn explore<E: Extract>(
        &self,
        here: &mut Here<'_, E>,
        contents: &Contents,
    ) -> Result<Arc<[Beyond]>> {
        self.beyond(here, contents, self.crashes.depth)
    }

    fn beyond<E: Extract>(
        &self,
        here: &mut Here<'_, E>,
        contents: &Contents,
        depth: usize,
    ) -> Result<Arc<[Beyond]>> {
        let hash = contents.hash();
        let found =
            self.explored[depth - 1].get(&hash, || self.find(here, contents, hash, depth).map(Some))?;
        Ok(found.unwrap_or_default())
    }

    fn find<E: Extract>(
        &self,
        here: &mut Here<'_, E>,
        contents: &Contents,
        hash: ImageHash,
        depth: usize,
    ) -> Result<Arc<[Beyond]>> {
        let nothing = || Ok(Arc::default());
        let Some(own) = self.state(here, contents)? else { return nothing() };
        if !own.ending.is_success() {
            return nothing();
        }
        if self.is_over() {
            self.count().unreached += usize::from(self.is_first(&hash, UNREACHED));
            return nothing();
        }
        let work = here.work.join(depth.to_string());
        make_dir(&work)?;
        let trace = self.crashes.tracer.trace(contents, &work)?;
        let is_counted = self.is_first(&hash, TRACED);
        if is_counted {
            let mut counts = self.count();
            counts.recoveries += 1;
            counts.incomplete += usize::from(!trace.is_whole);
        }
        let Some(path) = trace.path else { return nothing() };
        let Some(events) = stores_until(&path)? else {
            self.count().idle += usize::from(is_counted);
            return nothing();
        };
        let outline = Outline { events, ..Outline::default() };
        let options = Options { outline, ..self.options.clone() };
        let mut crashes = Crashes {
            explorer: self,
            here,
            contents,
            own,
            depth,
            is_counted,
            event: 0,
            everything: None,
            seen: Known::new(IMAGES_OF_A_RECOVERY),
            found: Vec::new(),
            by_state: HashMap::new(),
        };
        crashes.seen.put(&hash, ());
        generate(&mut open_trace(&path)?, &options, None, &mut crashes)?;
        Ok(crashes.found.into())
    }

    fn count(&self) -> MutexGuard<'_, RecoveryCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is noted of an image for the first time.
    fn is_first(&self, hash: &ImageHash, what: u8) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.get_mut(hash).map_or(0, |noted| std::mem::replace(noted, *noted | what));
        if before == 0 {
            seen.put(hash, what);
        }
        before & what == 0
    }

    fn share(&self, state: State) -> Arc<State> {
        let mut distinct = self.distinct.lock().unwrap_or_else(PoisonError::into_inner);
        let Distinct { states, text_bytes } = &mut *distinct;
        let shared = states.entry(state.digest()).or_insert_with(|| {
            *text_bytes += state.text.len();
            Arc::new(state)
        });
        Arc::clone(shared)
    }

    /// Whether no recovery may begin any more; says why.
    fn is_over(&self) -> bool {
        let mut counts = self.count();
        if counts.stop.is_none() {
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                counts.stop = Some(Stop::Budget);
            } else {
                let distinct = self.distinct.lock().unwrap_or_else(PoisonError::into_inner);
                let is_full = distinct.states.len() >= self.limits.states
                    || distinct.text_bytes >= self.limits.text_bytes;
                counts.stop = is_full.then_some(Stop::States);
            }
        }
        counts.stop.is_some()
    }
}

/// How many events a trace has; none if nothing is stored to PM.
fn stores_until(path: &Path) -> Result<Option<u64>> {
    let mut reader = open_trace(path)?;
    let layout = Layout::of(reader.header())?;
    let mut has_stores = false;
    while let Some(event) = reader.next()? {
        has_stores |= match event.kind {
            Kind::Store { address, data, .. } | Kind::Rmw { address, data } => {
                layout.place(address, data.len()) != Place::Outside
            }
            _ => false,
        };
    }
    Ok(has_stores.then(|| reader.count()))
}

/// Takes the crash images of one recovery.
struct Crashes<'a, 'b, 'c, E: Extract> {
    explorer: &'a Explorer<'b>,
    here: &'a mut Here<'c, E>,
    /// What is recovered, and its state if that does not crash.
    contents: &'a Contents,
    own: Arc<State>,
    /// So many crashes may follow each other from here on.
    depth: usize,
    /// This recovery's points are counted now.
    is_counted: bool,
    event: u64,
    everything: Option<Contents>,
    seen: Known<()>,
    found: Vec<Beyond>,
    /// Indexes of them.
    by_state: HashMap<[u8; 32], usize>,
}

impl<E: Extract> Crashes<'_, '_, '_, E> {
    fn note(&mut self, beyond: Beyond) {
        let count = self.found.len();
        match self.by_state.entry(beyond.state.digest()) {
            Entry::Occupied(known) => {
                let before = &mut self.found[*known.get()];
                if beyond.size() < before.size() {
                    *before = beyond;
                }
            }
            Entry::Vacant(new) if count < STATES_OF_AN_IMAGE_MAX => {
                new.insert(count);
                self.found.push(beyond);
            }
            Entry::Vacant(_) => self.explorer.count().left_out_states += 1,
        }
    }
}

impl<E: Extract> Sink for Crashes<'_, '_, '_, E> {
    fn begin(&mut self, point: &Point, everything: &Contents) -> Result<()> {
        self.event = point.event;
        self.everything = Some(everything.clone());
        Ok(())
    }

    fn image(&mut self, contents: Contents, _: Part, _: bool) -> Result<()> {
        let hash = contents.hash();
        if self.seen.get_mut(&hash).is_some() {
            return Ok(());
        }
        self.seen.put(&hash, ());
        let explorer = self.explorer;
        explorer.count().images += usize::from(explorer.is_first(&hash, IMAGE));
        let Some(state) = explorer.state(self.here, &contents)? else {
            explorer.count().unreached += usize::from(explorer.is_first(&hash, UNREACHED));
            return Ok(());
        };
        let deeper = match self.depth {
            1 => Arc::default(),
            depth => explorer.beyond(self.here, &contents, depth - 1)?,
        };
        if state == self.own && deeper.is_empty() {
            return Ok(());
        }
        let link = Arc::new(Link {
            event: self.event,
            image: hash,
            lost_bytes: self.everything.as_ref().map_or(0, |everything| bytes_lost(everything, &contents)),
            changes: Losses::of(self.contents, &contents, &explorer.held),
        });
        let mut all = vec![Beyond { state, chain: vec![link.clone()] }];
        all.extend(deeper.iter().map(|beyond| Beyond {
            state: beyond.state.clone(),
            chain: std::iter::once(&link).chain(&beyond.chain).cloned().collect(),
        }));
        let own = self.own.clone();
        all.into_iter().filter(|beyond| beyond.state != own).for_each(|beyond| self.note(beyond));
        Ok(())
    }

    fn is_over(&mut self) -> bool {
        self.explorer.is_over()
    }

    fn end(&mut self, point: &Point) -> Result<()> {
        if self.is_counted {
            let mut counts = self.explorer.count();
            counts.points += 1;
            counts.cut_points += usize::from(!point.is_exhaustive);
        }
        Ok(())
    }
}
