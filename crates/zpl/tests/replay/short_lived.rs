//! Files that are gone again before a commit: whatever part of the commit a crash leaves, a name that is
//! there has the bytes that were written before it.

use fastness_zpl::{FileSystem, Ino, RenameHow, WriteHow};

use crate::bytes;
use crate::support::{Log, World, file};

/// How a file goes that has just got its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Replaced,
    Unlinked,
}

/// How it gets the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beginning {
    Renamed,
    Linked,
    Unnamed,
}

fn make(fs: &FileSystem, name: &[u8], byte: u8, len: usize) -> Ino {
    let ino = fs.make(Ino::ROOT, name, &file(0o644)).unwrap().ino;
    fs.write(ino, 0, &vec![byte; len], WriteHow::default()).unwrap();
    ino
}

fn rename(fs: &FileSystem, from: &[u8], to: &[u8]) {
    if let Some(gone) = fs.rename((Ino::ROOT, from), (Ino::ROOT, to), RenameHow::Replace).unwrap() {
        fs.reap(gone).unwrap();
    }
}

fn unlink(fs: &FileSystem, name: &[u8]) {
    if let Some(gone) = fs.unlink(Ino::ROOT, name).unwrap() {
        fs.reap(gone).unwrap();
    }
}

fn begin(fs: &FileSystem, beginning: Beginning, len: usize) {
    match beginning {
        Beginning::Renamed => {
            make(fs, b"first", 1, len);
            rename(fs, b"first", b"name");
        }
        Beginning::Linked => {
            let first = make(fs, b"first", 1, len);
            unlink(fs, b"name");
            fs.link(first, Ino::ROOT, b"name").unwrap();
            unlink(fs, b"first");
        }
        Beginning::Unnamed => {
            let first = fs.make_unnamed(Ino::ROOT, &file(0o644), true).unwrap().ino;
            fs.write(first, 0, &vec![1; len], WriteHow::default()).unwrap();
            unlink(fs, b"name");
            fs.link(first, Ino::ROOT, b"name").unwrap();
        }
    }
}

fn end(fs: &FileSystem, end: End, len: usize) {
    match end {
        End::Replaced => {
            make(fs, b"second", 2, len);
            rename(fs, b"second", b"name");
        }
        End::Unlinked => unlink(fs, b"name"),
    }
}

/// Runs it with the power failing at the `nth` event of the commit; false: the commit was done before that.
fn run(log: Log, beginning: Beginning, how: End, len: usize, nth: u64) -> bool {
    let world = World::logged(log, &[]);
    let fs = world.fs();
    make(&fs, b"name", 3, 1000);
    world.store.pool().sync().unwrap();
    begin(&fs, beginning, len);
    end(&fs, how, len);
    let before = world.store.pool().synced_txg();
    world.media.power.cut_in(nth);
    let synced = fs.sync_all();
    let is_cut = world.media.power.is_off();
    assert!(synced.is_ok() || is_cut, "{synced:?}");
    if !is_cut {
        let has_waited = world.store.pool().synced_txg() > before;
        assert_eq!(has_waited, len > 1 << 20, "{log:?}, {beginning:?}, {how:?}: a wait for a txg");
    }
    drop(fs);
    let world = world.lose_power();
    let fs = world.fs();
    fs.reap_all(|_| false).unwrap();
    let when = format!("{log:?}, {beginning:?}, {how:?}, {len} bytes, cut at {nth}");
    match fs.find(Ino::ROOT, b"name") {
        Ok(ino) => {
            let found = bytes(&fs, ino);
            let is_whole = |byte| found == vec![byte; len];
            let is_new = how == End::Replaced && is_whole(2);
            let is_old = found == [3; 1000];
            assert!(is_old || is_whole(1) || is_new, "{when}: {} bytes", found.len());
            assert!(synced.is_err() || is_new, "{when}: it was synced");
        }
        // A name that was made anew: there was none in between.
        Err(_) => assert!(how == End::Unlinked || beginning != Beginning::Renamed, "{when}: no name"),
    }
    drop(fs);
    world.check();
    is_cut
}

fn run_all(len: usize) {
    for log in Log::ALL {
        for beginning in [Beginning::Renamed, Beginning::Linked, Beginning::Unnamed] {
            for how in [End::Replaced, End::Unlinked] {
                let mut nth = 1;
                while run(log, beginning, how, len, nth) {
                    nth += 1;
                }
                assert!(nth > 2, "{log:?}: {nth} events");
            }
        }
    }
}

#[test]
fn a_name_that_is_gone_again_has_its_bytes_as_long_as_it_is_there() {
    run_all(5000);
}

/// More than is kept in memory of a file that goes.
#[test]
fn so_has_the_name_of_a_large_file() {
    run_all(3 << 20);
}
