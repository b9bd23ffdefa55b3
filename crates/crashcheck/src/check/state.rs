//! Semantic states: the results of recovering crash images.

use std::collections::HashMap;

use crate::generate::{CrashImages, Part, PointKind};
use crate::process::{Ending, Output};

/// The result of recovering an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// How it ended.
    pub ending: Ending,
    /// What it printed; two images with the same text are the same to a user.
    pub text: Vec<u8>,
    /// How a write to the recovered contents failed, if it was tried and failed.
    pub write: Option<Ending>,
}

impl From<Output> for State {
    /// The messages of a recovery that failed are part of the state.
    fn from(output: Output) -> State {
        let Output { ending, stdout: mut text, stderr } = output;
        if !ending.is_success() {
            text.extend_from_slice(&stderr);
        }
        State { ending, text, write: None }
    }
}

/// A state, and the images that have it.
#[derive(Debug, Clone)]
pub struct Found {
    /// `c1s0`: the first that was found after checkpoint 1; `s0` where there is no checkpoint.
    pub name: String,
    /// What it is.
    pub state: State,
    /// Indices of images, ascending.
    pub images: Vec<usize>,
    /// It is that of an image with everything that was pending: a running program can have it.
    pub is_regular: bool,
}

/// The distinct states of crash images.
#[derive(Debug, Default)]
pub struct States {
    /// In the order in which they were found.
    pub found: Vec<Found>,
    /// For each image, the index of its state.
    pub of_image: Vec<usize>,
}

impl States {
    /// Collects the states of images, one for each image.
    ///
    /// # Panics
    /// Caller bug only: another number of states than images.
    pub fn new(images: &CrashImages, states: Vec<State>) -> States {
        assert_eq!(images.images.len(), states.len(), "a state for each image");
        let mut by_state: HashMap<State, usize> = HashMap::new();
        let mut counts: HashMap<Option<u64>, usize> = HashMap::new();
        let mut all = States::default();
        for (index, (image, state)) in images.images.iter().zip(states).enumerate() {
            let is_regular = image.occurrences.iter().any(|occurrence| occurrence.part == Part::Everything);
            let number = *by_state.entry(state).or_insert_with_key(|state| {
                let point = image.occurrences.first().map(|first| &images.points[first.point]);
                let checkpoint = point.and_then(|point| match point.kind {
                    PointKind::Checkpoint(number) if point.checkpoint.is_none() => Some(number),
                    _ => point.checkpoint,
                });
                let count = counts.entry(checkpoint).or_default();
                let name = match checkpoint {
                    Some(checkpoint) => format!("c{checkpoint}s{count}"),
                    None => format!("s{count}"),
                };
                *count += 1;
                all.found.push(Found { name, state: state.clone(), images: Vec::new(), is_regular: false });
                all.found.len() - 1
            });
            all.found[number].images.push(index);
            all.found[number].is_regular |= is_regular;
            all.of_image.push(number);
        }
        all
    }
}
