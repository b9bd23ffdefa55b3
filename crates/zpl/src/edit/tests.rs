//! Names that have one hash: chains of rows, against a map.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use fastness_blkdev::MemDevice;
use fastness_pool::{Device, Pool, VdevSpec};
use fastness_store::{DatasetKind, Kinds, Store, StoreOptions};
use fastness_testkit::Rng;

use crate::names::COLLIDING;
use crate::{FileReplay, FileSystem, FileSystemOptions, FsError, Ino, NewFile, RenameHow, mode};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn file_system() -> (Arc<Store>, FileSystem) {
    let device = Device::new("a", Arc::new(MemDevice::new("a", 64 << 20)));
    let kinds = Kinds::default().with(DatasetKind::Filesystem, FileReplay::default());
    let options = StoreOptions { kinds, ..StoreOptions::default() };
    let pool = Pool::create("tank", &[VdevSpec::single(device)], options.pool.clone()).unwrap();
    let store = Store::create(pool, options).unwrap();
    let new = FileSystemOptions { seed: Some(COLLIDING), ..FileSystemOptions::default() };
    let fs = FileSystem::create(&store, "tank/files", &new).unwrap();
    (store, fs)
}

/// Each chain begins with its first cookie, has no gap, and ends with a name.
fn check_chains(fs: &FileSystem) {
    let mut rows: BTreeMap<u64, Vec<(u64, bool)>> = BTreeMap::new();
    let all = (Bound::Unbounded, Bound::Unbounded);
    let show = |key: &[u8], row: &[u8]| {
        let (directory, cookie) = crate::names::of_key(key);
        rows.entry(directory.0).or_default().push((cookie, row.is_empty()));
        ControlFlow::Continue(())
    };
    fs.tables.entries.scan(all, show).unwrap();
    for (directory, chain) in rows {
        let cookies: Vec<_> = chain.iter().map(|(cookie, _)| *cookie).collect();
        let first = crate::names::first_cookie(COLLIDING, b"any");
        assert_eq!(cookies, (first..first + chain.len() as u64).collect::<Vec<_>>(), "in {directory}");
        assert!(!chain[chain.len() - 1].1, "the chain in {directory} ends with an empty row: {chain:?}");
    }
}

#[test]
fn names_with_one_hash_come_and_go() {
    let (store, fs) = file_system();
    let file = NewFile { mode: mode::FILE | 0o600, ..NewFile::default() };
    let new = NewFile { mode: mode::DIRECTORY | 0o700, ..NewFile::default() };
    // In the root, which has one entry more: all names collide.
    let directories = [Ino::ROOT, fs.make(Ino::ROOT, b"directory", &new).unwrap().ino];
    let (mut names, mut rng) = (BTreeMap::new(), Rng(5));
    for step in 0..20_000 {
        let mut any = || (rng.below(2) as usize, NAMES[rng.below(6) as usize]);
        let (at, to) = (any(), any());
        match rng.below(5) {
            0 | 1 => match fs.make(directories[at.0], at.1.as_bytes(), &file) {
                Ok(made) => assert_eq!(names.insert(at, made.ino), None),
                Err(error) => assert!(matches!(error, FsError::Exists) && names.contains_key(&at), "{error}"),
            },
            2 => match fs.unlink(directories[at.0], at.1.as_bytes()) {
                Ok(_) => drop(names.remove(&at).unwrap()),
                Err(error) => {
                    assert!(matches!(error, FsError::NotFound) && !names.contains_key(&at), "{error}");
                }
            },
            kind => {
                let (from, into) = (directories[at.0], directories[to.0]);
                let how = if kind == 3 { RenameHow::Replace } else { RenameHow::NoReplace };
                match fs.rename((from, at.1.as_bytes()), (into, to.1.as_bytes()), how) {
                    Ok(_) => {
                        let moved = names.remove(&at).unwrap();
                        names.insert(to, moved);
                    }
                    Err(FsError::NotFound) => assert!(!names.contains_key(&at)),
                    Err(error) => {
                        assert!(matches!(error, FsError::Exists) && names.contains_key(&to), "{error}");
                    }
                }
            }
        }
        if step % 512 == 0 {
            store.pool().sync().unwrap();
        }
        check_chains(&fs);
        for (index, directory) in directories.iter().enumerate() {
            for name in NAMES {
                let found = fs.find(*directory, name.as_bytes()).ok();
                assert_eq!(found.as_ref(), names.get(&(index, name)), "step {step}, {name}");
            }
        }
    }
}
