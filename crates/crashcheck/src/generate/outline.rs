//! Where the test of a trace begins, and where its operations end.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use fastness_crashcheck_trace::hypercall::RETURN;
use fastness_crashcheck_trace::{Hypercall, Kind, Reader};

use crate::Result;

/// What a first look at a trace says, by numbers of events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outline {
    /// The first event before which there can be a failure point; everything before is preparation.
    pub first_event: u64,
    /// How many events there are.
    pub events: u64,
    /// Events just before which a checkpoint is, with its number, though the trace has it later.
    pub moved: BTreeMap<u64, u64>,
    /// Where the trace has those.
    pub behind: BTreeSet<u64>,
}

/// Reads the rest of a trace. The test begins with the start message, or the first checkpoint, or the first
/// event.
///
/// Where the trace says that system calls return ([`RETURN`]), as it does for file systems that promise that
/// a call is durable then, an operation ends when the last call that used PM returns. What follows is the
/// kernel's way to other programs and the end of the one that worked, with fences that have nothing to do
/// with the operation: they would hide that its own is missing. The program has had its answer before all of
/// them. A checkpoint without such a return since the one before it stays where it is.
///
/// # Errors
/// Those of the trace.
pub fn outline(reader: &mut Reader<impl Read>) -> Result<Outline> {
    let mut found = Outline::default();
    let (mut start, mut first_checkpoint, mut last_return) = (None, None, None);
    loop {
        let number = reader.count();
        match reader.next()?.map(|event| event.kind) {
            None => {
                found.first_event = start.or(first_checkpoint).unwrap_or(0);
                found.events = number;
                return Ok(found);
            }
            Some(Kind::Hypercall(Hypercall::Start)) => start = start.or(Some(number)),
            Some(Kind::Hypercall(Hypercall::Other { action: RETURN, .. })) => last_return = Some(number),
            Some(Kind::Hypercall(Hypercall::Checkpoint(checkpoint))) => {
                let at = last_return.take();
                first_checkpoint = first_checkpoint.or(Some(at.unwrap_or(number)));
                if let Some(at) = at {
                    found.moved.insert(at, checkpoint);
                    found.behind.insert(number);
                }
            }
            Some(_) => {}
        }
    }
}
