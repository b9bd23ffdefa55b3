//! Which of the pending stores an image has.

use std::collections::BTreeMap;

use fastness_pm_model::Memory;

use super::pending::{Pending, Store};
use crate::image::Image;

const LINE_BYTES: usize = 64;

/// Whether an image has a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It has.
    Whole,
    /// Some of its pieces of 8 bytes.
    Part,
    /// It was lost.
    Lost,
}

/// A line of which an image has lost something, or could have lost something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedLine {
    /// Its first byte in the image.
    pub offset: u64,
    /// Its pending stores in program order, and what became of them.
    pub stores: Vec<(Store, Kept)>,
    /// How many of them, the first, a flush covers that no fence has completed.
    pub flushed: usize,
}

impl ExplainedLine {
    /// Whether something of it was lost.
    pub fn has_lost(&self) -> bool {
        self.stores.iter().any(|(_, kept)| *kept != Kept::Whole)
    }
}

/// Determines for each line with pending stores which of them `image` has. If several answers are right, the
/// one with the least loss. `None` if the image is not possible there.
pub fn explain(pending: &Pending, image: &Image) -> Option<Vec<ExplainedLine>> {
    let base = pending.replay.machine().persistent();
    if image.len_bytes() != base.len_bytes() {
        return None;
    }
    let is_pending = |offset: u64| pending.lines.contains_key(&(offset / LINE_BYTES as u64));
    let differs = base.differences(image, LINE_BYTES);
    if differs.into_iter().any(|range| range.step_by(LINE_BYTES).any(|line| !is_pending(line))) {
        return None;
    }
    let flushed: BTreeMap<u64, usize> =
        pending.replay.machine().pending().map(|(number, _, flushed)| (number, flushed)).collect();
    let lines = pending.lines.iter().map(|(number, stores)| {
        let kept = kept(&base.line(*number), stores, &image.line(*number))?;
        let flushed = flushed.get(number).copied().unwrap_or(0);
        let stores = stores.iter().cloned().zip(kept).collect();
        Some(ExplainedLine { offset: number * LINE_BYTES as u64, stores, flushed })
    });
    lines.collect()
}

fn kept(base: &[u8; LINE_BYTES], stores: &[Store], image: &[u8; LINE_BYTES]) -> Option<Vec<Kept>> {
    let mut before = vec![*base];
    for store in stores {
        let mut bytes = before[before.len() - 1];
        bytes[store.start..store.start + store.data.len()].copy_from_slice(&store.data);
        before.push(bytes);
    }
    let answer = |whole: usize, parts: usize| {
        let kept = |at| match at {
            at if at < whole => Kept::Whole,
            at if at < whole + parts => Kept::Part,
            _ => Kept::Lost,
        };
        (0..stores.len()).map(kept).collect()
    };
    if let Some(whole) = before.iter().rposition(|bytes| bytes == image) {
        return Some(answer(whole, 0));
    }
    // A store that is there in part, or a run of non-temporal ones that are not ordered with each other.
    for from in (0..stores.len()).rev() {
        let run = stores[from..].iter().take_while(|store| store.is_non_temporal).count().max(1);
        for parts in 1..=run {
            let is_explained = |at: usize| {
                let of_a_store = stores[from..from + parts].iter().any(|store| {
                    at >= store.start
                        && at < store.start + store.data.len()
                        && store.data[at - store.start] == image[at]
                });
                image[at] == before[from][at] || of_a_store
            };
            if (0..LINE_BYTES).all(is_explained) {
                return Some(answer(from, parts));
            }
        }
    }
    None
}
