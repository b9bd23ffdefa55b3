//! Semantic states: the results of recovering crash images.

use std::collections::HashMap;

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

impl State {
    /// A hash of all of it.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(format!("{:?} {:?} ", self.ending, self.write).as_bytes());
        *hasher.update(&self.text).finalize().as_bytes()
    }
}

/// Most different states of a run, and most bytes of their texts: a recovery with more prints something that
/// is different each time.
#[derive(Debug, Clone, Copy)]
pub struct StateLimits {
    /// States.
    pub states: usize,
    /// Bytes of texts.
    pub text_bytes: usize,
}

impl Default for StateLimits {
    fn default() -> StateLimits {
        StateLimits { states: 100_000, text_bytes: 32 << 20 }
    }
}

/// A state that images of a pass have.
#[derive(Debug, Clone)]
pub struct Found {
    /// `c1s0`: the first that was found after checkpoint 1; `s0` where there is no checkpoint.
    pub name: String,
    /// How many images have it.
    pub images: u64,
    /// It is that of an image with everything that was pending: a running program can have it.
    pub is_regular: bool,
    /// No image of the program's crashes has it: only a crash during recovery leads to it.
    pub is_in_recovery: bool,
    number: u32,
}

/// The distinct states of crash images. A trace may be gone through twice: states keep their numbers, and are
/// found again.
#[derive(Debug, Default)]
pub struct States {
    states: Vec<State>,
    by_hash: HashMap<[u8; 32], u32>,
    text_bytes: usize,
    limits: StateLimits,
    found: Vec<Found>,
    /// By number.
    index: Vec<Option<usize>>,
    /// By checkpoint.
    counts: HashMap<Option<u64>, usize>,
    /// By number: what the same image has shown, recovered once more, if that was another state.
    again: HashMap<u32, u32>,
}

impl States {
    /// None yet.
    pub fn new(limits: StateLimits) -> States {
        States { limits, ..States::default() }
    }

    /// The number of a state: the same for the same.
    pub fn number(&mut self, state: State) -> u32 {
        *self.by_hash.entry(state.digest()).or_insert_with(|| {
            self.text_bytes += state.text.len();
            self.states.push(state);
            self.index.push(None);
            (self.states.len() - 1) as u32
        })
    }

    /// How many there are: the number of the next one that is new.
    pub fn count(&self) -> usize {
        self.states.len()
    }

    /// Notes that an image which has shown one state has shown another, recovered once more.
    pub fn note_again(&mut self, number: u32, again: State) {
        let count = self.count();
        let other = self.number(again);
        self.again.insert(number, other);
        // One that no image has shown otherwise is of this image, too.
        if other as usize == count {
            self.again.insert(other, number);
        }
    }

    /// What the image of one of those found has shown, recovered once more; none if that was the same.
    pub fn again(&self, index: usize) -> Option<&State> {
        self.again.get(&self.found[index].number).map(|other| self.by_number(*other))
    }

    /// Whether there are as many as may be.
    pub fn is_full(&self) -> bool {
        self.states.len() >= self.limits.states || self.text_bytes >= self.limits.text_bytes
    }

    /// Forgets which were found.
    pub fn begin_pass(&mut self) {
        self.found.clear();
        self.index.fill(None);
        self.counts.clear();
    }

    /// Notes that an image after `checkpoint` has this state; returns its index among those found.
    pub fn note(&mut self, number: u32, checkpoint: Option<u64>, is_regular: bool, is_new: bool) -> usize {
        let index = self.note_in_recovery(number, checkpoint);
        let found = &mut self.found[index];
        found.images += u64::from(is_new);
        found.is_regular |= is_regular;
        found.is_in_recovery = false;
        index
    }

    /// Notes that a crash during the recovery of an image after `checkpoint` leads to this state; returns its
    /// index among those found.
    pub fn note_in_recovery(&mut self, number: u32, checkpoint: Option<u64>) -> usize {
        *self.index[number as usize].get_or_insert_with(|| {
            let count = self.counts.entry(checkpoint).or_default();
            let name = match checkpoint {
                Some(checkpoint) => format!("c{checkpoint}s{count}"),
                None => format!("s{count}"),
            };
            *count += 1;
            self.found.push(Found { name, images: 0, is_regular: false, is_in_recovery: true, number });
            self.found.len() - 1
        })
    }

    /// Those found, in order.
    pub fn found(&self) -> &[Found] {
        &self.found
    }

    /// What one of those found is.
    pub fn state(&self, index: usize) -> &State {
        self.by_number(self.found[index].number)
    }

    /// What a state is.
    pub fn by_number(&self, number: u32) -> &State {
        &self.states[number as usize]
    }
}
