//! Which lines a recovery has read, by its trace.

use std::collections::BTreeSet;
use std::io::Read;

use fastness_crashcheck_trace::{Event, Hypercall, Kind, Reader};

use crate::error::Result;
use crate::generate::{Layout, Place};

const LINE_BYTES: u64 = 64;

/// The lines that were read before they were stored to. Regions are those of the recovery's own trace, in the
/// same order and of the same lengths.
#[derive(Debug, Default)]
struct LinesRead {
    read: BTreeSet<u64>,
    stored: BTreeSet<u64>,
}

impl LinesRead {
    fn take(&mut self, event: &Event<'_>, layout: &Layout) {
        let (address, len, is_read) = match event.kind {
            Kind::Read { address, data } => (address, data.len(), true),
            Kind::Store { address, data, .. } => (address, data.len(), false),
            // It has read what it changed.
            Kind::Rmw { address, data } => (address, data.len(), true),
            _ => return,
        };
        let Place::Inside(offset) = layout.place(address, len.max(1)) else { return };
        for line in offset / LINE_BYTES..=(offset + len.max(1) as u64 - 1) / LINE_BYTES {
            match is_read {
                true if !self.stored.contains(&line) => {
                    self.read.insert(line);
                }
                true => {}
                // Of a line that is not stored as a whole the rest may be read.
                false if len as u64 >= LINE_BYTES => {
                    self.stored.insert(line);
                }
                false => {}
            }
        }
    }
}

/// The lines of a whole trace.
///
/// # Errors
/// Those of the trace.
pub(super) fn lines_read(reader: &mut Reader<impl Read>) -> Result<BTreeSet<u64>> {
    let layout = Layout::of(reader.header())?;
    let mut lines = LinesRead::default();
    while let Some(event) = reader.next()? {
        lines.take(&event, &layout);
    }
    Ok(lines.read)
}

/// The lines of the next recovery in a trace of several, up to the message that it has ended. The reader
/// continues after that message.
///
/// # Errors
/// Those of the trace: one that is cut off before the message is damaged.
pub(super) fn lines_of_next(reader: &mut Reader<impl Read>) -> Result<BTreeSet<u64>> {
    let layout = Layout::of(reader.header())?;
    let mut lines = LinesRead::default();
    while let Some(event) = reader.next()? {
        match event.kind {
            Kind::Hypercall(Hypercall::Success | Hypercall::Fail) => break,
            _ => lines.take(&event, &layout),
        }
    }
    Ok(lines.read)
}

#[cfg(test)]
mod tests {
    use fastness_crashcheck_trace::{Header, Region, Writer};

    use super::*;

    fn read(address: u64, data: &[u8]) -> Kind<'_> {
        Kind::Read { address, data }
    }

    fn store(address: u64, data: &[u8]) -> Kind<'_> {
        Kind::Store { address, data, is_non_temporal: false, is_atomic64: false }
    }

    fn trace(kinds: &[Kind<'_>]) -> Vec<u8> {
        let regions = vec![Region { name: "pm".to_owned(), start: 0, len_bytes: 4096 }];
        let mut writer = Writer::new(Vec::new(), &Header { regions, ..Header::default() }).unwrap();
        kinds.iter().for_each(|kind| writer.push(&Event::of(*kind)).unwrap());
        writer.finish().unwrap()
    }

    #[test]
    fn what_is_stored_whole_first_is_not_read() {
        let found = trace(&[
            read(8, &[0; 4]),
            store(64, &[0; 64]),
            read(64, &[0; 8]),
            store(128, &[0; 8]),
            read(136, &[0; 8]),
            read(252, &[0; 8]),
            Kind::Rmw { address: 640, data: &[0; 8] },
            read(9000, &[0; 8]),
        ]);
        let lines = lines_read(&mut Reader::new(&found[..]).unwrap()).unwrap();
        assert_eq!(lines.into_iter().collect::<Vec<_>>(), [0, 2, 3, 4, 10]);
    }

    #[test]
    fn recoveries_of_one_trace_are_told_apart() {
        let [start, end] = [Hypercall::Start, Hypercall::Success].map(Kind::Hypercall);
        let fail = Kind::Hypercall(Hypercall::Fail);
        let found = trace(&[
            start,
            store(0, &[0; 64]),
            read(64, &[0; 8]),
            end,
            start,
            read(0, &[0; 8]),
            fail,
            start,
            read(192, &[0; 1]),
        ]);
        let mut reader = Reader::new(&found[..]).unwrap();
        for expected in [vec![1], vec![0], vec![3], vec![]] {
            assert_eq!(lines_of_next(&mut reader).unwrap().into_iter().collect::<Vec<_>>(), expected);
        }
        let mut cut = Reader::new(&found[..found.len() - 24]).unwrap();
        (0..2).for_each(|_| drop(lines_of_next(&mut cut).unwrap()));
        assert!(lines_of_next(&mut cut).is_err());
    }
}
