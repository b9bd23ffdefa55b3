//! Hints of a trace: those of one kind and place are one, and what matters most comes first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::data::PatternReport;
use super::place::{chain, names};
use super::source::{Source, place};

/// Hints that a terminal shows, and that a page shows at once.
pub(super) const SHOWN: usize = 10;

/// Folds what the trace hints at by kind and place, and ranks it.
pub(super) fn hints(source: &Source<'_>) -> Vec<PatternReport> {
    let mut found: BTreeMap<_, PatternReport> = BTreeMap::new();
    for pattern in source.patterns {
        let at = place(source.symbols, pattern.pc, false);
        let names = names(&at);
        if source.exclude.iter().any(|exclusion| exclusion.is_one_of(&names)) {
            continue;
        }
        let at = chain(&at);
        let rank = pattern.kind.rank(pattern.is_read);
        let first = || PatternReport {
            kind: pattern.kind.name().to_owned(),
            what: pattern.kind.meaning().to_owned(),
            at: at.clone(),
            instructions: 0,
            is_read: pattern.is_read,
            count: 0,
            first_event: pattern.first_event,
            first_address: pattern.first_address,
        };
        let one = found.entry((rank, at.clone())).or_insert_with(first);
        one.instructions += 1;
        one.count += pattern.count;
        if pattern.first_event < one.first_event {
            (one.first_event, one.first_address) = (pattern.first_event, pattern.first_address);
        }
    }
    let mut ranked: Vec<((u8, String), PatternReport)> = found.into_iter().collect();
    ranked.sort_by_key(|((rank, _), one)| (*rank, Reverse(one.count), one.first_event));
    ranked.into_iter().map(|(_, one)| one).collect()
}

impl PatternReport {
    /// Whether this is the place of its instructions.
    pub(super) fn is_by(&self, place: &str) -> bool {
        self.at.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with(" in "))
    }

    /// What it means, and whether the recovery would see it.
    pub(super) fn meaning(&self) -> String {
        match self.is_read {
            Some(true) => format!("{}; the recovery reads it", self.what),
            Some(false) => format!("{}; the recovery does not read it", self.what),
            None => self.what.clone(),
        }
    }
}
