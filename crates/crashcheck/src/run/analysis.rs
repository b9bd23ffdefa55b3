//! From a trace to a report.

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

use super::config::{ImagesConfig, NonTemporalConfig};
use crate::check::{
    Extract, Failure, FindingKind, Oracle, Prefix, Seen, Shrink, State, States, Step, analyze,
    depends_on_non_temporal, extract_all,
};
use crate::error::Result;
use crate::generate::{Contents, CrashImages, NonTemporal, Options, Recovery, generate, outline};
use crate::image::ImageHash;
use crate::report::{Report, Source, build};
use crate::symbols::Find;
use crate::trace::open_trace;

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
    /// An operation has at most the states before and after it.
    pub must_be_atomic: bool,
    /// Recoveries at a time.
    pub threads: usize,
    /// Says where an instruction comes from.
    pub symbols: &'a Find<'a>,
    /// No recovery begins after this; the report says what was not reached. One may, all the same: that of
    /// the image with everything, by which records are judged.
    pub deadline: Option<Instant>,
    /// Told of each recovery.
    pub progress: &'a (dyn Fn(&Step<'_>) + Sync),
}

impl<E: Extract> Analysis<'_, E> {
    /// Makes the crash images, recovers them, and judges the operations.
    ///
    /// # Errors
    /// Those of the trace, and of recoveries that cannot be run.
    pub fn run(mut self) -> Result<Report> {
        let mut options = self.images.options(outline(&mut open_trace(self.trace)?)?);
        let mut known = HashMap::new();
        let seen = Seen::default();
        let (mut images, mut states, mut unreached) = self.states(&options, &mut known, &seen)?;
        if self.images.non_temporal == NonTemporalConfig::Auto && unreached == 0 {
            let events = depends_on_non_temporal(&images, &states);
            if !events.is_empty() {
                options.non_temporal = NonTemporal::PartialAt(events);
                (images, states, unreached) = self.states(&options, &mut known, &seen)?;
            }
        }
        if self.has_prefix_oracle {
            self.oracles.push(Box::new(Prefix { complete: complete(&images, &states) }));
        }
        let oracles: Vec<&dyn Oracle> = self.oracles.iter().map(|oracle| &**oracle as &dyn Oracle).collect();
        let operations = analyze(&images, &states, &oracles, self.must_be_atomic)?;
        let recoveries_max = if self.is_over() { 0 } else { self.images.shrink };
        let recover = |contents: &Contents| match known.get(&contents.hash()) {
            Some(state) => Ok(state.clone()),
            None => self.extract.extract(&mut self.extract.place()?, contents),
        };
        build(&Source {
            name: self.name,
            trace: self.trace,
            config: options.config,
            memory_max_bytes: options.memory_max_bytes,
            symbols: self.symbols,
            images: &images,
            unreached,
            states: &states,
            operations: &operations,
            shrink: Shrink { recover: &recover, recoveries_max },
        })
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Makes images, and recovers those whose state is not known; says how many were not reached.
    fn states(
        &mut self,
        options: &Options,
        known: &mut HashMap<ImageHash, State>,
        seen: &Seen,
    ) -> Result<(CrashImages, States, usize)> {
        let mut reader = open_trace(self.trace)?;
        let is_over = self.is_over();
        let mut images = match &mut self.recovery {
            Some(recovery) if self.images.reads && !is_over => {
                generate(&mut reader, options, Some(&mut **recovery))?
            }
            _ => generate(&mut reader, options, None)?,
        };
        let new: Vec<_> = images.images.iter().filter(|image| !known.contains_key(&image.hash)).collect();
        let contents: Vec<_> = new.iter().map(|image| &image.contents).collect();
        let progress = |done, index: usize, state: &State| {
            let (states, is_new) = seen.note(state);
            let kind = FindingKind::of_recovery(state).filter(|_| is_new);
            let event = new[index].occurrences.first().map_or(0, |first| images.points[first.point].event);
            let failure = kind.map(|kind| Failure { kind, event, text: &state.text });
            (self.progress)(&Step { done, all: contents.len(), states, failure });
        };
        let found = extract_all(self.extract, &contents, self.threads, self.deadline, &progress)?;
        let found = new.iter().map(|image| image.hash).zip(found);
        known.extend(found.filter_map(|(hash, state)| Some((hash, state?))));
        let last = images.points.len().checked_sub(1).and_then(|last| images.complete_at(last));
        if let Some(last) = last.filter(|_| self.has_prefix_oracle).map(|index| &images.images[index])
            && !known.contains_key(&last.hash)
        {
            known.insert(last.hash, self.extract.extract(&mut self.extract.place()?, &last.contents)?);
        }
        let unreached = images.keep(|image| known.contains_key(&image.hash));
        let all = images.images.iter().map(|image| known[&image.hash].clone()).collect();
        let states = States::new(&images, all);
        Ok((images, states, unreached))
    }
}

/// The state of the image with everything, at the end.
fn complete(images: &CrashImages, states: &States) -> Vec<u8> {
    let index = images.points.len().checked_sub(1).and_then(|last| images.complete_at(last));
    index.map_or_else(Vec::new, |index| states.found[states.of_image[index]].state.text.clone())
}
