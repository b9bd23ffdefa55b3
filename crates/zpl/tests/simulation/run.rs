//! One run: operations, syncs, txgs, crashes.
//!
//! What must be there after a crash is known exactly. A commit makes durable: all changes of names so far,
//! the changes of its file so far, and of files that were renamed or linked those before that. A txg makes
//! all durable. The rest is lost, since the process dies without another write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fastness_store::{LogData, Property, Store};
use fastness_testkit::Rng;
use fastness_zpl::{FileSystem, FileSystemOptions, Ino, mode};

use crate::drive::{BLOCK_BYTES, assert_shows, carry_out, names};
use crate::model::{Change, How, Model};
use crate::partial::{self, bytes};
use crate::support::{FS, Log, Media};

const FILE_BYTES_MAX: u64 = 300_000;

/// How often things were met in all runs.
#[derive(Debug, Default)]
pub(crate) struct Met(BTreeMap<&'static str, u64>);

impl Met {
    pub(crate) fn meet(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(crate) fn check(&self) {
        for what in [
            "made",
            "refused",
            "crash",
            "lost names",
            "lost data",
            "replayed",
            "exchange",
            "whiteout",
            "replaced",
            "linked unnamed",
            "removed",
            "unlinked in use",
            "promoted",
            "txg",
            "sync write",
            "read from the log",
            "pmem",
            "lwb",
            "crash in replay",
            "crash in a commit",
            "part of a commit",
            "reaped",
            "short life",
            "snapshot",
            "snapshot of unsynced changes",
            "snapshot with an unnamed file",
            "snapshot gone",
            "snapshot compared",
            "rollback of unsynced changes",
        ] {
            assert!(self.0.get(what).is_some_and(|count| *count > 0), "no run met: {what}; {self:?}");
        }
    }
}

/// A pool with a file system, its model, and what is durable.
pub(crate) struct World {
    media: Media,
    store: Option<Arc<Store>>,
    fs: Option<FileSystem>,
    /// Durable for certain.
    base: Model,
    model: Model,
    /// Changes since `base`, each with whether all commits cover it.
    pub(crate) changes: Vec<(Change, bool)>,
    /// Which of these have given a file a name, first or another.
    named: Vec<(usize, Ino)>,
    /// Of these, how many changes of names are durable.
    pub(crate) names: usize,
    /// For a file, how many of these, if they change it, are durable.
    files: BTreeMap<Ino, usize>,
    /// By name, how many were made before it, and what it shows.
    snapshots: BTreeMap<String, (u64, Model)>,
    snapshots_made: u64,
}

fn create(rng: &mut Rng, met: &mut Met) -> World {
    let log = Log::ALL[rng.index(2)];
    met.meet(if log == Log::Pmem { "pmem" } else { "lwb" });
    let (media, store) = Media::create(log, 64 << 20, Duration::from_secs(3600));
    if rng.below(2) == 0 {
        let pool = store.pool();
        pool.transact(|tx| pool.set_log_data(tx, LogData::Pm)).unwrap();
    }
    let properties = match rng.below(2) {
        0 => vec![(Property::RecordSize, BLOCK_BYTES as u64)],
        _ => Vec::new(),
    };
    let options = FileSystemOptions { properties, ..FileSystemOptions::default() };
    let fs = FileSystem::create(&store, FS, &options).unwrap();
    World {
        media,
        store: Some(store),
        fs: Some(fs),
        base: Model::default(),
        model: Model::default(),
        changes: Vec::new(),
        named: Vec::new(),
        names: 0,
        files: BTreeMap::new(),
        snapshots: BTreeMap::new(),
        snapshots_made: 0,
    }
}

/// Shows what a run does, for `FASTNESS_FILES_TRACE=1` and one seed.
fn trace(text: impl FnOnce() -> String) {
    if std::env::var_os("FASTNESS_FILES_TRACE").is_some() {
        println!("{}", text());
    }
}

impl World {
    fn fs(&self) -> &FileSystem {
        self.fs.as_ref().expect("it is open")
    }

    fn step(&mut self, rng: &mut Rng, met: &mut Met) {
        let change = self.model.choose(rng, FILE_BYTES_MAX);
        let is_sync = match &change {
            Change::Write { ino, .. } => {
                rng.below(3) == 0 && self.model.0.get(ino).is_some_and(|node| node.links > 0)
            }
            _ => false,
        };
        self.make(change, is_sync, met);
    }

    /// A file is written, gets a name, and is gone again.
    fn short_life(&mut self, rng: &mut Rng, met: &mut Met) {
        let (root, name) = (Ino::ROOT, |name: &[u8]| (Ino::ROOT, name.to_vec()));
        let new = |name: &[u8]| Change::Make {
            directory: root,
            name: name.to_vec(),
            mode: mode::FILE | 0o644,
            target: Vec::new(),
            made: Ino(0),
        };
        self.make(new(b"short"), false, met);
        let ino = self.model.0[&root].names.get(&b"short"[..]).copied().unwrap_or(root);
        let data = vec![1 + rng.below(255) as u8; 1 + rng.below(20_000) as usize];
        self.make(Change::Write { ino, offset: 0, data }, false, met);
        let rename = |from: &[u8]| Change::Rename {
            from: name(from),
            to: name(b"lived"),
            how: How::Replace,
            white: Ino(0),
        };
        self.make(rename(b"short"), false, met);
        if rng.below(2) == 0 {
            self.make(
                Change::Remove { directory: root, name: b"lived".to_vec(), is_directory: false },
                false,
                met,
            );
        } else {
            self.make(new(b"next"), false, met);
            self.make(rename(b"next"), false, met);
        }
        if self.model.0.get(&ino).is_some_and(|node| node.links == 0) {
            self.fs().reap(ino).unwrap();
            self.model.0.remove(&ino);
            met.meet("short life");
        }
    }

    fn make(&mut self, mut change: Change, is_sync: bool, met: &mut Met) {
        let result = carry_out(self.fs(), &mut change, is_sync).map_err(|error| error.errno());
        let links: Vec<_> = self.model.0.iter().map(|(ino, node)| (*ino, node.links)).collect();
        let unnamed = match &change {
            Change::Link { ino, .. } => self.model.0.get(ino).is_some_and(|node| node.links == 0),
            _ => false,
        };
        let before = self.model.clone();
        let expected = self.model.apply(&change);
        assert_eq!(result, expected, "{change:?}");
        if result.is_err() {
            met.meet("refused");
            return;
        }
        met.meet("made");
        trace(|| {
            let text = format!("{change:?}");
            format!("{}: {}", self.changes.len(), &text[..text.len().min(150)])
        });
        let went = links.iter().any(|(ino, links)| *links > 0 && self.model.0[ino].links == 0);
        match &change {
            Change::Rename { how: How::Exchange, .. } => met.meet("exchange"),
            Change::Rename { how: How::Whiteout, .. } => met.meet("whiteout"),
            Change::Rename { .. } if went => met.meet("replaced"),
            Change::Remove { .. } => met.meet("removed"),
            Change::Link { .. } if unnamed => met.meet("linked unnamed"),
            _ => {}
        }
        // A file that gets its first name, or another one, has its bytes before the name.
        for named in names(&before, &self.model, &change) {
            self.named.push((self.changes.len(), named));
            let before = self.changes.iter_mut().filter(|(change, _)| change.file() == Some(named));
            before.for_each(|(_, is_covered)| {
                *is_covered = true;
                met.meet("promoted");
            });
        }
        let written = change.file().filter(|_| is_sync);
        self.changes.push((change, false));
        if let Some(ino) = written {
            met.meet("sync write");
            self.names = self.changes.len();
            self.files.insert(ino, self.names);
        }
    }

    /// Nothing uses one of the files without a name any more.
    fn reap(&mut self, rng: &mut Rng, met: &mut Met) {
        let Some(gone) = self.model.any(rng, |node| node.links == 0) else { return };
        trace(|| format!("reaped {gone}"));
        self.fs().reap(gone).unwrap();
        self.model.0.remove(&gone);
        met.meet("reaped");
    }

    fn all_is_durable(&mut self) {
        self.base = self.model.clone();
        (self.changes, self.named) = Default::default();
        (self.names, self.files) = (0, BTreeMap::new());
    }

    /// Makes a snapshot, or destroys one.
    fn snapshot(&mut self, rng: &mut Rng, met: &mut Met) {
        let store = self.store.as_ref().unwrap();
        let name = format!("{FS}@s{}", rng.below(4));
        if self.snapshots.remove(&name).is_some() {
            assert!(store.destroy_datasets(vec![name]).unwrap().is_empty());
            met.meet("snapshot gone");
        } else {
            store.snapshot(&name).unwrap();
            met.meet(if self.changes.is_empty() { "snapshot" } else { "snapshot of unsynced changes" });
            if self.model.0.values().any(|node| node.links == 0) {
                met.meet("snapshot with an unnamed file");
            }
            self.snapshots.insert(name, (self.snapshots_made, self.model.clone()));
            self.snapshots_made += 1;
        }
        self.all_is_durable();
    }

    /// The file system becomes what a snapshot is; newer ones are gone. Nothing is open meanwhile.
    fn roll_back(&mut self, rng: &mut Rng, met: &mut Met) {
        if self.snapshots.is_empty() {
            return;
        }
        let at = rng.index(self.snapshots.len());
        let (name, (number, then)) = self.snapshots.iter().nth(at).unwrap();
        let (number, mut then) = (*number, then.clone());
        let store = self.store.as_ref().unwrap();
        self.fs = None;
        store.rollback(name, true).unwrap();
        let fs = FileSystem::open(store, FS).unwrap();
        fs.reap_all(|_| false).unwrap();
        store.pool().sync().unwrap();
        then.0.retain(|_, node| node.links > 0);
        self.snapshots.retain(|_, (of, _)| *of <= number);
        self.fs = Some(fs);
        self.model = then;
        met.meet(if self.changes.is_empty() { "rollback" } else { "rollback of unsynced changes" });
        self.all_is_durable();
        assert_shows(self.fs(), &self.model);
    }

    /// Snapshots show what was there when they were made.
    fn compare_snapshots(&self, met: &mut Met) {
        for (name, (_, model)) in &self.snapshots {
            let fs = FileSystem::open(self.store.as_ref().unwrap(), name).unwrap();
            assert_shows(&fs, model);
            let report = fastness_zpl::check(fs.dataset()).unwrap();
            assert!(report.is_clean(), "{name}: {report:?}");
            met.meet("snapshot compared");
        }
    }

    fn sync(&mut self, rng: &mut Rng, met: &mut Met) {
        let count = self.changes.len();
        match rng.below(4) {
            0 => {
                self.store.as_ref().unwrap().pool().sync().unwrap();
                met.meet("txg");
                self.all_is_durable();
            }
            1 => {
                self.fs().sync_all().unwrap();
                self.names = count;
                self.files = self.model.0.keys().map(|ino| (*ino, count)).collect();
            }
            _ => {
                let Some(ino) = self.model.any(rng, |node| node.links > 0) else { return };
                trace(|| format!("sync of {ino} at {count}"));
                self.fs().sync_file(ino, rng.below(2) == 0).unwrap();
                self.names = count;
                self.files.insert(ino, count);
            }
        }
    }

    /// Begins to make everything durable, and the power fails somewhere in it. Returns whether it did; if
    /// not, all is durable.
    fn begin_sync(&mut self, rng: &mut Rng, met: &mut Met) -> bool {
        let power = &self.media.power;
        let events_max = 1 << rng.below(9);
        power.cut_in(1 + rng.below(events_max));
        let synced = self.fs().sync_all();
        if power.is_off() {
            met.meet("crash in a commit");
            return true;
        }
        synced.unwrap();
        power.turn_on();
        self.names = self.changes.len();
        self.files = self.model.0.keys().map(|ino| (*ino, self.names)).collect();
        false
    }

    /// What a crash leaves if the first `names` changes of names are durable, and of each file as many of its
    /// own as `of_file` says; and the files whose bytes may be others: bytes that a record does not have are
    /// read back when a commit needs them. One that needs a write because of a name finds what later writes
    /// left.
    pub(crate) fn survivors(
        &self,
        names: usize,
        of_file: impl Fn(Ino) -> usize,
        met: &mut Met,
    ) -> (Model, BTreeSet<Ino>) {
        let mut model = self.base.clone();
        let (mut by_name, mut vague) = (BTreeSet::<Ino>::new(), BTreeSet::new());
        for (index, (change, is_covered)) in self.changes.iter().enumerate() {
            let is_durable = match change.file() {
                None => index < names,
                Some(ino) if index < of_file(ino) => true,
                Some(ino) if *is_covered && self.is_named(ino, index, names) => {
                    by_name.insert(ino);
                    true
                }
                Some(ino) => {
                    vague.extend(by_name.get(&ino));
                    false
                }
            };
            if !is_durable {
                met.meet(if change.file().is_none() { "lost names" } else { "lost data" });
                continue;
            }
            if let Change::Link { ino, .. } = change
                && model.0.get(ino).is_some_and(|node| node.links == 0)
            {
                // Its first name: all of its bytes are read back.
                by_name.insert(*ino);
            }
            // A file that was never logged under a name is gone, and so is what happened to it.
            let applied = model.apply(change);
            assert!(applied.is_ok() || change.file().is_some(), "{change:?}: {applied:?}");
        }
        // Nothing is open after a crash.
        model.0.retain(|_, node| node.links > 0);
        (model, vague)
    }

    /// Whether one of the first `names` changes, after `index`, names the file, so that what was before is
    /// durable with it.
    fn is_named(&self, ino: Ino, index: usize, names: usize) -> bool {
        self.named.iter().any(|(at, named)| *named == ino && *at > index && *at < names)
    }

    fn import(&self) -> (Arc<Store>, u64) {
        let (store, report) = self.media.import();
        (store, report.records)
    }

    fn crash(&mut self, rng: &mut Rng, met: &mut Met) {
        met.meet("crash");
        let log = self.store.as_ref().and_then(|store| store.log().map(|log| log.medium_stats()));
        if log.flatten().is_some_and(|stats| stats.read_bytes > 0) {
            met.meet("read from the log");
        }
        let is_cut = rng.below(3) == 0 && self.begin_sync(rng, met);
        if self.model.0.values().any(|node| node.links == 0) {
            met.meet("unlinked in use");
        }
        let store = self.store.take().unwrap();
        let fs = self.fs.take();
        if is_cut {
            self.media.lose_power((fs, store));
        } else {
            store.pool().freeze();
            drop((fs, store));
        }
        if rng.below(3) == 0 {
            // The import is as good as replayed, and nothing of it is durable.
            met.meet("crash in replay");
            let (store, _) = self.import();
            store.pool().freeze();
        }
        let (store, records) = self.import();
        if records > 0 {
            met.meet("replayed");
        }
        let fs = FileSystem::open(&store, FS).unwrap();
        fs.reap_all(|_| false).unwrap();
        let durable = |ino: Ino| self.files.get(&ino).copied().unwrap_or(0);
        let expected = if is_cut {
            partial::survivors(self, &fs, durable, met)
        } else {
            let (mut expected, vague) = self.survivors(self.names, durable, met);
            for ino in vague {
                let node = expected.0.get_mut(&ino);
                if let Some(node) = node.filter(|node| node.mode & mode::TYPE == mode::FILE) {
                    met.meet("read back later");
                    node.bytes = bytes(&fs, ino);
                }
            }
            expected
        };
        assert_shows(&fs, &expected);
        store.pool().sync().unwrap();
        let report = fastness_zpl::check(fs.dataset()).unwrap();
        assert!(report.is_clean(), "{report:?}");
        let report = store.pool().check().unwrap();
        assert!(report.is_clean(), "{report:?}");
        (self.store, self.fs) = (Some(store), Some(fs));
        (self.base, self.model) = (expected.clone(), expected);
        (self.changes, self.named) = Default::default();
        (self.names, self.files) = (0, BTreeMap::new());
        self.compare_snapshots(met);
    }
}

pub(crate) fn run(seed: u64, met: &mut Met) {
    let mut rng = Rng(seed);
    let mut world = create(&mut rng, met);
    for _ in 0..3 {
        for _ in 0..20 + rng.below(150) {
            match rng.below(12) {
                0 => world.sync(&mut rng, met),
                1 => world.reap(&mut rng, met),
                2 if rng.below(4) == 0 => world.short_life(&mut rng, met),
                3 if rng.below(4) == 0 => world.snapshot(&mut rng, met),
                4 if rng.below(12) == 0 => world.roll_back(&mut rng, met),
                _ => world.step(&mut rng, met),
            }
        }
        assert_shows(world.fs(), &world.model);
        world.compare_snapshots(met);
        world.crash(&mut rng, met);
    }
    let gone = world.model.0.values().filter(|node| node.links == 0).count();
    assert_eq!(gone, 0, "nothing is in use after a crash");
}
