//! Recent events: for `status`, and for standard error.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use fastness_sync::{Mutex, lock};
use serde::{Deserialize, Serialize};

use crate::said::{Level, say};

const EVENTS_MAX: usize = 100;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventReport {
    /// Seconds since 1970.
    pub at_unix_s: u64,
    /// What.
    pub text: String,
    /// How often in a row.
    pub times: u64,
}

/// The latest events; a repeated event is stored once, with a count.
#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<VecDeque<EventReport>>);

impl Journal {
    pub(crate) fn note(&self, text: impl Into<String>) {
        self.say(Level::Info, text.into());
    }

    /// Somebody should look at it.
    pub(crate) fn warn(&self, text: impl Into<String>) {
        self.say(Level::Warning, text.into());
    }

    /// Something is not done, or lost.
    pub(crate) fn fail(&self, text: impl Into<String>) {
        self.say(Level::Error, text.into());
    }

    fn say(&self, level: Level, text: String) {
        let at_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut events = lock(&self.0);
        if let Some(last) = events.back_mut()
            && last.text == text
        {
            last.times += 1;
            last.at_unix_s = at_unix_s;
            return;
        }
        say(level, &text);
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(EventReport { at_unix_s, text, times: 1 });
    }

    pub(crate) fn events(&self) -> Vec<EventReport> {
        lock(&self.0).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_few_and_repetition_is_counted() {
        let journal = Journal::default();
        for round in 0..300 {
            journal.note(format!("event {}", round / 2));
        }
        let events = journal.events();
        assert_eq!(events.len(), EVENTS_MAX);
        assert!(events.iter().all(|event| event.times == 2));
        assert_eq!(events.last().unwrap().text, "event 149");
    }
}
