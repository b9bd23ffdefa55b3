//! Traces of what a structure did in this process, recorded by the model's stand-in for persistent memory
//! (PM).
//!
//! This is a tracer without an emulator: a test of a PM structure keeps what its `Recorder` saw as a trace
//! that every tool for traces can read.

use std::io::Write;

use fastness_crashcheck_trace::{
    Event, FenceKind, FlushKind, Header, Hypercall, Kind, MEMORY_BYTES_MAX, Region, TraceError, Writer,
};
use fastness_pm_model as model;

/// Writes a recorded trace; its PM becomes one region from address 0. Marks become checkpoints. Returns the
/// output.
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

#[cfg(test)]
mod tests {
    use fastness_crashcheck_trace::Reader;
    use fastness_pm_model::{Config, Machine, Op, RecordStyle, Recorder};
    use fastness_pmem::Medium;

    use super::*;
    use crate::generate::Replay;
    use crate::image::Image;

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
        assert!(file.len() < 1000, "zeroes are not stored: {}", file.len());
        let mut reader = Reader::new(&file[..]).unwrap();
        let mut replay = Replay::new(reader.header(), Config::default(), 1 << 20).unwrap();
        for number in 0.. {
            let Some(event) = reader.next().unwrap() else { break };
            replay.apply(&event, number).unwrap();
        }
        let mut machine = Machine::new(trace.initial, Config::default());
        trace.ops.iter().for_each(|op| machine.apply(op).unwrap());
        let same = |image: &Image, bytes: &[u8]| {
            let mut found = vec![0; bytes.len()];
            image.read(0, &mut found);
            found == bytes
        };
        assert!(same(replay.machine().persistent(), machine.persistent_image()));
        assert!(same(&replay.machine().volatile(), &machine.volatile_image()));
        assert_eq!(replay.checkpoint(), Some(3));
    }
}
