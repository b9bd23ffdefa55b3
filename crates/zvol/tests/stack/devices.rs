//! Steps on the pool's devices: faults, sides that go and come, scrub and resilver beside everything else.

use fastness_pool::{DeviceStatus, Guid, ScrubReport, VdevClass, VdevSpec};
use fastness_testkit::media::{Disk, Failing};

use crate::draw::draw;
use crate::met::note;
use crate::program::Step;
use crate::rng::Rng;
use crate::world::{Done, World};

/// Steps beside one that takes long, at most.
const NESTED_MAX: u64 = 8;
/// Less than this is nearly full.
const SHORT_BYTES: u64 = 2 << 20;
/// Numbers of steps inside of another begin behind its own, times this.
const NESTED_NUMBERS: u64 = 1000;

/// A side of a vdev, and the disk that it is.
#[derive(Debug, Clone)]
pub struct SideAt {
    pub vdev: u16,
    pub class: VdevClass,
    /// In the world's list.
    pub disk: usize,
    pub guid: Guid,
    /// The pool has it open, and it has everything.
    pub is_current: bool,
    pub is_present: bool,
    pub is_poisoned: bool,
}

impl World<'_> {
    pub fn sides(&self) -> Vec<SideAt> {
        let mut all = Vec::new();
        for (vdev, class, sides) in self.pool().status().vdevs {
            for side in sides {
                let Some(disk) = self.disks.iter().position(|disk| disk.path == side.path) else { continue };
                let is_current = side.is_present && !side.is_stale;
                let (guid, is_present, is_poisoned) = (side.guid, side.is_present, side.is_poisoned);
                all.push(SideAt { vdev, class, disk, guid, is_current, is_present, is_poisoned });
            }
        }
        all
    }

    fn guid(&self, disk: usize) -> Guid {
        self.sides().iter().find(|side| side.disk == disk).expect("a disk of the pool").guid
    }

    /// Whether a vdev for data stands on sides that fail, so that what needs it may fail.
    pub fn is_exposed(&self) -> bool {
        // What was accepted counted on the room that a device then did not have.
        if self.lacks_room() && self.pool().status().free_bytes < SHORT_BYTES {
            return true;
        }
        if !self.disks.iter().any(Disk::is_loud) {
            return false;
        }
        let sides = self.sides();
        let holds = |side: &SideAt| side.is_current && !self.disks[side.disk].is_loud();
        let mut data = sides.iter().filter(|side| side.class == VdevClass::Normal);
        data.any(|one| !sides.iter().any(|side| side.vdev == one.vdev && holds(side)))
    }

    /// Whether nothing new is written to some device until the next import.
    pub fn lacks_room(&self) -> bool {
        let refuses = |side: &DeviceStatus| side.has_no_room || side.has_failed_writes;
        self.is_imported() && self.pool().status().vdevs.iter().flat_map(|(.., sides)| sides).any(refuses)
    }

    /// Whether anything at all has been told to fail.
    pub fn is_any_loud(&self) -> bool {
        self.disks.iter().any(Disk::is_loud) || self.banks.iter().any(|bank| bank.is_cut())
    }

    pub fn change_devices(&mut self, step: &Step) -> Done {
        match step {
            Step::Fail { disk, how, seed } => {
                note(self.met.faults_of(*how), 1);
                self.faults += 1;
                self.disks[*disk].fail(*how, &mut Rng::new(*seed).0);
                Ok(())
            }
            Step::Heal => {
                self.disks.iter().for_each(Disk::heal);
                Ok(())
            }
            Step::CutRegion { bank, end } => {
                note(&self.met.regions_cut, 1);
                self.banks[*bank].cut_at(*end);
                self.was_cut = true;
                Ok(())
            }
            Step::AddData => {
                let disk = self.new_disk(self.shape.disk_bytes);
                self.pool().add(&VdevSpec::single(disk.device()))?;
                note(&self.met.data_added, 1);
                Ok(())
            }
            Step::Scrub => self.scrub(),
            Step::Trim { seed } => self.trim(*seed),
            Step::Attach { to } => self.attach(self.guid(*to)),
            Step::Replace { disk } => self.replace(self.guid(*disk)),
            Step::Detach { disk } => {
                self.pool().detach(self.guid(*disk))?;
                note(&self.met.detached, 1);
                Ok(())
            }
            Step::Offline { disk } => {
                self.pool().offline(self.guid(*disk))?;
                note(&self.met.offline, 1);
                Ok(())
            }
            Step::Online { disk } => self.online(*disk),
            _ => unreachable!("a step on devices"),
        }
    }

    /// Runs some steps while the pool walks over all of its blocks; says whether to go on.
    pub fn beside(&mut self, calls: &mut u64) -> bool {
        *calls += 1;
        // The last call comes while no txg can sync.
        if *calls == 1 && !self.is_nested {
            self.is_nested = true;
            let outer = self.step;
            let mut rng = Rng::of_step(self.seed, self.life, (outer + 1) * NESTED_NUMBERS);
            for nth in 0..rng.below(NESTED_MAX) {
                self.step = (outer + 1) * NESTED_NUMBERS + nth;
                self.step_once();
                if self.power.is_off() || self.pool().is_suspended() {
                    break;
                }
                note(&self.met.beside_scrub, 1);
            }
            (self.is_nested, self.step) = (false, outer);
        }
        !self.power.is_off()
    }

    fn scrub(&mut self) -> Done {
        let (pool, mut calls) = (self.pool(), 0);
        let was_loud = self.is_any_loud();
        let report = pool.scrub(|_: &ScrubReport| self.beside(&mut calls))?;
        if !self.power.is_off() && !was_loud && !self.is_any_loud() {
            assert!(report.lost.is_empty(), "{report:?}");
            assert!(self.has_wrong_copies || report.wrong_copies == 0, "{report:?}");
            self.has_wrong_copies = false;
            note(&self.met.scrubs, 1);
            note(&self.met.scrubs_full, u64::from(self.is_full()));
        }
        Ok(())
    }

    fn attach(&mut self, to: Guid) -> Done {
        let (pool, mut calls) = (self.pool(), 0);
        let disk = self.new_disk(self.shape.disk_bytes);
        pool.attach(to, disk.device(), |_| self.beside(&mut calls))?;
        note(&self.met.attached, 1);
        Ok(())
    }

    fn replace(&mut self, side: Guid) -> Done {
        let (pool, mut calls) = (self.pool(), 0);
        let disk = self.new_disk(self.shape.disk_bytes);
        pool.replace(side, disk.device(), |_| self.beside(&mut calls))?;
        note(&self.met.replaced, 1);
        Ok(())
    }

    /// A side that was away, or failed, is repaired and brought up to date.
    fn online(&mut self, disk: usize) -> Done {
        let (pool, mut calls) = (self.pool(), 0);
        let side = self.sides().into_iter().find(|side| side.disk == disk).expect("a disk of the pool");
        let (guid, disk) = (side.guid, self.disks[disk].clone());
        disk.heal();
        if side.is_poisoned {
            pool.offline(guid)?;
        }
        if side.is_poisoned || !side.is_present {
            disk.reopen(self.seed);
            pool.online(guid, disk.device())?;
        }
        pool.resilver(guid, |_| self.beside(&mut calls))?;
        note(&self.met.resilvered, 1);
        note(&self.met.resilvered_full, u64::from(self.is_full()));
        Ok(())
    }

    /// A step on sides that can be done now.
    pub fn draw_sides(&self, rng: &mut Rng) -> Option<Step> {
        let sides = self.sides();
        let side = rng.pick(&sides.iter().filter(|side| side.class == VdevClass::Normal).collect::<Vec<_>>());
        let of_vdev = || sides.iter().filter(|other| other.vdev == side.vdev);
        let others = of_vdev().filter(|other| other.guid != side.guid && other.is_current).count();
        let (disk, to) = (side.disk, side.disk);
        let has_room = self.disks.len() < 8 && of_vdev().count() < 3;
        let stale = sides.iter().find(|side| !side.is_current && side.class == VdevClass::Normal);
        Some(match (rng.below(6), stale) {
            (0..3, Some(stale)) => Step::Online { disk: stale.disk },
            (0 | 1, _) if has_room => Step::Attach { to },
            (2, _) if has_room => Step::Replace { disk },
            (3, _) if others > 0 => Step::Detach { disk },
            (4, _) if others > 0 && side.is_present => Step::Offline { disk },
            (5, _) if has_room && of_vdev().count() == sides.len() => Step::AddData,
            _ => return None,
        })
    }

    pub fn draw_fault(&self, rng: &mut Rng) -> Step {
        let sides = self.sides();
        let (side, how) = (rng.pick(&(0..sides.len()).collect::<Vec<_>>()), rng.pick(&Failing::ALL));
        match self.disks.iter().any(Disk::is_loud) && rng.one_in(2) {
            true => Step::Heal,
            false => Step::Fail { disk: sides[side].disk, how, seed: rng.next() },
        }
    }

    /// One step, drawn and done.
    pub fn step_once(&mut self) {
        if self.skipped.contains(&(self.life, self.step)) {
            return;
        }
        let drawn = draw(self, &mut Rng::of_step(self.seed, self.life, self.step));
        self.run(&drawn, &format!("{}.{}", self.life, self.step));
    }
}
