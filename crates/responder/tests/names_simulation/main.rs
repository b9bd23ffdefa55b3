//! A seeded simulation of names: files, directories and links are made, moved, exchanged and removed, the
//! directory fails, and power cuts lose any part of what it had not synced, in recoveries, too.
//!
//! After a crash everything is as after the last call that had returned, or the one that had not.
//! `FASTNESS_RESPONDER_SEEDS=FROM..TO` runs others than the default seeds.

mod model;
#[path = "../support/mod.rs"]
mod support;
mod threads;

use std::collections::BTreeMap;
use std::path::Path;

use fastness_responder::*;
use fastness_testkit::Rng;
use model::{Files, Node};
use support::history::{Tree, below, tree};
use support::world::*;
use support::{Pm, content, set_protocol, set_shared};

struct Simulation {
    rng: Rng,
    media: Media,
    cache: Option<Cache<Pm>>,
    handles: Vec<(usize, Handle)>,
    files: Files,
    crashes: u64,
    errors: u64,
    made_again: u64,
}

const PATHS: [&str; 10] = ["a", "b", "d", "e", "d/a", "d/b", "d/e", "e/a", "d/e/a", "e/d"];

fn like(mode: u32) -> Attributes {
    Attributes { mode, ..Attributes::default() }
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let mut rng = Rng(seed ^ 0x6e61_6d65);
        set_protocol(rng.pick(&[ProtocolKind::Fr, ProtocolKind::Melo]));
        set_shared(seed % 4 == 1);
        let slots = rng.pick(&[2, 8, 16]);
        let media = Media::new(slots, 64, &mut rng);
        media.backing.set_births_in_a_tick(rng.pick(&[1, 1, 4, 50]));
        let cache = Some(media.create());
        let (handles, files) = (Vec::new(), Files::default());
        Simulation { rng, media, cache, handles, files, crashes: 0, errors: 0, made_again: 0 }
    }

    fn cache(&self) -> &Cache<Pm> {
        self.cache.as_ref().unwrap()
    }

    fn run(&mut self) {
        for _ in 0..50 + self.rng.index(100) {
            if self.rng.one_in(14) {
                self.media.power.cut_in(1 + self.rng.below(60));
            }
            if self.rng.one_in(12) {
                let rng = &mut self.rng;
                let mut maybe = |errno: i32| rng.one_in(3).then(|| (errno, 1 + rng.below(4)));
                let (syncs, writes, names) = (maybe(5), maybe(5), maybe(5));
                *self.media.failing.lock().unwrap() = Failing { syncs, writes, names, is_full: false };
            }
            self.step();
        }
        self.finish();
    }

    fn step(&mut self) {
        let (path, to) = (self.rng.pick(&PATHS), self.rng.pick(&PATHS));
        let mut after = self.files.clone();
        let before = vec![self.files.tree()];
        match self.rng.below(24) {
            0..4 => self.open(path),
            4..6 => {
                let backing = &self.media.backing;
                let result = self.cache().make(Path::new(path), || {
                    Ok(((), backing.make(Path::new(path), &like(0o040_700)).map(|()| true)?))
                });
                let expected = after.make(path, None).map(|_| after);
                self.settle(result, expected);
            }
            6..8 => {
                let result = self.cache().unlink(Path::new(path));
                let expected = after.remove(path, false).map(|()| after);
                self.settle(result, expected);
            }
            8 => {
                let result = self.cache().remove_directory(Path::new(path));
                let expected = after.remove(path, true).map(|()| after);
                self.settle(result, expected);
            }
            9..14 => {
                let how = self.rng.pick(&[
                    Renaming::Replace,
                    Renaming::Replace,
                    Renaming::Keep,
                    Renaming::Exchange,
                ]);
                let result = self.cache().rename_with(Path::new(path), Path::new(to), how);
                let expected = after.rename(path, to, how).map(|()| after);
                self.settle(result, expected);
            }
            14 => {
                let result = self.cache().link(Path::new(path), Path::new(to));
                let expected = after.link(path, to).map(|()| after);
                self.settle(result, expected);
            }
            15 => self.permit(path),
            16..20 if !self.handles.is_empty() => self.write(),
            20 if !self.handles.is_empty() => {
                let at = self.rng.index(self.handles.len());
                let (_, handle) = self.handles.swap_remove(at);
                let result = self.cache().close(handle);
                self.settle_same(result, before);
            }
            21 => {
                let cache = self.cache.as_ref().unwrap();
                let result = if self.rng.one_in(2) { cache.flush() } else { cache.tend() };
                self.settle_same(result, before);
            }
            22 if self.rng.one_in(4) => self.restart(before),
            _ => self.open(path),
        }
    }

    fn open(&mut self, path: &str) {
        if self.files.names.contains_key(path) && self.files.is_directory(path) {
            return;
        }
        let mut after = self.files.clone();
        let file = after.names.get(path).copied().or_else(|| after.make(path, Some(Vec::new())));
        match (self.cache().open_file(Path::new(path), Some(0o600), 0), file) {
            (Ok(handle), Some(file)) => {
                self.files = after;
                self.handles.push((file, handle));
            }
            (Ok(_), None) => panic!("{path}: there is no such directory"),
            (Err(error), file) => self.settle(Err(error), file.map(|_| after)),
        }
    }

    fn write(&mut self) {
        let at = self.rng.index(self.handles.len());
        let (file, len) = (self.handles[at].0, 1 + self.rng.index(60));
        let (offset, data) = (self.rng.index(120), self.rng.bytes(len));
        let mut after = self.files.clone();
        let result = self.cache().write(&self.handles[at].1, offset as u64, &data);
        let done = *result.as_ref().unwrap_or(&len);
        let bytes = after.nodes[file].content.as_mut().unwrap();
        bytes.resize(bytes.len().max(offset + done), 0);
        bytes[offset..offset + done].copy_from_slice(&data[..done]);
        if self.media.power.is_off() {
            return self.restart(vec![self.files.tree(), after.tree()]);
        }
        if let Err(error) = &result {
            self.errors += 1;
            let found = self.media.quietly(|| content(self.cache(), &self.handles[at].1).unwrap());
            let is_done = Some(&found) == after.nodes[file].content.as_ref();
            assert!(is_done || Some(&found) == self.files.nodes[file].content.as_ref(), "{error}");
            self.files = if is_done { after } else { self.files.clone() };
        } else {
            self.files = after;
        }
    }

    /// Changes permissions as a front end does: below, then they are made durable.
    fn permit(&mut self, path: &str) {
        let Some(&node) = self.files.names.get(path) else { return };
        let mut after = self.files.clone();
        after.nodes[node].mode = self.rng.pick(&[0o600, 0o640, 0o755]);
        let path = Path::new(path);
        let found = self.media.backing.attributes()[path].clone();
        let next = Attributes { mode: found.mode & 0o170_000 | after.nodes[node].mode, ..found };
        let changed = self.media.quietly(|| self.media.backing.set_attributes(path, &next));
        let mut result = self.cache().settle(path);
        while changed.is_ok() && result.is_err() && !self.media.power.is_off() {
            // What is not settled may be lost later.
            self.errors += 1;
            result = self.media.quietly(|| self.cache().settle(path));
        }
        self.settle(result, Some(after));
    }

    /// After a call that has made `after` of the files, or failed.
    fn settle(&mut self, result: Result<(), Error>, after: Option<Files>) {
        let (before, expected) = (self.files.tree(), after.as_ref().map(Files::tree));
        if self.media.power.is_off() {
            return self.restart([before].into_iter().chain(expected).collect());
        }
        self.errors += u64::from(result.is_err());
        assert!(result.is_err() || after.is_some(), "{result:?} is not what the model says");
        let found = self.media.quietly(|| tree(self.cache(), &self.media.backing));
        if self.media.power.is_off() {
            // To look is enough where something has to be synced first.
            return self.restart([before].into_iter().chain(expected).collect());
        }
        let found = found.unwrap();
        if result.is_err() && expected.as_ref() == Some(&before) {
            // Two files with the same bytes: which one has which name is not to be told.
            return self.restart(vec![before]);
        }
        if Some(&found) == expected.as_ref() {
            let may_be_lost =
                matches!(result, Err(Error::Backing { action: "make a file" | "sync names", .. }));
            if may_be_lost && self.media.quietly(|| self.cache().flush()).is_err() {
                // A creation that has failed and was made counts once names are synced.
                assert!(self.media.power.is_off());
                return self.restart([before].into_iter().chain(expected).collect());
            }
            self.files = after.expect("it is expected");
        } else {
            assert!(
                result.is_err() && found == before,
                "{result:?}: found {} of {} {:?}",
                shown(&found),
                shown(&before),
                expected.as_ref().map(shown)
            );
        }
    }

    fn settle_same(&mut self, result: Result<(), Error>, before: Vec<Tree>) {
        self.errors += u64::from(result.is_err());
        if self.media.power.is_off() {
            self.restart(before);
        }
    }

    /// A crash, and recoveries until one of them ends.
    fn restart(&mut self, allowed: Vec<Tree>) {
        self.handles.clear();
        self.cache = None;
        let (cache, recovered, found, crashes) = self.media.recover(&mut self.rng, 2, 50);
        self.crashes += crashes;
        self.made_again += recovered.made_again;
        self.cache = Some(cache);
        assert!(
            allowed.contains(&found),
            "found {} of {:?}",
            shown(&found),
            allowed.iter().map(shown).collect::<Vec<_>>()
        );
        self.adopt(&found);
    }

    /// Names of one file are told by what they lead to.
    fn adopt(&mut self, found: &Tree) {
        self.files = Files::default();
        let mut by_id = BTreeMap::new();
        for (path, attributes) in self.media.backing.attributes() {
            let name = path.to_str().unwrap().to_owned();
            let nodes = &mut self.files.nodes;
            let node = *by_id.entry(attributes.id).or_insert_with(|| {
                let (content, mode) = (found.get(&name).cloned(), attributes.mode & 0o7777);
                nodes.push(Node { content, mode });
                nodes.len() - 1
            });
            self.files.names.insert(name, node);
        }
        assert_eq!(self.files.tree(), *found);
    }

    /// The directory alone has everything, once it does not fail.
    fn finish(&mut self) {
        self.media.power.turn_on();
        *self.media.failing.lock().unwrap() = Failing::default();
        self.cache().flush().unwrap();
        let status = self.cache().status().unwrap();
        assert_eq!(
            (status.dirty_chunks, status.unsynced_names, status.failures.len()),
            (0, 0, 0),
            "{status:?}"
        );
        assert_eq!(below(&self.media.backing.crashed(|| false)), self.files.tree());
    }
}

/// Names, and of contents no more than tells them apart.
fn shown(tree: &Tree) -> String {
    let sum = |content: &[u8]| {
        content.iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()))
    };
    let one = |(name, content): (&String, &Vec<u8>)| format!("{name}={}:{:x}", content.len(), sum(content));
    tree.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn names_survive_in_order() {
    let (mut crashes, mut errors, mut made_again) = (0, 0, 0);
    let count = simulate(400, |seed| {
        let mut simulation = Simulation::new(seed);
        simulation.run();
        crashes += simulation.crashes;
        errors += simulation.errors;
        made_again += simulation.made_again;
    });
    let enough = crashes >= count && errors >= count && 2 * made_again >= count;
    assert!(enough || count < 50, "{crashes} crashes, {errors} errors, {made_again} made again");
}
