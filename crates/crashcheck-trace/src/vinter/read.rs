//! From a trace of Vinter's to one of ours.

use std::io::{Read, Write};

use super::number::{Fault, Source};
use super::{action, kind};
use crate::error::{Result, TraceError};
use crate::event::{
    Event, FenceKind, FlushKind, Hypercall, Kind, MEMORY_BYTES_MAX, Origin, STACK_MAX, TEXT_BYTES_MAX,
};
use crate::writer::Writer;

/// Deepest stack that Vinter's tracer makes, with room; ours are shorter.
const VINTER_STACK_MAX: usize = 4096;

/// A record as it was read.
#[derive(Default)]
struct Record {
    data: Vec<u8>,
    action: String,
    value: String,
    stack: Vec<u64>,
}

/// Appends all events of a trace of Vinter's to `to`; returns how many. The header of `to` has one region,
/// from address 0. Stacks deeper than [`STACK_MAX`] keep their innermost frames.
///
/// # Errors
/// [`TraceError::Damaged`] and [`TraceError::CutOff`] with offsets in the decompressed bytes; those of `to`.
pub fn import(from: impl Read, to: &mut Writer<impl Write>) -> Result<u64> {
    let mut source = Source { inner: snap::read::FrameDecoder::new(from), offset: 0 };
    let mut record = Record::default();
    let mut count = 0;
    loop {
        let offset = source.offset;
        let damaged = |what: String| TraceError::Damaged { offset, what: format!("record {count}: {what}") };
        let event = match record.next(&mut source) {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(count),
            Err(Fault::Wrong(what)) => return Err(damaged(what)),
            Err(Fault::CutOff) => return Err(TraceError::CutOff { offset: source.offset, what: "a record" }),
            Err(Fault::Io(error)) => {
                return Err(TraceError::Io { what: "read", offset: source.offset, source: error });
            }
        };
        to.push(&event)?;
        count += 1;
    }
}

impl Record {
    fn next<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<Event<'_>>, Fault> {
        let Some(kind) = source.number_or_end()? else { return Ok(None) };
        let _id = source.number()?;
        Ok(Some(match kind {
            kind::WRITE => {
                let (address, size) = (source.number()?, source.number()?);
                source.bytes(MEMORY_BYTES_MAX, "data", &mut self.data)?;
                check_size(size, self.data.len())?;
                let is_non_temporal = source.flag("whether a write is non-temporal")?;
                let (pc, is_kernel) = self.meta(source)?;
                let data = &self.data;
                let kind = Kind::Store { address, data, is_non_temporal, is_atomic64: false };
                event(kind, pc, is_kernel, &self.stack)
            }
            kind::FENCE => {
                let fence = fence(&source.text(TEXT_BYTES_MAX, "a mnemonic")?)?;
                let (pc, is_kernel) = self.meta(source)?;
                event(Kind::Fence(fence), pc, is_kernel, &self.stack)
            }
            kind::FLUSH => {
                let kind = flush(&source.text(TEXT_BYTES_MAX, "a mnemonic")?)?;
                let address = source.number()?;
                let (pc, is_kernel) = self.meta(source)?;
                event(Kind::Flush { kind, address }, pc, is_kernel, &self.stack)
            }
            kind::READ => {
                let (address, size) = (source.number()?, source.number()?);
                source.bytes(MEMORY_BYTES_MAX, "data", &mut self.data)?;
                check_size(size, self.data.len())?;
                Event::of(Kind::Read { address, data: &self.data })
            }
            kind::HYPERCALL => {
                self.action = source.text(TEXT_BYTES_MAX, "an action")?;
                self.value = source.text(TEXT_BYTES_MAX, "a value")?;
                Event::of(Kind::Hypercall(hypercall(&self.action, &self.value)))
            }
            other => return Err(Fault::Wrong(format!("a record of kind {other}"))),
        }))
    }

    /// Address of the instruction, whether it ran in the kernel; the stack goes into the record.
    fn meta<R: Read>(&mut self, source: &mut Source<R>) -> Result<(u64, bool), Fault> {
        let pc = source.number()?;
        let is_kernel = source.flag("whether it ran in the kernel")?;
        let len = source.len(VINTER_STACK_MAX, "a stack")?;
        self.stack.clear();
        for at in 0..len {
            let address = source.number()?;
            if at < STACK_MAX {
                self.stack.push(address);
            }
        }
        Ok((pc, is_kernel))
    }
}

fn event<'a>(kind: Kind<'a>, pc: u64, is_kernel: bool, stack: &'a [u64]) -> Event<'a> {
    let stack = Some(stack).filter(|stack| !stack.is_empty());
    Event { kind, origin: Origin { thread: 0, pc: Some(pc), is_kernel, stack } }
}

fn check_size(size: u64, len: usize) -> Result<(), Fault> {
    if size == len as u64 { Ok(()) } else { Err(Fault::Wrong(format!("{len} bytes that should be {size}"))) }
}

fn flush(mnemonic: &str) -> Result<FlushKind, Fault> {
    let known = FlushKind::ALL.into_iter().find(|kind| kind.mnemonic() == mnemonic);
    known.ok_or_else(|| Fault::Wrong(format!("a flush by {mnemonic:?}")))
}

fn fence(mnemonic: &str) -> Result<FenceKind, Fault> {
    // With the instruction's name after it, or without.
    if mnemonic.starts_with("lock") || mnemonic.starts_with("xchg") {
        return Ok(FenceKind::Locked);
    }
    let known = FenceKind::ALL.into_iter().find(|kind| kind.mnemonic() == mnemonic);
    known.ok_or_else(|| Fault::Wrong(format!("a fence by {mnemonic:?}")))
}

fn hypercall<'a>(action: &'a str, value: &'a str) -> Hypercall<'a> {
    match (action, value, value.parse()) {
        (action::CHECKPOINT, _, Ok(number)) => Hypercall::Checkpoint(number),
        (action::START, "", _) => Hypercall::Start,
        (action::SUCCESS, "", _) => Hypercall::Success,
        (action::FAIL, "", _) => Hypercall::Fail,
        _ => Hypercall::Other { action, value },
    }
}
