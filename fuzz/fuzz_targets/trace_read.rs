//! Traces, ours and Vinter's: reading ends with an answer, and what was read can be written and is then the
//! same.
#![no_main]

use std::io::Write;

use arbitrary::Arbitrary;
use fastness_crashcheck_trace::{Header, Reader, Region, Writer, vinter, with_events_for_fuzzing};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
enum Input {
    Raw(Vec<u8>),
    Framed { header: Vec<u8>, count: u8, events: Vec<u8> },
    Vinter { bytes: Vec<u8>, is_packed: bool },
}

fn header() -> Header {
    let region = Region { name: "pm".to_owned(), start: 0, len_bytes: 1 << 40 };
    Header { tool: "fuzz".to_owned(), regions: vec![region], devices: Vec::new() }
}

/// Reads all of it; then everything again beside a copy that was written from it.
fn read(trace: &[u8]) {
    let Ok(mut reader) = Reader::new(trace) else { return };
    let mut writer = Writer::new(Vec::new(), reader.header()).expect("a header that was read");
    while let Ok(Some(event)) = reader.next() {
        writer.push(&event).expect("an event that was read");
    }
    let copy = writer.finish().expect("memory takes everything");
    let (mut first, mut second) = (Reader::new(trace).expect("again"), Reader::new(&copy[..]).expect("ours"));
    while let Some(event) = second.next().expect("ours") {
        assert_eq!(first.next().expect("again"), Some(event));
    }
    assert_eq!(first.count(), reader.count());
}

fuzz_target!(|input: Input| match input {
    Input::Raw(bytes) => read(&bytes),
    Input::Framed { header: bytes, count, events } => {
        let header = if bytes.is_empty() { vec![0, 0, 0] } else { bytes };
        read(&with_events_for_fuzzing(&header, count.into(), &events));
    }
    Input::Vinter { bytes, is_packed } => {
        let packed = if is_packed {
            bytes
        } else {
            let mut encoder = snap::write::FrameEncoder::new(Vec::new());
            encoder.write_all(&bytes).expect("memory takes everything");
            encoder.into_inner().expect("memory takes everything")
        };
        let mut writer = Writer::new(Vec::new(), &header()).expect("a header");
        let count = vinter::import(&packed[..], &mut writer);
        let trace = writer.finish().expect("memory takes everything");
        read(&trace);
        // Nothing in the format is lost on the way there and back, unless an address is outside of
        // everything.
        let mut exported = Vec::new();
        let done = vinter::export(&mut Reader::new(&trace[..]).expect("ours"), &mut exported);
        if let (Ok(count), Ok(done)) = (count, done) {
            assert_eq!((done.records, done.left_out), (count, 0));
        }
    }
});
