use super::*;

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use crate::gate::NoDma;
use crate::model::{EngineFault, SimulatedQueue};
use crate::{ErrorKind, MsyncMode, OpenOptions, PmRange, Region};

const LEN: usize = 64 * 1024;
const CANARY: u8 = 0xa5;

fn range() -> PmRange {
    let mut range = Region::anonymous(LEN as u64).unwrap().into_range();
    range.copy(0, &[CANARY; LEN], LEN, &mut NoSum);
    range
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn contents(range: &PmRange) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    range.read(0, &mut bytes).unwrap();
    bytes
}

fn engine(transfer_bytes_max: usize) -> (Engine, Arc<SimulatedQueue>) {
    let queue = Arc::new(SimulatedQueue::new(2, transfer_bytes_max, None));
    (Engine { answer_max: Duration::from_millis(50), ..Engine::new(queue.clone()) }, queue)
}

/// What a write of `src` at `offset` leaves.
fn expected(offset: usize, src: &[u8]) -> Vec<u8> {
    let mut bytes = vec![CANARY; LEN];
    let end = offset + src.len().next_multiple_of(LINE_BYTES);
    bytes[offset..end].fill(0);
    bytes[offset..offset + src.len()].copy_from_slice(src);
    bytes
}

#[test]
fn an_engine_stores_what_a_copy_does() {
    let (engine, _queue) = engine(8192);
    for (offset, len) in [(0, 4096), (64, 4100), (4096, 20_000), (128, 0), (LEN - 8192, 8192), (0, 63)] {
        let (mut range, src) = (range(), pattern(len));
        engine.write(&mut range, offset, &src).unwrap();
        assert!(contents(&range) == expected(offset, &src), "{len} bytes at {offset}");
    }
    assert_eq!(engine.counts(), (1 + 1 + 3 + 1, 0));
}

/// Whatever the engine does but to be silent, the bytes are there.
#[test]
fn what_an_engine_does_not_do_the_cpu_does() {
    use EngineFault::{Full, PageAfter, Refused, Status};
    let always_full = vec![Full; 2 * TRIES as usize];
    let cases: [(&[EngineFault], u64); 7] = [
        (&[Full, Full], 0),
        (&always_full, 2),
        (&[Refused], 1),
        (&[PageAfter(0)], 1),
        (&[PageAfter(4000), PageAfter(100)], 2),
        (&[Status(0x1a)], 1),
        (&[PageAfter(u32::MAX)], 1),
    ];
    for (faults, redone) in cases {
        let (engine, queue) = engine(8192);
        queue.fail(faults);
        let (mut range, src) = (range(), pattern(16_384));
        engine.write(&mut range, 1024, &src).unwrap();
        assert!(contents(&range) == expected(1024, &src), "{faults:?}");
        assert_eq!(engine.counts(), (2, redone), "{faults:?}");
    }
}

/// It may store at any time from then on, to memory that is nobody else's.
#[test]
fn an_engine_that_does_not_answer_costs_the_region() {
    let (engine, queue) = engine(8192);
    queue.fail(&[EngineFault::Silent]);
    let (mut range, src) = (range(), pattern(8192));
    let error = engine.write(&mut range, 4096, &src).unwrap_err();
    assert_eq!((error.source.kind(), error.start, error.end), (io::ErrorKind::TimedOut, 4096, 12_288));
    assert_eq!(error.kind(), ErrorKind::MediaFailed);
    assert!(range.is_poisoned());
    let lost = range.fence().unwrap_err();
    let why = lost.source.to_string();
    assert!(why.contains("a DMA engine does not answer") && why.ends_with("offset 0x1000"), "{why}");
    assert!(engine.write(&mut range, 0, &src).is_err(), "nothing is acknowledged any more");
    assert_eq!(engine.counts().0, 1, "and nothing is given to the engine");
    drop(range);
    // Would be a fault, or somebody else's memory, had the mapping been let go of.
    queue.do_late();
    // Another region is not affected, by the CPU.
    let mut other = self::range();
    engine.write(&mut other, 0, &src).unwrap();
    assert!(contents(&other) == expected(0, &src));
}

/// Where fences call `msync`, the bytes of an engine are in the span as well.
#[test]
fn what_an_engine_stored_is_synced() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let spans = Arc::new(Mutex::new(Vec::new()));
    let synced = spans.clone();
    let options = OpenOptions::new().msync(MsyncMode::Always).testing_msync_hook(Arc::new(move |span| {
        synced.lock().unwrap().push(span);
        Ok(())
    }));
    let region = Region::create_file(dir.path().join("pm"), LEN as u64, &options).unwrap();
    let (engine, _queue) = engine(4096);
    engine.write(&mut region.into_range(), 8192, &pattern(12_000)).unwrap();
    let spans = spans.lock().unwrap();
    assert_eq!((spans.len(), &spans[0]), (1, &(8192..8192 + 12_032)));
}

/// A medium that is not mapped: all of it is the CPU's.
#[test]
fn without_an_address_the_cpu_does_it() {
    struct Unmapped(PmRange);
    impl Medium for Unmapped {
        fn len_bytes(&self) -> usize {
            self.0.len_bytes()
        }
        fn region_offset(&self) -> u64 {
            self.0.region_offset()
        }
        fn copy<S: crate::Summer>(&mut self, offset: usize, src: &[u8], extent_bytes: usize, summer: &mut S) {
            self.0.copy(offset, src, extent_bytes, summer);
        }
        fn write_back(&mut self, offset: usize, len_bytes: usize) {
            self.0.write_back(offset, len_bytes);
        }
        fn fence(&mut self) -> Result<(), PersistError> {
            self.0.fence()
        }
        fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), crate::ReadError> {
            self.0.read(offset, dst)
        }
        fn copy_side(&mut self, side: usize, offset: usize, src: &[u8], extent_bytes: usize) {
            self.0.copy_side(side, offset, src, extent_bytes);
        }
    }
    let (engine, _queue) = engine(4096);
    let (mut medium, src) = (Unmapped(range()), pattern(9000));
    engine.write(&mut medium, 0, &src).unwrap();
    assert!(contents(&medium.0) == expected(0, &src));
    assert_eq!(engine.counts(), (0, 0));
}

fn found_in(files: &[(&str, &str)], device: Option<&str>) -> Result<DsaQueue, NoDma> {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join("bus/dsa/devices").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fs::create_dir_all(dir.path().join("dsa")).unwrap();
    if let Some(device) = device {
        std::os::unix::fs::symlink(device, dir.path().join("dsa/wq0.1")).unwrap();
    }
    DsaQueue::find_in(dir.path(), dir.path())
}

#[test]
fn an_engine_that_is_not_there_is_refused_with_the_reason() {
    const QUEUES: [(&str, &str); 5] = [
        ("dsa0/state", "enabled"),
        ("wq0.0/state", "enabled\n"),
        ("wq0.0/type", "kernel\n"),
        ("wq0.1/state", "enabled\n"),
        ("wq0.1/type", "user\n"),
    ];
    assert!(matches!(found_in(&[], None), Err(NoDma::NoEngine { .. })));
    assert!(matches!(found_in(&QUEUES[..3], None), Err(NoDma::NoQueue { queues: 1, .. })));
    assert!(matches!(found_in(&QUEUES, None), Err(NoDma::Open { .. })));
    let refuses = found_in(&QUEUES, Some("/dev/full")).unwrap_err();
    assert!(matches!(refuses, NoDma::Refuses { .. }), "{refuses}");
    let silent = found_in(&QUEUES, Some("/dev/null")).unwrap_err();
    assert!(silent.to_string().contains("no answer"), "{silent}");
    assert_eq!((refuses.kind(), silent.kind()), (ErrorKind::Invalid, ErrorKind::MediaFailed));
    if !Path::new("/sys/bus/dsa").exists() {
        let none = DsaQueue::find().unwrap_err();
        assert!(none.to_string().contains("no DSA"), "{none}");
    }
}
