//! What was asked of a pool, kept in the pool.
//!
//! Stored with the root dataset, under [`KEY`]: JSON, the oldest first, bounded. A command is noted after it
//! has succeeded, and durable with the txg of the note: a crash may lose the commands of the last seconds,
//! not what they did.

use std::time::{SystemTime, UNIX_EPOCH};

use fastness_sync::lock;
use serde_json::Value;

use crate::node::Node;
use crate::protocol::Request;
use crate::report::HistoryReport;

const KEY: &[u8] = b"history";
const ENTRIES_MAX: usize = 100;
const COMMAND_BYTES_MAX: usize = 200;

impl Request {
    /// Whether it belongs into the history: it changes something.
    fn is_change(&self) -> bool {
        !matches!(
            self,
            Request::Status
                | Request::Io
                | Request::PoolProperties
                | Request::Sync
                | Request::Users { .. }
                | Request::Check
                | Request::Datasets
                | Request::Snapshots
                | Request::StreamSize(_)
                | Request::Send(_)
                | Request::Ratios { .. }
                | Request::DestroyDataset { is_dry: true, .. }
                | Request::CheckFiles { .. }
                | Request::History
                // They are noted before the pool is closed.
                | Request::Export { .. }
                | Request::Destroy { .. }
        )
    }

    /// The request for the history, if it belongs there.
    pub(crate) fn for_history(&self) -> Option<String> {
        let Ok(Value::Object(fields)) = serde_json::to_value(self) else { return None };
        if !self.is_change() {
            return None;
        }
        let mut text = fields.get("command")?.as_str()?.to_owned();
        for (name, value) in &fields {
            let value = match value {
                Value::Null | Value::Bool(false) => continue,
                Value::String(value) if name == "command" || value.is_empty() => continue,
                Value::String(value) => value.clone(),
                Value::Array(values) if values.is_empty() => continue,
                value => value.to_string(),
            };
            text.push_str(&format!(" {name}={value}"));
        }
        let mut end = text.len().min(COMMAND_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        Some(text)
    }
}

impl Node {
    /// What was asked of the pool, the oldest first.
    pub(crate) fn history(&self) -> Vec<HistoryReport> {
        lock(&self.history).clone()
    }

    /// Reads what the pool has; a history that cannot be read is none.
    pub(crate) fn load_history(&self) {
        let root = self.pool().dataset(&self.name());
        let stored = root.and_then(|root| root.synced_aux(KEY)).ok().flatten();
        let known = stored.and_then(|stored| serde_json::from_slice(&stored).ok());
        *lock(&self.history) = known.unwrap_or_default();
    }

    /// Notes a command that has been carried out. A pool that takes no changes notes none.
    pub(crate) fn note_history(&self, user: u32, command: String) {
        let at_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let host = self.pool().config().host_name;
        // Held until it is stored: what a later txg stores is later.
        let mut all = lock(&self.history);
        let (pool, name) = (self.pool(), self.name());
        let (Ok(tx), Ok(root)) = (pool.begin_tx(), pool.dataset(&name)) else { return };
        all.push(HistoryReport { at_unix_s, user, host, command });
        let more = all.len().saturating_sub(ENTRIES_MAX);
        all.drain(..more);
        let bytes = serde_json::to_vec(&*all).expect("text and numbers");
        root.put_aux(&tx, KEY, Some(&bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_is_noted_in_a_line() {
        let serve = Request::Unserve { name: "tank/v".to_owned(), is_forced: true };
        assert_eq!(serve.for_history().unwrap(), "unserve is_forced=true name=tank/v");
        assert_eq!(Request::Status.for_history(), None);
        let long = Request::Detach { device: "\u{e4}".repeat(500) };
        assert!(long.for_history().unwrap().len() <= COMMAND_BYTES_MAX);
    }
}
