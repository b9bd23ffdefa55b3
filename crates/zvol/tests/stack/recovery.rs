//! The end of a life, and the import after it.

use std::sync::Arc;

use fastness_base::chain;
use fastness_pool::{Device, Pool, PoolError, PoolOptions, Probe, TrimPoint};
use fastness_store::{LogConfig, RegionParts, Source, Store, StoreError, StoreOptions};
use fastness_testkit::media::{Bank, Disk};
use fastness_zvol::drop_interrupted;

use crate::damage::Damage;
use crate::log::bank_of;
use crate::met::note;
use crate::program::Step;
use crate::volumes::Vol;
use crate::world::{World, manual, options};

/// Imports of one life that a power cut ends, at most.
const CUTS_MAX: u64 = 4;

impl World<'_> {
    /// The power fails, if it has not yet, the process dies, or the pool is exported; what is left is
    /// imported, and judged.
    pub fn end_and_import(&mut self) {
        let mut loses_power = self.rng.below(8) < self.swarm.power_cuts;
        if !self.power.is_off() && !self.is_suspended() && self.rng.below(8) < self.swarm.exports {
            self.export();
        }
        if !self.power.is_off() && !self.is_suspended() && self.rng.one_in(4) {
            self.run(&Step::Idle, "end");
        }
        self.note_roles();
        let mut damage = Damage::default();
        for attempt in 0.. {
            self.give_up();
            self.lose(loses_power);
            self.power.turn_on();
            if attempt == 0 {
                damage = self.damage(loses_power);
            }
            // With damage it is one import that must do.
            if attempt < CUTS_MAX && damage.is_none() && self.rng.one_in(2) {
                let within = self.rng.pick(&[8, 60, 400]);
                self.power.cut_in(1 + self.rng.below(within));
            }
            let imported = self.import();
            let how = imported.as_ref().map_or_else(|error| chain(error), |()| "done".into());
            self.story.push(format!("{}import: {how}", if loses_power { "power cut; " } else { "" }));
            match imported {
                Ok(()) if !self.power.is_off() => break,
                Err(error) if !self.power.is_off() => {
                    self.excuse_import(&mut damage, &error);
                    if self.is_over {
                        return;
                    }
                    loses_power = false;
                    continue;
                }
                _ => note(&self.met.cuts_of_imports, 1),
            }
            loses_power = !self.rng.one_in(3);
        }
        // Nothing else fails in what comes now.
        self.power.turn_on();
        self.heal_all();
        self.judge(&damage);
        self.check();
    }

    /// What the end of a process, or of the power, does to the media.
    fn lose(&mut self, loses_power: bool) {
        note(if loses_power { &self.met.cuts } else { &self.met.deaths }, 1);
        let rng = &mut self.rng;
        if loses_power {
            self.disks = self.disks.iter().map(|disk| disk.crashed(rng.next())).collect();
            self.banks = [0, 1].map(|bank| self.banks[bank].crashed(&mut rng.0));
        } else {
            self.disks.iter().for_each(|disk| disk.reopen(rng.next()));
        }
        self.banks.iter_mut().for_each(Bank::reopen);
        if rng.one_in(2) {
            self.heal_all();
        }
    }

    fn heal_all(&mut self) {
        self.disks.iter().for_each(Disk::heal);
        self.banks.iter_mut().for_each(Bank::mend);
    }

    /// An import may fail because of devices that fail or are damaged. Without that, the next one must
    /// succeed.
    fn excuse_import(&mut self, damage: &mut Damage, error: &StoreError) {
        if self.is_any_loud() {
            self.heal_all();
            return note(&self.met.refused_for_faults, 1);
        }
        if self.was_cut && matches!(error, StoreError::Copy { .. }) {
            // It missed a txg, and is whole again before the next could say that it is out: as a copy is.
            note(&self.met.regions_refused, 1);
            self.is_over = true;
            return;
        }
        assert!(self.undo(damage, error), "an import fails: {}", chain(error));
    }

    /// Gives the pool back, with everything that was acknowledged.
    fn export(&mut self) {
        self.volumes.iter_mut().for_each(Vol::close);
        self.close_files();
        let exported = self.pool().export();
        self.settle_synced();
        let how = exported.as_ref().map_or_else(|error| chain(error), |()| "done".into());
        self.story.push(format!("export: {how}"));
        match exported {
            Ok(()) => {
                self.volumes.iter_mut().for_each(|open| open.model.settle());
                note(&self.met.exports, 1);
            }
            Err(error) => assert!(self.power.is_off() || self.is_any_loud(), "an export fails: {error:?}"),
        }
    }

    /// Lets go of everything, as a process that ends.
    fn give_up(&mut self) {
        self.power.turn_off();
        if self.is_imported() {
            let indirect = self.log().stats().iter().map(|(_, stats)| stats.indirect).sum();
            note(&self.met.indirect, indirect);
        }
        self.volumes.iter_mut().for_each(Vol::close);
        self.close_files();
        drop(self.stack.take());
        self.is_given_up = false;
    }

    /// The devices that the newest label names, of all that there ever were.
    pub fn found(&self) -> Result<Vec<Device>, PoolError> {
        let mut found = Vec::new();
        for disk in &self.disks {
            match disk.device().probe() {
                Ok(probe) => found.push((probe, disk.device())),
                Err(PoolError::NoLabel { .. }) => {}
                // It is as good as missing.
                Err(_) if disk.is_loud() => {}
                Err(error) => return Err(error),
            }
        }
        // One without a txg was being added, and decides nothing.
        let age = |probe: &&Probe| (probe.txg.is_some(), probe.config.generation, probe.txg);
        let newest = found.iter().map(|(probe, _)| probe).max_by_key(age);
        let vdevs = newest.map(|probe| probe.config.vdevs.clone()).unwrap_or_default();
        found
            .retain(|(probe, _)| vdevs.iter().flat_map(|vdev| &vdev.devices).any(|of| of.guid == probe.guid));
        Ok(found.into_iter().map(|(_, device)| device).collect())
    }

    /// Looks at the pool, and changes nothing.
    pub fn look(&mut self) -> Result<Arc<Pool>, StoreError> {
        let options = StoreOptions { pool: PoolOptions { is_read_only: true, ..manual() }, ..options() };
        self.each_source(|source| Ok(Store::import(source, options.clone())?.0.pool()))
    }

    /// A fresh process imports what is there.
    pub fn import(&mut self) -> Result<(), StoreError> {
        let (store, report) = self.each_source(|source| Store::import(source, options()))?;
        note(&self.met.replayed, report.records);
        note(&self.met.replayed_full, if self.is_full() { report.records } else { 0 });
        note(&self.met.indirect_replayed, report.indirect);
        note(&self.met.sides_repaired, report.sides.entries.iter().sum());
        // As the program does. What fails here is left to the next import, which comes at once if the pool
        // is suspended by it.
        let _ = drop_interrupted(&store);
        if store.pool().is_suspended() {
            return Err(store.pool().sync().expect_err("it is suspended").into());
        }
        store.pool().note_freed(true);
        self.trim_point = TrimPoint::default();
        self.stack = Some(store);
        Ok(())
    }

    /// Imports the pool from the devices that are found. One that was never quite added, or is not quite
    /// removed, says so and is left out.
    pub fn each_source<T>(
        &mut self,
        mut import: impl FnMut(&mut dyn Source) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut devices = self.found()?;
        let is_found = |disk: &&Disk| devices.iter().any(|device| device.path == disk.path);
        for disk in self.disks.iter().filter(|disk| !is_found(disk)) {
            self.story.push(format!("{} is not found", disk.path));
        }
        loop {
            let mut source = WorldSource { devices: devices.clone(), world: self };
            match import(&mut source) {
                Err(StoreError::Pool(PoolError::Removed { path, .. })) => {
                    self.story.push(format!("{path} is left out: it is not one of the pool's"));
                    devices.retain(|device| device.path != path);
                }
                // A side failed just when another had been resilvered from it, or while that one was stale.
                Err(StoreError::Pool(PoolError::Split { other_path, .. })) => {
                    note(&self.met.splits, 1);
                    devices.retain(|device| device.path != other_path);
                }
                imported => return imported,
            }
        }
    }
}

/// The media of a world.
struct WorldSource<'w, 'a> {
    devices: Vec<Device>,
    world: &'w mut World<'a>,
}

impl Source for WorldSource<'_, '_> {
    fn devices(&mut self, _known: Option<&[String]>) -> Result<Vec<Device>, StoreError> {
        Ok(self.devices.clone())
    }

    fn regions(
        &mut self,
        _pool: &Pool,
        config: &LogConfig,
    ) -> Result<Vec<Result<RegionParts, StoreError>>, StoreError> {
        let world = &mut *self.world;
        // A side that is out is there again, with what it had then; of a mirror, one may be gone.
        let mut regions: Vec<_> = config.regions.iter().map(bank_of).collect();
        note(&world.met.sides_back, config.regions.iter().filter(|region| region.is_out).count() as u64);
        let is_whole = world.banks.iter().all(|bank| !bank.is_cut());
        if config.in_use().count() == 2 && is_whole && !world.needs_both_banks && world.rng.one_in(2) {
            let lost = regions.remove(world.rng.index(2));
            note(&world.met.sides_lost, 1);
            world.story.push(format!("bank{lost} is lost"));
        }
        Ok(regions.into_iter().map(|bank| Ok(world.banks[bank].parts())).collect())
    }
}
