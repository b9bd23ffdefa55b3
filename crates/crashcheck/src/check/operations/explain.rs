//! Is a state the effect of an order of operations? If not, which one is lost, or half there?
//!
//! The order is made from its end. An operation can be the last one if no other that has to be there began
//! after its answer, and if each key that it writes has its value in the state, or is written by one that was
//! taken before. To take one that can be last never spoils anything: in any order that explains the state it
//! can be moved to the end, which leaves the state as it is. So nothing is ever taken back. The one exception
//! is that an unanswered operation cannot come any more once one that was answered before it began was taken;
//! so those whose answer is latest are taken first, which excludes fewest.

use std::collections::{BTreeSet, HashSet};

use super::log::{Log, Operation};
use super::{Map, short};

/// What is wrong with an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Lost,
    Half,
}

/// Why a state is wrong.
#[derive(Debug)]
pub(super) struct Wrong {
    /// Its number; none if it is about what was there before.
    pub(super) operation: Option<usize>,
    pub(super) verdict: Verdict,
    pub(super) said: String,
}

/// Why a crash before `event` must not leave `state`; none if it may.
pub(super) fn explain(log: &Log, initial: &Map, state: &Map, event: u64) -> Option<Wrong> {
    let mut order = Order::before(log, state, event);
    while order.take_open() || order.take_answered() {}
    let stuck = order.last_answered();
    let keys = initial.keys().chain(state.keys());
    let keys: BTreeSet<&str> = keys.map(String::as_str).collect();
    let wrong_key =
        keys.into_iter().find(|key| !order.settled.contains(key) && initial.get(*key) != state.get(*key));
    if stuck.is_none() && wrong_key.is_none() {
        return None;
    }
    Some(Diagnosis { log, initial, state, event, order: &order }.of(stuck, wrong_key))
}

/// What is left of the operations, from the end.
struct Order<'a> {
    log: &'a Log,
    state: &'a Map,
    /// Those without an answer that can still come.
    open: Vec<usize>,
    /// Those without an answer that cannot come any more.
    excluded: Vec<usize>,
    /// Of each client, how many of its answered ones are left.
    left: Vec<usize>,
    /// Keys that those taken have written.
    settled: HashSet<&'a str>,
}

impl<'a> Order<'a> {
    fn before(log: &'a Log, state: &'a Map, event: u64) -> Order<'a> {
        let mut open = Vec::new();
        let left = log.clients.iter().map(|own| {
            let begun = own.partition_point(|index| log.operations[*index].begun < event);
            let Some(last) = begun.checked_sub(1) else { return 0 };
            let is_answered = log.operations[own[last]].answer.is_some_and(|answer| answer.event < event);
            if !is_answered {
                open.push(own[last]);
            }
            begun - usize::from(!is_answered)
        });
        let left = left.collect();
        Order { log, state, open, excluded: Vec::new(), left, settled: HashSet::new() }
    }

    fn operation(&self, index: usize) -> &'a Operation {
        &self.log.operations[index]
    }

    /// The last one of a client that has an answer and has changed something.
    fn last_of(&self, client: usize) -> Option<usize> {
        self.left[client].checked_sub(1).map(|last| self.log.clients[client][last])
    }

    fn fits(&self, index: usize) -> bool {
        self.operation(index)
            .writes
            .iter()
            .all(|(key, value)| self.settled.contains(&key[..]) || self.state.get(key) == value.as_ref())
    }

    fn settle(&mut self, index: usize) {
        self.settled.extend(self.operation(index).writes.iter().map(|(key, _)| &key[..]));
    }

    /// Takes one without an answer.
    fn take_open(&mut self) -> bool {
        let Some(at) = (0..self.open.len()).find(|at| self.fits(self.open[*at])) else { return false };
        let index = self.open.swap_remove(at);
        self.settle(index);
        true
    }

    /// Those answered that nothing has to follow, with the events of their answers; the latest first.
    fn ends(&self) -> Vec<(u64, usize)> {
        let lasts: Vec<usize> = (0..self.left.len()).filter_map(|client| self.last_of(client)).collect();
        let answer = |index: usize| self.operation(index).answer.map_or(u64::MAX, |answer| answer.event);
        let is_end = |index: &usize| {
            lasts.iter().all(|other| other == index || self.operation(*other).begun <= answer(*index))
        };
        let mut ends: Vec<_> = lasts.iter().filter(|index| is_end(index)).map(|i| (answer(*i), *i)).collect();
        ends.sort_unstable_by(|one, two| two.cmp(one));
        ends
    }

    fn take_answered(&mut self) -> bool {
        let is_empty = |index| self.operation(index).answer.is_some_and(|answer| !answer.is_ok);
        let ends = self.ends();
        let Some((answered, index)) =
            ends.into_iter().find(|(_, index)| is_empty(*index) || self.fits(*index))
        else {
            return false;
        };
        if !is_empty(index) {
            self.settle(index);
            let log = self.log;
            let later = self.open.extract_if(.., |open| log.operations[*open].begun > answered);
            self.excluded.extend(later);
        }
        let client = self.operation(index).client;
        self.left[client] -= 1;
        true
    }

    /// Of those answered that are left, one that has to be last and cannot.
    fn last_answered(&self) -> Option<usize> {
        self.ends().first().map(|(_, index)| *index)
    }
}

/// How many bytes two values begin with together.
fn alike(one: &str, other: Option<&str>) -> usize {
    one.bytes().zip(other.unwrap_or_default().bytes()).take_while(|(one, other)| one == other).count()
}

struct Diagnosis<'a> {
    log: &'a Log,
    initial: &'a Map,
    state: &'a Map,
    event: u64,
    order: &'a Order<'a>,
}

impl Diagnosis<'_> {
    /// `stuck`: an answered one that is not explained. `key`: one that is not what it was at the beginning.
    fn of(&self, stuck: Option<usize>, key: Option<&str>) -> Wrong {
        if let Some(wrong) = self.open_halves(stuck) {
            return wrong;
        }
        if let Some(index) = stuck {
            let writes = &self.log.operations[index].writes;
            let open = writes.iter().filter(|(key, _)| !self.order.settled.contains(&key[..]));
            let (right, wrong): (Vec<_>, Vec<_>) =
                open.partition(|(key, value)| self.state.get(key) == value.as_ref());
            let verdict = if right.is_empty() { Verdict::Lost } else { Verdict::Half };
            let key = wrong.first().map_or("", |(key, _)| key);
            return self.wrong(index, verdict, key);
        }
        let key = key.unwrap_or_default();
        let said = match self.initial.contains_key(key) && !self.state.contains_key(key) {
            true => format!("the key {}, which was there before the first operation, is lost", short(key)),
            false => self.what_is(key),
        };
        Wrong { operation: None, verdict: Verdict::Lost, said }
    }

    /// One without an answer of which a part is there.
    fn open_halves(&self, stuck: Option<usize>) -> Option<Wrong> {
        let mut open: Vec<usize> = self.order.open.iter().chain(&self.order.excluded).copied().collect();
        open.sort_unstable();
        for index in open {
            let writes = &self.log.operations[index].writes;
            let has = |(key, value): &&(String, Option<String>)| self.state.get(key) == value.as_ref();
            // A value that none has given is a part of what it resembles most.
            let is_foreign = |(key, value): &&(String, Option<String>)| {
                let Some(has) = self.state.get(key) else { return false };
                let is_foreign = self.giver(key).is_none() && !self.is_initial(key);
                let stuck = stuck.map(|stuck| self.log.operations[stuck].value_of(key)).unwrap_or_default();
                is_foreign && alike(has, value.as_deref()) > alike(has, stuck)
            };
            let only_here =
                |write: &&(String, Option<String>)| has(write) && self.giver(&write.0) == Some(index);
            let missing = writes.iter().find(|write| !has(write));
            if let Some((key, _)) = writes.iter().find(is_foreign) {
                return Some(self.wrong(index, Verdict::Half, key));
            }
            if let (Some((key, _)), true) = (missing, writes.iter().any(|write| only_here(&write))) {
                return Some(self.wrong(index, Verdict::Half, key));
            }
        }
        None
    }

    fn wrong(&self, index: usize, verdict: Verdict, key: &str) -> Wrong {
        let operation = &self.log.operations[index];
        let is_answered = operation.answer.is_some_and(|answer| answer.event < self.event);
        let of = match self.log.clients.len() {
            1 => String::new(),
            _ => format!(" of {}", self.log.names[operation.client]),
        };
        let said = format!(
            "operation {}{of}, `{}`, {}, is {}: {}",
            index + 1,
            short(&operation.text),
            if is_answered { "which was answered" } else { "not answered yet" },
            if verdict == Verdict::Lost { "lost" } else { "half there" },
            self.what_is(key)
        );
        Wrong { operation: Some(index), verdict, said }
    }

    fn is_initial(&self, key: &str) -> bool {
        self.initial.get(key) == self.state.get(key)
    }

    /// The last operation that gives a key the value that it has.
    fn giver(&self, key: &str) -> Option<usize> {
        let has = self.state.get(key);
        let is_it = |operation: &Operation| operation.begun < self.event && operation.gives(key, has);
        self.log.operations.iter().rposition(is_it)
    }

    /// What a key has, and from where.
    fn what_is(&self, key: &str) -> String {
        let name = short(key);
        let Some(has) = self.state.get(key) else { return format!("{name} is not there") };
        let value = short(has);
        if let Some(giver) = self.giver(key) {
            return format!("{name} is {value}, of operation {}", giver + 1);
        }
        if self.is_initial(key) {
            return format!("{name} is {value}, as before the first operation");
        }
        let is_later =
            |operation: &Operation| operation.begun >= self.event && operation.gives(key, Some(has));
        match self.log.operations.iter().position(is_later) {
            Some(later) => format!(
                "{name} is {value}, of operation {}, which begins later (log each before its call)",
                later + 1
            ),
            None => format!("{name} is {value}, which no operation gave it"),
        }
    }
}
