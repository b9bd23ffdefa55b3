//! A seeded simulation of a cache with the protocol Log: random calls of programs, a directory that fails,
//! drops what it could not sync, and is full, power cuts at any store, fence or call, and during recoveries.
//!
//! After a crash each byte of each file is as of the last sync that covers it, or as a later write left it.
//! `FASTNESS_RESPONDER_SEEDS=FROM..TO` runs others than the default seeds.

mod support;

use std::collections::BTreeMap;

use fastness_responder::*;
use fastness_testkit::Rng;
use support::history::{Tree, tree};
use support::possible::Possible;
use support::world::{Failing, Media, path, simulate};
use support::{Pm, content, set_protocol};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

type Names = BTreeMap<String, usize>;

struct Simulation {
    rng: Rng,
    media: Media,
    cache: Option<Cache<Pm>>,
    handles: Vec<(usize, Handle)>,
    names: Names,
    files: Vec<Possible>,
    crashes: u64,
    errors: u64,
    records: u64,
    trims: u64,
    made_again: u64,
    /// Writes that were made in part.
    short: u64,
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let mut rng = Rng(seed);
        set_protocol(ProtocolKind::Log);
        let chunks = rng.pick(&[4, 8, 8, 24, 64]);
        let media = Media::new(chunks, 64, &mut rng);
        let cache = Some(media.create());
        let (handles, names, files) = (Vec::new(), Names::new(), Vec::new());
        let (crashes, errors, records, trims, made_again, short) = (0, 0, 0, 0, 0, 0);
        Simulation {
            rng,
            media,
            cache,
            handles,
            names,
            files,
            crashes,
            errors,
            records,
            trims,
            made_again,
            short,
        }
    }

    fn cache(&self) -> &Cache<Pm> {
        self.cache.as_ref().unwrap()
    }

    fn run(&mut self) {
        for _ in 0..60 + self.rng.index(100) {
            if self.rng.one_in(12) {
                self.media.power.cut_in(1 + self.rng.below(60));
            }
            if self.rng.one_in(10) {
                self.change_faults();
            }
            self.step();
        }
        self.finish();
    }

    fn change_faults(&mut self) {
        let rng = &mut self.rng;
        let mut maybe = |errno: i32| rng.one_in(3).then(|| (errno, 1 + rng.below(3)));
        let (syncs, writes, names) = (maybe(5), maybe(5), maybe(30));
        let is_full = self.rng.one_in(4);
        *self.media.failing.lock().unwrap() = Failing { syncs, writes, names, is_full };
    }

    fn step(&mut self) {
        let name = self.rng.pick(&NAMES);
        let handle = (!self.handles.is_empty()).then(|| self.rng.index(self.handles.len()));
        match (self.rng.below(24), handle) {
            (0..6, Some(at)) => self.write(at, false),
            (6..10, Some(at)) => self.write(at, true),
            (10..14, Some(at)) => self.sync(at),
            (14, Some(at)) => self.truncate(at),
            (15, Some(at)) => {
                let (_, handle) = self.handles.swap_remove(at);
                let result = self.cache().close(handle);
                self.settle(result);
            }
            (16, _) => {
                let mut after = self.names.clone();
                after.remove(name);
                let result = self.cache().unlink(path(name));
                self.settle_names(result, after);
            }
            (17, _) => self.rename(name),
            (18, _) => {
                let to = self.rng.pick(&NAMES);
                let mut after = self.names.clone();
                if let (Some(&file), None) = (after.get(name), after.get(to)) {
                    after.insert(to.to_owned(), file);
                }
                let result = self.cache().link(path(name), path(to));
                self.settle_names(result, after);
            }
            (19, _) => {
                let result = self.cache().flush();
                if result.is_ok() && !self.media.power.is_off() {
                    self.files.iter_mut().for_each(Possible::sync);
                }
                self.settle(result);
            }
            (20, _) => {
                let result = self.cache().tend();
                self.settle(result);
            }
            (21, _) if self.rng.one_in(3) => self.restart(vec![self.names.clone()]),
            _ => self.open(name),
        }
    }

    fn open(&mut self, name: &str) {
        let mut after = self.names.clone();
        let file = after.get(name).copied().unwrap_or_else(|| {
            self.files.push(Possible::default());
            after.insert(name.to_owned(), self.files.len() - 1);
            self.files.len() - 1
        });
        match self.cache().open_file(path(name), Some(0o600), 0) {
            Ok(handle) => {
                self.names = after;
                self.handles.push((file, handle));
                self.verify(file);
            }
            Err(error) => self.settle_names(Err(error), after),
        }
    }

    fn write(&mut self, at: usize, is_synced: bool) {
        let file = self.handles[at].0;
        let most = self.rng.pick(&[8, 64, 300, 1500]);
        let len = 1 + self.rng.index(most);
        let is_append = self.rng.one_in(4);
        let end = self.files[file].now.len();
        let offset = if is_append { end } else { self.rng.index(1000) };
        let data = self.rng.bytes(len);
        let (cache, handle) = (self.cache.as_ref().unwrap(), &self.handles[at].1);
        let written = match (is_append, is_synced) {
            (true, true) => cache.append_synced(handle, &data).map(|(_, done)| done),
            (true, false) => cache.append(handle, &data).map(|(_, done)| done),
            (false, true) => cache.write_synced(handle, offset as u64, &data),
            (false, false) => cache.write(handle, offset as u64, &data),
        };
        let mut after = self.files[file].clone();
        let is_alive = !self.media.power.is_off();
        // A lack of room that is told as an error has changed nothing.
        let is_full = written.as_ref().is_err_and(|error| error.errno() == 28);
        let done = match &written {
            Ok(done) if is_alive => *done,
            Err(Error::Backing { action: "write to a file", .. }) if is_alive && is_full => 0,
            // The directory failed otherwise, perhaps after the write.
            Err(_) if is_alive => self.prefix_found(at, offset, &data),
            _ => len,
        };
        self.short += u64::from(done > 0 && done < len);
        match is_synced && written.is_ok() && is_alive {
            true => after.write_synced(offset, &data[..done]),
            false if done > 0 => after.write(offset, &data[..done]),
            false => {}
        }
        self.settle_content(written.map(drop), file, after);
    }

    /// How much of a write the file has.
    fn prefix_found(&self, at: usize, offset: usize, data: &[u8]) -> usize {
        let (file, handle) = &self.handles[at];
        let found = self.media.quietly(|| content(self.cache(), handle).unwrap());
        let is_it = |done: &usize| {
            let mut after = self.files[*file].clone();
            after.write(offset, &data[..*done]);
            after.now == found
        };
        (1..=data.len()).rev().find(is_it).unwrap_or(0)
    }

    fn sync(&mut self, at: usize) {
        let file = self.handles[at].0;
        let result = self.cache().sync(&self.handles[at].1);
        let mut after = self.files[file].clone();
        if result.is_ok() && !self.media.power.is_off() {
            after.sync();
        }
        self.settle_content(result, file, after);
    }

    fn truncate(&mut self, at: usize) {
        let file = self.handles[at].0;
        let size = self.rng.below(1200);
        let result = self.cache().truncate(&self.handles[at].1, size);
        let mut after = self.files[file].clone();
        match result.is_ok() && !self.media.power.is_off() {
            true => after.truncate(size as usize),
            false => after.resize(size as usize),
        }
        self.settle_content(result, file, after);
    }

    fn rename(&mut self, from: &str) {
        let to = self.rng.pick(&NAMES);
        let mut after = self.names.clone();
        let same = after.get(from) == after.get(to);
        if let Some(&file) = after.get(from).filter(|_| !same) {
            after.remove(from);
            after.insert(to.to_owned(), file);
        }
        let result = self.cache().rename(path(from), path(to));
        self.settle_names(result, after);
    }

    /// After a call that made `after` of a file, or left it as it was.
    fn settle_content(&mut self, result: Result<(), Error>, file: usize, after: Possible) {
        if self.media.power.is_off() {
            let before = std::mem::replace(&mut self.files[file], after);
            self.files.push(before);
            let other = self.files.len() - 1;
            // Names of the file lead to either.
            let mut names = self.names.clone();
            names.values_mut().filter(|of| **of == file).for_each(|of| *of = other);
            return self.restart(vec![self.names.clone(), names]);
        }
        self.note(&result);
        if result.is_ok() {
            self.files[file] = after;
        } else {
            let handle = &self.handles.iter().find(|(of, _)| *of == file).unwrap().1;
            let found = self.media.quietly(|| content(self.cache(), handle).unwrap());
            if found == after.now {
                self.files[file] = after;
            }
        }
        self.verify(file);
    }

    fn settle_names(&mut self, result: Result<(), Error>, after: Names) {
        if self.media.power.is_off() {
            return self.restart(vec![self.names.clone(), after]);
        }
        let found = self.media.quietly(|| tree(self.cache(), &self.media.backing));
        if self.media.power.is_off() {
            // To look is enough where something has to be synced first.
            return self.restart(vec![self.names.clone(), after]);
        }
        self.errors += u64::from(result.is_err());
        if found.as_ref().unwrap() == &self.now(&after) {
            let may_be_lost =
                matches!(result, Err(Error::Backing { action: "make a file" | "sync names", .. }));
            if may_be_lost && self.media.quietly(|| self.cache().flush()).is_err() {
                // A creation that has failed and was made counts once names are synced.
                return self.restart(vec![self.names.clone(), after]);
            }
            self.names = after;
        }
        let found = found.unwrap();
        let expected = self.now(&self.names);
        assert!(found == expected, "{result:?}");
    }

    fn settle(&mut self, result: Result<(), Error>) {
        if self.media.power.is_off() {
            return self.restart(vec![self.names.clone()]);
        }
        self.note(&result);
    }

    fn note(&mut self, result: &Result<(), Error>) {
        let Err(error) = result else { return };
        self.errors += 1;
        let is_expected = match error {
            Error::Backing { .. } => true,
            // There is no room for a record that says that others do not count.
            Error::Log(error) => matches!(**error, LogError::Full),
            _ => false,
        };
        assert!(is_expected, "{error:?}");
    }

    fn now(&self, names: &Names) -> Tree {
        names.iter().map(|(name, file)| (name.clone(), self.files[*file].now.clone())).collect()
    }

    fn verify(&self, file: usize) {
        if self.media.power.is_off() {
            return;
        }
        for (_, handle) in self.handles.iter().filter(|(of, _)| *of == file) {
            let found = self.media.quietly(|| content(self.cache(), handle).unwrap());
            assert_eq!(found, self.files[file].now);
        }
    }

    fn count(&mut self) {
        if let Some(Ok(status)) = self.cache.as_ref().map(Cache::status) {
            self.records += status.counts.records;
            self.trims += status.counts.trims;
        }
    }

    /// A crash, and recoveries until one of them ends.
    fn restart(&mut self, allowed: Vec<Names>) {
        self.count();
        self.handles.clear();
        self.cache = None;
        let (cache, recovered, found, crashes) = self.media.recover(&mut self.rng, 3, 80);
        self.crashes += crashes;
        self.made_again += recovered.made_again;
        self.cache = Some(cache);
        let allows = |names: &Names| {
            names.keys().eq(found.keys())
                && names.iter().all(|(name, file)| self.files[*file].allows(&found[name]))
        };
        assert!(allowed.iter().any(allows), "{}", self.differences(&found, &allowed));
        self.adopt(&found);
    }

    fn differences(&self, found: &Tree, allowed: &[Names]) -> String {
        let mut text = String::new();
        for names in allowed {
            text += &format!("found {:?}, not {:?}. ", found.keys(), names);
            for (name, file) in names.iter().filter(|(name, _)| found.contains_key(*name)) {
                text += &format!("{name}: {}. ", self.files[*file].difference(&found[name]));
            }
        }
        text
    }

    /// Names of one file have the same content; which they are is in the directory.
    fn adopt(&mut self, found: &Tree) {
        (self.names, self.files) = (Names::new(), Vec::new());
        let mut by_id = BTreeMap::new();
        for (name, content) in found {
            let id = self.media.backing.stat(path(name)).unwrap().id;
            let file = *by_id.entry(id).or_insert_with(|| {
                self.files.push(Possible::certain(content));
                self.files.len() - 1
            });
            self.names.insert(name.clone(), file);
        }
    }

    /// The directory alone has everything, once it does not fail.
    fn finish(&mut self) {
        self.media.power.turn_on();
        *self.media.failing.lock().unwrap() = Failing::default();
        self.cache().flush().unwrap();
        let status = self.cache().status().unwrap();
        assert_eq!((status.dirty_chunks, status.failures.len()), (0, 0), "{status:?}");
        self.count();
        let below = self.media.backing.crashed(|| false).contents();
        let below: Tree =
            below.into_iter().map(|(name, content)| (name.to_str().unwrap().to_owned(), content)).collect();
        assert!(below == self.now(&self.names), "found {below:x?}, expected {:x?}", self.now(&self.names));
    }
}

#[test]
fn what_was_synced_survives() {
    let (mut crashes, mut errors, mut records, mut trims, mut made_again) = (0, 0, 0, 0, 0);
    let mut short = 0;
    let count = simulate(500, |seed| {
        let mut simulation = Simulation::new(seed);
        simulation.run();
        crashes += simulation.crashes;
        errors += simulation.errors;
        records += simulation.records;
        trims += simulation.trims;
        made_again += simulation.made_again;
        short += simulation.short;
    });
    let text = format!(
        "{crashes} crashes, {errors} errors, {records} records, {trims} trims, {made_again} made again, {short} \
         short writes"
    );
    assert!(2 * short >= count || count < 50, "{text}");
    assert!(crashes >= count && errors >= count || count < 50, "{text}");
    assert!(records >= 5 * count && trims >= count || count < 50, "{text}");
    assert!(2 * made_again >= count || count < 50, "{text}");
}

/// The same seed does the same.
#[test]
fn a_seed_is_one_history() {
    for seed in [3, 4] {
        let image = |mut simulation: Simulation| {
            simulation.run();
            (simulation.crashes, simulation.errors, simulation.media.backing.contents())
        };
        assert_eq!(image(Simulation::new(seed)), image(Simulation::new(seed)));
    }
}
