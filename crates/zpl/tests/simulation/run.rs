//! One run: operations, syncs, txgs, crashes.
//!
//! What must be there after a crash is known exactly. A commit makes durable: all changes of names so far,
//! the changes of its file so far, and of files that were renamed or linked those before that. A txg makes
//! all durable. The rest is lost, since the process dies without another write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fastness_store::Store;
use fastness_testkit::Rng;
use fastness_zpl::{FileSystem, FileSystemOptions, Ino, mode};

use crate::drive::{assert_shows, carry_out, names};
use crate::model::{Change, How, Model};
use crate::support::{FS, Log, Media};

const FILE_BYTES_MAX: u64 = 300_000;

/// How often things were met in all runs.
#[derive(Debug, Default)]
pub(crate) struct Met(BTreeMap<&'static str, u64>);

impl Met {
    fn meet(&mut self, what: &'static str) {
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
            "pmem",
            "lwb",
            "crash in replay",
        ] {
            assert!(self.0.get(what).is_some_and(|count| *count > 0), "no run met: {what}; {self:?}");
        }
    }
}

/// A pool with a file system, its model, and what is durable.
struct World {
    media: Media,
    store: Option<Arc<Store>>,
    fs: Option<FileSystem>,
    /// Durable for certain.
    base: Model,
    model: Model,
    /// Changes since `base`, each with whether all commits cover it.
    changes: Vec<(Change, bool)>,
    /// Of these, how many changes of names are durable.
    names: usize,
    /// For a file, how many of these, if they change it, are durable.
    files: BTreeMap<Ino, usize>,
}

fn create(rng: &mut Rng, met: &mut Met) -> World {
    let log = Log::ALL[rng.index(2)];
    met.meet(if log == Log::Pmem { "pmem" } else { "lwb" });
    let (media, store) = Media::create(log, 64 << 20, Duration::from_secs(3600));
    let fs = FileSystem::create(&store, FS, &FileSystemOptions::default()).unwrap();
    World {
        media,
        store: Some(store),
        fs: Some(fs),
        base: Model::default(),
        model: Model::default(),
        changes: Vec::new(),
        names: 0,
        files: BTreeMap::new(),
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
        let mut change = self.model.choose(rng, FILE_BYTES_MAX);
        let is_sync = match &change {
            Change::Write { ino, .. } => {
                rng.below(3) == 0 && self.model.0.get(ino).is_some_and(|node| node.links > 0)
            }
            _ => false,
        };
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

    fn sync(&mut self, rng: &mut Rng, met: &mut Met) {
        let count = self.changes.len();
        match rng.below(4) {
            0 => {
                self.store.as_ref().unwrap().pool().sync().unwrap();
                met.meet("txg");
                self.base = self.model.clone();
                self.changes.clear();
                (self.names, self.files) = (0, BTreeMap::new());
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

    /// What a crash leaves, and the files whose bytes may be others: bytes that a record does not have are
    /// read back when a commit needs them. One that needs a write because of a name finds what later writes
    /// left.
    fn survivors(&self, met: &mut Met) -> (Model, BTreeSet<Ino>) {
        let mut model = self.base.clone();
        let (mut by_name, mut vague) = (BTreeSet::<Ino>::new(), BTreeSet::new());
        for (index, (change, is_covered)) in self.changes.iter().enumerate() {
            let is_durable = match change.file() {
                None => index < self.names,
                Some(ino) if index < self.files.get(&ino).copied().unwrap_or(0) => true,
                Some(ino) if *is_covered && self.is_named(ino, index) => {
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

    /// Whether a durable change after `index` names the file, so that what was before is durable too.
    fn is_named(&self, ino: Ino, index: usize) -> bool {
        let mut model = self.base.clone();
        for (at, (change, _)) in self.changes.iter().enumerate().take(self.names) {
            let before = model.clone();
            let _ = model.apply(change);
            let named = names(&before, &model, change);
            if at > index && named.contains(&ino) {
                return true;
            }
        }
        false
    }

    fn import(&self) -> (Arc<Store>, u64) {
        let (store, report) = self.media.import();
        (store, report.records)
    }

    fn crash(&mut self, rng: &mut Rng, met: &mut Met) {
        met.meet("crash");
        let (mut expected, vague) = self.survivors(met);
        if self.model.0.values().any(|node| node.links == 0) {
            met.meet("unlinked in use");
        }
        let store = self.store.take().unwrap();
        store.pool().freeze();
        self.fs = None;
        drop(store);
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
        for ino in vague {
            let node = expected.0.get_mut(&ino);
            if let Some(node) = node.filter(|node| node.mode & mode::TYPE == mode::FILE) {
                met.meet("read back later");
                node.bytes = vec![0; fs.attributes(ino).unwrap().size_bytes as usize];
                fs.read(ino, 0, &mut node.bytes).unwrap();
            }
        }
        assert_shows(&fs, &expected);
        store.pool().sync().unwrap();
        let report = fastness_zpl::check(fs.dataset()).unwrap();
        assert!(report.is_clean(), "{report:?}");
        let report = store.pool().check().unwrap();
        assert!(report.is_clean(), "{report:?}");
        (self.store, self.fs) = (Some(store), Some(fs));
        (self.base, self.model) = (expected.clone(), expected);
        self.changes.clear();
        (self.names, self.files) = (0, BTreeMap::new());
    }
}

pub(crate) fn run(seed: u64, met: &mut Met) {
    let mut rng = Rng(seed);
    let mut world = create(&mut rng, met);
    for _ in 0..3 {
        for _ in 0..20 + rng.below(150) {
            match rng.below(12) {
                0 => world.sync(&mut rng, met),
                _ => world.step(&mut rng, met),
            }
        }
        assert_shows(world.fs(), &world.model);
        world.crash(&mut rng, met);
    }
    let gone = world.model.0.values().filter(|node| node.links == 0).count();
    assert_eq!(gone, 0, "nothing is in use after a crash");
}
