//! What tests of file systems share: stores in memory, crashes, whole trees.
#![allow(dead_code, unreachable_pub, missing_debug_implementations)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use fastness_blkdev::MemImage;
use fastness_pool::{Device, Pool, PoolOptions, VdevSpec};
use fastness_store::{
    Consent, DatasetKind, Kinds, LogConfig, NewRegion, Property, RegionParts, ReplayReport, Source, Store,
    StoreError, StoreOptions,
};
use fastness_testkit::Rng;
use fastness_testkit::media::{Bank, Disk, Power};
use fastness_zpl::{
    Attributes, FileReplay, FileSystem, FileSystemOptions, FsError, Ino, NewFile, Seek, mode,
};

pub const FS: &str = "tank/files";

/// Which log a pool has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    Pmem,
    Lwb,
}

impl Log {
    pub const ALL: [Log; 2] = [Log::Pmem, Log::Lwb];
}

/// What a pool is on: a disk, and a region of persistent memory for its log.
pub struct Media {
    pub power: Arc<Power>,
    pub disk: Disk,
    pub bank: Option<Bank>,
}

impl Media {
    /// A new pool.
    pub fn create(log: Log, len_bytes: u64, txg_timeout: Duration) -> (Media, Arc<Store>) {
        Media::with(log, len_bytes, (32, 256 << 10), options(txg_timeout))
    }

    /// The same, with a region of so many chunks of so many bytes.
    pub fn with(
        log: Log,
        len_bytes: u64,
        chunks: (usize, usize),
        options: StoreOptions,
    ) -> (Media, Arc<Store>) {
        let power = Arc::new(Power::default());
        let disk = Disk::new("disk", MemImage::zeroed(len_bytes), &power, 0);
        let vdev = VdevSpec::single(disk.device());
        let pool = Pool::create("tank", &[vdev], options.pool.clone()).unwrap();
        let store = Store::create(pool, options).unwrap();
        let bank = (log == Log::Pmem).then(|| Bank::new(chunks.0, chunks.1, &mut Rng(0), &power));
        if let Some(bank) = &bank {
            let region = || NewRegion { parts: bank.parts(), path: "bank".into(), emulates: true };
            store.log().unwrap().add_regions(|| Ok(vec![region()])).unwrap();
        }
        (Media { power, disk, bank }, store)
    }

    /// What a new process does: import and replay. Its txgs end only when a test says so.
    pub fn try_import(&self) -> Result<(Arc<Store>, ReplayReport), StoreError> {
        Store::import(&mut &*self, options(Duration::from_secs(3600)))
    }

    pub fn import(&self) -> (Arc<Store>, ReplayReport) {
        self.try_import().unwrap()
    }

    /// An import that dies at the `nth` store, fence, write or flush, unless it is done before that: then
    /// false.
    pub fn import_and_die(&self, nth: u64) -> bool {
        self.power.cut_in(nth);
        let imported = self.try_import();
        let is_dead = self.power.is_off();
        assert!(is_dead || imported.is_ok(), "{:?}", imported.err());
        self.lose_power(imported);
        is_dead
    }

    /// The power fails, what used it ends, and it is back.
    pub fn lose_power<T>(&self, users: T) {
        self.power.turn_off();
        drop(users);
        self.power.turn_on();
        self.disk.reopen(0);
    }
}

/// A region is opened only when it is asked for: `pool clear` gives up the parts that are in use before that.
impl Source for &Media {
    fn devices(&mut self, _known: Option<&[String]>) -> Result<Vec<Device>, StoreError> {
        Ok(vec![self.disk.device()])
    }

    fn regions(
        &mut self,
        _pool: &Pool,
        _config: &LogConfig,
    ) -> Result<Vec<Result<RegionParts, StoreError>>, StoreError> {
        Ok(self.bank.iter().map(|bank| Ok(bank.parts())).collect())
    }
}

/// A pool with a file system, whose txgs end only when a test says so.
pub struct World {
    pub media: Media,
    pub store: Arc<Store>,
}

pub fn options(txg_timeout: Duration) -> StoreOptions {
    let pool = PoolOptions { txg_timeout, ..PoolOptions::default() };
    let kinds = Kinds::default().with(DatasetKind::Filesystem, FileReplay::default());
    StoreOptions { pool, kinds, consent: Consent::NONE, ..StoreOptions::default() }
}

impl World {
    pub fn new(len_bytes: u64) -> World {
        World::of(Log::Lwb, len_bytes, Duration::from_secs(3600), &[])
    }

    /// A pool with a log of this kind.
    pub fn logged(log: Log, properties: &[(Property, u64)]) -> World {
        World::of(log, 64 << 20, Duration::from_secs(3600), properties)
    }

    /// Its txgs end as in use.
    pub fn with_txgs(len_bytes: u64) -> World {
        World::of(Log::Lwb, len_bytes, Duration::from_millis(200), &[])
    }

    fn of(log: Log, len_bytes: u64, txg_timeout: Duration, properties: &[(Property, u64)]) -> World {
        let (media, store) = Media::create(log, len_bytes, txg_timeout);
        let properties = properties.to_vec();
        let options = FileSystemOptions { properties, seed: Some(1), ..FileSystemOptions::default() };
        FileSystem::create(&store, FS, &options).unwrap();
        World { media, store }
    }

    pub fn fs(&self) -> FileSystem {
        FileSystem::open(&self.store, FS).unwrap()
    }

    /// The process dies: what is in no log and no synced txg is lost.
    pub fn crash(self) -> (World, ReplayReport) {
        let World { media, store } = self;
        store.pool().freeze();
        drop(store);
        let (store, report) = media.import();
        (World { media, store }, report)
    }

    /// The power fails now, if it has not failed before.
    pub fn lose_power(self) -> World {
        let World { media, store } = self;
        media.lose_power(store);
        World { store: media.import().0, media }
    }

    /// Nothing contradicts anything: neither the rows of files, nor the pool's space.
    pub fn check(&self) {
        self.store.pool().sync().unwrap();
        let report = fastness_zpl::check(self.fs().dataset()).unwrap();
        assert!(report.is_clean(), "{report:?}");
        let report = self.store.pool().check().unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}

pub fn file(permissions: u32) -> NewFile<'static> {
    NewFile { mode: mode::FILE | permissions, ..NewFile::default() }
}

pub fn directory(permissions: u32) -> NewFile<'static> {
    NewFile { mode: mode::DIRECTORY | permissions, ..NewFile::default() }
}

/// Everything of a tree that a program can see, except how much it takes: that depends on when it was
/// written.
pub fn archive(fs: &FileSystem) -> (Tree, Holes) {
    let mut tree = tree(fs);
    tree.values_mut().for_each(|(attributes, ..)| attributes.blocks = 0);
    let is_file = |attributes: &Attributes| attributes.mode & mode::TYPE == mode::FILE;
    let files = tree.iter().filter(|(_, (attributes, ..))| is_file(attributes));
    let holes = files.map(|(path, (attributes, ..))| (path.clone(), holes(fs, attributes.ino)));
    let holes = holes.collect();
    (tree, holes)
}

/// Where data begins and ends, by path.
pub type Holes = BTreeMap<Vec<u8>, Vec<u64>>;

fn holes(fs: &FileSystem, ino: Ino) -> Vec<u64> {
    let (mut at, mut ends, mut what) = (0, Vec::new(), Seek::Data);
    loop {
        match fs.seek(ino, at, what) {
            Ok(found) => at = found,
            Err(FsError::NoData) => return ends,
            Err(error) => panic!("{ino}: {error}"),
        }
        ends.push(at);
        what = if what == Seek::Data { Seek::Hole } else { Seek::Data };
    }
}

/// A whole tree: by path, attributes, contents (of files and symlinks), extended attributes.
pub type Tree = BTreeMap<Vec<u8>, (Attributes, Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>)>;

pub fn tree(fs: &FileSystem) -> Tree {
    let mut tree = Tree::new();
    walk(fs, Ino::ROOT, b"", &mut tree);
    tree
}

pub fn names(fs: &FileSystem, directory: Ino) -> Vec<(Vec<u8>, Ino)> {
    let mut names = Vec::new();
    fs.list(directory, 0, |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push((entry.name.to_vec(), entry.ino));
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    names
}

fn walk(fs: &FileSystem, ino: Ino, path: &[u8], tree: &mut Tree) {
    let attributes = fs.attributes(ino).unwrap();
    let contents = match attributes.mode & mode::TYPE {
        mode::FILE => {
            let mut bytes = vec![0; attributes.size_bytes as usize];
            assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
            bytes
        }
        mode::SYMLINK => fs.read_link(ino).unwrap(),
        _ => Vec::new(),
    };
    let list = fs.xattr_names(ino).unwrap();
    let xattr = |name: &[u8]| (name.to_vec(), fs.xattr(ino, name).unwrap());
    let xattrs = list.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(xattr).collect();
    tree.insert(path.to_vec(), (attributes, contents, xattrs));
    if attributes.mode & mode::TYPE == mode::DIRECTORY {
        for (name, child) in names(fs, ino) {
            walk(fs, child, &[path, b"/", &name].concat(), tree);
        }
    }
}
