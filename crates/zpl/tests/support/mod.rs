//! What tests of file systems share: stores in memory, crashes, trees as text.
#![allow(dead_code, unreachable_pub, missing_debug_implementations)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use fastness_blkdev::{MemDevice, MemImage};
use fastness_pool::{Device, Pool, PoolOptions, VdevSpec};
use fastness_store::{Consent, DatasetKind, Given, Kinds, ReplayReport, Store, StoreOptions};
use fastness_zpl::{Attributes, FileReplay, FileSystem, FileSystemOptions, Ino, NewFile, mode};

pub const FS: &str = "tank/files";

/// A pool on a disk in memory, with a file system, whose txgs end only when a test says so.
pub struct World {
    pub device: Device,
    pub store: Arc<Store>,
}

pub fn options(txg_timeout: Duration) -> StoreOptions {
    let pool = PoolOptions { txg_timeout, ..PoolOptions::default() };
    let kinds = Kinds::default().with(DatasetKind::Filesystem, FileReplay::default());
    StoreOptions { pool, kinds, consent: Consent::NONE, ..StoreOptions::default() }
}

impl World {
    pub fn new(len_bytes: u64) -> World {
        World::of(len_bytes, Duration::from_secs(3600))
    }

    /// Its txgs end as in use.
    pub fn with_txgs(len_bytes: u64) -> World {
        World::of(len_bytes, Duration::from_millis(200))
    }

    fn of(len_bytes: u64, txg_timeout: Duration) -> World {
        let memory = MemDevice::from_image("disk", MemImage::zeroed(len_bytes), 512);
        let device = Device::new("disk", Arc::new(memory));
        let options = options(txg_timeout);
        let vdev = VdevSpec::single(device.clone());
        let pool = Pool::create("tank", &[vdev], options.pool.clone()).unwrap();
        let store = Store::create(pool, options).unwrap();
        FileSystem::create(&store, FS, &FileSystemOptions::default()).unwrap();
        World { device, store }
    }

    pub fn fs(&self) -> FileSystem {
        FileSystem::open(&self.store, FS).unwrap()
    }

    /// The process dies: what is in no log and no synced txg is lost.
    pub fn crash(self) -> (World, ReplayReport) {
        let World { device, store } = self;
        store.pool().freeze();
        drop(store);
        let mut source = Given { devices: vec![device.clone()], ..Given::default() };
        let (store, report) = Store::import(&mut source, options(Duration::from_secs(3600))).unwrap();
        (World { device, store }, report)
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
