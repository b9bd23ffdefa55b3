//! Steps that change the log's devices, and with them its kind.

use fastness_blkdev::MemImage;
use fastness_pool::{VdevClass, VdevSpec};
use fastness_store::{NewRegion, PoolLog, RegionConfig, RegionId};
use fastness_testkit::media::Disk;
use fastness_zil::KindId;

use crate::met::note;
use crate::program::Step;
use crate::world::{Done, World};

const LOG_DISK_BYTES: u64 = 9 << 20;

/// Which bank a region is.
pub fn bank_of(region: &RegionConfig) -> usize {
    usize::from(region.path.as_os_str() == "bank1")
}

impl Step {
    pub fn is_of_log(&self) -> bool {
        matches!(
            self,
            Step::AddRegion { .. }
                | Step::AddMirror
                | Step::RemoveRegion
                | Step::AttachRegion { .. }
                | Step::DetachRegion { .. }
                | Step::ReplaceRegion { .. }
        )
    }
}

impl World<'_> {
    /// The banks that the pool says its log is on, and whether each is out.
    pub fn regions(&self) -> Vec<(usize, bool)> {
        let config = PoolLog::config(&self.pool()).unwrap_or_default();
        config.regions.iter().map(|region| (bank_of(region), region.is_out)).collect()
    }

    pub fn has_log_mirror(&self) -> bool {
        self.regions().iter().filter(|(_, is_out)| !is_out).count() == 2
    }

    fn region_id(&self, bank: usize) -> RegionId {
        let config = PoolLog::config(&self.pool()).expect("a description");
        config.regions.iter().find(|region| bank_of(region) == bank).expect("the log is on it").id
    }

    pub fn new_region(&self, bank: usize) -> NewRegion {
        NewRegion { parts: self.banks[bank].parts(), path: format!("bank{bank}").into(), emulates: true }
    }

    pub fn change_vdevs(&mut self, step: &Step) -> Done {
        let done = self.try_change_vdevs(step);
        // One that failed late may have done it all the same.
        self.note_log_vdevs();
        done
    }

    pub fn note_log_vdevs(&mut self) {
        let vdevs = self.pool().status().vdevs;
        let logs = vdevs.iter().filter(|(_, class, _)| *class == VdevClass::Log);
        self.log_vdevs = logs.map(|(id, ..)| *id).collect();
    }

    fn try_change_vdevs(&mut self, step: &Step) -> Done {
        let (pool, log) = (self.pool(), self.log());
        match step {
            Step::AddVdev { is_mirror } => {
                let count = 1 + u64::from(*is_mirror);
                let sides: Vec<_> = (0..count).map(|_| self.new_disk(LOG_DISK_BYTES).device()).collect();
                pool.add(&VdevSpec::mirror(sides).log())?;
                note(&self.met.log_mirrors, u64::from(*is_mirror));
            }
            Step::RemoveVdev { nth } => {
                log.remove_vdev(self.log_vdevs[*nth])?;
                note(&self.met.vdevs_removed, 1);
            }
            _ => unreachable!("a step on vdevs for logs"),
        }
        Ok(())
    }

    pub fn new_disk(&mut self, len_bytes: u64) -> Disk {
        self.disks_ever += 1;
        let path = format!("disk{}", self.disks_ever - 1);
        let disk = Disk::new(&path, MemImage::zeroed(len_bytes), &self.power, self.seed);
        self.disks.push(disk.clone());
        disk
    }

    pub fn change_log(&mut self, step: &Step) -> Done {
        let (pool, log) = (self.pool(), self.log());
        let met = self.met;
        let counter = match step {
            Step::AddRegion { bank } => {
                log.add_regions(|| Ok(vec![self.new_region(*bank)]))?;
                &met.to_pmem
            }
            Step::AddMirror => {
                log.add_regions(|| Ok(vec![self.new_region(0), self.new_region(1)]))?;
                &met.mirrors
            }
            Step::AttachRegion { bank } => {
                log.attach_region(self.new_region(*bank))?;
                &met.sides_changed
            }
            Step::DetachRegion { bank } => {
                log.detach_region(self.region_id(*bank))?;
                &met.sides_changed
            }
            Step::ReplaceRegion { old, new } => {
                log.replace_region(self.region_id(*old), self.new_region(*new))?;
                &met.sides_changed
            }
            Step::RemoveRegion => {
                log.remove_region()?;
                &met.to_lwb
            }
            _ => unreachable!("a change of the log"),
        };
        note(counter, 1);
        let config = PoolLog::config(&pool)?;
        assert_eq!(config.kind, log.kind(), "{step} has returned, and the pool does not say so");
        if log.kind() == KindId::Pmem {
            // What the log before had is given back with the txgs that do without it.
            pool.sync().and_then(|_| pool.sync())?;
            let report = pool.check()?;
            assert!(report.is_clean() && report.log_units == 0, "{step}: {report:?}");
        }
        Ok(())
    }
}
