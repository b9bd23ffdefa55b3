//! A directory that does not answer, for as long as it likes: whatever needs no answer goes on.

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastness_pm_model::{RecordStyle, Recorder};
use fastness_responder::*;
use support::*;

/// What need not wait is done by then.
const PATIENCE: Duration = Duration::from_secs(20);
const CHUNK: u64 = 64;

/// Holds calls up until it is opened.
#[derive(Default)]
struct Gate {
    waiting: Mutex<(u64, bool)>,
    changed: Condvar,
}

impl Gate {
    fn wait(&self) {
        let mut now = self.waiting.lock().unwrap();
        now.0 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(now, |now| !now.1).unwrap());
    }

    fn until_waiting(&self, count: u64) {
        let now = self.waiting.lock().unwrap();
        let (now, _) = self.changed.wait_timeout_while(now, PATIENCE, |now| now.0 < count).unwrap();
        assert!(now.0 >= count, "nothing waits for the directory");
    }

    fn open(&self) {
        self.waiting.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

struct Hung {
    recorder: Recorder,
    cache: Arc<Cache<Pm>>,
    backing: MemoryBacking,
    gate: Arc<Gate>,
}

/// A cache of one group of slots, in front of a directory with the file `below` of three chunks.
fn hung(protocol: ProtocolKind) -> Hung {
    set_protocol(protocol);
    let recorder = Recorder::new(recorder(16, CHUNK as usize).image(), RecordStyle::NonTemporal);
    let backing = MemoryBacking::default();
    backing.put("below", &[1; 3 * CHUNK as usize]);
    let options = options(CHUNK).clock(now);
    let region = Pm::whole(&recorder, &Arc::new(Power::default()));
    let cache = Cache::create(region, Arc::new(backing.clone()), &options).unwrap();
    Hung { recorder, cache: Arc::new(cache), backing, gate: Arc::default() }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

impl Hung {
    fn open(&self, name: &str) -> Handle {
        self.cache.open_file(Path::new(name), Some(0o600), 0).unwrap()
    }

    fn hang_at(&self, wanted: impl Fn(Call) -> bool + Send + Sync + 'static) {
        let gate = self.gate.clone();
        self.backing.set_hook(move |call| {
            if wanted(call) {
                gate.wait();
            }
            Verdict::Do
        });
    }

    /// What a crash leaves that takes nothing of what the directory was given.
    fn after_a_crash(&self) -> (Cache<Pm>, Recovered) {
        let recorder = Recorder::new(self.recorder.image(), RecordStyle::NonTemporal);
        let (region, below) = (Pm::whole(&recorder, &Arc::default()), self.backing.crashed(|| true));
        Cache::open(region, Arc::new(below), &options(CHUNK)).unwrap()
    }

    /// Does something that waits for nothing.
    fn at_once(&self, what: &str, act: impl FnOnce(&Cache<Pm>) + Send + 'static) {
        let (done, is_done) = mpsc::channel();
        let cache = self.cache.clone();
        std::thread::spawn(move || {
            act(&cache);
            done.send(()).unwrap();
        });
        let outcome = is_done.recv_timeout(PATIENCE);
        if outcome.is_err() {
            self.gate.open();
        }
        assert!(outcome.is_ok(), "{what} waits for the directory");
    }

    /// What other files need not wait for, in the same group of slots. Each thread of the many uses one
    /// of the eight
    /// operation logs.
    fn others_go_on(&self) {
        for number in 0..16 {
            let other = self.cache.open_file(Path::new("other"), Some(0o600), 0).unwrap();
            self.at_once("a write to another file", move |cache| {
                cache.write(&other, number, b"yes").unwrap();
            });
        }
        let other = self.open("other");
        self.at_once("a read of what is in PM", move |cache| {
            assert_eq!(cache.read(&other, 15, &mut [0; 3]).unwrap(), 3);
        });
        self.at_once("the status", |cache| assert!(cache.status().unwrap().dirty_chunks > 0));
    }
}

fn content(cache: &Cache<Pm>, file: &Handle) -> Vec<u8> {
    let mut buffer = vec![0; 1000];
    let len = cache.read(file, 0, &mut buffer).unwrap();
    buffer.truncate(len);
    buffer
}

#[test]
fn a_read_that_hangs_holds_nothing_else_up() {
    for protocol in [ProtocolKind::Fr, ProtocolKind::Melo] {
        let world = hung(protocol);
        let below = world.open("below");
        world.hang_at(|call| call == Call::Read);
        std::thread::scope(|scope| {
            let read = scope.spawn(|| content(&world.cache, &below));
            world.gate.until_waiting(1);
            world.others_go_on();
            world.gate.open();
            assert_eq!(read.join().unwrap(), [1; 3 * CHUNK as usize]);
        });
    }
}

#[test]
fn a_write_that_has_to_load_a_chunk_holds_nothing_else_up() {
    for protocol in [ProtocolKind::Fr, ProtocolKind::Melo] {
        let world = hung(protocol);
        let below = world.open("below");
        world.hang_at(|call| call == Call::Read);
        std::thread::scope(|scope| {
            let write = scope.spawn(|| world.cache.write(&below, CHUNK - 4, &[2; 8]));
            world.gate.until_waiting(1);
            world.others_go_on();
            world.gate.open();
            write.join().unwrap().unwrap();
        });
        let mut expected = vec![1; 3 * CHUNK as usize];
        expected[CHUNK as usize - 4..CHUNK as usize + 4].fill(2);
        assert_eq!(content(&world.cache, &below), expected);
    }
}

/// Neither what makes a file longer, nor what covers a chunk to the end of the file, has anything to load.
#[test]
fn writes_of_whole_chunks_and_behind_the_end_ask_the_directory_for_nothing() {
    let world = hung(ProtocolKind::Fr);
    let below = Arc::new(world.open("below"));
    world.hang_at(|call| call == Call::Read);
    let file = below.clone();
    world.at_once("an append", move |cache| assert_eq!(cache.append(&file, b"end").unwrap(), (3 * CHUNK, 3)));
    let file = below.clone();
    world.at_once("a write of a chunk", move |cache| {
        assert_eq!(cache.write(&file, CHUNK, &[3; CHUNK as usize]).unwrap(), CHUNK as usize);
    });
    let file = below.clone();
    world.at_once("a write far behind the end", move |cache| {
        cache.write(&file, 5 * CHUNK + 9, b"far").unwrap();
    });
    world.gate.open();
    let mut expected = [vec![1; CHUNK as usize], vec![3; CHUNK as usize], vec![1; CHUNK as usize]].concat();
    expected.extend(b"end");
    expected.resize(5 * CHUNK as usize + 9, 0);
    expected.extend(b"far");
    assert_eq!(content(&world.cache, &below), expected);
}

/// A failed flush is made again by the next one, which may hang. The file is as long as its writes make it.
#[test]
fn a_flush_that_hangs_holds_up_no_write_and_is_in_the_status() {
    let world = hung(ProtocolKind::Fr);
    let file = Arc::new(world.open("file"));
    world.cache.write(&file, 0, b"first").unwrap();
    world.backing.set_hook(|call| if call == Call::Sync { Verdict::Refuse(110) } else { Verdict::Do });
    assert_eq!(world.cache.flush().unwrap_err().errno(), 110);
    world.hang_at(|call| matches!(call, Call::Write { .. }));
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| world.cache.flush());
        world.gate.until_waiting(1);
        for at in 1..20 {
            let file = file.clone();
            world.at_once("a write to the file", move |cache| {
                assert_eq!(cache.write(&file, at * 3, b"more").unwrap(), 4);
            });
        }
        let file = file.clone();
        world.at_once("a read of the file", move |cache| assert_eq!(content(cache, &file).len(), 61));
        world.others_go_on();
        std::thread::sleep(Duration::from_millis(20));
        let status = world.cache.status().unwrap();
        assert_eq!(status.failures.len(), 1, "it has failed before");
        let [(inode, ns)] = status.flushing[..] else { panic!("{:?}", status.flushing) };
        assert!(
            inode == status.failures[0].0 && (10_000_000..PATIENCE.as_nanos() as u64).contains(&ns),
            "{ns}"
        );
        world.gate.open();
        flush.join().unwrap().unwrap();
    });
    world.cache.flush().unwrap();
    let status = world.cache.status().unwrap();
    assert_eq!((status.flushing, status.failures, status.dirty_chunks), (vec![], vec![], 0));
    assert_eq!(world.backing.contents()[Path::new("file")].len(), 61);
}

/// While the answer is on its way, the chunk is written to, flushed, and gives way: the answer is old.
fn overtake(world: &Hung, first: usize) {
    let cache: Weak<Cache<Pm>> = Arc::downgrade(&world.cache);
    let calls = AtomicU64::new(0);
    let is_inside = AtomicBool::new(false);
    world.backing.set_after(move |call| {
        if call != Call::Read || is_inside.swap(true, Ordering::SeqCst) {
            return;
        }
        let cache = cache.upgrade().unwrap();
        if calls.fetch_add(1, Ordering::SeqCst) == 0 {
            let open = |name: &str| cache.open_file(Path::new(name), Some(0o600), 0).unwrap();
            let below = open("below");
            cache.write(&below, first as u64 * CHUNK, &[7; 2 * CHUNK as usize]).unwrap();
            cache.flush().unwrap();
            // The other chunks of the slots, and these again.
            let filler = open("filler");
            for at in 0..2 {
                cache.write(&filler, 16 * CHUNK * at, &[9; 16 * CHUNK as usize]).unwrap();
                cache.flush().unwrap();
            }
        }
        is_inside.store(false, Ordering::SeqCst);
    });
}

#[test]
fn what_was_loaded_and_has_changed_meanwhile_is_loaded_again() {
    for protocol in [ProtocolKind::Fr, ProtocolKind::Melo] {
        let world = hung(protocol);
        let below = world.open("below");
        overtake(&world, 0);
        world.cache.write(&below, 10, b"part").unwrap();
        let mut expected = vec![7; 2 * CHUNK as usize];
        expected[10..14].copy_from_slice(b"part");
        assert_eq!(content(&world.cache, &below)[..2 * CHUNK as usize], expected);
    }
}

#[test]
fn a_read_sees_a_write_whole_although_the_directory_answers_late() {
    let world = hung(ProtocolKind::Fr);
    let below = world.open("below");
    // The second chunk is in PM: as it is when the answer arrives.
    world.cache.write(&below, CHUNK, &[2; CHUNK as usize]).unwrap();
    overtake(&world, 0);
    let mut buffer = [0; 2 * CHUNK as usize];
    world.cache.read(&below, 0, &mut buffer).unwrap();
    assert_eq!(buffer, [7; 2 * CHUNK as usize]);
}

/// A flush goes on with a file that has no name any more: who removes it does not wait. A crash meanwhile
/// leaves nothing of it.
#[test]
fn a_removal_does_not_wait_for_a_flush_of_its_file() {
    for protocol in [ProtocolKind::Fr, ProtocolKind::Melo] {
        let world = hung(protocol);
        let file = world.open("file");
        world.cache.write(&file, 0, &[1; 100]).unwrap();
        world.cache.close(file).unwrap();
        world.hang_at(|call| call == Call::Sync);
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| world.cache.flush());
            world.gate.until_waiting(1);
            world.at_once("a removal", |cache| cache.unlink(Path::new("file")).unwrap());
            world.at_once("a new file of that name", |cache| {
                let file = cache.open_file(Path::new("file"), Some(0o600), 0).unwrap();
                cache.write(&file, 0, b"new").unwrap();
            });
            let (cache, recovered) = world.after_a_crash();
            assert_eq!((recovered.orphaned_chunks, recovered.removals), (0, 1), "{recovered:?}");
            let found = content(&cache, &cache.open_file(Path::new("file"), None, 0).unwrap());
            assert_eq!(found, b"new");
            world.gate.open();
            flush.join().unwrap().unwrap();
        });
        world.cache.flush().unwrap();
        assert_eq!(world.cache.status().unwrap().dirty_chunks, 0);
        assert_eq!(world.backing.contents()[Path::new("file")], b"new");
        assert_eq!(world.after_a_crash().1, Recovered::default(), "nothing is left to do");
    }
}

/// While several files are flushed, each has been written and waits for its sync. A sync of it by somebody
/// else that failed would make the directory forget what was written, and the next one would not tell.
#[test]
fn nobody_syncs_a_file_between_its_write_and_its_sync() {
    let world = hung(ProtocolKind::Fr);
    ["a", "b"].into_iter().for_each(|name| world.backing.put(name, b""));
    let (a, b) = (world.open("a"), world.open("b"));
    world.cache.write(&a, 0, b"first").unwrap();
    world.cache.write(&b, 0, b"second").unwrap();
    let (gate, syncs) = (world.gate.clone(), AtomicU64::new(0));
    world.backing.set_hook(move |call| match call {
        Call::Sync => match syncs.fetch_add(1, Ordering::SeqCst) {
            0 => {
                gate.wait();
                Verdict::Do
            }
            1 => Verdict::Refuse(5),
            _ => Verdict::Do,
        },
        _ => Verdict::Do,
    });
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| world.cache.flush());
        world.gate.until_waiting(1);
        let other = scope.spawn(|| world.cache.flush_file(&b));
        std::thread::sleep(Duration::from_millis(50));
        world.gate.open();
        let results = [flush.join().unwrap(), other.join().unwrap()];
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1, "{results:?}");
    });
    world.cache.flush().unwrap();
    let below = world.backing.crashed(|| false).contents();
    assert_eq!(below[Path::new("a")], b"first");
    assert_eq!(below[Path::new("b")], b"second");
}
