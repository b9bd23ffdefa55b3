//! Which threads are pinned: a state and a round of rates give the next state.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastness_pmem::model::{DeviceProfile, Node};

use crate::accounting::RegionName;

/// Rounds without writes after which a thread is released.
const QUIET_ROUNDS: u32 = 3;
/// Of the threshold: a thread that writes less does not take part.
const ACTIVE_SHARE: f64 = 0.01;

/// A thread, told from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId {
    /// Its number.
    pub thread: u32,
    /// When it started, in ticks since the machine did.
    pub start_time: u64,
}

/// What a thread writes to a region.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// The thread.
    pub thread: ThreadId,
    /// The region.
    pub region: Arc<RegionName>,
    /// Bytes a second.
    pub bytes_per_s: f64,
}

/// When threads are pinned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PinRule {
    /// CPUs that the threads of a region share: the writers that it can serve.
    pub cores: usize,
    /// A region that takes this rate is saturated.
    pub threshold_bytes_per_s: f64,
}

impl PinRule {
    /// For a device: saturated is what takes 9/10 of what it still serves when it is overloaded, since that
    /// is less than its best.
    pub fn of_device(device: &DeviceProfile) -> PinRule {
        let overloaded = device.gib_per_s(Node::Local, u32::MAX);
        let threshold_bytes_per_s = 0.9 * overloaded * (1_u64 << 30) as f64;
        PinRule { cores: device.writers_max as usize, threshold_bytes_per_s }
    }

    fn active(&self) -> f64 {
        self.threshold_bytes_per_s * ACTIVE_SHARE
    }
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Pin a thread to the CPUs for this region.
    Pin(ThreadId, Arc<RegionName>),
    /// Give a thread back what it had.
    Release(ThreadId),
}

/// Which threads are pinned, for which region.
#[derive(Debug)]
pub struct Policy {
    rule: PinRule,
    /// Rounds in which a thread has been quiet.
    pinned: BTreeMap<Arc<RegionName>, BTreeMap<ThreadId, u32>>,
}

impl Policy {
    /// Nothing is pinned yet.
    pub fn new(rule: PinRule) -> Policy {
        Policy { rule, pinned: BTreeMap::new() }
    }

    /// Takes the rates of a round, one for each thread and region; says what is to be done.
    ///
    /// A region becomes specialised when it takes the threshold from more threads than cores; from then on
    /// every thread that writes to it is pinned. A thread that does not write for some rounds, or is not
    /// there, is released; so are all, once no more threads write than there are cores. A thread that writes
    /// to two such regions is pinned for one of them.
    pub fn decide(&mut self, loads: &[Load]) -> Vec<Action> {
        let mut by_region: BTreeMap<Arc<RegionName>, BTreeMap<ThreadId, f64>> = BTreeMap::new();
        for load in loads {
            *by_region.entry(load.region.clone()).or_default().entry(load.thread).or_default() +=
                load.bytes_per_s;
        }
        let mut actions = Vec::new();
        for (region, mut pinned) in std::mem::take(&mut self.pinned) {
            let rates = by_region.get(&region);
            self.look_again(rates, &mut pinned, &mut actions);
            if !pinned.is_empty() {
                self.pinned.insert(region, pinned);
            }
        }
        for (region, rates) in &by_region {
            self.specialise(region, rates, &mut actions);
        }
        actions
    }

    /// Releases threads that are quiet or gone, or all that are left if they are few.
    fn look_again(
        &self,
        rates: Option<&BTreeMap<ThreadId, f64>>,
        pinned: &mut BTreeMap<ThreadId, u32>,
        actions: &mut Vec<Action>,
    ) {
        let rate = |thread: &ThreadId| rates.and_then(|rates| rates.get(thread)).copied();
        pinned.retain(|thread, quiet| {
            *quiet = if rate(thread).is_some_and(|rate| rate >= self.rule.active()) { 0 } else { *quiet + 1 };
            let stays = *quiet < QUIET_ROUNDS;
            if !stays {
                actions.push(Action::Release(*thread));
            }
            stays
        });
        let newcomers = rates.map_or(0, |rates| {
            let is_new =
                |thread: &ThreadId, rate: f64| rate >= self.rule.active() && !pinned.contains_key(thread);
            rates.iter().filter(|(thread, rate)| is_new(thread, **rate)).count()
        });
        if pinned.len() + newcomers <= self.rule.cores {
            actions.extend(pinned.keys().map(|thread| Action::Release(*thread)));
            pinned.clear();
        }
    }

    fn specialise(
        &mut self,
        region: &Arc<RegionName>,
        rates: &BTreeMap<ThreadId, f64>,
        actions: &mut Vec<Action>,
    ) {
        let active: Vec<ThreadId> = rates
            .iter()
            .filter(|(_, rate)| **rate >= self.rule.active())
            .map(|(thread, _)| *thread)
            .collect();
        let is_on = self.pinned.contains_key(region);
        let total: f64 = rates.values().sum();
        let is_saturated = total >= self.rule.threshold_bytes_per_s && active.len() > self.rule.cores;
        if !is_on && !is_saturated {
            return;
        }
        for thread in active {
            if self.pinned.values().any(|pinned| pinned.contains_key(&thread)) {
                continue;
            }
            self.pinned.entry(region.clone()).or_default().insert(thread, 0);
            actions.push(Action::Pin(thread, region.clone()));
        }
    }

    /// A thread could not be pinned, or is no longer ours.
    pub fn forget(&mut self, thread: ThreadId) {
        self.pinned.retain(|_, pinned| {
            pinned.remove(&thread);
            !pinned.is_empty()
        });
    }

    /// The rule.
    pub fn rule(&self) -> PinRule {
        self.rule
    }
}

#[cfg(test)]
mod tests;
