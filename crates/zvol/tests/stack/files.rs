//! Files beside the volumes: random changes, syncs, and several clients at one time, each on a file of its
//! own. Judged by `tree`.

use std::collections::BTreeMap;

use fastness_base::chain;
use fastness_pool::{ErrorKind, PoolError, Property};
use fastness_zpl::{Errno, FileSystem, FileSystemOptions, FsError, Ino, mode};

use crate::drive::{BLOCK_BYTES, assert_shows, carry_out};
use crate::met::note;
use crate::model::Change;
use crate::rng::Rng;
use crate::schedule;
use crate::tree::{Tree, read};
use crate::world::{Done, Failure, Was, World};

pub const NAME: &str = "tank/files";
/// Files end before this.
const FILE_BYTES_MAX: u64 = 40_000;
/// A quota that some file systems have.
const QUOTA_BYTES: u64 = 300 << 10;
const CLIENTS_MAX: usize = 4;

/// A file system and what it must hold.
pub struct Files {
    /// None: it is closed.
    fs: Option<FileSystem>,
    tree: Tree,
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Failure {
        Failure { kind: error.kind(), text: chain(&error) }
    }
}

impl World<'_> {
    /// A file system in a new pool, if it has room for one.
    pub fn make_files(&mut self) {
        let quota = self.rng.one_in(4).then_some((Property::Quota, QUOTA_BYTES));
        let small = self.rng.one_in(2).then_some((Property::RecordSize, BLOCK_BYTES as u64));
        let (properties, seed) = (quota.into_iter().chain(small).collect(), Some(self.rng.next()));
        let options = FileSystemOptions { properties, seed, ..Default::default() };
        match FileSystem::create(self.store(), NAME, &options) {
            Ok(fs) => self.files = Some(Files { fs: Some(fs), tree: Tree::default() }),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}"),
        }
    }

    pub fn has_files(&self) -> bool {
        self.files.as_ref().is_some_and(|files| files.fs.is_some())
    }

    /// Lets go of them, as a process that ends, or before their pool goes.
    pub fn close_files(&mut self) {
        if let Some(files) = &mut self.files {
            files.fs = None;
        }
    }

    /// One change, drawn from what is there.
    pub fn change_files(&mut self, seed: u64) -> Done {
        let pool = self.pool();
        let (met, is_off) = (self.met, || self.power.is_off());
        let log = self.store().log();
        let read_bytes =
            || log.as_ref().and_then(|log| log.medium_stats()).map_or(0, |stats| stats.read_bytes);
        let Some(Files { fs: Some(fs), tree }) = &mut self.files else { return Ok(()) };
        let mut change = tree.now.choose(&mut fastness_testkit::Rng(seed), FILE_BYTES_MAX);
        let has_name = |ino: &Ino| tree.now.0.get(ino).is_some_and(|node| node.links > 0);
        let synced = match &change {
            Change::Write { ino, .. } if seed.is_multiple_of(2) && has_name(ino) => Some(*ino),
            _ => None,
        };
        let made = carry_out(fs, &mut change, synced.is_some());
        let expected = tree.now.clone().apply(&change);
        match (made, expected) {
            (Ok(()), Ok(())) => {
                tree.push(change.clone(), pool.open_txg().0);
                if let Some(ino) = synced {
                    tree.settle_file(ino);
                    note(&met.files_written_through, 1);
                    let before = read_bytes();
                    let mut bytes = vec![0xee; tree.now.0[&ino].bytes.len()];
                    // A medium that fails is met elsewhere.
                    let is_read = fs.read(ino, 0, &mut bytes).is_ok();
                    assert!(
                        !is_read || bytes == tree.now.0[&ino].bytes,
                        "{change:?} reads as something else"
                    );
                    note(&met.files_in_log, u64::from(read_bytes() > before));
                }
                note(&met.files_changed, 1);
                Ok(())
            }
            (Err(error), Err(expected)) if error.errno() == expected => Ok(()),
            (Ok(()), Err(expected)) => panic!("{change:?} is not refused: {expected}"),
            (Err(error), _) => {
                if matches!(error, FsError::Commit(_)) {
                    // The write was made all the same.
                    tree.push(change.clone(), pool.open_txg().0);
                }
                let is_of_medium =
                    matches!(error.errno(), Errno::IO | Errno::NOSPC | Errno::DQUOT | Errno::AGAIN);
                assert!(is_of_medium || is_off(), "{change:?}: {error}");
                Err(error.into())
            }
        }
    }

    pub fn sync_files(&mut self, seed: u64) -> Done {
        let mut rng = Rng::new(seed);
        let Some(Files { fs: Some(fs), tree }) = &mut self.files else { return Ok(()) };
        let ino = tree.now.any(&mut rng.0, |node| node.links > 0).expect("the root");
        match rng.one_in(3) {
            true => {
                fs.sync_all()?;
                tree.settle();
            }
            false => {
                fs.sync_file(ino, rng.one_in(2))?;
                tree.settle_file(ino);
            }
        }
        note(&self.met.files_synced, 1);
        Ok(())
    }

    /// Several clients, each with a file of its own; some sync it, and each of their writes.
    pub fn race_files(&mut self, seed: u64, was: &Was) -> Done {
        let mut rng = Rng::new(seed);
        let Some(Files { fs: Some(_), tree }) = &self.files else { return Ok(()) };
        let is_file = |node: &crate::model::Node| node.mode & mode::TYPE == mode::FILE && node.links > 0;
        let inos: Vec<Ino> =
            tree.now.0.iter().filter(|(_, node)| is_file(node)).map(|(ino, _)| *ino).collect();
        let inos = inos.into_iter().take(CLIENTS_MAX);
        let plans: Vec<(Ino, Vec<Change>, bool)> = inos.map(|ino| plan(ino, &mut rng)).collect();
        if plans.len() < 2 {
            return Ok(());
        }
        let fs = std::sync::Arc::new(self.files.as_mut().and_then(|files| files.fs.take()).expect("seen"));
        type Act = Box<dyn FnOnce() -> (usize, Result<(), FsError>) + Send>;
        let act = |(ino, changes, syncs): (Ino, Vec<Change>, bool)| -> Act {
            let fs = fs.clone();
            Box::new(move || {
                for (nth, mut change) in changes.into_iter().enumerate() {
                    if let Err(error) = carry_out(&fs, &mut change, syncs) {
                        // A write whose commit failed was made.
                        let is_made = matches!(error, FsError::Commit(_));
                        return (nth + usize::from(is_made), Err(error));
                    }
                }
                let done = if syncs { fs.sync_file(ino, true) } else { Ok(()) };
                (usize::MAX, done)
            })
        };
        let acts = plans.iter().cloned().map(act).collect();
        let Some(done) = schedule::run(acts, &mut rng) else { panic!("nothing goes on in a race of files") };
        let txg = self.pool().open_txg().0;
        let tree = &mut self.files.as_mut().expect("seen").tree;
        let before = tree.changes();
        let mut failed = Vec::new();
        for ((ino, changes, syncs), done) in plans.into_iter().zip(done) {
            let (count, done) = done.unwrap_or_else(|panic| panic!("{panic}"));
            changes.into_iter().take(count).for_each(|change| tree.push(change, txg));
            match done {
                Ok(()) if syncs => {
                    tree.settle_names(before);
                    tree.settle_own(ino);
                }
                Ok(()) => {}
                Err(error) => failed.push(error),
            }
        }
        let fs = std::sync::Arc::try_unwrap(fs).expect("all threads have ended");
        self.files.as_mut().expect("seen").fs = Some(fs);
        note(&self.met.files_raced, 1);
        let step = crate::program::Step::RaceFiles { seed };
        for error in failed {
            self.story.push(format!("  a client of files FAILED: {error}"));
            self.excuse(&step, &error.into(), was);
        }
        Ok(())
    }

    /// What is of a txg that is called synced is durable.
    pub fn settle_files(&mut self, synced: u64) {
        if let Some(files) = &mut self.files {
            files.tree.settle_txg(synced);
        }
    }

    /// After an import: the tree is one that a crash may leave, and nothing contradicts anything.
    pub fn judge_files(&mut self) {
        let store = self.store().clone();
        let Some(files) = &mut self.files else { return };
        let fs = FileSystem::open(&store, NAME).unwrap_or_else(|error| panic!("files: {error}"));
        fs.reap_all(|_| false).unwrap_or_else(|error| panic!("files: {error}"));
        let found = read(&fs).unwrap_or_else(|error| panic!("files: {error}"));
        let lost = files.tree.judge(&found).unwrap_or_else(|why| panic!("files: {why}"));
        note(if lost { &self.met.files_lost_some } else { &self.met.files_lost_none }, 1);
        files.tree = Tree::of(found);
        files.fs = Some(fs);
        self.check_files();
    }

    /// After a clear everything is as it was, files in use without a name, too.
    pub fn judge_files_cleared(&mut self) {
        let store = self.store().clone();
        let Some(files) = &mut self.files else { return };
        let fs = match FileSystem::open(&store, NAME) {
            Ok(fs) => fs,
            Err(FsError::Pool(PoolError::NoDataset(_))) => panic!("files are gone after a clear"),
            Err(error) => panic!("files after a clear: {error}"),
        };
        assert_shows(&fs, &files.tree.now);
        files.tree.settle();
        files.fs = Some(fs);
        note(&self.met.files_cleared, 1);
        self.check_files();
    }

    fn check_files(&self) {
        let Some(Files { fs: Some(fs), .. }) = &self.files else { return };
        let report = fastness_zpl::check(fs.dataset()).unwrap_or_else(|error| panic!("a check: {error}"));
        assert!(report.is_clean(), "{report:?}");
    }

    /// They can be used.
    pub fn use_files(&mut self) {
        let seed = self.rng.next();
        self.run(&crate::program::Step::ChangeFiles { seed }, "check");
        self.run(&crate::program::Step::SyncFiles { seed }, "check");
        self.check_files();
    }
}

/// What one client of a race does to its file.
fn plan(ino: Ino, rng: &mut Rng) -> (Ino, Vec<Change>, bool) {
    let count = 1 + rng.below(3);
    let change = |_| {
        let offset = rng.index(20_000);
        match rng.below(5) {
            0 => Change::Resize { ino, len: offset },
            1 => Change::SetMode { ino, mode: rng.below(0o1000) as u32 },
            2 => Change::Write { ino, offset, data: vec![1 + rng.below(255) as u8; 1 + rng.index(9000)] },
            _ => {
                let data = vec![1 + rng.below(255) as u8; BLOCK_BYTES * (1 + rng.index(2))];
                Change::Write { ino, offset: offset / BLOCK_BYTES * BLOCK_BYTES, data }
            }
        }
    };
    (ino, (0..count).map(change).collect(), rng.one_in(2))
}

/// Where each file's changes are, up to which they are durable.
pub type Durable = BTreeMap<Ino, usize>;
