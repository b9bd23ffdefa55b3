//! Times as programs see them: those of what programs do, and not of flushes and recoveries.

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use fastness_pm_model::Recorder;
use fastness_responder::*;
use support::*;

/// Later than anything that the clock of the cache says.
const LATER: u64 = 1 << 50;

struct Timed {
    cache: Arc<Cache<Pm>>,
    backing: MemoryBacking,
    recorder: Recorder,
}

/// A cache that the hook of its directory may ask.
fn timed(protocol: ProtocolKind) -> Timed {
    set_protocol(protocol);
    let (recorder, backing) = (recorder(8, 64), MemoryBacking::default());
    let region = Pm::whole(&recorder, &Arc::new(Power::default()));
    let cache = Cache::create(region, Arc::new(backing.clone()), &options(64)).unwrap();
    backing.put("a", b"");
    Timed { cache: Arc::new(cache), backing, recorder }
}

fn times(cache: &Cache<Pm>) -> (u64, u64) {
    let stat = cache.stat_path(Path::new("a")).unwrap();
    (stat.modified_ns, stat.changed_ns)
}

/// Times that were seen.
type Seen = Arc<Mutex<Vec<(u64, u64)>>>;

/// Asks for the times in each call of the directory from now on; how many there were.
fn ask_in_calls(timed: &Timed) -> (Seen, Arc<AtomicUsize>) {
    let (seen, calls) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let (asked, all, count): (Weak<Cache<Pm>>, _, _) =
        (Arc::downgrade(&timed.cache), seen.clone(), calls.clone());
    timed.backing.set_after(move |call| {
        if matches!(call, Call::Write { .. } | Call::Sync) {
            count.fetch_add(1, Ordering::SeqCst);
            all.lock().unwrap().extend(asked.upgrade().map(|cache| times(&cache)));
        }
    });
    (seen, calls)
}

#[test]
fn a_flush_moves_no_time_that_a_program_has_seen() {
    for protocol in [ProtocolKind::Fr, ProtocolKind::Melo, ProtocolKind::Pmal, ProtocolKind::PmalOrdered] {
        let timed = timed(protocol);
        let cache = &timed.cache;
        let a = cache.open_file(Path::new("a"), None, 0).unwrap();
        timed.backing.set_time(LATER);
        for (round, at) in [0, 70, 0].into_iter().enumerate() {
            assert_eq!(cache.write(&a, at, &[round as u8; 50]).unwrap(), 50);
            let before = times(cache);
            assert!((1..LATER).contains(&before.0) && before.1 >= before.0, "{protocol:?}: {before:?}");
            let (seen, calls) = ask_in_calls(&timed);
            timed.backing.set_time(LATER + 100 * (round as u64 + 1));
            cache.flush().unwrap();
            assert!(calls.load(Ordering::SeqCst) >= 2, "{protocol:?}");
            let seen = std::mem::take(&mut *seen.lock().unwrap());
            assert!(seen.iter().all(|seen| *seen == before), "{protocol:?}: {before:?}, then {seen:?}");
            assert_eq!(times(cache), before, "{protocol:?}, round {round}");
            // Past the cache, too, the file was modified when the program wrote.
            assert_eq!(timed.backing.stat(Path::new("a")).unwrap().modified_ns, before.0, "{protocol:?}");
            timed.backing.set_after(|_| {});
        }
    }
}

/// Chunks that are flushed late, of a write that is older than one that was flushed already.
#[test]
fn a_flush_of_an_older_write_does_not_take_the_time_back() {
    let timed = timed(ProtocolKind::Fr);
    let a = timed.cache.open_file(Path::new("a"), None, 0).unwrap();
    timed.cache.write(&a, 0, &[1; 64]).unwrap();
    let cell = Mutex::new(());
    timed.backing.set_hook(move |call| {
        let _one = cell.lock().unwrap();
        if call == Call::Sync { Verdict::Refuse(5) } else { Verdict::Do }
    });
    timed.cache.flush().unwrap_err();
    timed.cache.write(&a, 64, &[2; 64]).unwrap();
    timed.backing.set_hook(|_| Verdict::Do);
    let before = times(&timed.cache);
    timed.cache.flush().unwrap();
    assert_eq!(timed.backing.stat(Path::new("a")).unwrap().modified_ns, before.0);
}

/// What a program changes while a flush is under way is a change.
#[test]
fn a_flush_hides_no_change_of_a_program() {
    let timed = timed(ProtocolKind::Fr);
    let a = timed.cache.open_file(Path::new("a"), None, 0).unwrap();
    timed.cache.write(&a, 0, b"text").unwrap();
    timed.backing.set_time(LATER);
    timed.cache.flush().unwrap();
    let before = times(&timed.cache);
    // Without a flush beside it: as the directory says.
    timed.cache.truncate(&a, 2).unwrap();
    assert_eq!(times(&timed.cache).0, LATER, "a truncation");
    assert!(times(&timed.cache).1 > before.1);
}

/// Killed between the write of a flush and the call that sets the time again.
#[test]
fn a_recovery_sets_the_time_that_an_interrupted_flush_has_moved() {
    for protocol in [ProtocolKind::Fr, ProtocolKind::Melo, ProtocolKind::Pmal] {
        let timed = timed(protocol);
        let a = timed.cache.open_file(Path::new("a"), None, 0).unwrap();
        timed.backing.set_time(LATER);
        timed.cache.write(&a, 0, b"text").unwrap();
        let written = times(&timed.cache).0;
        let (copies, below) = (Arc::new(Mutex::new(Vec::new())), timed.backing.clone());
        let kept = copies.clone();
        timed.backing.set_after(move |call| {
            if matches!(call, Call::Write { .. }) {
                kept.lock().unwrap().push(below.copied());
            }
        });
        timed.backing.set_hook(|call| if call == Call::Sync { Verdict::Refuse(5) } else { Verdict::Do });
        timed.cache.flush().unwrap_err();
        let Timed { cache, recorder, .. } = timed;
        drop((a, cache));
        let backing = copies.lock().unwrap().pop().unwrap();
        assert_eq!(backing.stat(Path::new("a")).unwrap().modified_ns, LATER, "it was moved");
        let region = Pm::whole(&recorder, &Arc::new(Power::default()));
        let (cache, _) = Cache::open(region, Arc::new(backing.clone()), &options(64)).unwrap();
        assert_eq!(times(&cache).0, written, "{protocol:?}");
        cache.flush().unwrap();
        assert_eq!(times(&cache).0, written, "{protocol:?}");
        assert_eq!(backing.stat(Path::new("a")).unwrap().modified_ns, written, "{protocol:?}");
    }
}

/// A truncation whose sync failed is completed by the flusher, or by a recovery, at its own time.
#[test]
fn a_truncation_has_the_time_of_its_call() {
    for recovers in [false, true] {
        for protocol in [ProtocolKind::Fr, ProtocolKind::Log] {
            let timed = timed(protocol);
            let a = timed.cache.open_file(Path::new("a"), None, 0).unwrap();
            timed.cache.write_synced(&a, 0, &[1; 100]).unwrap();
            timed.backing.set_time(LATER);
            timed.backing.set_hook(|call| if call == Call::Sync { Verdict::Refuse(5) } else { Verdict::Do });
            timed.cache.truncate(&a, 40).unwrap_err();
            assert_eq!(times(&timed.cache).0, LATER, "{protocol:?}");
            timed.backing.set_hook(|_| Verdict::Do);
            timed.backing.set_time(LATER + 1000);
            if !recovers {
                timed.cache.flush().unwrap();
                assert_eq!(times(&timed.cache).0, LATER, "{protocol:?}");
                continue;
            }
            let Timed { cache, backing, recorder } = timed;
            drop((a, cache));
            let region = Pm::whole(&recorder, &Arc::new(Power::default()));
            let (cache, recovered) = Cache::open(region, Arc::new(backing.clone()), &options(64)).unwrap();
            assert_eq!(recovered.truncations, 1, "{protocol:?}");
            assert_eq!(times(&cache).0, LATER, "{protocol:?}");
            cache.flush().unwrap();
            assert_eq!(backing.stat(Path::new("a")).unwrap().modified_ns, LATER, "{protocol:?}");
        }
    }
}
