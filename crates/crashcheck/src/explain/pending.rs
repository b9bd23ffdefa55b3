//! The stores that a crash at an event can lose, and the instructions that made them.

use std::collections::BTreeMap;
use std::io::Read;

use fastness_crashcheck_trace::{Event, Kind, Reader};
use fastness_pm_model::Config;

use crate::Result;
use crate::generate::{Place, Replay};

const LINE_BYTES: u64 = 64;

/// The part of a store that is in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// Number of the event.
    pub event: u64,
    /// First byte, within the line.
    pub start: usize,
    /// What was stored.
    pub data: Vec<u8>,
    /// Past the caches.
    pub is_non_temporal: bool,
    /// A LOCKed operation.
    pub is_locked: bool,
    /// Number of the thread.
    pub thread: u32,
    /// Address of the instruction.
    pub pc: Option<u64>,
    /// Whether it ran in the kernel.
    pub is_kernel: bool,
    /// Return addresses, innermost first.
    pub stack: Vec<u64>,
}

/// PM at a moment of a trace.
#[derive(Debug)]
pub struct Pending {
    /// The model.
    pub replay: Replay,
    /// For each line of the image with pending stores, by number, these in program order.
    pub lines: BTreeMap<u64, Vec<Store>>,
}

/// Follows a trace up to just before event `event`, or to its end.
///
/// # Errors
/// Those of the trace.
pub fn pending_at(
    reader: &mut Reader<impl Read>,
    config: Config,
    memory_max_bytes: u64,
    event: u64,
) -> Result<Pending> {
    let replay = Replay::new(reader.header(), config, memory_max_bytes)?;
    let mut pending = Pending { replay, lines: BTreeMap::new() };
    while reader.count() < event {
        let number = reader.count();
        let Some(event) = reader.next()? else { break };
        pending.apply(&event, number)?;
    }
    Ok(pending)
}

impl Pending {
    fn apply(&mut self, event: &Event<'_>, number: u64) -> Result<()> {
        let is_shrinking = self.replay.can_shrink(event);
        self.replay.apply(event, number)?;
        let store = match event.kind {
            Kind::Store { address, data, is_non_temporal, .. } => {
                Some((address, data, is_non_temporal, false))
            }
            Kind::Rmw { address, data } => Some((address, data, false, true)),
            _ => None,
        };
        if let Some((address, data, is_non_temporal, is_locked)) = store
            && let Place::Inside(offset) = self.replay.layout().place(address, data.len())
        {
            self.add(offset, data, |start, data| Store {
                event: number,
                start,
                data: data.to_vec(),
                is_non_temporal,
                is_locked,
                thread: event.origin.thread,
                pc: event.origin.pc,
                is_kernel: event.origin.is_kernel,
                stack: event.origin.stack.unwrap_or_default().to_vec(),
            });
        }
        if is_shrinking {
            self.forget();
        }
        Ok(())
    }

    fn add(&mut self, offset: u64, data: &[u8], store: impl Fn(usize, &[u8]) -> Store) {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let start = (at % LINE_BYTES) as usize;
            let (part, behind) = rest.split_at(rest.len().min(LINE_BYTES as usize - start));
            self.lines.entry(at / LINE_BYTES).or_default().push(store(start, part));
            at += part.len() as u64;
            rest = behind;
        }
    }

    /// Drops the stores that have become certain: the model has them no longer.
    fn forget(&mut self) {
        let mut left = BTreeMap::new();
        for (number, count, _) in self.replay.machine().pending() {
            if let Some(mut stores) = self.lines.remove(&number) {
                stores.drain(..stores.len().saturating_sub(count));
                left.insert(number, stores);
            }
        }
        self.lines = left;
    }
}
