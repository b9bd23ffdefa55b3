//! Traces go there and back, say where they are damaged, and have the bytes that the format says.

use fastness_crashcheck_trace::{
    BlockEvent, Device, Event, FenceKind, FlushKind, Header, Hypercall, Kind, Origin, Reader, Region,
    TraceError, Writer,
};
use proptest::prelude::*;

fn header() -> Header {
    Header {
        tool: "test 1".to_owned(),
        regions: vec![
            Region { name: "a".to_owned(), start: 0x1_0000, len_bytes: 4096 },
            Region { name: "/dev/b".to_owned(), start: 0x10_0000, len_bytes: 1 << 30 },
        ],
        devices: vec![Device { name: "nvme0".to_owned(), len_bytes: 1 << 40, block_bytes: 512 }],
    }
}

/// An event with its own bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned {
    choice: u8,
    address: u64,
    data: Vec<u8>,
    flags: (bool, bool, bool),
    thread: u32,
    pc: Option<u64>,
    stack: Option<Vec<u64>>,
    text: String,
}

impl Owned {
    fn event(&self) -> Event<'_> {
        let (address, data, text) = (self.address, &self.data[..], &self.text[..]);
        let (first, second, is_kernel) = self.flags;
        let block = |event| Kind::Block { device: 0, command: self.thread, event };
        let flushes = [FlushKind::Clwb, FlushKind::Clflushopt, FlushKind::Clflush, FlushKind::Wbinvd];
        let fences = [FenceKind::Sfence, FenceKind::Mfence, FenceKind::Lfence, FenceKind::Locked];
        let which = usize::from(first) * 2 + usize::from(second);
        let kind = match self.choice % 17 {
            0 => Kind::Initial { address, data },
            1 => {
                Kind::Store { address, data, is_non_temporal: first, is_atomic64: second && data.len() == 64 }
            }
            2 => Kind::Rmw { address, data },
            3 => Kind::Flush { kind: flushes[which], address },
            4 => Kind::Fence(fences[which]),
            5 => Kind::Read { address, data },
            6 => block(BlockEvent::Write { offset: address, data, is_fua: first }),
            7 => block(BlockEvent::WriteZeroes { offset: address, len_bytes: 4096, is_fua: first }),
            8 => block(BlockEvent::Discard { offset: address, len_bytes: u64::MAX }),
            9 => block(BlockEvent::Flush),
            10 => block(BlockEvent::Completion { is_ok: first }),
            11 => Kind::Hypercall(Hypercall::Start),
            12 => Kind::Hypercall(Hypercall::Success),
            13 => Kind::Hypercall(Hypercall::Fail),
            14 => Kind::Hypercall(Hypercall::Checkpoint(address)),
            15 => Kind::DiskInitial { device: self.thread, offset: address, data },
            _ => Kind::Hypercall(Hypercall::Other { action: text, value: "" }),
        };
        Event {
            kind,
            origin: Origin { thread: self.thread, pc: self.pc, is_kernel, stack: self.stack.as_deref() },
        }
    }
}

fn owned() -> impl Strategy<Value = Owned> {
    let data = prop_oneof![prop::collection::vec(any::<u8>(), 0..70), Just(vec![7; 64]), Just(vec![0; 4096])];
    // Few threads and stacks, so that they come again.
    let stack =
        prop::option::of(prop::collection::vec(0xffff_ffff_8100_0000..0xffff_ffff_8100_0004u64, 0..3));
    let address = prop_oneof![any::<u64>(), 0x1_0000..0x1_1000u64];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (0..17u8, address, data, flags, 0..3u32, any::<Option<u64>>(), stack, "[a-zö]{0,9}").prop_map(
        |(choice, address, data, flags, thread, pc, stack, text)| Owned {
            choice,
            address,
            data,
            flags,
            thread,
            pc,
            stack,
            text,
        },
    )
}

fn write(events: &[Owned], frames_at: &[usize]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for (at, event) in events.iter().enumerate() {
        if frames_at.contains(&at) {
            writer.flush().unwrap();
        }
        writer.push(&event.event()).unwrap();
    }
    writer.finish().unwrap()
}

/// Reads until the end, or until something is wrong; how many events fit.
fn read(trace: &[u8], events: &[Owned]) -> Result<u64, TraceError> {
    let mut reader = Reader::new(trace)?;
    assert_eq!(reader.header(), &header());
    let mut count = 0;
    while let Some(event) = reader.next()? {
        assert_eq!(event, events[count].event(), "event {count}");
        count += 1;
    }
    assert_eq!((count, reader.count()), (events.len(), events.len() as u64));
    Ok(reader.count())
}

proptest! {
    #[test]
    fn events_go_there_and_back(
        events in prop::collection::vec(owned(), 0..60),
        frames_at in prop::collection::vec(0..60usize, 0..4),
    ) {
        let trace = write(&events, &frames_at);
        prop_assert_eq!(read(&trace, &events).unwrap(), events.len() as u64);
    }
}

fn sample() -> Vec<Owned> {
    let plain = Owned {
        choice: 1,
        address: 0x1_0040,
        data: b"hello".to_vec(),
        flags: (true, false, true),
        thread: 1,
        pc: Some(0x40_1000),
        stack: Some(vec![0x40_0f00, 0x40_0000]),
        text: "say".to_owned(),
    };
    (0..17).map(|choice| Owned { choice, ..plain.clone() }).collect()
}

#[test]
fn every_flip_and_every_cut_is_found_and_told_with_its_offset() {
    let events = sample();
    let trace = write(&events, &[7]);
    for bit in 0..trace.len() * 8 {
        let mut damaged = trace.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        match read(&damaged, &events) {
            Ok(_) => panic!("bit {bit} is not missed"),
            Err(TraceError::Damaged { offset, .. } | TraceError::CutOff { offset, .. }) => {
                assert!(offset <= trace.len() as u64 && offset + 600 > bit as u64 / 8, "bit {bit}: {offset}");
            }
            Err(TraceError::NotATrace { .. }) => assert!(bit < 64),
            Err(TraceError::Version { .. }) => assert!((64..80).contains(&bit)),
            Err(other) => panic!("bit {bit}: {other}"),
        }
    }
    for len in 0..trace.len() {
        match read(&trace[..len], &events) {
            Err(TraceError::CutOff { offset, .. }) => assert_eq!(offset, len as u64),
            Err(TraceError::NotATrace { .. }) => assert_eq!(len, 0),
            other => panic!("cut at {len}: {other:?}"),
        }
    }
    let mut longer = trace;
    longer.push(0);
    assert!(matches!(read(&longer, &events), Err(TraceError::Damaged { .. })));
}

#[test]
fn a_reader_sees_what_was_flushed_before_the_end_is_there() {
    let events = sample();
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    events.iter().for_each(|event| writer.push(&event.event()).unwrap());
    writer.flush().unwrap();
    let whole = write(&events, &[]);
    let trace = &whole[..whole.len() - 24];
    let mut reader = Reader::new(trace).unwrap();
    for _ in 0..events.len() {
        reader.next().unwrap().unwrap();
    }
    let error = reader.next().unwrap_err();
    assert!(matches!(error, TraceError::CutOff { offset, .. } if offset == trace.len() as u64), "{error}");
}

#[test]
fn repetition_costs_little() {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let stack = [0xffff_ffff_8100_0000, 0xffff_ffff_8100_1000, 0xffff_ffff_8100_2000];
    let origin = Origin { thread: 0, pc: Some(0xffff_ffff_8100_0010), is_kernel: true, stack: Some(&stack) };
    for at in 0..100_000u64 {
        let data = at.to_le_bytes();
        let kind = Kind::Store {
            address: 0x10_0000 + at * 8,
            data: &data,
            is_non_temporal: true,
            is_atomic64: false,
        };
        writer.push(&Event { kind, origin }).unwrap();
    }
    let trace = writer.finish().unwrap();
    assert!(trace.len() < 100_000 * 10, "{} bytes", trace.len());
    let mut reader = Reader::new(&trace[..]).unwrap();
    while let Some(event) = reader.next().unwrap() {
        assert_eq!(event.origin, origin);
    }
    assert_eq!(reader.count(), 100_000);
}

#[test]
fn what_no_trace_can_have_is_refused_by_the_writer() {
    let overlapping = Header {
        regions: vec![
            Region { name: "a".to_owned(), start: 0, len_bytes: 10 },
            Region { name: "b".to_owned(), start: 9, len_bytes: 10 },
        ],
        ..Header::default()
    };
    assert!(matches!(Writer::new(Vec::new(), &overlapping), Err(TraceError::Invalid { .. })));
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let long = vec![0; (64 << 10) + 1];
    let odd = Kind::Store { address: 0, data: &[0; 63], is_non_temporal: true, is_atomic64: true };
    let whole_disk = vec![0; (4 << 20) + 1];
    let disk = Kind::DiskInitial { device: 0, offset: 0, data: &whole_disk };
    for kind in [Kind::Rmw { address: 0, data: &long }, odd, disk] {
        assert!(matches!(writer.push(&Event::of(kind)), Err(TraceError::Invalid { number: 0, .. })));
    }
    let deep = Origin { stack: Some(&[0; 65]), ..Origin::default() };
    assert!(writer.push(&Event { kind: Kind::Fence(FenceKind::Sfence), origin: deep }).is_err());
    writer.push(&Event::of(Kind::Fence(FenceKind::Sfence))).unwrap();
    assert_eq!(writer.count(), 1);
}

/// `docs/trace-format.md` decodes these bytes by hand.
#[test]
fn golden_bytes() {
    let region = Region { name: "pm".to_owned(), start: 4096, len_bytes: 8192 };
    let header = Header { tool: "t".to_owned(), regions: vec![region], devices: Vec::new() };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    let origin = Origin { thread: 2, pc: Some(100), ..Origin::default() };
    let kind = Kind::Store { address: 4096, data: &[9, 8], is_non_temporal: true, is_atomic64: false };
    writer.push(&Event { kind, origin }).unwrap();
    writer.push(&Event { kind: Kind::Fence(FenceKind::Mfence), origin }).unwrap();
    let trace = writer.finish().unwrap();
    let text: String = trace.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, GOLDEN.replace(char::is_whitespace, ""));
}

const GOLDEN: &str = "
    465354524143450a 0100 000000000000
    00 00 0000 0b000000 0b000000 0000000000000000 33a937e4
      01 74 01 02 706d 8020 8040 00
    01 00 0000 0d000000 0d000000 0000000000000000 f1c9cc3a
      01 31 02 c801 8040 02 0908
      04 21 00
    02 00 0000 00000000 00000000 0200000000000000 0a433a40";
