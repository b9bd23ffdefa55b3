//! Entries are read while the log is in use.

mod support;

use fastness_prb::*;
use support::*;

const CHUNK: usize = 4096;

fn body(number: u8) -> Vec<u8> {
    vec![number; 900 + usize::from(number)]
}

/// The bodies of all that is live, in order.
fn live<M: fastness_pmem::Medium + Sync>(hdl: &Hdl<M>) -> Vec<Vec<u8>> {
    let read = |entry: &LiveEntry| {
        let mut buffer = vec![0; entry.body_len_bytes()];
        hdl.read_live(entry, &mut buffer).unwrap();
        buffer
    };
    hdl.live_entries().iter().map(read).collect()
}

#[test]
fn what_is_written_can_be_read_until_it_has_synced() {
    let recorder = recorder(CHUNK, 6);
    let prb = Prb::format(config(1), chunks(&recorder, CHUNK)).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    let mut other = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    assert_eq!(hdl.live_entries(), []);
    durable_log(&mut hdl);
    durable_log(&mut other);
    // Two chunks are full, and one is open; one entry in three is another log's.
    for number in 0..6 {
        if number % 3 == 2 {
            other.write_entry(Txg(1), &body(number), Wait::Fail).unwrap();
        } else {
            hdl.write_entry(Txg(1 + u64::from(number / 3)), &body(number), Wait::Fail).unwrap();
        }
    }
    assert_eq!(live(&hdl), [body(0), body(1), body(3), body(4)]);
    assert_eq!(live(&other), [body(2), body(5)]);
    let entries = hdl.live_entries();
    assert_eq!(entries.iter().map(LiveEntry::txg).collect::<Vec<_>>(), [Txg(1), Txg(1), Txg(2), Txg(2)]);
    prb.collect(Txg(1)).unwrap();
    assert_eq!(live(&hdl), [body(3), body(4)], "what has synced is not needed, even where it still is");
    prb.collect(Txg(2)).unwrap();
    assert_eq!(live(&hdl), Vec::<Vec<u8>>::new());
    let mut buffer = body(4);
    let gone = hdl.read_live(&entries[3], &mut buffer);
    assert!(matches!(gone, Err(BodyError::HeaderChanged { .. })), "{gone:?}");
}

#[test]
fn writers_and_readers_do_not_wait_for_each_other_for_ever() {
    let recorder = recorder(CHUNK, 60);
    let config = Config { ncommitters: 3, ..config(2) };
    let prb = Prb::format(config, chunks(&recorder, CHUNK)).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    durable_log(&mut hdl);
    let hdl = &hdl;
    std::thread::scope(|scope| {
        for writer in 0..3 {
            scope.spawn(move || {
                for _ in 0..30 {
                    hdl.write_entry(Txg(1), &body(writer), Wait::Fail).unwrap();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while last < 90 {
                    let found = live(hdl);
                    assert!(found.iter().all(|found| *found == body(found[0])));
                    assert!(found.len() >= last);
                    last = found.len();
                }
            });
        }
    });
}

#[test]
fn damage_is_an_error_and_not_data() {
    let recorder = recorder(CHUNK, 2);
    let mut ranges = chunks(&recorder, CHUNK);
    // The first entry ends where the file behind the mapping does.
    ranges[0].inject(fastness_pm_model::Fault::Truncate { end: 800 });
    let prb = Prb::format(config(1), ranges).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    durable_log(&mut hdl);
    hdl.write_entry(Txg(1), &body(0), Wait::Fail).unwrap();
    let entries = hdl.live_entries();
    let mut buffer = body(7);
    assert!(matches!(hdl.read_live(&entries[0], &mut buffer), Err(BodyError::Poison(_))));
    let too_small = hdl.read_live(&entries[0], &mut buffer[..10]);
    assert!(matches!(too_small, Err(BodyError::BufferTooSmall { .. })), "{too_small:?}");
}

/// What is looked at before a replay is replayed nevertheless.
#[test]
fn a_look_before_the_replay_changes_nothing() {
    let recorder = recorder(CHUNK, 2);
    let prb = Prb::format(config(1), chunks(&recorder, CHUNK)).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    let header = durable_log(&mut hdl);
    for number in 0..3 {
        hdl.write_entry(Txg(1), &body(number), Wait::Fail).unwrap();
    }
    assert!(hdl.peek(|_| Ok::<_, ()>(())).is_err(), "there is no replay");
    drop(hdl);
    drop(prb);
    let prb = Prb::open(config(2), chunks(&recorder, CHUNK)).unwrap();
    let mut hdl = prb.setup_hdl(&header).unwrap();
    hdl.claim(Txg(1), OnLoss::Fail).unwrap();
    for _ in 0..2 {
        let mut seen = Vec::new();
        hdl.peek(|entry| {
            seen.push(body_of(&entry).unwrap());
            Ok::<_, ()>(())
        })
        .unwrap();
        assert_eq!(seen, [body(0), body(1), body(2)]);
    }
    let stopped = hdl.peek(|entry| if entry.id().gsid.0 == 2 { Err("stop") } else { Ok(()) });
    assert!(matches!(stopped, Err(ReplayError::Callback { source: "stop", .. })));
    assert_eq!(hdl.replay(|_, _| Ok::<_, ()>(())).unwrap().entries, 3);
}
