//! How much of a benchmark to run.

/// How much to run, from the command line.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Finish within a minute on an idle machine: fewer turns, no sweeps.
    pub quick: bool,
}

impl Options {
    /// Turns of each side. They are short (about a millisecond), so that a disturbance affects both sides.
    pub(crate) fn turns(self) -> usize {
        if self.quick { 101 } else { 401 }
    }
}
