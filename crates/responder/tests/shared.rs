//! Several processes use one cache: one serves, others write and read by themselves, and die at any step.

use std::fs::{self, File};
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastness_pmem::{
    Medium, MsyncMode, OpenOptions, PersistError, PmRange, ReadError, Region, SharedWords, Summer,
};
use fastness_responder::*;

const CHUNK: usize = 4096;
const CHILD: &str = "FASTNESS_RESPONDER_SHARED_CHILD";

fn never() -> OpenOptions {
    OpenOptions::new().msync(MsyncMode::Never)
}

/// A server, and what a client is given.
struct Served {
    folder: tempfile::TempDir,
    cache: Arc<Cache<PmRange>>,
    region: OwnedFd,
    file: Handle,
}

impl Served {
    fn new(region_bytes: u64) -> Served {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("directory")).unwrap();
        let region = Region::create_file(folder.path().join("region"), region_bytes, &never()).unwrap();
        let descriptor = region.descriptor().unwrap();
        let directory = Arc::new(Directory::open(folder.path().join("directory")).unwrap());
        let options = Options::new().shared(true);
        let cache = Arc::new(Cache::create(region.into_range(), directory, &options).unwrap());
        let file = cache.open_file(Path::new("file"), Some(0o600), 0).unwrap();
        Served { folder, cache, region: descriptor, file }
    }

    fn backing(&self) -> File {
        File::open(self.folder.path().join("directory/file")).unwrap()
    }

    fn shared(&self) -> OwnedFd {
        self.cache.shared().unwrap().try_clone_to_owned().unwrap()
    }

    /// A client in this process.
    fn client(&self, me: u32) -> Client<PmRange> {
        let region = Region::join(self.region.try_clone().unwrap(), &never()).unwrap().into_range();
        let words = SharedWords::join(self.shared().into()).unwrap();
        Client::join(region, words, me, || true).unwrap()
    }

    fn leased(&self, client: &Client<PmRange>) -> LeasedFile {
        let lease = self.cache.lease(&self.file).unwrap().unwrap();
        client.file(&lease, self.backing().into()).unwrap()
    }

    fn content(&self) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 20];
        let len = self.cache.read(&self.file, 0, &mut buffer).unwrap();
        buffer.truncate(len);
        buffer
    }
}

fn all(written: Written, len: usize) -> u64 {
    assert!(written.stopped.is_none(), "{:?}", written.stopped);
    assert_eq!(written.len, len);
    written.offset
}

#[test]
fn a_client_and_the_server_see_what_the_other_writes() {
    let served = Served::new(2 << 20);
    served.cache.write(&served.file, 0, &[1; 6000]).unwrap();
    let client = served.client(2);
    let leased = served.leased(&client);
    assert_eq!(client.current(&leased).unwrap().0, 6000);
    assert_eq!(all(client.write(&leased, Position::At(5000), &[2; 9000]), 9000), 5000);
    assert_eq!(all(client.write(&leased, Position::End, &[3; 10]), 10), 14_000);
    let mut expected = [vec![1; 5000], vec![2; 9000], vec![3; 10]].concat();
    assert_eq!(served.content(), expected);
    assert_eq!(served.cache.stat(&served.file).unwrap().size, 14_010);
    assert_eq!(served.cache.stat(&served.file).unwrap().modified_ns, client.current(&leased).unwrap().1);
    // What the server flushes, and then what it does to the file.
    served.cache.flush().unwrap();
    assert_eq!(fs::read(served.folder.path().join("directory/file")).unwrap(), expected);
    served.cache.append(&served.file, &[4; 100]).unwrap();
    expected.extend([4; 100]);
    let mut buffer = vec![0; 20_000];
    assert_eq!(client.read(&leased, 0, &mut buffer).unwrap(), expected.len());
    assert_eq!(buffer[..expected.len()], expected[..]);
    served.cache.truncate(&served.file, 4500).unwrap();
    assert_eq!(all(client.write(&leased, Position::End, &[5; 4]), 4), 4500);
    assert_eq!(client.read(&leased, 4000, &mut buffer).unwrap(), 504);
    assert_eq!(client.read(&leased, 1 << 40, &mut buffer).unwrap(), 0);
    served.cache.flush().unwrap();
    expected.truncate(4500);
    expected.extend([5; 4]);
    assert_eq!(fs::read(served.folder.path().join("directory/file")).unwrap(), expected);
    // The time of a truncation counts at once.
    let before = client.current(&leased).unwrap().1;
    std::thread::sleep(std::time::Duration::from_millis(30));
    served.cache.truncate(&served.file, 4400).unwrap();
    served.cache.truncate(&served.file, 4504).unwrap();
    let now = (client.current(&leased).unwrap().1, served.cache.stat(&served.file).unwrap().modified_ns);
    assert!(now.0 == now.1 && now.0 > before + 10_000_000, "{before}, then {now:?}");
    // The time counts up, whoever writes.
    let before = client.current(&leased).unwrap().1;
    served.cache.write(&served.file, 0, &[6]).unwrap();
    let between = client.current(&leased).unwrap().1;
    all(client.write(&leased, Position::At(0), &[7]), 1);
    assert!(before < between && between < client.current(&leased).unwrap().1);
}

#[test]
fn leases_end_when_the_file_is_used_in_another_way() {
    let served = Served::new(2 << 20);
    let client = served.client(2);
    let leased = served.leased(&client);
    all(client.write(&leased, Position::At(0), &[1; 100]), 100);
    let id = served.cache.stat(&served.file).unwrap().id;
    assert!(served.cache.is_leased(id));
    let lease = served.cache.lease(&served.file).unwrap().unwrap();
    assert!(client.has_lease(lease.slot, lease.generation));
    assert!(!client.has_lease(lease.slot, lease.generation + 1) && !client.has_lease(1 << 30, 0));
    served.cache.use_directly(&served.file).unwrap();
    assert!(!served.cache.is_leased(id) && !client.has_lease(lease.slot, lease.generation));
    let refused = client.write(&leased, Position::At(0), &[2; 100]);
    assert!(matches!(refused.stopped, Some(Denied::Ended)) && refused.len == 0);
    assert!(matches!(client.read(&leased, 0, &mut [0; 9]), Err(Denied::Ended)));
    assert!(served.cache.lease(&served.file).unwrap().is_none(), "as long as it is open");
    assert_eq!(served.content(), [1; 100]);
    let Served { folder, cache, file, .. } = served;
    cache.close(file).unwrap();
    let file = cache.open_file(Path::new("file"), None, 0).unwrap();
    let again = cache.lease(&file).unwrap().unwrap();
    let backing = || File::open(folder.path().join("directory/file")).unwrap();
    // The old lease does not come back.
    assert!(matches!(client.read(&leased, 0, &mut [0; 9]), Err(Denied::Ended)));
    let leased = client.file(&again, backing().into()).unwrap();
    assert_eq!(client.read(&leased, 0, &mut [0; 200]).unwrap(), 100);
    // Neither does one of a file that is gone.
    cache.unlink(Path::new("file")).unwrap();
    cache.close(file).unwrap();
    assert!(matches!(client.write(&leased, Position::End, &[1]).stopped, Some(Denied::Ended)));
    // Its place is another file's then.
    let other = cache.open_file(Path::new("other"), Some(0o600), 0).unwrap();
    let lease = cache.lease(&other).unwrap().unwrap();
    assert_eq!(lease.slot, again.slot);
    assert!(matches!(client.write(&leased, Position::End, &[1]).stopped, Some(Denied::Ended)));
    assert_eq!(cache.stat(&other).unwrap().size, 0);
}

#[test]
fn room_is_made_for_clients() {
    // Four slots: every write of the second half meets the first.
    let served = Served::new(16384 + 4096 + 4 * 2 * (CHUNK as u64 + 64) + 4096 - (4 * 2 * 64));
    let client = served.client(2);
    let leased = served.leased(&client);
    let id = served.cache.stat(&served.file).unwrap().id;
    let mut waits = 0;
    for n in 0..40_u64 {
        let data = vec![n as u8; CHUNK];
        let mut done = 0;
        while done < CHUNK {
            let at = n * CHUNK as u64 + done as u64;
            let written = client.write(&leased, Position::At(at), &data[done..]);
            done += written.len;
            match written.stopped {
                None => {}
                Some(Denied::NoRoom) => {
                    assert!(served.cache.make_room(id, at, (CHUNK - done) as u64).unwrap());
                    waits += 1;
                }
                Some(other) => panic!("{other}"),
            }
        }
    }
    assert!(waits > 4, "{waits}");
    let expected: Vec<u8> = (0..40 * CHUNK).map(|at| (at / CHUNK) as u8).collect();
    assert_eq!(served.content(), expected);
}

/// PM in a process that dies at one of its stores.
#[derive(Debug)]
struct Dying {
    inner: PmRange,
    stores: Arc<AtomicU64>,
    dies_at: u64,
}

impl Dying {
    fn step(&self) {
        if self.stores.fetch_add(1, Ordering::Relaxed) + 1 == self.dies_at {
            std::process::abort();
        }
    }
}

impl Medium for Dying {
    fn len_bytes(&self) -> usize {
        self.inner.len_bytes()
    }

    fn region_offset(&self) -> u64 {
        self.inner.region_offset()
    }

    fn copy<S: Summer>(&mut self, offset: usize, src: &[u8], extent_bytes: usize, summer: &mut S) {
        self.step();
        self.inner.copy(offset, src, extent_bytes, summer);
    }

    fn write_back(&mut self, offset: usize, len_bytes: usize) {
        self.inner.write_back(offset, len_bytes);
    }

    fn fence(&mut self) -> Result<(), PersistError> {
        self.inner.fence()
    }

    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        self.inner.read(offset, dst)
    }

    fn copy_side(&mut self, side: usize, offset: usize, src: &[u8], extent_bytes: usize) {
        self.inner.copy_side(side, offset, src, extent_bytes);
    }
}

impl CacheMedium for Dying {
    fn divide(self, offset: usize) -> (Dying, Dying) {
        let Dying { inner, stores, dies_at } = self;
        let (low, high) = inner.divide(offset);
        (Dying { inner: low, stores: stores.clone(), dies_at }, Dying { inner: high, stores, dies_at })
    }
}

/// What the program that dies writes: several chunks, in several groups, the first and last in part.
const AT: usize = 3000;
const LEN: usize = 20 * CHUNK + 500;

#[test]
fn program_that_dies() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let told: Vec<u64> = told.split(' ').map(|word| word.parse().unwrap()).collect();
    let [region, words, backing, dies_at, slot, generation, key, inode, birth] = told[..] else { panic!() };
    // Descriptors that the parent has left open for this process.
    let take = |number: u64| own(number as RawFd);
    let inner = Region::join(take(region), &never()).unwrap().into_range();
    let medium = Dying { inner, stores: Arc::default(), dies_at };
    let client = Client::join(medium, SharedWords::join(take(words).into()).unwrap(), 2, || true).unwrap();
    let file = FileId { inode, generation: birth };
    let lease = Lease { slot: slot as u32, generation: generation as u32, key, file };
    let leased = client.file(&lease, Arc::new(take(backing).into())).unwrap();
    all(client.write(&leased, Position::At(AT as u64), &[9; LEN]), LEN);
}

#[allow(unsafe_code)]
fn own(number: RawFd) -> OwnedFd {
    // SAFETY: the parent left it open for this process alone to use.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// A copy that the child has as well.
fn inherited(descriptor: impl AsFd) -> RawFd {
    rustix::io::dup(descriptor).unwrap().into_raw_fd()
}

#[test]
fn what_clients_do_is_counted_and_stays_when_they_end() {
    let served = Served::new(2 << 20);
    served.cache.write(&served.file, 0, &[1; 2 * CHUNK]).unwrap();
    let before = served.cache.status().unwrap();
    assert_eq!(before.direct, Transfers::default());
    let client = served.client(2);
    let leased = served.leased(&client);
    all(client.write(&leased, Position::At(0), &[2; 100]), 100);
    all(client.write(&leased, Position::At(5), &[2; 7]), 7);
    all(client.write(&leased, Position::At(3 * CHUNK as u64), &[3; 2 * CHUNK]), 2 * CHUNK);
    let mut buffer = [0; 50];
    assert_eq!(client.read(&leased, 0, &mut buffer).unwrap(), 50);
    assert_eq!(client.read(&leased, 2 * CHUNK as u64, &mut buffer).unwrap(), 50);
    drop((leased, client));
    served.cache.reap(2).unwrap();
    let status = served.cache.status().unwrap();
    let written_bytes = 107 + 2 * CHUNK as u64;
    assert_eq!(status.direct, Transfers { reads: 2, writes: 3, read_bytes: 100, written_bytes });
    let new = |of: fn(&Counts) -> u64| of(&status.counts) - of(&before.counts);
    assert_eq!((new(|c| c.overwritten), new(|c| c.placed + c.placed_beside)), (2, 2));
    assert_eq!((new(|c| c.read_hits), new(|c| c.read_misses), new(|c| c.multi_chunk_writes)), (1, 1, 1));
    // The process that serves is not one of them, and has its own.
    served.cache.write(&served.file, 0, &[4]).unwrap();
    let after = served.cache.status().unwrap();
    assert_eq!((after.direct, after.counts.overwritten), (status.direct, status.counts.overwritten + 1));
}

#[test]
fn what_a_process_was_doing_when_it_died_is_put_in_order() {
    let mut dies_at = 1;
    loop {
        let served = Served::new(2 << 20);
        served.cache.write(&served.file, 0, &[1; 30_000]).unwrap();
        // In each chunk: what its slot has of before differs in a line.
        let write_short = |in_chunk: usize, byte: u8| {
            for chunk in 0..7 {
                let at = chunk * CHUNK + in_chunk;
                served.cache.write(&served.file, at as u64, &[byte; 10]).unwrap();
            }
        };
        write_short(100, 2);
        let before = served.content();
        let mut after = before.clone();
        after.resize(AT + LEN, 9);
        after[AT..].fill(9);
        let lease = served.cache.lease(&served.file).unwrap().unwrap();
        let descriptors =
            [inherited(&served.region), inherited(served.shared()), inherited(served.backing())];
        let told = format!(
            "{} {} {} {dies_at} {} {} {} {} {}",
            descriptors[0],
            descriptors[1],
            descriptors[2],
            lease.slot,
            lease.generation,
            lease.key,
            lease.file.inode,
            lease.file.generation
        );
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "program_that_dies"]).env(CHILD, told);
        let output = child.output().unwrap();
        descriptors.into_iter().for_each(|number| drop(own(number)));
        let has_died = output.status.signal().is_some();
        assert!(has_died || output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        served.cache.reap(2).unwrap();
        // Nothing waits for its locks, and the write is there completely or not at all.
        let found = served.content();
        assert!(found == before || found == after, "step {dies_at}: {} bytes", found.len());
        assert!(has_died || found == after);
        // A short write takes nothing of what the process has left for what was there before.
        write_short(2000, 3);
        let mut found = found;
        (0..7).for_each(|chunk| found[chunk * CHUNK + 2000..][..10].fill(3));
        assert!(served.content() == found, "step {dies_at}");
        assert_eq!(served.cache.stat(&served.file).unwrap().size, found.len() as u64);
        served.cache.flush().unwrap();
        let file = served.folder.path().join("directory/file");
        assert_eq!(fs::read(&file).unwrap(), found, "step {dies_at}");
        assert_eq!(served.cache.status().unwrap().dirty_chunks, 0, "step {dies_at}");
        // It goes on.
        let client = served.client(3);
        let leased = served.leased(&client);
        all(client.write(&leased, Position::At(0), &[7; LEN]), LEN);
        let mut expected = found;
        expected.resize(expected.len().max(LEN), 0);
        expected[..LEN].fill(7);
        assert_eq!(served.content(), expected);
        served.cache.flush().unwrap();
        assert_eq!(fs::read(&file).unwrap(), expected);
        if !has_died {
            assert!(dies_at > 60, "{dies_at}");
            return;
        }
        dies_at += 1 + dies_at / 8;
    }
}

#[test]
fn who_waits_for_a_process_that_died_learns_that_nothing_is_served() {
    let served = Served::new(2 << 20);
    let region = Region::join(served.region.try_clone().unwrap(), &never()).unwrap().into_range();
    let words = SharedWords::join(served.shared().into()).unwrap();
    let client = Client::join(region, words, 2, || false).unwrap();
    let leased = served.leased(&client);
    served.cache.beat();
    all(client.write(&leased, Position::At(0), &[1]), 1);
    // The lock of the file, by a process that is no more: the server's own word for it.
    let words = SharedWords::join(served.shared().into()).unwrap();
    let (groups, place) = (words[2].load(Ordering::Relaxed) as usize, 0);
    let lease = served.cache.lease(&served.file).unwrap().unwrap();
    assert_eq!(lease.slot, place);
    let lock = &words[8 + groups + groups.div_ceil(64) + 8 * place as usize];
    lock.store(5, Ordering::Relaxed);
    served.cache.beat();
    let refused = client.write(&leased, Position::At(0), &[1]);
    assert!(matches!(refused.stopped, Some(Denied::Failed(Error::NotServed))), "{refused:?}");
    served.cache.reap(5).unwrap();
    served.cache.beat();
    all(client.write(&leased, Position::At(0), &[1]), 1);
}

#[test]
fn a_client_ends_with_errors_once_the_server_has_ended() {
    let served = Served::new(2 << 20);
    let lives = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let region = Region::join(served.region.try_clone().unwrap(), &never()).unwrap().into_range();
    let words = SharedWords::join(served.shared().into()).unwrap();
    let asked = lives.clone();
    let client = Client::join(region, words, 2, move || asked.load(Ordering::Relaxed)).unwrap();
    let leased = served.leased(&client);
    // A server that is slow is not one that has ended.
    all(client.write(&leased, Position::At(0), &[1]), 1);
    let lease = served.cache.lease(&served.file).unwrap().unwrap();
    assert!(client.has_lease(lease.slot, lease.generation));
    lives.store(false, Ordering::Relaxed);
    assert!(!client.has_lease(lease.slot, lease.generation));
    let refused = client.write(&leased, Position::At(0), &[1]).stopped;
    assert!(matches!(refused, Some(Denied::Failed(Error::NotServed))), "{refused:?}");
    assert!(matches!(client.read(&leased, 0, &mut [0]), Err(Denied::Failed(Error::NotServed))));
    // One that says so is there, whatever is known of it.
    served.cache.beat();
    all(client.write(&leased, Position::At(0), &[2]), 1);
}

/// Two clients and the server write to one file, while it is flushed.
#[test]
fn many_write_at_once() {
    const WRITES: u64 = 3000;
    let served = Served::new(1 << 20);
    let flusher = Flusher::start(served.cache.clone(), Duration::from_millis(1));
    let id = served.cache.stat(&served.file).unwrap().id;
    let write = |who: u64, write: &dyn Fn(u64, &[u8])| {
        for n in 0..WRITES {
            // Records of its own, between those of the others.
            let at = (n * 3 + who) * 700 % (900 * 700);
            write(at, &[(n % 250) as u8 + 1; 700]);
        }
    };
    std::thread::scope(|scope| {
        for who in [0, 1] {
            let served = &served;
            scope.spawn(move || {
                let client = served.client(2 + who as u32);
                let leased = served.leased(&client);
                write(who, &|at, data| {
                    let mut done = 0;
                    while done < data.len() {
                        let written = client.write(&leased, Position::At(at + done as u64), &data[done..]);
                        done += written.len;
                        match written.stopped {
                            None => {}
                            Some(Denied::NoRoom) => {
                                served.cache.make_room(id, at, data.len() as u64).unwrap();
                            }
                            Some(other) => panic!("{other}"),
                        }
                    }
                });
            });
        }
        write(2, &|at, data| assert_eq!(served.cache.write(&served.file, at, data).unwrap(), data.len()));
    });
    drop(flusher);
    served.cache.flush().unwrap();
    let found = fs::read(served.folder.path().join("directory/file")).unwrap();
    assert_eq!(found, served.content());
    for who in 0..3 {
        let last: std::collections::BTreeMap<u64, u8> =
            (0..WRITES).map(|n| ((n * 3 + who) * 700 % (900 * 700), (n % 250) as u8 + 1)).collect();
        for (at, byte) in last {
            assert!(found[at as usize..][..700].iter().all(|&found| found == byte), "{who} at {at}");
        }
    }
}
