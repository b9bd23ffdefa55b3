//! A group of slots, locked: in this process and, if others use the cache, between them.

use std::ops::{Deref, DerefMut};

use fastness_sync::{MutexGuard, lock};

use crate::board::Board;
use crate::error::Error;
use crate::group::Group;

use super::ChunkStore;

/// A locked group.
#[derive(Debug)]
pub(super) struct Held<'a, M> {
    group: MutexGuard<'a, Group<M>>,
    shared: Option<(&'a Board, usize)>,
}

impl<M> ChunkStore<M> {
    /// Locks a group.
    ///
    /// # Errors
    /// [`Error::NotServed`], never in the process that serves.
    pub(super) fn hold(&self, number: usize) -> Result<Held<'_, M>, Error> {
        // The lock between processes first: with it, the other one is free.
        let Some(board) = self.board.as_deref() else {
            return Ok(Held { group: lock(&self.groups[number]), shared: None });
        };
        let dirty = board.lock_group(number)?;
        let mut group = lock(&self.groups[number]);
        group.dirty = dirty.into();
        Ok(Held { group, shared: Some((board, number)) })
    }

    /// A group whose lock between processes this one has inherited.
    pub(super) fn take_over(&self, number: usize) -> Held<'_, M> {
        let shared = self.board.as_deref().map(|board| (board, number));
        Held { group: lock(&self.groups[number]), shared }
    }
}

impl<M> Deref for Held<'_, M> {
    type Target = Group<M>;

    fn deref(&self) -> &Group<M> {
        &self.group
    }
}

impl<M> DerefMut for Held<'_, M> {
    fn deref_mut(&mut self) -> &mut Group<M> {
        &mut self.group
    }
}

impl<M> Drop for Held<'_, M> {
    fn drop(&mut self) {
        if let Some((board, number)) = self.shared {
            board.take_counts(number, &mut self.group.counts);
            // A group has at most 32 chunks.
            board.unlock_group(number, self.group.dirty as u32);
        }
    }
}
