//! How far the replay of a log is, for whoever waits for an import.

use std::fmt;
use std::sync::Arc;

use fastness_intent::ReplayProgress;
use serde::{Deserialize, Serialize};

use crate::journal::Journal;

/// A replay that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayingReport {
    /// The volume whose records are replayed now.
    pub volume: String,
    /// Records of all volumes that are done.
    pub done_records: u64,
    /// Records of all volumes.
    pub total_records: u64,
}

/// Who is told how far a replay is: at the beginning of each volume that has records, and now and then.
#[derive(Clone)]
pub struct ReplayWatch(Arc<dyn Fn(&ReplayingReport) + Send + Sync>);

impl ReplayWatch {
    /// Calls `tell`, from the thread that replays.
    pub fn new(tell: impl Fn(&ReplayingReport) + Send + Sync + 'static) -> ReplayWatch {
        ReplayWatch(Arc::new(tell))
    }

    /// Tells this watch, and the journal every tenth part.
    pub(crate) fn with_journal<'a>(&'a self, journal: &'a Journal) -> impl FnMut(ReplayProgress<'_>) + 'a {
        let mut noted = 0;
        move |ReplayProgress { volume, done_records, total_records }| {
            (self.0)(&ReplayingReport { volume: volume.to_owned(), done_records, total_records });
            let percent = done_records * 100 / total_records.max(1);
            if percent >= noted + 10 {
                noted = percent;
                journal
                    .note(format!("replaying the log: {percent} % of {total_records} records, now {volume}"));
            }
        }
    }
}

impl Default for ReplayWatch {
    fn default() -> ReplayWatch {
        ReplayWatch::new(|_| ())
    }
}

impl fmt::Debug for ReplayWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplayWatch")
    }
}
