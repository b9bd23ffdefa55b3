//! Which machine is modelled, and by whose rules.

/// What the platform keeps when the power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Persistence {
    /// Only what has left the caches and the write-combining buffers survives.
    #[default]
    Adr,
    /// The caches survive as well; store buffers and write-combining buffers do not (R9).
    Eadr,
}

/// The rules by which images are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Rules {
    /// R1 to R10: lines persist independently of each other. The reference.
    #[default]
    Arch,
    /// R11: one global prefix and a subset of lines. Misses images that hardware can leave; for comparison.
    Dissertation,
}

/// Configuration of a [`Machine`](crate::Machine).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Config {
    /// What survives a power failure.
    pub persistence: Persistence,
    /// Which rules hold.
    pub rules: Rules,
    /// Non-temporal stores to one line are not ordered with each other. The usual assumption is that they
    /// are, but no manual promises it.
    pub strict_nt: bool,
}

impl Config {
    /// Whether one global order of the cached stores limits the images (R9, R11).
    pub(crate) fn has_global_order(self) -> bool {
        self.persistence == Persistence::Eadr || self.rules == Rules::Dissertation
    }

    /// Whether whole lines can be missing in spite of the global order (R11 without eADR).
    pub(crate) fn has_line_subsets(self) -> bool {
        self.persistence == Persistence::Adr && self.rules == Rules::Dissertation
    }
}
