//! Threads that write, read, zero and flush beside the cleaner, on real memory, judged by `fastness-history`;
//! then the process "dies", and what the next opening leaves is judged as well.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fastness_history::{Clock, End, History, Operation, What, WriteId, stamp};
use fastness_pmem::{MsyncMode, OpenOptions, PmRange, Region};
use fastness_testkit::Rng;
use fastness_wcache::*;

const ORIGIN_BYTES: u64 = 1 << 20;
const REGION_BYTES: u64 = 1 << 20;

/// Emulated: no write waits for the disk.
fn emulated() -> OpenOptions {
    OpenOptions::new().msync(MsyncMode::Never)
}

fn parts(pm: &Path) -> Parts<PmRange> {
    let region = Region::open(pm, &emulated()).unwrap();
    let view = Region::join(region.descriptor().unwrap(), &emulated()).unwrap().into_range();
    let geometry = Geometry::dividing(REGION_BYTES, Some(32 << 10)).unwrap();
    Parts::divide(region.into_range(), view, geometry).unwrap()
}

fn client(cache: &Cache<PmRange>, history: &History, clock: &Clock, connection: u32) -> Vec<Operation> {
    let mut rng = Rng(u64::from(connection) * 77);
    let mut operations = Vec::new();
    for number in 0..600 {
        let id = WriteId { connection, number };
        let start = rng.below(120) as u32 * if rng.one_in(3) { 8 } else { 1 };
        let most = rng.pick(&[4, 8, 8, 64, 500]);
        let sectors = start..(start + 1 + rng.below(most) as u32).min((ORIGIN_BYTES / 512) as u32);
        let (offset, len) = (u64::from(sectors.start) * 512, sectors.len() * 512);
        let call = clock.tick();
        let what = match rng.below(10) {
            0..5 => {
                let mut data = vec![0; len];
                stamp::fill(&mut data, id, history.place(sectors.start));
                cache.write(offset, &data).unwrap();
                What::Write
            }
            5 => {
                cache.write_zeroes(offset, len as u64, false).unwrap();
                What::Zeroes
            }
            6 => {
                cache.write_zeroes(offset, len as u64, true).unwrap();
                What::Trim
            }
            _ => {
                let mut data = vec![0; len];
                cache.read(offset, &mut data).unwrap();
                let seen = data.chunks_exact(512).zip(sectors.clone());
                What::Read(seen.map(|(bytes, sector)| stamp::read(bytes, history.place(sector))).collect())
            }
        };
        let end = End::Acknowledged(clock.tick());
        operations.push(Operation { id, what, sectors, is_sync: true, call, end });
    }
    operations
}

#[test]
fn clients_beside_the_cleaner_see_and_keep_what_was_written() {
    // Not in memory: a block of a file there is a page.
    let folder = tempfile::tempdir().unwrap();
    let (pm, disk) = (folder.path().join("pm"), folder.path().join("disk"));
    std::fs::write(&disk, vec![0; ORIGIN_BYTES as usize]).unwrap();
    drop(Region::create_file(&pm, REGION_BYTES, &emulated()).unwrap());
    let origin = || Box::new(FileOrigin::new(&disk));
    let options = Options::new().period(Duration::from_millis(2)).committers(3);
    let mut history = History::new(1, 0, ORIGIN_BYTES);
    let clock = Clock::default();
    for round in 0..4 {
        let cache = match round {
            0 => Cache::create(parts(&pm), origin(), &options).unwrap(),
            _ => Cache::open(parts(&pm), origin(), &options).unwrap().0,
        };
        let cache = Arc::new(cache);
        let mut bytes = vec![0; ORIGIN_BYTES as usize];
        cache.read(0, &mut bytes).unwrap();
        let findings = history.look(0, &bytes);
        assert!(findings.is_empty(), "{findings:#?}");
        let cleaner = Cleaner::start(&cache);
        let operations = std::thread::scope(|scope| {
            let (cache, history, clock) = (&*cache, &history, &clock);
            let clients: Vec<_> = (0..4)
                .map(|at| scope.spawn(move || client(cache, history, clock, 1 + round * 4 + at)))
                .collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect::<Vec<_>>()
        });
        let status = cache.status();
        assert!(status.write_backs > 0 && status.log_read_bytes > 0, "{status:?}");
        // The process ends without a flush.
        drop(cleaner);
        drop(cache);
        let findings = history.add(operations);
        assert!(findings.is_empty(), "{findings:#?}");
        history.restart();
    }
    let (cache, _) = Cache::open(parts(&pm), origin(), &options).unwrap();
    cache.detach().unwrap();
    let findings = history.look(0, &std::fs::read(&disk).unwrap());
    assert!(findings.is_empty(), "{findings:#?}");
}
