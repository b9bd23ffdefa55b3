//! Events, as callbacks find them, into a trace.
//!
//! Beside the trace it keeps what the events so far make of PM. A store that changes nothing else is an event
//! all the same; but what is in PM at the end and not in here was changed without an event, and the trace is
//! wrong: see [`Recorder::difference`].

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use fastness_crashcheck_trace::{
    BlockEvent, Event, FenceKind, FlushKind, Header, Hypercall, Kind, MEMORY_BYTES_MAX, Origin, TraceError,
    Writer,
};

use crate::area::{Area, locate, start_of};
use crate::pending::Pending;

/// Why nothing more can be recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("cannot write the trace: {}", said(.0))]
    Trace(#[from] TraceError),
    #[error("PM is used after the trace has ended")]
    Ended,
    #[error("address {0:#x}: {1} bytes there are not in the region that the trace began with")]
    Outside(u64, usize),
}

fn said(error: &TraceError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

type Result<T = ()> = std::result::Result<T, RecordError>;

/// Bytes that differ, and the address of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) first: u64,
    pub(crate) count: u64,
}

/// Writes a trace; addresses are those of its regions, [`start_of`] and up.
#[derive(Debug)]
pub(crate) struct Recorder<W: Write> {
    /// None after the end.
    writer: Option<Writer<W>>,
    areas: Vec<Area>,
    pending: Arc<Pending>,
}

impl<W: Write> Recorder<W> {
    /// Begins the trace. `header` has region `n` at `start_of(n)`.
    pub(crate) fn new(out: W, header: &Header, pending: Arc<Pending>) -> Result<Recorder<W>> {
        let areas = header.regions.iter().map(|region| Area::new(region.len_bytes)).collect();
        Ok(Recorder { writer: Some(Writer::new(out, header)?), areas, pending })
    }

    fn push(&mut self, kind: Kind<'_>, origin: &Origin<'_>) -> Result {
        let writer = self.writer.as_mut().ok_or(RecordError::Ended)?;
        Ok(writer.push(&Event { kind, origin: *origin })?)
    }

    /// The region with these bytes.
    fn area(&mut self, address: u64, len: usize) -> Result<(&mut Area, u64)> {
        let (index, offset) = locate(address);
        let area = self.areas.get_mut(index).ok_or(RecordError::Outside(address, len))?;
        match offset.checked_add(len as u64) {
            Some(end) if end <= area.len_bytes() => Ok((area, offset)),
            _ => Err(RecordError::Outside(address, len)),
        }
    }

    /// Contents of a region before its first event, from its first byte; zeroes may be left out, by pages.
    pub(crate) fn initial(&mut self, address: u64, data: &[u8]) -> Result {
        const PAGE_BYTES: usize = 4096;
        let mut pages = data.chunks(PAGE_BYTES).map(|page| page.iter().any(|byte| *byte != 0)).enumerate();
        while let Some((first, is_used)) = pages.next() {
            if !is_used {
                continue;
            }
            let more =
                pages.by_ref().take(MEMORY_BYTES_MAX / PAGE_BYTES - 1).take_while(|(_, is_used)| *is_used);
            let start = first * PAGE_BYTES;
            let end = data.len().min(start + (1 + more.count()) * PAGE_BYTES);
            let (area, offset) = self.area(address + start as u64, end - start)?;
            area.put(offset, &data[start..end]);
            let address = address + start as u64;
            self.push(Kind::Initial { address, data: &data[start..end] }, &Origin::default())?;
        }
        Ok(())
    }

    /// Contents of a region that are not traced, only compared at the end.
    pub(crate) fn assume(&mut self, address: u64, data: &[u8]) -> Result {
        let (area, offset) = self.area(address, data.len())?;
        area.put(offset, data);
        Ok(())
    }

    /// Hands all events so far to the output.
    pub(crate) fn flush_out(&mut self) -> Result {
        Ok(self.writer.as_mut().ok_or(RecordError::Ended)?.flush()?)
    }

    /// A store of any length.
    pub(crate) fn store(
        &mut self,
        origin: &Origin<'_>,
        address: u64,
        data: &[u8],
        is_non_temporal: bool,
    ) -> Result {
        let (area, offset) = self.area(address, data.len())?;
        area.put(offset, data);
        if !is_non_temporal {
            area.set_dirty(offset, data.len());
        }
        self.pending.set(origin.thread);
        for (part, data) in data.chunks(MEMORY_BYTES_MAX).enumerate() {
            let address = address + (part * MEMORY_BYTES_MAX) as u64;
            self.push(Kind::Store { address, data, is_non_temporal, is_atomic64: false }, origin)?;
        }
        Ok(())
    }

    /// A LOCKed operation; it is a fence, too.
    pub(crate) fn rmw(&mut self, origin: &Origin<'_>, address: u64, data: &[u8]) -> Result {
        let (area, offset) = self.area(address, data.len())?;
        area.put(offset, data);
        area.set_dirty(offset, data.len());
        // What it stored itself may be flushed and fenced yet.
        self.pending.set(origin.thread);
        self.push(Kind::Rmw { address, data }, origin)
    }

    pub(crate) fn read(&mut self, origin: &Origin<'_>, address: u64, data: &[u8]) -> Result {
        self.area(address, data.len())?;
        self.push(Kind::Read { address, data }, origin)
    }

    pub(crate) fn flush(&mut self, origin: &Origin<'_>, kind: FlushKind, address: u64) -> Result {
        let (area, offset) = self.area(address, 1)?;
        area.set_clean(offset);
        self.pending.set(origin.thread);
        self.push(Kind::Flush { kind, address }, origin)
    }

    /// `wbinvd`.
    pub(crate) fn flush_all(&mut self, origin: &Origin<'_>) -> Result {
        self.areas.iter_mut().for_each(Area::set_all_clean);
        self.pending.set(origin.thread);
        self.push(Kind::Flush { kind: FlushKind::Wbinvd, address: 0 }, origin)
    }

    /// A fence; left out if the thread has nothing that it would wait for.
    pub(crate) fn order(&mut self, origin: &Origin<'_>, kind: FenceKind) -> Result {
        if !self.pending.is_set(origin.thread) {
            return Ok(());
        }
        self.pending.clear(origin.thread);
        self.push(Kind::Fence(kind), origin)
    }

    /// What a system call that makes ranges durable does: writes back their dirty lines, and waits for that
    /// and for what any thread has written past the caches.
    pub(crate) fn make_durable(
        &mut self,
        origin: &Origin<'_>,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> Result {
        let is_pending = self.pending.any();
        for range in ranges {
            let (index, first) = locate(range.start);
            let area = self.areas.get(index).ok_or(RecordError::Outside(range.start, 1))?;
            for offset in area.dirty_lines(first..first + (range.end - range.start)) {
                self.flush(origin, FlushKind::Clwb, start_of(index) + offset)?;
            }
        }
        if is_pending {
            self.pending.set(origin.thread);
        }
        self.order(origin, FenceKind::Sfence)
    }

    /// What a disk held before the first command to it, from a byte on.
    pub(crate) fn disk_initial(&mut self, device: u32, offset: u64, data: &[u8]) -> Result {
        self.push(Kind::DiskInitial { device, offset, data }, &Origin::default())
    }

    pub(crate) fn block(
        &mut self,
        origin: &Origin<'_>,
        device: u32,
        command: u32,
        event: BlockEvent<'_>,
    ) -> Result {
        self.push(Kind::Block { device, command, event }, origin)
    }

    pub(crate) fn message(&mut self, origin: &Origin<'_>, message: Hypercall<'_>) -> Result {
        self.push(Kind::Hypercall(message), origin)
    }

    /// Length of a region.
    pub(crate) fn len_bytes(&self, index: usize) -> u64 {
        self.areas[index].len_bytes()
    }

    /// What the events so far make of a region.
    pub(crate) fn contents(&self, index: usize) -> &[u8] {
        self.areas[index].contents()
    }

    /// Compares a region with what is there now; `read` fills a buffer from a byte on.
    pub(crate) fn difference(
        &self,
        index: usize,
        mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<Option<Difference>> {
        let mut found: Option<Difference> = None;
        let mut buffer = vec![0; 1 << 20];
        let contents = self.contents(index);
        for (part, expected) in contents.chunks(buffer.len()).enumerate() {
            let offset = (part * buffer.len()) as u64;
            let actual = &mut buffer[..expected.len()];
            read(offset, actual)?;
            if actual == expected {
                continue;
            }
            let differing = |&(_, (a, b)): &(usize, (&u8, &u8))| a != b;
            for (at, _) in actual.iter().zip(expected).enumerate().filter(differing) {
                let first = start_of(index) + offset + at as u64;
                found.get_or_insert(Difference { first, count: 0 }).count += 1;
            }
        }
        Ok(found)
    }

    /// Whether the trace has not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.writer.is_some()
    }

    /// Ends the trace, once. Returns the number of its events.
    pub(crate) fn finish(&mut self) -> Result<u64> {
        let writer = self.writer.take().ok_or(RecordError::Ended)?;
        let count = writer.count();
        writer.finish()?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
