//! An oracle for key-value programs, by a log of what the program was asked and has answered.
//!
//! Motivation: a checkpoint after each operation has to be put into the program by hand, and says nothing
//! where several threads work. A program that logs `put K V` before a call and `ok` after it says all that a
//! judge has to know, and its recovery only lists what is there.
//!
//! Design: the log's lines are events of the trace, so a crash is exactly between two of them. Whatever it
//! leaves must be the effect of some order of operations that contains each answered one, may contain each
//! that has begun and has no answer, and in which an operation that was answered before another began comes
//! before it (`explain`).
//!
//! Source: J. Izraelevitz, H. Mendes, M. L. Scott, Linearizability of persistent memory objects, 2016
//! (durable linearizability).

mod explain;
mod log;

use std::cell::RefCell;
use std::collections::BTreeMap;

pub use log::Log;

use super::oracle::{Moment, Oracle};
use super::state::State;
use crate::Result;
use explain::{Verdict, explain};

/// Contents of the program: values by keys.
type Map = BTreeMap<String, String>;

/// Most different operations that are named as lost or half there; further ones are told together.
const NAMED_MAX: usize = 16;

/// Judges states by a log of operations. A state has a line with key and value for each key, in any order.
#[derive(Debug)]
pub struct Operations {
    log: Log,
    initial: Map,
    /// What was said of operations: of each the same in all states.
    said: RefCell<BTreeMap<(usize, Verdict), String>>,
}

impl Operations {
    /// For a log, and the state before its first operation.
    pub fn new(log: Log, initial: &State) -> Operations {
        // If that cannot be read, the crash that loses nothing before the first operation shows it.
        let initial = contents(&initial.text).unwrap_or_default();
        Operations { log, initial, said: RefCell::default() }
    }
}

impl Oracle for Operations {
    fn refuses(&self, state: &State, moment: Moment) -> Result<Option<String>> {
        if !state.ending.is_success() {
            // Another check finds that.
            return Ok(None);
        }
        let state = match contents(&state.text) {
            Ok(state) => state,
            Err(said) => return Ok(Some(said)),
        };
        let Some(wrong) = explain(&self.log, &self.initial, &state, moment.event) else { return Ok(None) };
        let Some(key) = wrong.operation.map(|operation| (operation, wrong.verdict)) else {
            return Ok(Some(wrong.said));
        };
        let mut said = self.said.borrow_mut();
        if !said.contains_key(&key) && said.len() >= NAMED_MAX {
            return Ok(Some("further operations are lost or half there".to_owned()));
        }
        Ok(Some(said.entry(key).or_insert(wrong.said).clone()))
    }

    fn period(&self, moment: Moment) -> Option<u64> {
        Some(self.log.lines_before(moment.event) as u64)
    }
}

/// Key and value of each line.
fn contents(text: &[u8]) -> std::result::Result<Map, String> {
    let mut map = Map::new();
    for line in String::from_utf8_lossy(text).lines().filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_ascii_whitespace();
        let (Some(key), Some(value), None) = (words.next(), words.next(), words.next()) else {
            return Err(format!("a line is no key and value: {}", short(line)));
        };
        if map.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(format!("the key {} is there twice", short(key)));
        }
    }
    Ok(map)
}

/// A text that a message can have: one line, not long.
fn short(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let mut chars = text.escape_debug();
    let mut short: String = chars.by_ref().take(CHARS_MAX).collect();
    if chars.next().is_some() {
        short.push_str("...");
    }
    short
}

#[cfg(test)]
mod tests;
