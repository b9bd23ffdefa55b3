//! Traces of what a structure did in this process, recorded by the model's stand-in for persistent memory (PM).
//!
//! This is the tracer without an emulator: a test of a PM structure keeps what its `Recorder` saw, and everything that
//! looks at traces can look at it.

use std::collections::BTreeSet;
use std::io::{Read, Write};

use fastness_pm_model as model;
use fastness_trace::{
    Event, FenceKind, FlushKind, Header, Hypercall, Kind, MEMORY_BYTES_MAX, Reader, Region, TraceError,
    Writer,
};

const LINE_BYTES: u64 = 64;

/// Writes a recorded trace; its PM becomes one region from address 0. Marks become checkpoints. Returns the output.
///
/// # Errors
/// Those of the output; [`TraceError::Invalid`] for a store of more than 64 KiB.
pub fn record<W: Write>(trace: &model::Trace, name: &str, out: W) -> Result<W, TraceError> {
    let region = Region { name: name.to_owned(), start: 0, len_bytes: trace.initial.len() as u64 };
    let tool = concat!("fastness recorder ", env!("CARGO_PKG_VERSION")).to_owned();
    let mut writer = Writer::new(out, &Header { tool, regions: vec![region], devices: Vec::new() })?;
    for (part, data) in trace.initial.chunks(MEMORY_BYTES_MAX).enumerate() {
        if data.iter().any(|byte| *byte != 0) {
            writer.push(&Event::of(Kind::Initial { address: (part * MEMORY_BYTES_MAX) as u64, data }))?;
        }
    }
    for op in &trace.ops {
        writer.push(&Event::of(match op {
            model::Op::Store { addr, data, nt, atomic64 } => {
                Kind::Store { address: *addr, data, is_non_temporal: *nt, is_atomic64: *atomic64 }
            }
            model::Op::Rmw { addr, data } => Kind::Rmw { address: *addr, data },
            model::Op::Flush { kind, addr } => Kind::Flush { kind: flush_of(*kind), address: *addr },
            model::Op::Fence(kind) => Kind::Fence(fence_of(*kind)),
            model::Op::Mark(mark) => Kind::Hypercall(Hypercall::Checkpoint(*mark)),
        }))?;
    }
    writer.finish()
}

fn flush_of(kind: model::FlushKind) -> FlushKind {
    match kind {
        model::FlushKind::Clwb => FlushKind::Clwb,
        model::FlushKind::Clflushopt => FlushKind::Clflushopt,
        model::FlushKind::Clflush => FlushKind::Clflush,
    }
}

fn fence_of(kind: model::FenceKind) -> FenceKind {
    match kind {
        model::FenceKind::Sfence => FenceKind::Sfence,
        model::FenceKind::Mfence => FenceKind::Mfence,
        model::FenceKind::Lfence => FenceKind::Lfence,
    }
}

/// Reads what a trace says of one of its regions, for the model: addresses relative to the region. Loads, disks and other
/// regions are left out. A LOCKed operation elsewhere is a fence; `wbinvd` a weak flush of every line that was stored to.
/// `len_max_bytes` bounds the memory that is taken for the region.
///
/// # Errors
/// Those of the trace; [`TraceError::Invalid`] if it has no such region, a larger one, or an event that is partly in it.
pub fn replay(
    reader: &mut Reader<impl Read>,
    region: usize,
    len_max_bytes: u64,
) -> Result<model::Trace, TraceError> {
    let invalid = |number: u64, what: String| TraceError::Invalid { number, what };
    let regions = &reader.header().regions;
    let found = regions.get(region).ok_or_else(|| {
        invalid(0, format!("region {region} is wanted, the trace has {} of them", regions.len()))
    })?;
    if found.len_bytes > len_max_bytes {
        let what =
            format!("region {} has {} bytes, the bound is {len_max_bytes}", found.name, found.len_bytes);
        return Err(invalid(0, what));
    }
    let range = found.start..found.start + found.len_bytes;
    // Whole lines, as the model has them.
    let mut initial = vec![0; found.len_bytes.next_multiple_of(LINE_BYTES) as usize];
    let (mut ops, mut stored) = (Vec::new(), BTreeSet::new());
    loop {
        let number = reader.count();
        let Some(event) = reader.next()? else { break };
        let place = |address: u64, len: usize| {
            let end = address.saturating_add(len as u64);
            if end <= range.start || address >= range.end {
                Ok(None)
            } else if address >= range.start && end <= range.end {
                Ok(Some(address - range.start))
            } else {
                Err(invalid(number, format!("{len} bytes at {address:#x} are partly in the region")))
            }
        };
        match event.kind {
            Kind::Initial { address, data } => {
                if let Some(at) = place(address, data.len())? {
                    initial[at as usize..at as usize + data.len()].copy_from_slice(data);
                }
            }
            Kind::Store { address, data, is_non_temporal, is_atomic64 } => {
                if let Some(addr) = place(address, data.len())? {
                    note_lines(&mut stored, addr, data.len());
                    let (nt, atomic64) = (is_non_temporal, is_atomic64);
                    ops.push(model::Op::Store { addr, data: data.to_vec(), nt, atomic64 });
                }
            }
            Kind::Rmw { address, data } => match place(address, data.len())? {
                Some(addr) => {
                    note_lines(&mut stored, addr, data.len());
                    ops.push(model::Op::rmw(addr, data));
                }
                None => ops.push(model::Op::Fence(model::FenceKind::Mfence)),
            },
            Kind::Flush { kind: FlushKind::Wbinvd, .. } => {
                let flush = |line: &u64| {
                    let (kind, addr) = (model::FlushKind::Clflushopt, line * LINE_BYTES);
                    model::Op::Flush { kind, addr }
                };
                ops.extend(stored.iter().map(flush));
            }
            Kind::Flush { kind, address } => {
                if let Some(addr) = place(address, 1)? {
                    let kind = match kind {
                        FlushKind::Clwb => model::FlushKind::Clwb,
                        FlushKind::Clflush => model::FlushKind::Clflush,
                        _ => model::FlushKind::Clflushopt,
                    };
                    ops.push(model::Op::Flush { kind, addr });
                }
            }
            Kind::Fence(kind) => ops.push(model::Op::Fence(match kind {
                FenceKind::Sfence => model::FenceKind::Sfence,
                FenceKind::Lfence => model::FenceKind::Lfence,
                FenceKind::Mfence | FenceKind::Locked => model::FenceKind::Mfence,
            })),
            Kind::Hypercall(Hypercall::Checkpoint(mark)) => ops.push(model::Op::Mark(mark)),
            Kind::Read { .. } | Kind::Block { .. } | Kind::Hypercall(_) => {}
        }
    }
    Ok(model::Trace { initial, ops })
}

fn note_lines(stored: &mut BTreeSet<u64>, addr: u64, len: usize) {
    if len > 0 {
        stored.extend(addr / LINE_BYTES..=(addr + len as u64 - 1) / LINE_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use fastness_pm_model::{Op, RecordStyle, Recorder};
    use fastness_pmem::Medium;

    use super::*;

    #[test]
    fn what_was_recorded_is_read_back_as_it_was() {
        let mut initial = vec![0; 200 << 10];
        initial[70_000] = 7;
        let recorder = Recorder::new(initial, RecordStyle::NonTemporal);
        let mut range = recorder.range(64, 4096);
        range.copy(0, b"hello", 64, &mut fastness_pmem::NoSum);
        range.fence().unwrap();
        recorder.mark(3);
        let data: Vec<u8> = (0..64).collect();
        for op in [
            Op::store(4, [1, 2, 3]),
            Op::clwb(4),
            Op::clflush(128),
            Op::rmw(8, [9; 8]),
            Op::movdir64b(192, data.try_into().unwrap()),
            Op::Fence(model::FenceKind::Lfence),
            Op::Fence(model::FenceKind::Mfence),
        ] {
            recorder.record(op);
        }
        let trace = recorder.trace();
        let file = record(&trace, "pm", Vec::new()).unwrap();
        let mut reader = Reader::new(&file[..]).unwrap();
        assert_eq!(replay(&mut reader, 0, 1 << 20).unwrap(), trace);
        assert!(file.len() < 1000, "zeroes are not stored: {}", file.len());
    }

    #[test]
    fn regions_are_told_apart_and_wbinvd_flushes_what_was_stored() {
        let region = |name: &str, start| Region { name: name.to_owned(), start, len_bytes: 100 };
        let regions = vec![region("a", 0), region("b", 0x1000)];
        let header = Header { tool: String::new(), regions, devices: Vec::new() };
        let store = |address, data| Kind::Store { address, data, is_non_temporal: false, is_atomic64: false };
        let write = |kinds: &[Kind<'_>]| {
            let mut writer = Writer::new(Vec::new(), &header).unwrap();
            kinds.iter().for_each(|kind| writer.push(&Event::of(*kind)).unwrap());
            writer.finish().unwrap()
        };
        let trace = write(&[
            store(0x103c, &[1; 8]),
            store(0, &[2]),
            Kind::Rmw { address: 8, data: &[3; 8] },
            Kind::Flush { kind: FlushKind::Wbinvd, address: 0 },
            Kind::Flush { kind: FlushKind::Clwb, address: 0 },
        ]);
        let read = |trace: &[u8], region, max| replay(&mut Reader::new(trace).unwrap(), region, max);
        let found = read(&trace, 1, 100).unwrap();
        let clflushopt = |addr| Op::Flush { kind: model::FlushKind::Clflushopt, addr };
        let fence = Op::Fence(model::FenceKind::Mfence);
        assert_eq!(found.ops, [Op::store(0x3c, [1; 8]), fence, clflushopt(0), clflushopt(64)]);
        assert_eq!(found.initial.len(), 128);
        for (region, max) in [(2, 100), (1, 99)] {
            assert!(matches!(read(&trace, region, max), Err(TraceError::Invalid { number: 0, .. })));
        }
        let crossing = write(&[store(0x1000, &[1]), store(0x1060, &[1; 8])]);
        assert!(matches!(read(&crossing, 1, 100), Err(TraceError::Invalid { number: 1, .. })));
    }
}
