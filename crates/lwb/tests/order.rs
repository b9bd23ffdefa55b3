//! Writes and flushes that end in an order of the test's choosing: who is acknowledged when.

mod support;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use fastness_blkdev::{FaultPlan, MemImage};
use fastness_lwb::{CommitError, Log, Lsn, Options, Txg};
use support::*;

const QUIET: Duration = Duration::from_millis(60);

struct Bench {
    gate: Gate,
    log: Arc<Log<Gate>>,
    disk: Disk,
    header: fastness_lwb::Header,
}

/// A commit on a thread of its own.
struct Committer(Receiver<Result<(), CommitError>>);

impl Committer {
    fn is_waiting(&self) -> bool {
        self.0.recv_timeout(QUIET).is_err()
    }

    fn result(&self) -> Result<(), CommitError> {
        self.0.recv_timeout(Duration::from_secs(20)).expect("the commit ends")
    }
}

impl Bench {
    fn new() -> Bench {
        Bench::with_flushes(2)
    }

    /// With so many flushes at a time.
    fn with_flushes(flushes_max: u32) -> Bench {
        Bench::on_a_disk_of(1 << 20, flushes_max)
    }

    fn on_a_disk_of(len_bytes: u64, flushes_max: u32) -> Bench {
        let disk = disk(MemImage::zeroed(len_bytes), FaultPlan::new(0));
        let gate = Gate::new(space(&disk));
        let log = Log::new(
            gate.clone(),
            Txg(1),
            Options { block_bytes_max: 4096, flushes_max, ..Options::default() },
        );
        log.start();
        let header = log.sync_header(Txg(2));
        log.synced(Txg(2));
        Bench { gate, log: Arc::new(log), disk, header }
    }

    fn commit(&self, bytes: &[u8]) -> Committer {
        let lsn = self.log.append(Txg(3), bytes);
        self.commit_upto(lsn)
    }

    /// Twenty records, of which a thread that commits up to the first of `upto` has to write two groups of
    /// blocks, and has written one; another waits for its commit up to the second.
    fn write_first_group(&self, upto: [Lsn; 2]) -> [Committer; 2] {
        (0..20).for_each(|_| _ = self.log.append(Txg(3), &[1; 3700]));
        let writer = self.commit_upto(upto[0]);
        self.gate.began(0, Write);
        let waiter = self.commit_upto(upto[1]);
        assert!(waiter.is_waiting());
        (0..16).for_each(|number| {
            self.gate.began(number, Write);
            self.gate.end(number, true);
        });
        [writer, waiter]
    }

    fn commit_upto(&self, lsn: Lsn) -> Committer {
        let (log, (tell, hear)) = (Arc::clone(&self.log), channel());
        std::thread::spawn(move || tell.send(log.commit(lsn)));
        Committer(hear)
    }

    /// Records that a crash now leaves for certain.
    fn durable(&self) -> usize {
        let count = |seed| {
            let image = self.disk.crash(seed).unwrap();
            recover(&image, &self.header, Txg(3)).unwrap().records.len()
        };
        (0..40).map(count).min().unwrap()
    }
}

use Kind::{Flush, Write};

#[test]
fn a_block_is_not_acknowledged_before_the_one_before() {
    let bench = Bench::new();
    let first = bench.commit(b"first");
    bench.gate.began(0, Write);
    let second = bench.commit(b"second");
    bench.gate.began(1, Write);
    bench.gate.end(1, true);
    assert!(second.is_waiting() && bench.gate.count() == 2, "not even flushed: the first is not written");
    bench.gate.end(0, true);
    bench.gate.began(2, Flush);
    assert!(first.is_waiting() && second.is_waiting());
    assert_eq!(bench.durable(), 0);
    bench.gate.end(2, true);
    first.result().unwrap();
    second.result().unwrap();
    assert_eq!((bench.durable(), bench.gate.count()), (2, 3), "one flush for both");
}

#[test]
fn a_waiter_waits_for_its_block_and_not_for_later_ones() {
    let bench = Bench::new();
    let first = bench.commit(b"first");
    bench.gate.began(0, Write);
    let second = bench.commit(b"second");
    bench.gate.began(1, Write);
    bench.gate.end(0, true);
    bench.gate.began(2, Flush);
    bench.gate.end(2, true);
    first.result().unwrap();
    assert!(second.is_waiting());
    bench.gate.end(1, true);
    bench.gate.began(3, Flush);
    assert!(second.is_waiting());
    bench.gate.end(3, true);
    second.result().unwrap();
}

#[test]
fn a_flush_does_not_acknowledge_what_was_written_while_it_ran() {
    let bench = Bench::new();
    let first = bench.commit(b"first");
    bench.gate.began(0, Write);
    bench.gate.end(0, true);
    bench.gate.began(1, Flush);
    let second = bench.commit(b"second");
    bench.gate.began(2, Write);
    bench.gate.end(2, true);
    bench.gate.end(1, true);
    first.result().unwrap();
    bench.gate.began(3, Flush);
    assert!(second.is_waiting(), "its own flush has not ended");
    bench.gate.end(3, true);
    second.result().unwrap();
}

/// With one flush at a time, whoever waits for blocks written meanwhile makes the next, once, for all.
#[test]
fn blocks_written_during_the_only_flush_are_flushed_after_it() {
    let bench = Bench::with_flushes(1);
    let first = bench.commit(b"first");
    bench.gate.began(0, Write);
    bench.gate.end(0, true);
    bench.gate.began(1, Flush);
    let second = bench.commit(b"second");
    bench.gate.began(2, Write);
    let third = bench.commit(b"third");
    bench.gate.began(3, Write);
    bench.gate.end(3, true);
    bench.gate.end(2, true);
    assert!(second.is_waiting() && third.is_waiting() && bench.gate.count() == 4);
    bench.gate.end(1, true);
    first.result().unwrap();
    bench.gate.began(4, Flush);
    bench.gate.end(4, true);
    second.result().unwrap();
    third.result().unwrap();
    assert_eq!(bench.gate.count(), 5);
}

/// Of two flushes under way the later one ends first, and well: that is enough for all that it began with.
/// The earlier one fails: nothing later is acknowledged.
#[test]
fn a_later_flush_serves_what_an_earlier_one_is_still_at() {
    let bench = Bench::new();
    let first = bench.commit(b"first");
    bench.gate.began(0, Write);
    bench.gate.end(0, true);
    bench.gate.began(1, Flush);
    let second = bench.commit(b"second");
    bench.gate.began(2, Write);
    bench.gate.end(2, true);
    bench.gate.began(3, Flush);
    bench.gate.end(3, true);
    second.result().unwrap();
    let third = bench.commit(b"third");
    bench.gate.began(4, Write);
    bench.gate.end(4, true);
    bench.gate.began(5, Flush);
    bench.gate.end(1, false);
    first.result().expect("the second flush has served it");
    assert!(third.is_waiting(), "its own flush has not ended");
    bench.gate.end(5, true);
    assert!(matches!(third.result(), Err(CommitError::Flush { seq, .. }) if seq.0 == 3));
    assert_eq!(bench.durable(), 3);
}

#[test]
fn one_flush_serves_all_blocks_written_before_it() {
    let bench = Bench::new();
    let first = bench.commit(b"first");
    bench.gate.began(0, Write);
    let others: Vec<_> = (1..5)
        .map(|number| {
            let committer = bench.commit(b"another");
            bench.gate.began(number, Write);
            committer
        })
        .collect();
    (1..5).rev().for_each(|number| bench.gate.end(number, true));
    // The others note the end of their writes a moment after it.
    assert!(first.is_waiting() && bench.gate.count() == 5);
    bench.gate.end(0, true);
    bench.gate.began(5, Flush);
    bench.gate.end(5, true);
    first.result().unwrap();
    others.iter().for_each(|other| other.result().unwrap());
    assert_eq!(bench.gate.count(), 6);
}

/// A commit with nothing new waits for the block that has the last record, whoever put it there; scenario 2.
#[test]
fn a_commit_of_old_records_shares_their_fate() {
    for well in [true, false] {
        let bench = Bench::new();
        let first = bench.commit(b"first");
        bench.gate.began(0, Write);
        let again = bench.commit_upto(Lsn(1));
        let all = bench.commit_upto(Lsn(u64::MAX));
        assert!(again.is_waiting() && all.is_waiting() && bench.gate.count() == 1);
        bench.gate.end(0, well);
        if well {
            bench.gate.began(1, Flush);
            bench.gate.end(1, true);
        }
        for committer in [first, again, all] {
            assert_eq!(committer.result().is_ok(), well);
        }
        assert_eq!(bench.log.commit(Lsn(1)).is_ok(), well, "and so it stays");
    }
}

/// Scenarios 1 and 4: block N fails while N + 1 lands; nothing after N is acknowledged, what is before N is.
#[test]
fn a_write_error_reaches_every_waiter_of_its_block_and_of_all_later_ones() {
    let bench = Bench::new();
    let first = bench.commit(b"first");
    bench.gate.began(0, Write);
    let lsn = bench.log.append(Txg(3), b"second");
    let second: Vec<_> = (0..3).map(|_| bench.commit_upto(lsn)).collect();
    bench.gate.began(1, Write);
    let third = bench.commit(b"third");
    bench.gate.began(2, Write);
    bench.gate.end(2, true);
    bench.gate.end(1, false);
    for committer in second.iter().chain([&third]) {
        let error = committer.result().unwrap_err();
        assert!(matches!(error, CommitError::Write { seq, .. } if seq.0 == 2), "{error:?}");
        assert_eq!(error.kind(), fastness_blkdev::ErrorKind::MediaFailed);
    }
    assert!(first.is_waiting());
    bench.gate.end(0, true);
    bench.gate.began(3, Flush);
    bench.gate.end(3, true);
    first.result().unwrap();
    assert!(bench.log.commit(lsn).is_err() && bench.commit(b"fourth").result().is_err());
    assert_eq!((bench.durable(), bench.gate.count()), (1, 4));
}

/// Scenario 3: a good write, a bad flush: no acknowledgement, for nobody after either.
#[test]
fn a_flush_error_reaches_every_waiter() {
    let bench = Bench::new();
    let first = bench.commit(b"first");
    bench.gate.began(0, Write);
    bench.gate.end(0, true);
    bench.gate.began(1, Flush);
    let second = bench.commit(b"second");
    bench.gate.began(2, Write);
    bench.gate.end(1, false);
    let is_told = |committer: &Committer| {
        let error = committer.result().unwrap_err();
        assert!(matches!(error, CommitError::Flush { seq, .. } if seq.0 == 1), "{error:?}");
    };
    is_told(&first);
    bench.gate.end(2, true);
    is_told(&second);
    assert!(bench.log.commit(Lsn(1)).is_err());
}

/// A write that is under way may not hit whoever gets its place next.
#[test]
fn no_chain_replaces_one_with_a_write_under_way() {
    let bench = Bench::new();
    let first = bench.commit(b"first");
    bench.gate.began(0, Write);
    let second = bench.commit(b"second");
    bench.gate.began(1, Write);
    bench.gate.end(0, false);
    assert!(first.result().is_err());
    let held = bench.log.extents();
    assert_eq!(bench.log.sync_header(Txg(3)), bench.header, "the old chain stays");
    bench.log.synced(Txg(3));
    assert_eq!(bench.log.extents(), held);
    bench.gate.end(1, true);
    assert!(second.result().is_err());
    bench.log.sync_header(Txg(4));
    bench.log.synced(Txg(4));
    assert!(bench.log.status().is_up);
    bench.gate.open();
    let lsn = bench.log.append(Txg(5), b"third");
    bench.log.commit(lsn).unwrap();
}

/// Scenario 7: whoever waits in an open block is told; whose write is under way is acknowledged.
#[test]
fn a_stop_ends_open_blocks_and_lets_writes_finish() {
    let bench = Bench::new();
    let first = bench.commit(b"first");
    bench.gate.began(0, Write);
    bench.log.append(Txg(3), b"never committed");
    bench.log.stop();
    assert!(matches!(bench.log.commit(Lsn(2)), Err(CommitError::Stopped)));
    bench.gate.end(0, true);
    bench.gate.began(1, Flush);
    bench.gate.end(1, true);
    first.result().unwrap();
    // The acknowledged record is of txg 3: the chain stays until that has synced.
    assert!(matches!(bench.log.sync_header(Txg(2)), fastness_lwb::Header::Logging(_)));
    bench.log.synced(Txg(2));
    assert_eq!(bench.log.sync_header(Txg(3)), fastness_lwb::Header::None);
    bench.log.synced(Txg(3));
    assert!(bench.log.extents().is_empty());
    bench.log.commit(Lsn(2)).expect("its txg has synced");
    bench.log.resume();
    assert!(matches!(bench.log.sync_header(Txg(4)), fastness_lwb::Header::Logging(_)));
    bench.log.synced(Txg(4));
    assert!(bench.log.status().is_up);
}

/// One thread has put the records of others into so many blocks that it writes them in two groups. Its own is
/// in the first one, which another thread flushes meanwhile: so it has nothing to wait for, and yet the
/// second group has to be flushed by one of those that do.
#[test]
fn blocks_written_by_a_thread_that_needs_no_flush_are_flushed_by_those_that_do() {
    let bench = Bench::new();
    let [writer, waiter] = bench.write_first_group([1, 20].map(Lsn));
    bench.gate.began(16, Write);
    let flusher = bench.commit_upto(Lsn(1));
    bench.gate.began(17, Flush);
    bench.gate.end(17, true);
    flusher.result().unwrap();
    bench.gate.open();
    writer.result().unwrap();
    waiter.result().unwrap();
    assert_eq!(bench.durable(), 20);
}

/// What is in the first group is not held up by the writing of the second, whose writer would flush both.
#[test]
fn the_first_of_two_groups_is_flushed_before_the_second_is_written() {
    let bench = Bench::new();
    let [writer, waiter] = bench.write_first_group([3, 5].map(Lsn));
    // The flush of the one and the next write of the other begin in any order.
    bench.gate.has_begun(17);
    let flush = (16..18).find(|number| bench.gate.is(*number, Flush)).expect("a flush has begun");
    bench.gate.end(flush, true);
    waiter.result().unwrap();
    assert!(writer.is_waiting());
    bench.gate.open();
    writer.result().unwrap();
}

/// The last block that found room is acknowledged while an earlier flush is under way: no chain can replace
/// it yet, and nothing of it is needed any more. The txg's thread goes on.
#[test]
fn a_txg_beside_the_last_flush_of_a_chain_without_room_has_a_header() {
    let bench = Bench::on_a_disk_of(2 * 4096, 2);
    let first = bench.commit(b"first");
    bench.gate.began(0, Write);
    bench.gate.end(0, true);
    bench.gate.began(1, Flush);
    let second = bench.commit(b"second");
    bench.gate.began(2, Write);
    bench.gate.end(2, true);
    bench.gate.began(3, Flush);
    bench.gate.end(3, true);
    second.result().unwrap();
    assert!(matches!(bench.commit(b"third").result(), Err(CommitError::NoSpace(_))));
    let header = bench.log.sync_header(Txg(3));
    let named = |records: usize, header| {
        let image = bench.disk.crash(0).unwrap();
        assert_eq!(recover(&image, &header, Txg(4)).unwrap().records.len(), records);
    };
    named(0, header);
    assert!(matches!(header, fastness_lwb::Header::Logging(chain) if chain.first_seq.0 == 2), "{header:?}");
    bench.log.synced(Txg(3));
    bench.gate.end(1, true);
    first.result().unwrap();
    // Now it is replaced, in the room that the first block had.
    let header = bench.log.sync_header(Txg(4));
    bench.log.synced(Txg(4));
    assert!(bench.log.status().is_up);
    bench.gate.open();
    let lsn = bench.log.append(Txg(5), b"fourth");
    bench.log.commit(lsn).unwrap();
    named(1, header);
}

/// A thread whose own records find no room leaves with an error, and not without waking one of those whose
/// blocks it has written.
#[test]
fn blocks_written_by_a_thread_that_gets_an_error_are_flushed_by_others() {
    let bench = Bench::on_a_disk_of(2 * 4096, 2);
    (0..3).for_each(|_| _ = bench.log.append(Txg(3), &[1; 3700]));
    let writer = bench.commit_upto(Lsn(3));
    bench.gate.began(0, Write);
    let waiter = bench.commit_upto(Lsn(1));
    assert!(waiter.is_waiting());
    bench.gate.open();
    assert!(matches!(writer.result(), Err(CommitError::NoSpace(_))));
    waiter.result().unwrap();
    assert_eq!(bench.durable(), 2);
}

/// A thread that panics in a write or flush takes down what it did for others: they wait for their txgs.
#[test]
fn a_panic_reaches_everybody_who_waits_for_what_the_thread_was_doing() {
    for panics_in in [Write, Flush] {
        let bench = Bench::new();
        let lsn = bench.log.append(Txg(3), b"first");
        let writer = bench.commit_upto(lsn);
        bench.gate.began(0, Write);
        let waiter = bench.commit_upto(lsn);
        assert!(waiter.is_waiting());
        let at = if panics_in == Write {
            0
        } else {
            bench.gate.end(0, true);
            bench.gate.began(1, Flush);
            1
        };
        bench.gate.panic(at);
        let is_told = |committer: Committer| {
            let error = committer.result().unwrap_err();
            assert!(matches!(error, CommitError::Panicked { seq } if seq.0 == 1), "{error:?}");
            assert_eq!(error.kind(), fastness_blkdev::ErrorKind::Bug);
        };
        is_told(waiter);
        is_told(bench.commit(b"second"));
        assert!(writer.0.recv().is_err(), "its thread is gone");
        assert_eq!(bench.log.sync_header(Txg(3)), bench.header, "nobody gets the places");
    }
}
