//! A server that is killed at random under programs that remember what was acknowledged.
//!
//! Four programs at once, each with a way of its own to make things durable: appends and `fdatasync`; writes
//! to random places of a file opened with `O_DSYNC`; files that are written, synced, renamed and whose
//! directory is synced, as editors and mail servers do; a mapping and `msync`. After the kill and an import,
//! everything acknowledged must be there; what was in flight may be.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use fastness_testkit::Rng;

use crate::mapping::Mapping;
use crate::{Mounted, mounted};

const O_DSYNC: i32 = 0o10_000;
const PLACES: usize = 64;
const BLOCK: usize = 4096;
const RECORD: usize = 100;
/// Files that the renaming program keeps.
const NAMES: u64 = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// What a program knows: how many steps were acknowledged, and whether one more was begun.
type Acknowledged = u64;

/// A number that fills its bytes: half of it is recognized.
fn filled(step: u64, len: usize) -> Vec<u8> {
    step.to_le_bytes().into_iter().cycle().take(len).collect()
}

/// Appends records; each is durable after `fdatasync`.
fn append(at: &Path, done: &mut Acknowledged) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(at.join("appended"))?;
    loop {
        file.write_all(&filled(*done, RECORD))?;
        file.sync_data()?;
        *done += 1;
    }
}

/// The bytes of a file; none if it was never created.
fn read(path: &Path) -> Vec<u8> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        bytes => bytes.unwrap(),
    }
}

fn check_appended(at: &Path, done: &mut Acknowledged) {
    let bytes = read(&at.join("appended"));
    let there = (bytes.len() / RECORD) as u64;
    assert!(there >= *done, "{there} of {done} appended records");
    for (step, record) in bytes.chunks_exact(RECORD).enumerate() {
        assert_eq!(record, filled(step as u64, RECORD), "record {step}");
    }
    *done = there;
    if !bytes.is_empty() {
        // Half a record that was never acknowledged.
        let file = OpenOptions::new().write(true).open(at.join("appended")).unwrap();
        file.set_len(there * RECORD as u64).unwrap();
    }
}

/// Writes blocks at random places; each write is durable when it returns. `done`: of each place.
fn overwrite(at: &Path, rng: &mut Rng, done: &mut [Acknowledged], step: &mut u64) -> io::Result<()> {
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(false).custom_flags(O_DSYNC);
    let file = open.open(at.join("places"))?;
    loop {
        *step += 1;
        let place = rng.index(PLACES);
        file.write_all_at(&filled(*step, BLOCK), (place * BLOCK) as u64)?;
        done[place] = *step;
    }
}

fn check_places(at: &Path, done: &mut [Acknowledged], step: u64) {
    let mut bytes = read(&at.join("places"));
    assert!(bytes.len() <= PLACES * BLOCK);
    bytes.resize(PLACES * BLOCK, 0);
    for (place, block) in bytes.chunks(BLOCK).enumerate() {
        let found = u64::from_le_bytes(*block.first_chunk().unwrap());
        assert_eq!(block, filled(found, BLOCK), "place {place} is torn");
        assert!(
            (done[place]..=step).contains(&found),
            "place {place}: {found}, acknowledged was {}",
            done[place]
        );
        done[place] = found;
    }
}

/// Writes, syncs and renames a file, removes an older one, syncs the directory.
fn replace(at: &Path, done: &mut Acknowledged) -> io::Result<()> {
    let folder = at.join("mail");
    fs::create_dir_all(&folder)?;
    let directory = File::open(&folder)?;
    // The folder itself has to be durable, too.
    File::open(at)?.sync_all()?;
    loop {
        let step = *done;
        let mut file = File::create(folder.join("new"))?;
        file.write_all(&filled(step, 3000))?;
        file.sync_all()?;
        drop(file);
        fs::rename(folder.join("new"), folder.join(step.to_string()))?;
        if step >= NAMES {
            // It is gone already if the kill came after this and before the acknowledgement.
            match fs::remove_file(folder.join((step - NAMES).to_string())) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        directory.sync_all()?;
        *done += 1;
    }
}

fn check_replaced(at: &Path, done: Acknowledged) {
    let folder = at.join("mail");
    let Ok(names) = fs::read_dir(&folder) else { return assert_eq!(done, 0) };
    let names: Vec<String> = names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    for name in names.iter().filter(|name| *name != "new") {
        let step: u64 = name.parse().unwrap();
        assert!(step + NAMES >= done && step <= done, "{name} was removed, {done} were acknowledged");
        assert_eq!(fs::read(folder.join(name)).unwrap(), filled(step, 3000), "{name}");
    }
    for step in done.saturating_sub(NAMES)..done {
        // The oldest may have been removed by a step that was not acknowledged.
        let may_be_gone = step + NAMES == done;
        assert!(may_be_gone || names.contains(&step.to_string()), "{step} of {done} is not there: {names:?}");
    }
}

/// Writes to a mapping; durable after `msync`. Its page stays in memory: nothing is read from a dead server,
/// which would end this process by a signal.
fn map(mapping: Mapping, done: &mut Acknowledged) -> io::Result<()> {
    loop {
        mapping.write(0, &filled(*done + 1, 64));
        mapping.sync()?;
        *done += 1;
    }
}

fn check_mapped(at: &Path, done: &mut Acknowledged) {
    let bytes = fs::read(at.join("mapped")).unwrap();
    let found = u64::from_le_bytes(*bytes.first_chunk().unwrap());
    assert!(found >= *done && found <= *done + 1, "mapped: {found}, acknowledged was {done}");
    *done = found;
}

/// What all programs know.
#[derive(Default)]
struct Programs {
    appended: Acknowledged,
    places: Vec<Acknowledged>,
    step: u64,
    replaced: Acknowledged,
    mapped: Acknowledged,
}

impl Programs {
    /// Runs them until the server is killed.
    fn run(&mut self, files: &Mounted, rng: &mut Rng) {
        let at = &files.at;
        let mut of_places = Rng(rng.next());
        let life = Duration::from_millis(rng.below(600));
        let mapped =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(at.join("mapped"));
        let mapped = mapped.unwrap();
        mapped.set_len(BLOCK as u64).unwrap();
        mapped.sync_all().unwrap();
        File::open(at).unwrap().sync_all().unwrap();
        let mapping = Mapping::of(&mapped, BLOCK);
        assert_eq!(mapping.read(0, 8), self.mapped.to_le_bytes());
        let Programs { appended, places, step, replaced, mapped: map_done } = self;
        std::thread::scope(|scope| {
            let programs = [
                scope.spawn(|| append(at, appended)),
                scope.spawn(|| overwrite(at, &mut of_places, places, step)),
                scope.spawn(|| replace(at, replaced)),
                scope.spawn(|| map(mapping, map_done)),
            ];
            std::thread::sleep(life);
            files.kill();
            for program in programs {
                // They end with the error that the dead mount gives them.
                let _ = program.join().unwrap();
            }
        });
    }

    fn check(&mut self, at: &Path) {
        check_appended(at, &mut self.appended);
        check_places(at, &mut self.places, self.step);
        check_replaced(at, self.replaced);
        check_mapped(at, &mut self.mapped);
    }
}

fn kills(log: &str, seed: u64) {
    let Some(files) = mounted(log) else { return };
    let seed = number("FASTNESS_FILES_SEED").unwrap_or(seed);
    let mut rng = Rng(seed);
    let mut programs = Programs { places: vec![0; PLACES], ..Programs::default() };
    for round in 0..number("FASTNESS_FILES_ROUNDS").unwrap_or(10) {
        println!("seed {seed}, round {round}");
        programs.run(&files, &mut rng);
        files.bench.ok("pool import tank");
        programs.check(&files.at);
        assert_eq!(files.check(), 0);
    }
    // A kill that comes too early tests nothing.
    let Programs { appended, step, replaced, mapped, .. } = programs;
    println!("acknowledged: {appended} appended, {step} overwritten, {replaced} renamed, {mapped} mapped");
    assert!(appended > 10 && step > 10 && replaced > 10 && mapped > 10);
    files.bench.ok("pool check tank");
}

#[test]
fn nothing_acknowledged_is_lost_with_log_blocks_in_the_pool() {
    kills("", 1);
}

#[test]
fn nothing_acknowledged_is_lost_with_persistent_memory() {
    kills("log pm --emulate-pm --pm-size 16M", 2);
}
