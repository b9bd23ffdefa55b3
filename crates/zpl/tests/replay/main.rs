//! Replay, scenario by scenario: the pool is frozen, so that no txg syncs any more; files are changed and
//! synced; the process dies; an import replays. What was there before must be there again, in everything that
//! a program can see. For both kinds of logs.
//!
//! Source: zil-pmem thesis, 7.2.2 (the procedure of `slog_replay_*`); reference of intent log behaviour,
//! sections 2 and 4.

#[path = "../support/mod.rs"]
mod support;

mod attributes;
mod everything;
mod order;
mod reuse;
mod short_lived;
mod times;

use fastness_store::Property;
use fastness_zpl::{FileSystem, Ino, WriteHow};

use support::{Holes, Log, Tree, World, archive};

const SYNC: WriteHow = WriteHow { is_sync: true, keeps_times: false, clears_set_id: false };

/// Runs a scenario in frozen pools of both kinds, from a tree that `before` makes and a txg has. All is
/// synced at the end of `act`; then a crash, and what is there must be what was there.
fn replays<T>(before: impl Fn(&FileSystem) -> T, act: impl Fn(&FileSystem, T)) {
    // Small blocks have their holes in the same places whoever wrote them.
    for (log, record_bytes) in Log::ALL.into_iter().flat_map(|log| [(log, 128 << 10), (log, 4096)]) {
        let world = World::logged(log, &[(Property::RecordSize, record_bytes)]);
        let fs = world.fs();
        let made = before(&fs);
        world.store.pool().sync().unwrap();
        world.store.pool().freeze();
        act(&fs, made);
        fs.sync_all().unwrap();
        let mut wanted = archive(&fs);
        drop(fs);
        let (world, report) = world.crash();
        assert!(report.records > 0, "{log:?}: {report:?}");
        if record_bytes > 4096 {
            wanted.1.clear();
        }
        // Before files without a name are removed, which also mends what is wrong with their list.
        world.check();
        world.shows(log, &wanted);
        world.check();
    }
}

impl World {
    /// What is there is exactly what was; holes, too, if any are wanted.
    fn shows(&self, log: Log, wanted: &(Tree, Holes)) {
        let fs = self.fs();
        fs.reap_all(|_| false).unwrap();
        let found = archive(&fs);
        let paths = |tree: &Tree| tree.keys().map(|path| path.escape_ascii().to_string()).collect::<Vec<_>>();
        assert_eq!(paths(&found.0), paths(&wanted.0), "{log:?}: names");
        for (path, wanted) in &wanted.0 {
            let (found, path) = (&found.0[path], path.escape_ascii());
            assert_eq!((found.0, &found.2), (wanted.0, &wanted.2), "{log:?}: {path}");
            let differs = found.1.iter().zip(&wanted.1).position(|(found, wanted)| found != wanted);
            assert_eq!(differs, None, "{log:?}: first wrong byte of {path}");
        }
        for (path, wanted) in &wanted.1 {
            assert_eq!(found.1[path], *wanted, "{log:?}: holes of {}", path.escape_ascii());
        }
    }
}

/// All bytes of a file.
fn bytes(fs: &FileSystem, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0; fs.attributes(ino).unwrap().size_bytes as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}
