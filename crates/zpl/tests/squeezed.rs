//! Random operations on files where there is no room for some: what is refused has changed nothing, what
//! says that it was made in part has changed that part, and a crash changes nothing of it. One seed is one
//! run.
//!
//! `FASTNESS_FULL_SEEDS=0..2000 cargo test -p fastness-zpl --test squeezed`; with `FASTNESS_FULL_TRACE=1` it
//! shows what one does.
#![allow(clippy::print_stdout, reason = "seeds, and what they do")]

mod support;

use std::collections::BTreeMap;
use std::ops::Range;

use fastness_pool::{LogData, Property, Short};
use fastness_testkit::Rng;
use fastness_zpl::{Allocate, Errno, FileSystem, FsError, Ino, SetAttributes, WriteHow};
use support::{FS, Log, World, file};

const FILES: u64 = 6;
const STEPS: u64 = 60;
const FILE_BYTES_MAX: u64 = 400_000;
/// Pages that a change at the limit finds.
const LEFT_PAGES: u64 = 40;

/// Seeds to run; 0..60 unless told.
fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("FASTNESS_FULL_SEEDS") else { return 0..60 };
    let (from, to) = text.split_once("..").expect("FASTNESS_FULL_SEEDS=FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[derive(Debug)]
enum Change {
    Make,
    Remove(Ino),
    Write(Ino, u64, Vec<u8>, WriteHow),
    Append(Ino, Vec<u8>, WriteHow),
    Resize(Ino, u64),
    ResizeAndMode(Ino, u64),
    Allocate(Ino, u64, u64, Allocate),
    Copy((Ino, u64), (Ino, u64), u64),
}

/// What was met, in all runs.
#[derive(Debug, Default)]
struct Met(BTreeMap<String, u64>);

impl Met {
    fn meet(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }
}

/// Contents of files.
type Model = BTreeMap<Ino, Vec<u8>>;

struct Run {
    world: World,
    model: Model,
    made: u64,
}

fn create(rng: &mut Rng) -> Run {
    let block = [4096, 4096, 16 << 10, 128 << 10];
    let properties = [(Property::RecordSize, rng.pick(&block))];
    let world = World::logged(rng.pick(&Log::ALL), &properties);
    let pool = world.store.pool();
    if rng.one_in(2) {
        pool.transact(|tx| pool.set_log_data(tx, LogData::Pm)).unwrap();
    }
    let mut run = Run { world, model: Model::new(), made: 0 };
    for _ in 0..3 {
        let (made, fs) = (Change::Make, run.world.fs());
        run.make(&fs, made, &mut Met::default()).unwrap();
    }
    run
}

/// Mostly within the first blocks, where small files end; often on a border.
fn place(rng: &mut Rng) -> u64 {
    let at = rng.below(FILE_BYTES_MAX) >> (4 * rng.below(4));
    if rng.one_in(3) { at & !4095 } else { at }
}

fn bytes(rng: &mut Rng) -> Vec<u8> {
    let len = 1 + (rng.below(300_000) as usize >> (4 * rng.below(5)));
    let len = if rng.one_in(3) { len.next_multiple_of(4096) } else { len };
    let first = 1 + rng.below(255) as u8;
    // No zeroes: these are what nobody has written.
    (0..len).map(|at| first.wrapping_add((at / 97) as u8).max(1)).collect()
}

fn choose(rng: &mut Rng, model: &Model) -> Change {
    let files: Vec<_> = model.keys().copied().collect();
    if files.is_empty() {
        return Change::Make;
    }
    let ino = rng.pick(&files);
    let how = WriteHow { is_sync: rng.one_in(3), keeps_times: rng.one_in(2), clears_set_id: false };
    let size = model[&ino].len() as u64;
    match rng.below(20) {
        0..=1 if model.len() < FILES as usize => Change::Make,
        0..=2 => Change::Remove(ino),
        3..=7 => {
            let offset = if rng.one_in(4) { size } else { place(rng) };
            Change::Write(ino, offset, bytes(rng), how)
        }
        8..=9 => {
            let mut data = bytes(rng);
            data.truncate(128 << 10);
            Change::Append(ino, data, how)
        }
        10 => Change::Resize(ino, place(rng)),
        11 => Change::ResizeAndMode(ino, place(rng)),
        12..=15 => {
            let keeps_size = rng.one_in(3);
            let what = rng.pick(&[
                Allocate::Reserve { keeps_size },
                Allocate::Reserve { keeps_size },
                Allocate::Zero { keeps_size },
                Allocate::Punch,
            ]);
            Change::Allocate(ino, place(rng), 1 + place(rng), what)
        }
        _ => {
            let from = (rng.pick(&files), if rng.one_in(2) { 0 } else { place(rng) });
            let at = if rng.one_in(3) { size } else { place(rng) };
            Change::Copy(from, (ino, at), 1 + place(rng))
        }
    }
}

/// Bytes of a file change, and it grows if needed.
fn put(file: &mut Vec<u8>, offset: u64, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let (from, to) = (offset as usize, offset as usize + data.len());
    if to > file.len() {
        file.resize(to, 0);
    }
    file[from..to].copy_from_slice(data);
}

impl Run {
    /// Makes a change in both. An error: it was refused, and the model is as before.
    fn make(&mut self, fs: &FileSystem, change: Change, met: &mut Met) -> Result<(), FsError> {
        let model = &mut self.model;
        match change {
            Change::Make => {
                let name = format!("f{}", self.made);
                let ino = fs.make(Ino::ROOT, name.as_bytes(), &file(0o644))?.ino;
                self.made += 1;
                model.insert(ino, Vec::new());
            }
            Change::Remove(ino) => {
                let names = support::names(fs, Ino::ROOT);
                let (name, _) = names.into_iter().find(|(_, of)| *of == ino).expect("it has a name");
                let gone = fs.unlink(Ino::ROOT, &name)?.expect("its only name");
                model.remove(&ino);
                if let Err(error) = fs.reap(gone) {
                    assert_eq!(error.errno(), Errno::NOSPC);
                }
            }
            Change::Write(ino, offset, data, how) => {
                let written = fs.write(ino, offset, &data, how)?;
                assert!(written > 0 && written <= data.len(), "{written} bytes");
                if written < data.len() {
                    met.meet("a part of a write");
                }
                put(model.get_mut(&ino).unwrap(), offset, &data[..written]);
            }
            Change::Append(ino, data, how) => {
                let file = model.get_mut(&ino).unwrap();
                assert_eq!(fs.append(ino, &data, how)?, file.len() as u64);
                file.extend(data);
            }
            Change::Resize(ino, len) => {
                let set = SetAttributes { size_bytes: Some(len), ..SetAttributes::default() };
                fs.set_attributes(ino, &set)?;
                model.get_mut(&ino).unwrap().resize(len as usize, 0);
            }
            Change::ResizeAndMode(ino, len) => {
                let set =
                    SetAttributes { size_bytes: Some(len), mode: Some(0o600), ..SetAttributes::default() };
                fs.set_attributes(ino, &set)?;
                model.get_mut(&ino).unwrap().resize(len as usize, 0);
            }
            Change::Allocate(ino, offset, len, what) => {
                fs.allocate(ino, offset, len, what)?;
                let (file, end) = (model.get_mut(&ino).unwrap(), (offset + len) as usize);
                let (zeroes, keeps_size) = match what {
                    Allocate::Reserve { keeps_size } => (false, keeps_size),
                    Allocate::Zero { keeps_size } => (true, keeps_size),
                    Allocate::Punch => (true, true),
                };
                if !keeps_size && end > file.len() {
                    file.resize(end, 0);
                }
                let (start, end) = (offset as usize, end.min(file.len()));
                if zeroes && start < end {
                    file[start..end].fill(0);
                }
            }
            Change::Copy((from, at), (to, into), len) => {
                let copied = match fs.copy_range(from, at, to, into, len) {
                    // The ranges overlap.
                    Err(error) if error.errno() == Errno::INVAL => return Ok(()),
                    copied => copied?,
                };
                let source = &model[&from];
                let rest = source.get(at as usize..).unwrap_or(&[]);
                let there = &rest[..rest.len().min(len as usize)];
                assert!(copied <= there.len() as u64 && (copied > 0 || there.is_empty()), "{copied} bytes");
                if copied < there.len() as u64 {
                    met.meet("a part of a copy");
                }
                let data = there[..copied as usize].to_vec();
                put(model.get_mut(&to).unwrap(), into, &data);
            }
        }
        Ok(())
    }

    fn assert_shows(&self, fs: &FileSystem) {
        for (ino, wanted) in &self.model {
            let size_bytes = fs.attributes(*ino).unwrap().size_bytes;
            assert_eq!(size_bytes, wanted.len() as u64, "length of {ino}");
            let mut found = vec![0; wanted.len() + 1];
            let len = fs.read(*ino, 0, &mut found).unwrap();
            assert_eq!(len, wanted.len(), "bytes of {ino}");
            let differs = (0..len).find(|at| found[*at] != wanted[*at]);
            assert_eq!(differs.map(|at| (at, found[at], wanted[at])), None, "first wrong byte of {ino}");
        }
        assert_eq!(support::names(fs, Ino::ROOT).len(), self.model.len());
    }
}

fn run(seed: u64, met: &mut Met) {
    let mut rng = Rng(seed);
    let mut run = create(&mut rng);
    let mut fs = run.world.fs();
    for _ in 0..STEPS {
        let change = choose(&mut rng, &run.model);
        let text = format!("{change:?}");
        let kind = text.split('(').next().unwrap_or_default().to_owned();
        let squeezed = (!rng.one_in(3)).then(|| {
            let short = rng.pick(&[Short::Data, Short::Parts, Short::Frees, Short::Frees]);
            run.world.store.pool().squeeze(short, rng.below(LEFT_PAGES) * 4096)
        });
        let made = run.make(&fs, change, met).map_err(|error| error.errno());
        drop(squeezed);
        if std::env::var_os("FASTNESS_FULL_TRACE").is_some() {
            println!("{made:?}: {}", &text[..text.len().min(120)]);
        }
        match made {
            Ok(()) => met.meet(format!("made: {kind}")),
            Err(errno) => {
                assert_eq!(errno, Errno::NOSPC, "{}", &text[..text.len().min(120)]);
                met.meet(format!("refused: {kind}"));
            }
        }
        run.assert_shows(&fs);
        match rng.below(12) {
            0 => drop(run.world.store.pool().sync().unwrap()),
            1 => {
                fs.sync_all().unwrap();
                drop(fs);
                let (world, _) = run.world.crash();
                run.world = world;
                fs = run.world.fs();
                fs.reap_all(|_| false).unwrap();
                met.meet("crash");
                run.assert_shows(&fs);
            }
            2 if rng.one_in(4) => {
                run.world.store.snapshot(&format!("{FS}@s{}", rng.next())).unwrap();
                met.meet("snapshot");
            }
            _ => {}
        }
    }
    fs.reap_all(|_| false).unwrap();
    drop(fs);
    run.world.check();
}

#[test]
fn what_is_refused_has_done_nothing() {
    let mut met = Met::default();
    for seed in seeds() {
        println!("seed {seed}");
        run(seed, &mut met);
    }
    println!("{met:#?}");
    if seeds().count() >= 60 {
        for kind in ["Make", "Remove", "Write", "Append", "Resize", "ResizeAndMode", "Allocate", "Copy"] {
            for what in ["made", "refused"] {
                let what = format!("{what}: {kind}");
                assert!(met.0.contains_key(&what), "no run met: {what}; {met:#?}");
            }
        }
        for what in ["crash", "snapshot", "a part of a write", "a part of a copy"] {
            assert!(met.0.contains_key(what), "no run met: {what}; {met:#?}");
        }
    }
}

/// Makes a file of 56 bytes one of 4096, in one of four ways.
fn lengthen(fs: &FileSystem, ino: Ino, hole: Ino, way: u64) -> fastness_zpl::Result<()> {
    const LEN: u64 = SHORT.len() as u64;
    let size = SetAttributes { size_bytes: Some(4096), ..SetAttributes::default() };
    match way {
        0 => fs.set_attributes(ino, &size).map(drop),
        1 => fs.set_attributes(ino, &SetAttributes { mode: Some(0o600), ..size }).map(drop),
        2 => fs.allocate(ino, LEN, 4096 - LEN, Allocate::Zero { keeps_size: false }),
        _ => fs.copy_range(hole, 4096 + LEN, ino, LEN, 4096 - LEN).map(drop),
    }
}

const SHORT: [u8; 56] = [7; 56];

/// However little room there is: a file is longer, or it is as it was. A copy of a hole once had left 4,040
/// zeroes, and said that there was no room.
#[test]
fn a_file_is_longer_or_as_it_was() {
    for way in 0..4 {
        let world = World::new(64 << 20);
        let (fs, pool) = (world.fs(), world.store.pool());
        let hole = fs.make(Ino::ROOT, b"hole", &file(0o644)).unwrap().ino;
        let size = SetAttributes { size_bytes: Some(1 << 20), ..SetAttributes::default() };
        fs.set_attributes(hole, &size).unwrap();
        let (mut longer, mut refused) = (0, 0);
        for left in 0..LEFT_PAGES {
            let ino = fs.make(Ino::ROOT, format!("f{left}").as_bytes(), &file(0o644)).unwrap().ino;
            fs.write(ino, 0, &SHORT, WriteHow::default()).unwrap();
            pool.sync().unwrap();
            let free_bytes = fs.space().free_bytes;
            let squeezed = pool.squeeze(Short::Frees, left * 4096);
            let made = lengthen(&fs, ino, hole, way).map_err(|error| error.errno());
            drop(squeezed);
            let (mut wanted, mut found) = (SHORT.to_vec(), vec![1; 5000]);
            match made {
                Ok(()) => {
                    wanted.resize(4096, 0);
                    longer += 1;
                }
                Err(errno) => {
                    assert_eq!(errno, Errno::NOSPC);
                    assert!(fs.space().free_bytes >= free_bytes, "it keeps room");
                    refused += 1;
                }
            }
            let len = fs.read(ino, 0, &mut found).unwrap();
            assert!(found[..len] == wanted, "way {way}, {left} pages left, {made:?}: {len} bytes");
            let is_private = fs.attributes(ino).unwrap().mode & 0o777 == 0o600;
            assert_eq!(is_private, way == 1 && made.is_ok());
        }
        assert!(longer > 0 && refused > 1, "way {way}: {longer} times longer, {refused} times refused");
        drop(fs);
        world.check();
    }
}
