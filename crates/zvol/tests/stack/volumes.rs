//! Steps on volumes: requests of their clients, and their lives.

use std::sync::Arc;

use fastness_base::chain;
use fastness_pool::Property;
use fastness_zvol::{Volume, VolumeError, VolumeOptions};

use crate::met::note;
use crate::oracle::{Change, Model};
use crate::program::Step;
use crate::rng::Rng;
use crate::thick::Thick;
use crate::world::{Done, Failure, World};

/// Whether a volume exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Its making has begun, and nobody was told that it is there.
    Making,
    Certain,
    /// Its end has begun, and nobody was told that it is gone.
    Going,
}

/// A volume and what it must hold.
pub struct Vol {
    /// One for each client; none: it is closed.
    pub clients: Vec<Arc<Volume>>,
    pub name: String,
    pub model: Model,
    pub fate: Fate,
    pub block_bytes: usize,
    /// The snapshot that it began as.
    pub origin: Option<String>,
    pub thick: Thick,
    /// It becomes this, and nobody was told that it has.
    pub rolling: Option<Vec<u8>>,
    /// Who wrote last.
    writer: Option<usize>,
    has_flushed: bool,
}

impl Vol {
    pub fn new(name: String, model: Model, fate: Fate, block_bytes: usize) -> Vol {
        Vol {
            clients: Vec::new(),
            name,
            model,
            fate,
            block_bytes,
            origin: None,
            thick: Thick::default(),
            rolling: None,
            writer: None,
            has_flushed: false,
        }
    }

    /// Whether what was found is what it was to become.
    pub fn has_rolled_back(&mut self, found: &[u8]) -> bool {
        self.rolling.take().is_some_and(|then| then == found)
    }

    pub fn is_open(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Clients can use it.
    pub fn is_there(&self) -> bool {
        self.fate == Fate::Certain
    }

    pub fn close(&mut self) {
        self.model.close();
        self.let_go();
    }

    /// Its pool goes.
    pub fn let_go(&mut self) {
        self.clients.clear();
        (self.writer, self.has_flushed) = (None, false);
    }
}

impl World<'_> {
    pub fn client(&self, volume: usize, client: usize) -> Arc<Volume> {
        let clients = &self.volumes[volume].clients;
        clients[client % clients.len()].clone()
    }

    /// Changes of a volume that did not get into the log at once.
    pub fn unlogged(&self, volume: usize) -> u64 {
        let id = self.client(volume, 0).dataset().id();
        let stats = self.log().stats();
        stats.iter().filter(|(of, _)| of.0 == id.0).map(|(_, stats)| stats.unlogged.iter().sum::<u64>()).sum()
    }

    pub fn request(&mut self, step: &Step) -> Done {
        match step {
            Step::Write { volume, client, offset, data, is_fua } => {
                let (at, range) = (*offset as u64, (*offset, data.len()));
                let act = |volume: &Volume| volume.write(at, data, *is_fua);
                self.change((*volume, *client), range, Some(data.clone()), *is_fua, act)
            }
            Step::Zero { volume, client, offset, len, is_fua, is_discard } => {
                let (at, len) = (*offset as u64, *len as u64);
                let act = |volume: &Volume| match is_discard {
                    true => volume.discard(at, len, *is_fua),
                    false => volume.write_zeroes(at, len, *is_fua),
                };
                note(&self.met.zeroed_full, u64::from(self.is_full()));
                self.change((*volume, *client), (*offset, len as usize), None, *is_fua, act)
            }
            Step::Fill { volume, byte } => self.fill(*volume, *byte),
            Step::Flush { volume, client } => self.flush(*volume, *client),
            Step::Compare { volume } => self.compare(*volume),
            Step::Create { size, block } => self.create(*size, *block),
            Step::Destroy { volume } => self.destroy(*volume),
            Step::Close { volume } => {
                let open = &mut self.volumes[*volume];
                let is_clean = open.model.window.changes.is_empty();
                note(if is_clean { &self.met.closed_clean } else { &self.met.closed_unflushed }, 1);
                open.close();
                Ok(())
            }
            Step::Open { volume } => self.open(*volume),
            Step::Resize { volume, size } => self.resize(*volume, *size),
            Step::Squeeze { volume, byte } => self.squeeze(*volume, *byte),
            Step::SetThick { volume, is_on } => self.set_thick(*volume, *is_on),
            step if step.is_of_snapshots() => self.step_of_snapshots(step),
            step if step.is_of_streams() => self.step_of_streams(step),
            _ => unreachable!("a step on a volume"),
        }
    }

    fn change(
        &mut self,
        (at, client): (usize, usize),
        (offset, len): (usize, usize),
        data: Option<Arc<[u8]>>,
        is_fua: bool,
        act: impl Fn(&Volume) -> Result<(), VolumeError>,
    ) -> Done {
        let (is_lwb, unlogged, volume) = (self.is_lwb(), self.unlogged(at), self.client(at, client));
        let mut done = act(&volume).map_err(Failure::from);
        if done.as_ref().is_err_and(Failure::is_for_room)
            && let Some(again) = self.try_again(at, || Ok(act(&volume)?))
        {
            done = again;
        }
        let is_logged = self.unlogged(at) == unlogged;
        note(&self.met.unlogged, u64::from(!is_logged));
        let change = Change { offset, len, data, txg: self.pool().open_txg().0, is_durable: false };
        let open = &mut self.volumes[at];
        note(&self.met.two_clients, u64::from(open.writer.is_some_and(|writer| writer != client)));
        open.writer = Some(client);
        if done.is_err() && !self.power.is_off() {
            let mut seen = vec![0xaa; len];
            let read = self.power.without_faults(|| volume.read(offset as u64, &mut seen));
            match read {
                Ok(()) => {
                    let changed = open.model.change_failed(&change, &seen);
                    changed.unwrap_or_else(|why| panic!("{}: {why}", open.name));
                }
                // Of a suspended pool not even the tables can be read.
                Err(_) => open.model.change_perhaps(change),
            }
            return done;
        }
        let model = &mut open.model;
        model.change(change, is_lwb);
        match done {
            // One chain has one order: with it everything before.
            Ok(()) if is_lwb && is_fua && model.is_listed => model.settle(),
            Ok(()) if is_fua || !is_lwb && is_logged => model.settle_last(),
            _ => {}
        }
        done
    }

    pub fn fill(&mut self, at: usize, byte: u8) -> Done {
        note(&self.met.filled, 1);
        let (size, len_max) = (self.volumes[at].model.now.len(), self.shape.write_max.min(128 << 10));
        for offset in (0..size).step_by(len_max) {
            let len = len_max.min(size - offset);
            // Such that no two blocks are the same.
            let word =
                |at: usize| (offset as u64 + at as u64 / 8 + 1).wrapping_mul(0x9e37_79b9).to_le_bytes();
            let data: Arc<[u8]> = (0..len).map(|at| word(at)[at % 8] ^ byte).collect();
            let act = |volume: &Volume| volume.write(offset as u64, &data, false);
            self.change((at, 0), (offset, len), Some(data.clone()), false, act)?;
        }
        Ok(())
    }

    fn flush(&mut self, at: usize, client: usize) -> Done {
        self.client(at, client).flush()?;
        let open = &mut self.volumes[at];
        let is_first = !open.has_flushed && !open.model.window.changes.is_empty();
        note(&self.met.flushed_after_opening, u64::from(is_first));
        open.has_flushed = true;
        open.model.settle();
        Ok(())
    }

    fn compare(&self, at: usize) -> Done {
        let open = &self.volumes[at];
        let mut found = vec![0xaa; open.model.now.len()];
        self.client(at, 0).read(0, &mut found)?;
        if open.model.is_vague {
            return Ok(());
        }
        if found != open.model.now {
            let differs = found.iter().zip(&open.model.now).position(|(found, now)| found != now);
            panic!("v{at} reads wrong from byte {differs:?} on");
        }
        Ok(())
    }

    fn create(&mut self, size: u64, block: u64) -> Done {
        let is_free = |name: &String| self.volumes.iter().all(|open| open.name != *name);
        let name = (0..).map(|n| format!("tank/v{n}")).find(is_free).expect("there are few");
        note(&self.met.made_again, u64::from(!self.names.insert(name.clone())));
        note(&self.met.blocks_of_512, u64::from(block == 512));
        note(&self.met.blocks_of_128k, u64::from(block == 128 << 10));
        let options = VolumeOptions { properties: vec![(Property::VolBlockSize, block)] };
        let made = Volume::create(self.store(), &name, size, &options);
        let is_left = self.pool().dataset(&name).is_ok();
        if made.is_ok() || is_left {
            let model = Model::new(vec![0; size as usize], block as usize);
            let fate = if made.is_ok() { Fate::Certain } else { Fate::Making };
            self.volumes.push(Vol::new(name, model, fate, block as usize));
        }
        let made = Arc::new(made?);
        let at = self.volumes.len() - 1;
        self.volumes[at].clients = vec![made];
        self.open_more(at)
    }

    fn open(&mut self, at: usize) -> Done {
        let volume = Volume::open(self.store(), &self.volumes[at].name)?;
        note(&self.met.opened, 1);
        self.volumes[at].clients = vec![Arc::new(volume)];
        self.open_more(at)
    }

    fn open_more(&mut self, at: usize) -> Done {
        while self.volumes[at].clients.len() < self.swarm.clients {
            let volume = Volume::open(self.store(), &self.volumes[at].name)?;
            self.volumes[at].clients.push(Arc::new(volume));
        }
        Ok(())
    }

    fn destroy(&mut self, at: usize) -> Done {
        let store = self.store().clone();
        let name = self.volumes[at].name.clone();
        let Some(mut names) = self.end_snapshots(&name) else { return Ok(()) };
        let open = &mut self.volumes[at];
        open.close();
        open.fate = Fate::Going;
        names.push(name);
        let left = store.destroy_datasets(names.clone())?;
        assert!(left.is_empty(), "{left:?}");
        self.volumes.remove(at);
        self.snapshots.retain(|snap| !names.contains(&snap.name));
        note(&self.met.destroyed, 1);
        Ok(())
    }

    pub fn draw_resize(&self, volume: usize, rng: &mut Rng) -> Step {
        let (size, block) = self.shape.volume(rng);
        let own = self.volumes[volume].block_bytes as u64;
        Step::Resize { volume, size: (size + block).next_multiple_of(own) }
    }

    pub fn resize(&mut self, at: usize, size: u64) -> Done {
        let volume = self.client(at, 0);
        let model = &mut self.volumes[at].model;
        let (before, size) = (model.now.len(), size as usize);
        model.resizing = Some(size);
        let done = volume.resize(size as u64);
        if done.is_err() && self.power.is_off() {
            return Ok(done?);
        }
        if volume.size_bytes() == size as u64 {
            model.resize(size);
        }
        model.resizing = None;
        match &done {
            Ok(()) => model.settle(),
            Err(_) => model.before = (model.now.len() != before).then_some(before),
        }
        note(if size > before { &self.met.grown } else { &self.met.shrunk }, u64::from(done.is_ok()));
        Ok(done?)
    }
}

impl From<VolumeError> for Failure {
    fn from(error: VolumeError) -> Failure {
        Failure { kind: error.kind(), text: chain(&error) }
    }
}
