use fastness_crashcheck_trace::{Reader, Region};

use super::*;

const LEN: u64 = 1 << 20;

/// What the recorder writes, as text.
fn record(work: impl FnOnce(&mut Recorder<&mut Vec<u8>>) -> Result) -> Vec<String> {
    let region = |name: &str, index| Region { name: name.into(), start: start_of(index), len_bytes: LEN };
    let header =
        Header { tool: "t".into(), regions: vec![region("a", 0), region("b", 1)], devices: Vec::new() };
    let mut out = Vec::new();
    let mut recorder = Recorder::new(&mut out, &header, Arc::new(Pending::new())).unwrap();
    work(&mut recorder).unwrap();
    recorder.finish().unwrap();
    let mut reader = Reader::new(&out[..]).unwrap();
    let mut events = Vec::new();
    while let Some(event) = reader.next().unwrap() {
        let thread = event.origin.thread;
        events.push(match event.kind {
            Kind::Initial { address, data } => format!("initial {address:#x}+{:#x}", data.len()),
            Kind::Store { address, data, is_non_temporal, .. } => {
                format!("{thread}: store {address:#x}+{:#x} {is_non_temporal}", data.len())
            }
            Kind::Rmw { address, .. } => format!("{thread}: rmw {address:#x}"),
            Kind::Flush { kind, address } => format!("{thread}: {} {address:#x}", kind.mnemonic()),
            Kind::Fence(kind) => format!("{thread}: {}", kind.mnemonic()),
            other => format!("{other:?}"),
        });
    }
    events
}

fn thread(thread: u32) -> Origin<'static> {
    Origin { thread, ..Origin::default() }
}

#[test]
fn fences_without_anything_to_wait_for_are_left_out() {
    let events = record(|recorder| {
        recorder.order(&thread(0), FenceKind::Mfence)?;
        recorder.store(&thread(0), 8, &[1; 8], false)?;
        recorder.order(&thread(1), FenceKind::Locked)?;
        recorder.order(&thread(0), FenceKind::Sfence)?;
        recorder.order(&thread(0), FenceKind::Sfence)?;
        recorder.flush(&thread(1), FlushKind::Clwb, 8)?;
        recorder.order(&thread(1), FenceKind::Locked)?;
        recorder.rmw(&thread(0), 16, &[1; 8])?;
        recorder.order(&thread(0), FenceKind::Mfence)
    });
    let expected =
        ["0: store 0x8+0x8 false", "0: sfence", "1: clwb 0x8", "1: lock", "0: rmw 0x10", "0: mfence"];
    assert_eq!(events, expected);
}

#[test]
fn durability_writes_back_what_is_dirty_in_the_range() {
    let b = start_of(1);
    let events = record(|recorder| {
        recorder.store(&thread(0), b + 60, &[1; 8], false)?;
        recorder.store(&thread(0), b + 4096, &[1; 8], false)?;
        recorder.store(&thread(1), b + 8192, &[1; 8], true)?;
        recorder.flush(&thread(0), FlushKind::Clflush, b + 70)?;
        recorder.make_durable(&thread(2), std::iter::once(b..b + 4096))?;
        recorder.make_durable(&thread(2), [0..LEN, b..b + LEN])
    });
    assert_eq!(events[4..], ["2: clwb 0x10000000000", "2: sfence", "2: clwb 0x10000001000", "2: sfence"]);
}

#[test]
fn initial_contents_leave_out_pages_of_zeroes() {
    let mut data = vec![0; LEN as usize];
    data[4097] = 1;
    data[3 * 4096..40 * 4096].fill(2);
    let events = record(|recorder| recorder.initial(start_of(1), &data));
    let expected =
        ["0x10000001000+0x1000", "0x10000003000+0x10000", "0x10000013000+0x10000", "0x10000023000+0x5000"];
    assert_eq!(events, expected.map(|text| format!("initial {text}")));
}

#[test]
fn long_stores_are_cut_and_those_outside_refused() {
    let events = record(|recorder| {
        recorder.store(&thread(0), 0, &[1; 0x10001], true)?;
        for (address, len) in [(LEN - 1, 2), (LEN, 1), (start_of(2), 1), (u64::MAX, 1)] {
            let refused = recorder.store(&thread(0), address, &vec![0; len], false);
            assert!(matches!(refused, Err(RecordError::Outside(..))), "{address:#x}");
        }
        let mut actual = vec![0; LEN as usize];
        actual[..0x10001].fill(1);
        let compare = |recorder: &Recorder<_>, actual: &[u8]| {
            let read = |offset: u64, buffer: &mut [u8]| {
                buffer.copy_from_slice(&actual[offset as usize..][..buffer.len()]);
                Ok(())
            };
            recorder.difference(0, read).unwrap()
        };
        assert_eq!(compare(recorder, &actual), None);
        actual[7] = 0;
        actual[0x20000] = 9;
        assert_eq!(compare(recorder, &actual), Some(Difference { first: 7, count: 2 }));
        Ok(())
    });
    assert_eq!(events, ["0: store 0x0+0x10000 true", "0: store 0x10000+0x1 true"]);
}
