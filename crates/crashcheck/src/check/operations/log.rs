//! The log of operations, as a trace has it.
//!
//! ```text
//! put K V [K V ...]        begins an operation that gives these keys these values, all or none
//! del K [K ...]            begins one that deletes these keys, all or none
//! ok                       the operation has its answer: it is durable
//! failed                   it has its answer: it has changed nothing
//! @NAME put K V            of this client, not of the thread that writes the line
//! ```

use std::collections::HashMap;
use std::io::Read;

use fastness_crashcheck_trace::hypercall::OPERATION_ACTION;
use fastness_crashcheck_trace::{Hypercall, Kind, Reader};

use super::short;
use crate::error::{CheckError, Result};

/// Most operations of a log.
const OPERATIONS_MAX: usize = 1_000_000;

/// What a program was asked, and has answered.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// In the order in which they began.
    pub(super) operations: Vec<Operation>,
    /// Of each client, its operations, in their order.
    pub(super) clients: Vec<Vec<usize>>,
    /// Names of the clients.
    pub(super) names: Vec<String>,
    /// Events of all lines, in order.
    events: Vec<u64>,
}

/// An operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) client: usize,
    /// The line without the client.
    pub(super) text: String,
    /// Keys and their values; none: deleted.
    pub(super) writes: Vec<(String, Option<String>)>,
    /// Event of the line that begins it.
    pub(super) begun: u64,
    pub(super) answer: Option<Answer>,
}

/// Its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) event: u64,
    /// It has changed what it was to change.
    pub(super) is_ok: bool,
}

impl Operation {
    /// Whether it gives a key this value; none: whether it deletes the key.
    pub(super) fn gives(&self, key: &str, value: Option<&String>) -> bool {
        self.writes.iter().any(|(other, given)| other == key && given.as_ref() == value)
    }

    /// What it gives a key, if it gives it something.
    pub(super) fn value_of(&self, key: &str) -> Option<&str> {
        self.writes.iter().find(|(other, _)| other == key).and_then(|(_, value)| value.as_deref())
    }
}

impl Log {
    /// Reads the rest of a trace.
    ///
    /// # Errors
    /// Those of the trace, and [`CheckError::Operations`] for a line that says nothing or cannot be, and if
    /// there is none.
    pub fn read(reader: &mut Reader<impl Read>) -> Result<Log> {
        let mut log = Log::default();
        let mut clients = HashMap::new();
        loop {
            let event = reader.count();
            let Some(next) = reader.next()? else { break };
            let Kind::Hypercall(Hypercall::Other { action: OPERATION_ACTION, value }) = next.kind else {
                continue;
            };
            let thread = next.origin.thread;
            log.add_all(&mut clients, event, thread, value)
                .map_err(|what| CheckError::Operations { event, what })?;
        }
        if log.operations.is_empty() {
            let what = "the program has logged none: `put KEY VALUE` before a call, `ok` after it".to_owned();
            return Err(CheckError::Operations { event: reader.count(), what });
        }
        Ok(log)
    }

    /// The first event at which the program has operations.
    pub fn first_event(&self) -> u64 {
        self.events.first().copied().unwrap_or(0)
    }

    /// How many lines there are before an event.
    pub(super) fn lines_before(&self, event: u64) -> usize {
        self.events.partition_point(|line| *line < event)
    }

    fn add_all(
        &mut self,
        clients: &mut HashMap<String, usize>,
        event: u64,
        thread: u32,
        text: &str,
    ) -> Result<(), String> {
        if !text.ends_with('\n') {
            return Err(format!("{}: a line is written in pieces, or has no end", short(text)));
        }
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let line = line.trim();
            let (client, line) = match line.strip_prefix('@') {
                Some(rest) => {
                    let (name, line) = rest.split_once(' ').unwrap_or((rest, ""));
                    (format!("client {name}"), line.trim())
                }
                None => (format!("thread {thread}"), line),
            };
            let client = *clients.entry(client.clone()).or_insert_with(|| {
                self.clients.push(Vec::new());
                self.names.push(client);
                self.names.len() - 1
            });
            self.add(client, event, line).map_err(|what| format!("{}: {what}", short(line)))?;
            self.events.push(event);
        }
        Ok(())
    }

    fn add(&mut self, client: usize, event: u64, line: &str) -> Result<(), String> {
        let mut words = line.split_ascii_whitespace();
        let word = words.next().unwrap_or_default();
        let words: Vec<&str> = words.collect();
        let last = self.clients[client].last().map(|last| &mut self.operations[*last]);
        let open = last.filter(|operation| operation.answer.is_none());
        if matches!(word, "ok" | "failed") && words.is_empty() {
            let Some(open) = open else {
                return Err(format!("{} has no operation to be answered", self.names[client]));
            };
            if open.begun == event {
                return Err("an operation and its answer were written at once: write each line when it is \
                            true, without a buffer"
                    .to_owned());
            }
            open.answer = Some(Answer { event, is_ok: word == "ok" });
            return Ok(());
        }
        if open.is_some() {
            return Err(format!("{} has begun an operation that has no answer yet", self.names[client]));
        }
        let own = |word: &&str| (*word).to_owned();
        let writes: Vec<(String, Option<String>)> = match word {
            "put" if !words.is_empty() && words.len().is_multiple_of(2) => {
                words.chunks(2).map(|pair| (own(&pair[0]), Some(own(&pair[1])))).collect()
            }
            "del" if !words.is_empty() => words.iter().map(|key| (own(key), None)).collect(),
            _ => return Err("a line is `put KEY VALUE ...`, `del KEY ...`, `ok` or `failed`".to_owned()),
        };
        if (1..writes.len()).any(|at| writes[..at].iter().any(|(key, _)| *key == writes[at].0)) {
            return Err("a key is there twice".to_owned());
        }
        if self.operations.len() == OPERATIONS_MAX {
            return Err(format!("there are more than {OPERATIONS_MAX} operations"));
        }
        self.clients[client].push(self.operations.len());
        let text = line.to_owned();
        self.operations.push(Operation { client, text, writes, begun: event, answer: None });
        Ok(())
    }
}
