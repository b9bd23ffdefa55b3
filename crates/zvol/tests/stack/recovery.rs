//! The end of a life, the import after it, and the judgement.

use std::sync::Arc;

use fastness_intent::{Consent, IntentError, PoolLog};
use fastness_pool::{Device, Host, ImportOptions, Pool, PoolError, VdevClass};
use fastness_zvol::{Volume, VolumeError};

use crate::oracle::Model;
use crate::program::Step;
use crate::world::{Log, Met, TUNING, World, bank_of, manual, note};

impl World<'_> {
    /// The power fails, if it has not yet, or the process dies; what is left is imported, and judged.
    pub fn crash_and_import(&mut self) {
        let mut loses_power = self.power.is_off() && !self.rng.one_in(4) || self.rng.one_in(2);
        for attempt in 0.. {
            self.power.turn_off();
            if self.stack.is_some() {
                let indirect = self.log().stats().iter().map(|(_, stats)| stats.indirect).sum();
                note(&self.met.indirect, indirect);
            }
            self.volumes.iter_mut().for_each(|open| drop(open.volume.take()));
            drop(self.stack.take());
            note(if loses_power { &self.met.cuts } else { &self.met.deaths }, 1);
            if loses_power {
                let rng = &mut self.rng;
                self.disks = self.disks.iter().map(|disk| disk.crashed(rng.next())).collect();
                self.banks = [0, 1].map(|bank| self.banks[bank].crashed(rng));
            }
            self.power.turn_on();
            if attempt < 4 && self.rng.one_in(2) {
                let within = [8, 60, 400][self.rng.below(3) as usize];
                self.power.cut_in(1 + self.rng.below(within));
            }
            let died = if loses_power { "power cut" } else { "death of the process" };
            let imported = self.import();
            let how = imported.as_ref().map_or_else(ToString::to_string, |()| "done".into());
            self.story.push(format!("{died}; import: {how}"));
            match imported {
                Ok(()) if !self.power.is_off() => break,
                Err(error) => assert!(self.power.is_off(), "an import fails: {error:?}"),
                Ok(()) => {}
            }
            note(&self.met.cuts_of_imports, 1);
            loses_power = !self.rng.one_in(3);
        }
        // Nothing else fails in what comes now.
        self.power.turn_on();
        self.judge();
    }

    /// The devices that the newest label names, of all that there ever were.
    fn found(&self) -> Result<Vec<Device>, PoolError> {
        let mut found = Vec::new();
        for disk in &self.disks {
            match disk.device().probe() {
                Ok(probe) => found.push((probe, disk.device())),
                Err(PoolError::NoLabel { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let newest = found.iter().map(|(probe, _)| &probe.config).max_by_key(|config| config.generation);
        let vdevs = newest.map(|config| config.vdevs.clone()).unwrap_or_default();
        found
            .retain(|(probe, _)| vdevs.iter().flat_map(|vdev| &vdev.devices).any(|of| of.guid == probe.guid));
        Ok(found.into_iter().map(|(_, device)| device).collect())
    }

    /// Imports the pool without txgs. A device that was never quite added, or is not quite removed, says so and is left out.
    fn import_paused(&self) -> Result<Arc<Pool>, PoolError> {
        let mut devices = self.found()?;
        let options = ImportOptions { host: Host::current(), ..ImportOptions::default() };
        loop {
            match Pool::import_paused(&devices, &options, manual()) {
                Err(PoolError::Removed { path, .. }) => devices.retain(|device| device.path != path),
                imported => return imported.map(Arc::new),
            }
        }
    }

    fn import(&mut self) -> Result<(), IntentError> {
        let pool = self.import_paused()?;
        let config = PoolLog::config(&pool)?;
        // A side that is out is there again, with what it had then; of a mirror, one may be gone.
        let mut regions: Vec<_> = config.regions.iter().map(bank_of).collect();
        note(&self.met.sides_back, config.regions.iter().filter(|region| region.is_out).count() as u64);
        if config.in_use().count() == 2 && self.rng.one_in(2) {
            let lost = regions.remove(self.rng.below(2) as usize);
            note(&self.met.sides_lost, 1);
            self.story.push(format!("bank{lost} is lost"));
        }
        let banks = &self.banks;
        let divide = |bank: usize| Ok(banks[bank].parts());
        let (log, report) = Log::import_on(&pool, regions, divide, Consent::NONE, TUNING, &mut |_| {})?;
        note(&self.met.replayed, report.records);
        note(&self.met.indirect_replayed, report.indirect);
        note(&self.met.sides_repaired, report.sides.entries.iter().sum());
        self.stack = Some((pool, log));
        Ok(())
    }

    fn judge(&mut self) {
        let (pool, log) = self.stack.clone().expect("imported");
        let mut volumes = std::mem::take(&mut self.volumes);
        volumes.retain_mut(|open| match Volume::open_on(&pool, Some(&*log), &open.name) {
            Ok(volume) => {
                let mut found = vec![0xaa; open.model.now.len()];
                assert_eq!(volume.size_bytes(), found.len() as u64, "{}", open.name);
                volume.read(0, &mut found).unwrap_or_else(|error| panic!("{}: {error}", open.name));
                let left = open.model.judge(&found).unwrap_or_else(|why| panic!("{}: {why}", open.name));
                let Met { left_nothing, left_part, left_all, .. } = self.met;
                note([left_nothing, left_part, left_all][left as usize], 1);
                open.volume = Some(volume);
                (open.model, open.is_certain) = (Model::new(found), true);
                true
            }
            Err(VolumeError::Pool(PoolError::NoDataset(_))) if !open.is_certain => false,
            Err(error) => panic!("{}: {error:?}", open.name),
        });
        self.volumes = volumes;
        let vdevs = pool.status().vdevs;
        let logs = vdevs.iter().filter(|(_, class, _)| *class == VdevClass::Log);
        self.log_vdevs = logs.map(|(id, ..)| *id).collect();
        self.check();
    }

    /// Allocated is what is reachable, now and after another sync; a volume can be used.
    fn check(&mut self) {
        let pool = self.pool().clone();
        for when in ["after the import", "after a sync", "after use"] {
            let report = pool.check().unwrap();
            assert!(report.is_clean(), "{when}: {report:?}");
            assert!(
                self.is_lwb() || report.log_units == 0 || when == "after the import",
                "{when}: {report:?}"
            );
            if when == "after a sync" {
                for volume in 0..self.volumes.len() {
                    let (offset, data) = (self.rng.below(100_000) as usize, vec![0x77; 5000]);
                    self.run(&Step::Write { volume, offset, data, is_fua: false });
                    self.run(&Step::Flush { volume });
                    self.run(&Step::Compare { volume });
                }
            }
            pool.sync().unwrap();
        }
        self.settle_synced();
    }
}
