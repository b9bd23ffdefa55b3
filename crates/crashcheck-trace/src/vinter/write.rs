//! From a trace of ours to one of Vinter's.

use std::io::{Read, Write};

use super::number::{put, put_bytes};
use super::{action, kind};
use crate::error::{Result, TraceError};
use crate::event::{Event, FenceKind, FlushKind, Hypercall, Kind, Origin};
use crate::reader::Reader;

/// What became of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exported {
    /// Records that were written. A LOCKed operation on PM makes three: a fence, a store, a fence.
    pub records: u64,
    /// Events that the format has no place for: those of disks, and initial contents.
    pub left_out: u64,
}

/// Writes all that the format has a place for. Addresses become relative to the start of the only region;
/// threads are forgotten.
///
/// # Errors
/// Those of `from`; [`TraceError::Invalid`] for a trace that has not exactly one region, or an event outside
/// of it; those of the output.
pub fn export(from: &mut Reader<impl Read>, to: impl Write) -> Result<Exported> {
    let [region] = &from.header().regions[..] else {
        let what = format!("the format has one region, the trace {}", from.header().regions.len());
        return Err(TraceError::Invalid { number: 0, what });
    };
    let (start, end) = (region.start, region.start + region.len_bytes);
    let mut output =
        Output { inner: snap::write::FrameEncoder::new(to), offset: 0, start, end, record: Vec::new() };
    let mut done = Exported::default();
    loop {
        let number = from.count();
        let Some(event) = from.next()? else { break };
        match output.event(&event, &mut done).map_err(|what| TraceError::Invalid { number, what })? {
            true => output.write()?,
            false => done.left_out += 1,
        }
    }
    let offset = output.offset;
    output.inner.flush().map_err(|source| TraceError::Io { what: "write", offset, source })?;
    Ok(done)
}

struct Output<W: Write> {
    inner: snap::write::FrameEncoder<W>,
    offset: u64,
    start: u64,
    end: u64,
    record: Vec<u8>,
}

impl<W: Write> Output<W> {
    fn write(&mut self) -> Result<()> {
        let offset = self.offset;
        let written = self.inner.write_all(&self.record);
        written.map_err(|source| TraceError::Io { what: "write", offset, source })?;
        self.offset += self.record.len() as u64;
        self.record.clear();
        Ok(())
    }

    /// Makes records of an event; `false` if there are none for it.
    fn event(&mut self, event: &Event<'_>, done: &mut Exported) -> Result<bool, String> {
        match event.kind {
            Kind::Initial { .. } | Kind::DiskInitial { .. } | Kind::Block { .. } => return Ok(false),
            Kind::Store { address, data, is_non_temporal, .. } => {
                self.store(address, data, is_non_temporal, &event.origin, done)?;
            }
            Kind::Rmw { address, data } => {
                self.fence(FenceKind::Locked.mnemonic(), &event.origin, done);
                self.store(address, data, false, &event.origin, done)?;
                self.fence(FenceKind::Locked.mnemonic(), &event.origin, done);
            }
            Kind::Fence(fence) => self.fence(fence.mnemonic(), &event.origin, done),
            Kind::Flush { kind, address } => {
                // That of all lines has no address.
                let address = if kind == FlushKind::Wbinvd { 0 } else { self.relative(address, 1)? };
                self.head(kind::FLUSH, done);
                put_bytes(&mut self.record, kind.mnemonic().as_bytes());
                put(&mut self.record, address);
                self.meta(&event.origin);
            }
            Kind::Read { address, data } => {
                let address = self.relative(address, data.len())?;
                self.head(kind::READ, done);
                put(&mut self.record, address);
                put(&mut self.record, data.len() as u64);
                put_bytes(&mut self.record, data);
            }
            Kind::Hypercall(hypercall) => {
                self.head(kind::HYPERCALL, done);
                let number;
                let (action, value) = match hypercall {
                    Hypercall::Start => (action::START, ""),
                    Hypercall::Success => (action::SUCCESS, ""),
                    Hypercall::Fail => (action::FAIL, ""),
                    Hypercall::Checkpoint(checkpoint) => {
                        number = checkpoint.to_string();
                        (action::CHECKPOINT, &number[..])
                    }
                    Hypercall::Other { action, value } => (action, value),
                };
                put_bytes(&mut self.record, action.as_bytes());
                put_bytes(&mut self.record, value.as_bytes());
            }
        }
        Ok(true)
    }

    fn head(&mut self, kind: u64, done: &mut Exported) {
        put(&mut self.record, kind);
        put(&mut self.record, done.records);
        done.records += 1;
    }

    fn store(
        &mut self,
        address: u64,
        data: &[u8],
        is_non_temporal: bool,
        origin: &Origin<'_>,
        done: &mut Exported,
    ) -> Result<(), String> {
        let address = self.relative(address, data.len())?;
        self.head(kind::WRITE, done);
        put(&mut self.record, address);
        put(&mut self.record, data.len() as u64);
        put_bytes(&mut self.record, data);
        self.record.push(is_non_temporal.into());
        self.meta(origin);
        Ok(())
    }

    fn fence(&mut self, mnemonic: &str, origin: &Origin<'_>, done: &mut Exported) {
        self.head(kind::FENCE, done);
        put_bytes(&mut self.record, mnemonic.as_bytes());
        self.meta(origin);
    }

    fn meta(&mut self, origin: &Origin<'_>) {
        put(&mut self.record, origin.pc.unwrap_or(0));
        self.record.push(origin.is_kernel.into());
        let stack = origin.stack.unwrap_or(&[]);
        put(&mut self.record, stack.len() as u64);
        stack.iter().for_each(|address| put(&mut self.record, *address));
    }

    fn relative(&self, address: u64, len: usize) -> Result<u64, String> {
        let is_inside =
            address >= self.start && address.checked_add(len as u64).is_some_and(|end| end <= self.end);
        if is_inside {
            Ok(address - self.start)
        } else {
            Err(format!("address {address:#x} is in no region"))
        }
    }
}
