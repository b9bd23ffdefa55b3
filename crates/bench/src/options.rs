//! What of a benchmark is run.

/// What to run, from the command line.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// End within 30 s: fewer turns, no sweeps.
    pub quick: bool,
}

impl Options {
    /// Turns of each side. They are short (about a millisecond), so that what disturbs one side disturbs the
    /// other too.
    pub(crate) fn turns(self) -> usize {
        if self.quick { 101 } else { 401 }
    }
}
