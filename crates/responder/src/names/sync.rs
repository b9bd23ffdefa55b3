//! Syncs the directory, and frees the records of what is durable there.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastness_sync::atomic::Ordering;
use fastness_sync::{lock, now};

use crate::backing::{BackingNode, FileId};
use crate::error::Error;
use crate::medium::CacheMedium;

use super::{Names, Nodes};

/// More than so many directories and files are synced at once, with all of their file system.
const SYNCED_ONE_BY_ONE: usize = 8;
/// Records are not older than that, unless a sync fails.
const AGE_MAX: Duration = Duration::from_secs(1);

/// What was changed since the last sync began.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    changed: Nodes,
    /// There were more: everything is synced.
    are_many: bool,
    /// What lost a name, with the number of its record.
    graves: VecDeque<(u64, Arc<dyn BackingNode>)>,
    records: u64,
    since: Option<Instant>,
}

impl Unsynced {
    pub(super) fn change(&mut self, id: FileId, node: Arc<dyn BackingNode>) {
        // Each takes a descriptor.
        self.are_many = self.are_many || self.changed.len() >= SYNCED_ONE_BY_ONE;
        if !self.are_many {
            self.changed.entry(id).or_insert(node);
        }
    }

    /// A record is about to get the number `number`.
    pub(super) fn bury(&mut self, number: u64, grave: Option<Arc<dyn BackingNode>>) {
        self.records += 1;
        self.since.get_or_insert_with(now);
        self.graves.extend(grave.map(|node| (number, node)));
    }

    pub(super) fn graves(&self) -> usize {
        self.graves.len()
    }

    pub(super) fn records(&self) -> u64 {
        self.records
    }
}

impl<M: CacheMedium> Names<M> {
    /// Makes the directory durable as it is, and frees the records until now.
    ///
    /// Persistence: on success everything that was done before the call is durable in the directory alone.
    ///
    /// # Errors
    /// Of the backing store; no record was freed.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        let _one = lock(&self.syncing);
        let owes = self.owes.load(Ordering::Acquire);
        let (to, changed, records) = {
            let mut state = lock(&self.state);
            if state.log.used_lines() == 0 && state.unsynced.changed.is_empty() && !owes {
                return Ok(());
            }
            let unsynced = &mut state.unsynced;
            let changed = std::mem::take(&mut unsynced.changed);
            let changed = if std::mem::take(&mut unsynced.are_many) || owes { None } else { Some(changed) };
            (state.log.tail(), changed, state.unsynced.records)
        };
        let synced = self.sync_below(changed.as_ref());
        let errno = synced.as_ref().err().map_or(0, Error::errno);
        self.failure.store(errno, Ordering::Relaxed);
        let mut state = lock(&self.state);
        if let Err(error) = synced {
            state.unsynced.are_many |= changed.is_none();
            changed.into_iter().flatten().for_each(|(id, node)| state.unsynced.change(id, node));
            return Err(error);
        }
        state.log.trim(to)?;
        if owes {
            self.owes.store(false, Ordering::Release);
        }
        state.recent.retain(|_, recent| recent.number >= to);
        let unsynced = &mut state.unsynced;
        unsynced.records -= records;
        unsynced.since = if unsynced.records > 0 { Some(now()) } else { None };
        let kept = unsynced.graves.iter().position(|(number, _)| *number >= to);
        let graves: Vec<_> = unsynced.graves.drain(..kept.unwrap_or(unsynced.graves.len())).collect();
        drop(state);
        // What was removed for good is closed without the lock: the file system frees its space then.
        drop(graves);
        Ok(())
    }

    /// Syncs what has changed, or everything.
    fn sync_below(&self, changed: Option<&Nodes>) -> Result<(), Error> {
        let fail = Error::backing("sync names");
        if let Some(changed) = changed {
            let mut are_synced = true;
            for node in changed.values() {
                are_synced = are_synced && node.sync().map_err(&fail)?;
            }
            if are_synced {
                return Ok(());
            }
        }
        self.backing.sync_all().map_err(&fail)
    }

    /// As [`sync`](Self::sync), if there is little room left, or records are old.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub(crate) fn sync_if_due(&self) -> Result<(), Error> {
        let is_due = {
            let state = lock(&self.state);
            let unsynced = &state.unsynced;
            let is_old = unsynced.since.is_some_and(|since| now().duration_since(since) >= AGE_MAX);
            let is_filling = state.log.used_lines() > state.log.free_lines();
            is_old || is_filling || unsynced.graves() > self.graves_max / 2
        };
        if is_due { self.sync() } else { Ok(()) }
    }
}
