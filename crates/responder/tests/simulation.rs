//! A seeded simulation of the whole cache: random calls of programs, a directory that fails and is full,
//! power cuts at any store, fence or call, and during recoveries.
//!
//! After a crash each file has every acknowledged write, in order, and at most a prefix of the parts of the
//! call that had not returned. `FASTNESS_RESPONDER_SEEDS=FROM..TO` runs others than the default seeds.

mod support;

use fastness_responder::*;
use fastness_testkit::Rng;
use support::history::{Tree, tree};
use support::world::*;
use support::{Pm, content, set_protocol, set_shared};

struct Simulation {
    rng: Rng,
    media: Media,
    cache: Option<Cache<Pm>>,
    handles: Vec<(usize, Handle)>,
    model: Model,
    slots: usize,
    /// Files that a failed truncation has made longer, and their length before: a crash may take that back
    /// until the file's next call succeeds.
    unsure: Vec<(usize, usize)>,
    crashes: u64,
    errors: u64,
    /// Writes that were made in part.
    short: u64,
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let mut rng = Rng(seed);
        set_protocol(rng.pick(&[
            ProtocolKind::Fr,
            ProtocolKind::Melo,
            ProtocolKind::Pmal,
            ProtocolKind::PmalOrdered,
        ]));
        set_shared(seed % 2 == 1);
        let slots = rng.pick(&[1, 2, 3, 5, 8, 16, 32]);
        let chunk_bytes = rng.pick(&[64, 64, 128, 8192]);
        let media = Media::new(slots, chunk_bytes, &mut rng);
        let cache = Some(media.create());
        let (handles, model) = (Vec::new(), Model::default());
        let unsure = Vec::new();
        Simulation { rng, media, cache, handles, model, slots, unsure, crashes: 0, errors: 0, short: 0 }
    }

    fn cache(&self) -> &Cache<Pm> {
        self.cache.as_ref().unwrap()
    }

    fn run(&mut self) {
        for _ in 0..40 + self.rng.index(80) {
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
        let is_full = self.rng.one_in(3);
        let failing = Failing { syncs, writes, names, is_full };
        *self.media.failing.lock().unwrap() = failing;
    }

    /// One call. The model goes ahead; what else a crash in it may leave is in `allowed`.
    fn step(&mut self) {
        let before = self.model.tree();
        let name = self.rng.pick(&NAMES);
        let handle = (!self.handles.is_empty()).then(|| self.rng.index(self.handles.len()));
        match (self.rng.below(20), handle) {
            (0..10, Some(at)) => self.write(at),
            (10, Some(at)) => self.truncate(at),
            (11, Some(at)) => {
                let (_, handle) = self.handles.swap_remove(at);
                let result = self.cache().close(handle);
                self.settle(result, vec![before]);
            }
            (12, _) => self.lose_name(name),
            (13, _) => self.rename(name),
            (14, _) => {
                let to = self.rng.pick(&NAMES);
                let mut after = self.model.clone();
                let result = self.cache().link(path(name), path(to));
                if let (Some(&file), None) = (self.model.names.get(name), self.model.names.get(to)) {
                    after.names.insert(to.to_owned(), file);
                }
                self.settle_names(result, after);
            }
            (15 | 16, _) => {
                let result = self.cache().flush();
                if result.is_ok() {
                    self.unsure.clear();
                }
                self.settle(result, vec![before]);
            }
            (17, _) if self.rng.one_in(3) => {
                self.media.quietly(|| ()); // A clean end: nothing more happens than in a crash.
                self.restart(vec![before]);
            }
            _ => self.open(name),
        }
    }

    fn open(&mut self, name: &str) {
        let mut after = self.model.clone();
        let file = match after.names.get(name) {
            Some(&file) => file,
            None => after.create(name),
        };
        match self.cache().open_file(path(name), Some(0o600), 0) {
            Ok(handle) => {
                self.model = after;
                self.handles.push((file, handle));
                self.verify(file);
            }
            Err(error) => self.settle_names(Err(error), after),
        }
    }

    fn write(&mut self, at: usize) {
        let file = self.handles[at].0;
        let chunk_bytes = self.media.chunk_bytes as usize;
        let most = self.rng.pick(&[8, chunk_bytes, 4 * chunk_bytes]);
        let len = 1 + self.rng.index(most);
        let is_append = self.rng.one_in(4);
        let end = self.model.contents[file].len();
        let offset = if is_append { end } else { self.rng.index(6 * chunk_bytes) };
        let data = self.rng.bytes(len);
        // Each part is there with all parts before it.
        let mut states = vec![self.model.clone()];
        for end in ends_of_parts(offset, len, chunk_bytes, self.slots) {
            let mut state = self.model.clone();
            state.write(file, offset, &data[..end]);
            states.push(state);
        }
        let handle = &self.handles[at].1;
        let written = if is_append {
            self.cache().append(handle, &data).map(|(found, done)| {
                assert_eq!(found as usize, offset);
                done
            })
        } else {
            self.cache().write(handle, offset as u64, &data)
        };
        if !self.media.power.is_off() {
            // What it says is there, and nothing else: an error says that nothing was written.
            let ends: Vec<usize> = ends_of_parts(offset, len, chunk_bytes, self.slots);
            let done = *written.as_ref().unwrap_or(&0);
            let parts = if done == 0 { 0 } else { 1 + ends.iter().position(|end| *end == done).unwrap() };
            self.short += u64::from(parts > 0 && done < len);
            states = vec![states.swap_remove(parts)];
        }
        self.settle_content(written.map(drop), file, states);
    }

    fn truncate(&mut self, at: usize) {
        let file = self.handles[at].0;
        let size = self.rng.below(5 * self.media.chunk_bytes);
        let mut after = self.model.clone();
        after.contents[file].resize(size as usize, 0);
        let result = self.cache().truncate(&self.handles[at].1, size);
        let (before, has_failed) = (self.model.contents[file].len(), result.is_err());
        let crashes = self.crashes;
        self.settle_content(result, file, vec![self.model.clone(), after]);
        if has_failed && self.crashes == crashes && self.model.contents[file].len() > before {
            self.unsure.push((file, before));
        }
    }

    fn lose_name(&mut self, name: &str) {
        let mut after = self.model.clone();
        after.names.remove(name);
        let result = self.cache().unlink(path(name));
        self.settle_names(result, after);
    }

    fn rename(&mut self, from: &str) {
        let to = self.rng.pick(&NAMES);
        let mut after = self.model.clone();
        let same = after.names.get(from) == after.names.get(to);
        if let Some(&file) = after.names.get(from).filter(|_| !same) {
            after.names.remove(from);
            after.names.insert(to.to_owned(), file);
        }
        let result = self.cache().rename(path(from), path(to));
        self.settle_names(result, after);
    }

    /// After a call that changed a file through one of `states`, the last of which is complete.
    fn settle_content(&mut self, result: Result<(), Error>, file: usize, states: Vec<Model>) {
        if self.media.power.is_off() {
            return self.restart(states.iter().map(Model::tree).collect());
        }
        if let Err(error) = result {
            self.errors += 1;
            assert!(matches!(error, Error::Backing { .. }), "{error}");
            let handle = &self.handles.iter().find(|(of, _)| *of == file).unwrap().1;
            let found = self.media.quietly(|| content(self.cache(), handle).unwrap());
            let state = states.iter().find(|state| state.contents[file] == found);
            self.model = state.unwrap_or_else(|| panic!("{error}: {found:x?}")).clone();
        } else {
            self.unsure.retain(|(of, _)| *of != file);
            self.model = states.last().unwrap().clone();
        }
        self.verify(file);
    }

    /// After a call that changed names, or did not.
    fn settle_names(&mut self, result: Result<(), Error>, after: Model) {
        if self.media.power.is_off() {
            return self.restart(vec![self.model.tree(), after.tree()]);
        }
        let names = |model: &Model| -> Vec<String> { model.names.keys().cloned().collect() };
        let below: Vec<String> =
            self.media.backing.contents().keys().map(|name| name.to_str().unwrap().to_owned()).collect();
        let states = vec![self.model.tree(), after.tree()];
        let found = self.media.quietly(|| tree(self.cache(), &self.media.backing));
        let may_be_lost = matches!(result, Err(Error::Backing { action: "make a file" | "sync names", .. }));
        if may_be_lost && !self.media.power.is_off() {
            // A creation that has failed and was made counts once names are synced.
            let flushed = self.media.quietly(|| self.cache().flush());
            assert!(flushed.is_ok() || self.media.power.is_off(), "{flushed:?}");
        }
        if self.media.power.is_off() {
            // To look is enough where something has to be synced first.
            return self.restart(states);
        }
        let found = found.unwrap();
        if result.is_ok() && !found.is_empty() {
            // What failed for the model's reasons has not changed it.
            assert_eq!(below, names(&after));
        }
        self.errors += u64::from(result.is_err());
        if found == after.tree() {
            self.model = after;
        }
        let expected = self.model.tree();
        assert!(found == expected, "{result:?}: {}", differences(&found, &[expected]));
    }

    fn settle(&mut self, result: Result<(), Error>, allowed: Vec<Tree>) {
        self.errors += u64::from(result.is_err());
        if self.media.power.is_off() {
            self.restart(allowed);
        }
    }

    fn verify(&self, file: usize) {
        if self.media.power.is_off() {
            return;
        }
        for (_, handle) in self.handles.iter().filter(|(of, _)| *of == file) {
            let found = self.media.quietly(|| content(self.cache(), handle).unwrap());
            assert_eq!(found, self.model.contents[file]);
        }
    }

    /// A crash, and recoveries until one of them ends.
    fn restart(&mut self, mut allowed: Vec<Tree>) {
        for (file, before) in std::mem::take(&mut self.unsure) {
            let shorter: Vec<Tree> = allowed.iter().map(|tree| self.shortened(tree, file, before)).collect();
            allowed.extend(shorter);
        }
        self.handles.clear();
        self.cache = None;
        let (cache, _, found, crashes) = self.media.recover(&mut self.rng, 3, 40);
        self.crashes += crashes;
        self.cache = Some(cache);
        assert!(allowed.contains(&found), "{}", differences(&found, &allowed));
        self.adopt(&found);
    }

    fn shortened(&self, tree: &Tree, file: usize, before: usize) -> Tree {
        let mut tree = tree.clone();
        for content in tree.values_mut().filter(|content| **content == self.model.contents[file]) {
            content.truncate(before);
        }
        tree
    }

    /// Names of one file have the same content; which they are is in the directory.
    fn adopt(&mut self, found: &Tree) {
        self.model = Model::default();
        let mut by_id = std::collections::BTreeMap::new();
        for (name, content) in found {
            let id = self.media.backing.stat(path(name)).unwrap().id;
            let contents = &mut self.model.contents;
            let file = *by_id.entry(id).or_insert_with(|| {
                contents.push(content.clone());
                contents.len() - 1
            });
            self.model.names.insert(name.clone(), file);
        }
    }

    /// The directory alone has everything, once it does not fail.
    fn finish(&mut self) {
        self.media.power.turn_on();
        *self.media.failing.lock().unwrap() = Failing::default();
        self.cache().flush().unwrap();
        let status = self.cache().status().unwrap();
        assert_eq!((status.dirty_chunks, status.failures.len()), (0, 0), "{status:?}");
        let below = self.media.backing.crashed(|| false).contents();
        let below: Tree =
            below.into_iter().map(|(name, content)| (name.to_str().unwrap().to_owned(), content)).collect();
        let expected = self.model.tree();
        assert!(below == expected, "{}", differences(&below, &[expected]));
    }
}

/// In what a tree differs from each of those that are allowed.
fn differences(found: &Tree, allowed: &[Tree]) -> String {
    let mut text = String::new();
    for tree in allowed {
        let names: std::collections::BTreeSet<_> = found.keys().chain(tree.keys()).collect();
        for name in names.into_iter().filter(|name| found.get(*name) != tree.get(*name)) {
            let (is, should) = (found.get(name), tree.get(name));
            let at = is.zip(should).and_then(|(is, should)| is.iter().zip(should).position(|(a, b)| a != b));
            let len = |content: Option<&Vec<u8>>| content.map(Vec::len);
            text += &format!("{name}: {:?} bytes, not {:?}; byte {at:?} differs. ", len(is), len(should));
        }
        text += "Or: ";
    }
    text
}

#[test]
fn acknowledged_writes_survive_in_order() {
    let (mut crashes, mut errors, mut short) = (0, 0, 0);
    let count = simulate(400, |seed| {
        let mut simulation = Simulation::new(seed);
        simulation.run();
        crashes += simulation.crashes;
        errors += simulation.errors;
        short += simulation.short;
    });
    let text = format!("{crashes} crashes, {errors} errors, {short} short writes");
    assert!(crashes >= count && errors >= count && 10 * short >= count || count < 50, "{text}");
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
