//! One run: operations, syncs, txgs, crashes.
//!
//! What must be there after a crash is known exactly. A commit makes durable: all changes of names so far,
//! the changes of its file so far, and of files that were renamed or linked those before that. A txg makes
//! all durable. The rest is lost, since the process dies without another write.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use fastness_store::Store;
use fastness_testkit::Rng;
use fastness_zpl::{
    Allocate, FileSystem, FileSystemOptions, FsError, Ino, NewFile, RenameHow, SetAttributes, WriteHow,
    XattrHow, mode,
};

use crate::model::{Change, How, Model, Name, is_directory};
use crate::support::{FS, Log, Media};

const TYPES: [u32; 6] = [mode::FILE, mode::FILE, mode::FILE, mode::DIRECTORY, mode::DIRECTORY, mode::SYMLINK];
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
    /// Whether the next write is to be durable on return.
    is_sync: bool,
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
        is_sync: false,
    }
}

/// Shows what a run does, for `FASTNESS_FILES_TRACE=1` and one seed.
fn trace(text: impl FnOnce() -> String) {
    if std::env::var_os("FASTNESS_FILES_TRACE").is_some() {
        println!("{}", text());
    }
}

fn name(rng: &mut Rng) -> Name {
    match rng.below(12) {
        0 => vec![0xff, 0xfe],
        1 => vec![b'x'; 255],
        number => format!("n{number}").into_bytes(),
    }
}

impl World {
    fn fs(&self) -> &FileSystem {
        self.fs.as_ref().expect("it is open")
    }

    fn any(&self, rng: &mut Rng, wanted: impl Fn(&crate::model::Node) -> bool) -> Option<Ino> {
        let all: Vec<_> = self.model.0.iter().filter(|(_, node)| wanted(node)).map(|(ino, _)| *ino).collect();
        (!all.is_empty()).then(|| all[rng.below(all.len() as u64) as usize])
    }

    fn directory(&self, rng: &mut Rng) -> Ino {
        self.any(rng, |node| is_directory(node.mode)).expect("the root is one")
    }

    /// A name in a directory, most often one that is there.
    fn known_name(&self, rng: &mut Rng) -> (Ino, Name) {
        let directory = self.directory(rng);
        let names: Vec<_> = self.model.0[&directory].names.keys().collect();
        match names.len() as u64 {
            0 => (directory, name(rng)),
            _ if rng.below(8) == 0 => (directory, name(rng)),
            count => (directory, names[rng.below(count) as usize].clone()),
        }
    }

    fn choose(&self, rng: &mut Rng) -> Change {
        let file = |rng: &mut Rng| self.any(rng, |node| node.mode & mode::TYPE == mode::FILE);
        let any = self.any(rng, |_| true).expect("the root");
        let offset = rng.below(FILE_BYTES_MAX) as usize >> (4 * rng.below(4));
        match rng.below(20) {
            0..=3 => {
                let of = TYPES[rng.below(TYPES.len() as u64) as usize];
                let target = if of == mode::SYMLINK { b"target".to_vec() } else { Vec::new() };
                let mode = of | if of == mode::SYMLINK { 0o777 } else { 0o644 };
                Change::Make { directory: self.directory(rng), name: name(rng), mode, target, made: Ino(0) }
            }
            4 => Change::MakeUnnamed { mode: mode::FILE | 0o600, made: Ino(0) },
            5..=6 => {
                let unnamed = self.any(rng, |node| node.is_temporary).filter(|_| rng.below(2) == 0);
                let ino = unnamed.or_else(|| file(rng)).unwrap_or(any);
                Change::Link { ino, directory: self.directory(rng), name: name(rng) }
            }
            7..=8 => {
                let (directory, name) = self.known_name(rng);
                Change::Remove { directory, name, is_directory: rng.below(3) == 0 }
            }
            9..=11 => {
                let how = [How::Replace, How::Replace, How::NoReplace, How::Exchange, How::Whiteout];
                let how = how[rng.below(5) as usize];
                let from = self.known_name(rng);
                let to =
                    if rng.below(2) == 0 { self.known_name(rng) } else { (self.directory(rng), name(rng)) };
                Change::Rename { from, to, how, white: Ino(0) }
            }
            12..=14 => {
                let len = rng.below(40_000) as usize >> (3 * rng.below(5));
                let byte = 1 + rng.below(255) as u8;
                Change::Write { ino: file(rng).unwrap_or(any), offset, data: vec![byte; len.max(1)] }
            }
            15 => Change::Resize { ino: file(rng).unwrap_or(any), len: offset },
            16 => {
                let len = 1 + rng.below(100_000) as usize;
                Change::Punch { ino: file(rng).unwrap_or(any), offset, len }
            }
            17 => Change::SetMode { ino: any, mode: rng.below(0o10000) as u32 },
            18 => Change::SetOwner { ino: any, uid: rng.below(1000) as u32 },
            _ => {
                let name = format!("user.{}", rng.below(3)).into_bytes();
                let len = [0, 1, 700, 5000][rng.below(4) as usize];
                let value = (rng.below(4) > 0).then(|| vec![rng.below(256) as u8; len]);
                Change::SetXattr { ino: any, name, value }
            }
        }
    }

    /// Makes a change in the file system; fills in the number of what it made.
    fn carry_out(&self, change: &mut Change) -> Result<(), FsError> {
        let fs = self.fs();
        let whiteout = |directory: Ino, name: &[u8]| fs.find(directory, name).unwrap();
        match change {
            Change::Make { directory, name, mode, target, made } => {
                let new = NewFile { mode: *mode, target, ..NewFile::default() };
                *made = fs.make(*directory, name, &new)?.ino;
            }
            Change::MakeUnnamed { mode, made } => {
                let new = NewFile { mode: *mode, ..NewFile::default() };
                *made = fs.make_unnamed(Ino::ROOT, &new, true)?.ino;
            }
            Change::Link { ino, directory, name } => drop(fs.link(*ino, *directory, name)?),
            Change::Remove { directory, name, is_directory: true } => {
                fs.remove_directory(*directory, name)?;
            }
            Change::Remove { directory, name, .. } => drop(fs.unlink(*directory, name)?),
            Change::Rename { from, to, how, white } => {
                let how = match how {
                    How::Replace => RenameHow::Replace,
                    How::NoReplace => RenameHow::NoReplace,
                    How::Exchange => RenameHow::Exchange,
                    How::Whiteout => RenameHow::Whiteout { uid: 0, gid: 0 },
                };
                let is_same = || fs.find(from.0, &from.1).ok() == fs.find(to.0, &to.1).ok();
                let is_nothing = is_same();
                fs.rename((from.0, &from.1), (to.0, &to.1), how)?;
                if matches!(how, RenameHow::Whiteout { .. }) && !is_nothing {
                    *white = whiteout(from.0, &from.1);
                }
            }
            Change::Write { ino, offset, data } => {
                let how = WriteHow { is_sync: self.is_sync, ..WriteHow::default() };
                fs.write(*ino, *offset as u64, data, how)?;
            }
            Change::Resize { ino, len } => {
                let set = SetAttributes { size_bytes: Some(*len as u64), ..SetAttributes::default() };
                fs.set_attributes(*ino, &set)?;
            }
            Change::Punch { ino, offset, len } => {
                fs.allocate(*ino, *offset as u64, *len as u64, Allocate::Punch)?;
            }
            Change::SetMode { ino, mode } => {
                let set = SetAttributes { mode: Some(*mode), ..SetAttributes::default() };
                fs.set_attributes(*ino, &set)?;
            }
            Change::SetOwner { ino, uid } => {
                let set = SetAttributes { uid: Some(*uid), ..SetAttributes::default() };
                fs.set_attributes(*ino, &set)?;
            }
            Change::SetXattr { ino, name, value: Some(value) } => {
                fs.set_xattr(*ino, name, value, XattrHow::Set, false)?;
            }
            Change::SetXattr { ino, name, value: None } => fs.remove_xattr(*ino, name)?,
        }
        Ok(())
    }

    fn step(&mut self, rng: &mut Rng, met: &mut Met) {
        let mut change = self.choose(rng);
        if let Change::Make { directory, mode, .. } = &mut change
            && is_directory(*mode)
        {
            *mode |= self.model.0[directory].mode & mode::SET_GID;
        }
        self.is_sync = match &change {
            Change::Write { ino, .. } => {
                rng.below(3) == 0 && self.model.0.get(ino).is_some_and(|node| node.links > 0)
            }
            _ => false,
        };
        let result = self.carry_out(&mut change).map_err(|error| error.errno());
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
        let written = change.file().filter(|_| self.is_sync);
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
                let Some(ino) = self.any(rng, |node| node.links > 0) else { return };
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
        model.reap();
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

/// The files that a change has given a name. A rename to another name of the same file does nothing.
fn names(before: &Model, after: &Model, change: &Change) -> Vec<Ino> {
    let of = |model: &Model, (directory, name): &(Ino, Name)| {
        model.0.get(directory).and_then(|node| node.names.get(name)).copied()
    };
    match change {
        Change::Link { ino, .. } => vec![*ino],
        Change::Rename { from, to, how, .. } if of(before, from) != of(before, to) => {
            let back = of(after, from).filter(|_| *how == How::Exchange);
            of(after, to).into_iter().chain(back).collect()
        }
        _ => Vec::new(),
    }
}

/// The file system shows exactly what the model has.
fn assert_shows(fs: &FileSystem, model: &Model) {
    for (ino, node) in &model.0 {
        let attributes = fs.attributes(*ino).unwrap_or_else(|error| panic!("{ino} {node:?}: {error}"));
        assert_eq!(
            (attributes.mode, attributes.uid, attributes.links),
            (node.mode, node.uid, node.links),
            "inode {ino}"
        );
        match node.mode & mode::TYPE {
            mode::FILE => {
                let mut bytes = vec![0; node.bytes.len() + 1];
                let len = fs.read(*ino, 0, &mut bytes).unwrap();
                assert_eq!((attributes.size_bytes, len), (len as u64, node.bytes.len()), "inode {ino}");
                let differs =
                    bytes[..len].iter().zip(&node.bytes).position(|(found, wanted)| found != wanted);
                assert_eq!(differs, None, "first wrong byte of inode {ino}");
            }
            mode::SYMLINK => assert_eq!(fs.read_link(*ino).unwrap(), node.bytes),
            mode::DIRECTORY => {
                let mut names = BTreeMap::new();
                fs.list(*ino, 0, |entry| {
                    names.insert(entry.name.to_vec(), entry.ino);
                    ControlFlow::Continue(())
                })
                .unwrap();
                assert_eq!(
                    (names.remove(&b"."[..]), names.remove(&b".."[..])),
                    (Some(*ino), Some(node.parent))
                );
                assert_eq!(names, node.names, "directory {ino}");
            }
            _ => {}
        }
        let list = fs.xattr_names(*ino).unwrap();
        let list = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let xattrs: BTreeMap<_, _> =
            list.map(|name| (name.to_vec(), fs.xattr(*ino, name).unwrap())).collect();
        assert_eq!(xattrs, node.xattrs, "attributes of inode {ino}");
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
