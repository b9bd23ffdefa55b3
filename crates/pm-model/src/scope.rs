//! Which of the allowed images are wanted.

use std::collections::BTreeSet;

/// Part of the allowed images; never others. The whole of them by default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope<'a> {
    /// Only these lines, by number, are varied: each combination of contents that they can have together
    /// occurs once, with as little in the other lines as the order of the stores allows.
    pub lines: Option<&'a BTreeSet<u64>>,
    /// Of non-temporal stores to a line that follow each other, all or none.
    pub whole_nt: bool,
}

impl Scope<'_> {
    pub(crate) fn wants(&self, line: u64) -> bool {
        self.lines.is_none_or(|lines| lines.contains(&line))
    }
}

/// What a crash can leave.
#[derive(Debug)]
pub struct CrashImage<'a, M> {
    /// PM.
    pub memory: &'a M,
    /// A non-temporal store is in it that no fence has completed yet.
    pub has_nt: bool,
}
