//! A driver of others against the server: requests of all kinds and sizes, many at once, errors.

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use fastness_vhost_user::{DiskError, Options, Polling};
use support::{Bench, Ram, all_features};
use virtio_driver::{VirtioBlkFeatureFlags, VirtioFeatureFlags};

const MIB: usize = 1 << 20;

#[test]
fn what_is_written_is_read_again_and_durable_after_a_flush() {
    let bench = Bench::new(Ram::new(16 * MIB));
    let mut driver = bench.driver(all_features(), 1, 128);
    let config = driver.transport.get_config().unwrap();
    assert_eq!(u64::from(config.capacity), 16 * MIB as u64 / 512);
    for (at, len) in [(0, 512), (512, 4096), (8 * MIB as u64, 3 * MIB + 512), (16 * MIB as u64 - 512, 512)] {
        assert_eq!(driver.write(at, at as u8 + 7, len), 0);
        assert_eq!(driver.read(at, len).unwrap(), vec![at as u8 + 7; len], "{len} bytes at {at}");
    }
    assert_eq!(bench.disk.durable.lock().unwrap()[512], 0, "nothing was flushed yet");
    assert_eq!(driver.flush(), 0);
    assert_eq!(bench.disk.durable.lock().unwrap()[512], 7);
}

#[test]
fn without_flushes_each_change_is_durable() {
    let bench = Bench::new(Ram::new(MIB));
    let features = all_features() & !VirtioBlkFeatureFlags::FLUSH.bits();
    let mut driver = bench.driver(features, 1, 128);
    assert_eq!(driver.write(4096, 9, 4096), 0);
    assert_eq!(bench.disk.durable.lock().unwrap()[4096..8192], [9; 4096]);
    driver.queues[0].discard(4096, 1024, 1).unwrap();
    assert_eq!(driver.answers(0, 1), [(1, 0)]);
    driver.queues[0].write_zeroes(7168, 1024, true, 2).unwrap();
    assert_eq!(driver.answers(0, 1), [(2, 0)]);
    let zeroes = [0; 1024];
    let durable = bench.disk.durable.lock().unwrap();
    assert!(
        durable[4096..5120] == zeroes && durable[7168..8192] == zeroes && durable[5120..7168] == [9; 2048]
    );
}

#[test]
fn it_works_without_indirect_descriptors_and_event_indices() {
    let bench = Bench::new(Ram::new(MIB));
    let ring = VirtioFeatureFlags::RING_EVENT_IDX | VirtioFeatureFlags::RING_INDIRECT_DESC;
    for without in [ring.bits(), VirtioFeatureFlags::RING_EVENT_IDX.bits(), 1 << 28] {
        let mut driver = bench.driver(all_features() & !without, 1, 16);
        for round in 0..300 {
            assert_eq!(driver.write(round % 7 * 4096, round as u8, 4096), 0);
            assert_eq!(driver.read(round % 7 * 4096, 4096).unwrap(), [round as u8; 4096]);
        }
    }
}

#[test]
fn errors_reach_the_driver() {
    let bench = Bench::new(Ram::new(MIB));
    let mut driver = bench.driver(all_features(), 1, 128);
    assert!(driver.write(MIB as u64, 1, 512) < 0, "past the end");
    assert!(driver.write(MIB as u64 - 512, 1, 1024) < 0, "across the end");
    assert!(driver.read(u64::MAX / 512 * 512, 512).is_err());
    assert!(driver.write(0, 1, 100) < 0, "no whole sectors");
    *bench.disk.fails.lock().unwrap() = Some(DiskError::Io);
    assert_eq!(driver.write(0, 1, 512), -libc::EIO);
    assert_eq!(driver.flush(), -libc::EIO);
    *bench.disk.fails.lock().unwrap() = Some(DiskError::Unsupported);
    assert_eq!(driver.write(0, 1, 512), -libc::ENOTSUP);
    *bench.disk.fails.lock().unwrap() = None;
    assert_eq!(driver.write(0, 1, 512), 0);
}

#[test]
fn a_read_only_disk_refuses_changes() {
    let bench = Bench::new(Ram { is_read_only: true, ..Ram::new(MIB) });
    let mut driver = bench.driver(all_features(), 1, 128);
    assert_eq!(driver.write(0, 1, 512), -libc::EIO);
    assert_eq!(driver.read(0, 512).unwrap(), [0; 512]);
}

#[test]
fn ranges_are_discarded_and_zeroed() {
    let bench = Bench::new(Ram::new(MIB));
    let mut driver = bench.driver(all_features(), 1, 128);
    assert_eq!(driver.write(0, 5, 16384), 0);
    driver.queues[0].write_zeroes(4096, 8192, true, 1).unwrap();
    assert_eq!(driver.answers(0, 1), [(1, 0)]);
    let seen = driver.read(0, 16384).unwrap();
    assert!(seen[..4096].iter().chain(&seen[12288..]).all(|byte| *byte == 5));
    assert!(seen[4096..12288].iter().all(|byte| *byte == 0));
    driver.queues[0].discard(8192, 4096, 2).unwrap();
    assert_eq!(driver.answers(0, 1), [(2, 0)]);
    assert_eq!(*bench.disk.discards.lock().unwrap(), [(8192, 4096)]);
    driver.queues[0].discard(MIB as u64, 4096, 3).unwrap();
    assert_eq!(driver.answers(0, 1), [(3, -libc::EIO)]);
}

/// Of the server, by kind: requests, bytes, errors, how many were timed.
fn counted(bench: &Bench, request: &str) -> (u64, u64, u64, u64) {
    let stats = bench.server.stats();
    let of = stats.iter().find(|of| of.request == request);
    of.map_or((0, 0, 0, 0), |of| {
        let timed = of.counts.latencies.iter().map(|bucket| bucket.count()).sum();
        (of.counts.ops, of.counts.bytes, of.counts.errors, timed)
    })
}

#[test]
fn each_request_is_counted_with_its_bytes_and_errors_before_it_is_answered() {
    let bench = Bench::new(Ram::new(MIB));
    assert!(bench.server.stats().is_empty());
    let mut driver = bench.driver(all_features(), 2, 128);
    for round in 0..33 {
        assert_eq!(driver.write(round * 4096, 1, 4096), 0);
        assert_eq!(counted(&bench, "write").0, round + 1);
    }
    assert!(driver.write(MIB as u64, 1, 512) < 0);
    driver.submit(1, 0, 0, 1, 512, 5);
    assert_eq!(driver.answers(1, 1), [(5, 0)]);
    assert_eq!(driver.read(0, 8192).unwrap().len(), 8192);
    for _ in 0..3 {
        assert_eq!(driver.flush(), 0);
    }
    driver.queues[0].write_zeroes(4096, 8192, true, 1).unwrap();
    assert_eq!(driver.answers(0, 1), [(1, 0)]);
    driver.queues[0].discard(8192, 4096, 2).unwrap();
    assert_eq!(driver.answers(0, 1), [(2, 0)]);
    // Of one queue 34 writes, of the other one: one in 16 of each.
    let seen = ["read", "write", "flush", "write_zeroes", "discard", "get_id", "unknown"];
    let seen = seen.map(|request| counted(&bench, request));
    let writes = (35, 33 * 4096 + 512, 1, 4);
    let others = [(1, 8192, 0, 1), writes, (3, 0, 0, 3), (1, 8192, 0, 1), (1, 4096, 0, 1)];
    assert_eq!(seen[..5], others);
    assert_eq!(seen[5..], [(0, 0, 0, 0); 2]);
    // The next front end's are added.
    drop(driver);
    assert_eq!(bench.driver(all_features(), 1, 128).flush(), 0);
    assert_eq!(counted(&bench, "flush"), (4, 0, 0, 4));
}

#[test]
fn a_latency_includes_the_wait_for_a_thread() {
    let bench = Bench::new(Ram::new(MIB));
    let mut driver = bench.driver(all_features(), 1, 256);
    *bench.disk.pause.lock().unwrap() = Duration::from_millis(5);
    // The first ones teach it; then four times as many as there are threads.
    for _ in 0..32 {
        assert_eq!(driver.write(0, 1, 512), 0);
    }
    for slot in 0..80 {
        driver.submit(0, slot as u64 * 512, slot * 512, slot as u8, 512, slot);
    }
    assert_eq!(driver.answers(0, 80).len(), 80);
    let stats = bench.server.stats();
    let [writes] = &stats[..] else { panic!("{stats:?}") };
    assert_eq!(writes.counts.ops, 112);
    let longest = writes.counts.latencies.iter().filter(|bucket| bucket.count() > 0).last().unwrap().end();
    assert!(longest >= 15_000_000, "{longest} ns");
    assert!(writes.counts.latency_ns_sum >= longest);
}

#[test]
fn many_requests_on_several_queues_all_have_an_answer() {
    let bench = Bench::new(Ram::new(16 * MIB));
    let mut driver = bench.driver(all_features(), 4, 64);
    for round in 0..200_usize {
        for queue in 0..4 {
            for slot in 0..16 {
                let block = queue * 16 + slot;
                let byte = (round * 3 + block) as u8;
                driver.submit(queue, block as u64 * 4096, block * 4096, byte, 4096, block);
            }
            driver.kick(queue);
        }
        for queue in 0..4 {
            let mut answers = driver.answers(queue, 16);
            answers.sort_unstable();
            let expected: Vec<_> = (queue * 16..queue * 16 + 16).map(|block| (block, 0)).collect();
            assert_eq!(answers, expected);
        }
        let bytes = bench.disk.bytes.read().unwrap();
        for block in 0..64 {
            assert_eq!(bytes[block * 4096 + round], (round * 3 + block) as u8);
        }
    }
}

#[test]
fn slow_requests_are_carried_out_beside_each_other() {
    let bench = Bench::new(Ram::new(MIB));
    let mut driver = bench.driver(all_features(), 1, 64);
    *bench.disk.pause.lock().unwrap() = Duration::from_millis(3);
    // The first ones teach it.
    for _ in 0..32 {
        assert_eq!(driver.write(0, 1, 512), 0);
    }
    for slot in 0..16 {
        driver.submit(0, slot as u64 * 512, slot * 512, slot as u8, 512, slot);
    }
    assert_eq!(driver.answers(0, 16).len(), 16);
    assert!(bench.disk.most.load(Ordering::SeqCst) > 4, "{:?}", bench.disk.most);
    for slot in 0..16 {
        assert_eq!(bench.disk.bytes.read().unwrap()[slot * 512], slot as u8);
    }
}

#[test]
fn a_thread_that_never_looks_is_woken_by_kicks() {
    let polling = Polling { longest: Duration::ZERO, vain_percent: 0 };
    let bench = Bench::with(Ram::new(MIB), Options { polling, ..Options::default() });
    let mut driver = bench.driver(all_features(), 1, 128);
    for round in 0..500_u64 {
        assert_eq!(driver.write(round % 100 * 512, round as u8, 512), 0);
    }
}

#[test]
fn drivers_come_one_after_the_other() {
    let bench = Bench::new(Ram::new(MIB));
    for round in 0..5 {
        let mut driver = bench.driver(all_features(), 2, 32);
        assert_eq!(driver.write(0, round, 4096), 0);
    }
    assert_eq!(bench.disk.bytes.read().unwrap()[0], 4);
    assert!(bench.notes.lock().unwrap().is_empty(), "{:?}", bench.notes);
}

#[test]
fn memory_that_is_cut_short_ends_the_queue_and_not_the_process() {
    let bench = Bench::new(Ram::new(MIB));
    let mut driver = bench.driver(all_features(), 1, 128);
    assert_eq!(driver.write(0, 1, 4096), 0);
    driver.cut();
    driver.queues[0].write(0, bench_data(), 1).unwrap();
    driver.kick(0);
    let begun = std::time::Instant::now();
    while bench.notes.lock().unwrap().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing was noted");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(driver);
    assert_eq!(bench.driver(all_features(), 1, 128).write(0, 3, 512), 0);
}

/// Bytes that no device can reach.
fn bench_data() -> &'static [u8] {
    static DATA: [u8; 4096] = [7; 4096];
    &DATA
}
