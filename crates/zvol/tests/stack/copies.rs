//! Devices that are put back as they were some txgs ago.

use std::collections::BTreeSet;

use fastness_blkdev::MemImage;
use fastness_pool::VdevClass;

use crate::damage::{Damage, Undo};
use crate::devices::SideAt;
use crate::met::note;
use crate::program::Step;
use crate::rng::Rng;
use crate::world::World;

/// Copies that are kept.
const COPIES_MAX: usize = 4;
/// A crash may leave a device behind by one txg. This much is more.
const TXGS_BEHIND: u64 = 2;

enum Contents {
    Disk(String, MemImage),
    Bank(usize, Vec<u8>),
}

/// A copy of a device.
pub struct Copied {
    contents: Contents,
    /// The newest durable txg, and the life, at that time.
    txg: u64,
    life: u64,
}

/// What a disk is to its pool.
pub struct Role {
    class: VdevClass,
    /// Other sides of its vdev that are current.
    others: usize,
    /// Other vdevs, of which any can tell that it is old.
    witnesses: usize,
}

impl World<'_> {
    pub fn draw_copy(&self, rng: &mut Rng) -> Step {
        let is_bank = !self.is_lwb() && rng.one_in(2);
        Step::Copy { of: rng.index(if is_bank { 2 } else { self.disks.len() }), is_bank }
    }

    pub fn copy(&mut self, of: usize, is_bank: bool) {
        let contents = match is_bank {
            true => Contents::Bank(of, self.banks[of].image()),
            false => Contents::Disk(self.disks[of].path.clone(), self.disks[of].image()),
        };
        let copied = Copied { contents, txg: self.pool().synced_txg().0, life: self.life };
        if self.copies.len() == COPIES_MAX {
            self.copies.remove(0);
        }
        self.copies.push(copied);
        note(&self.met.copies, 1);
    }

    /// Replaces a device by a copy that can be told from what a crash may leave.
    pub fn put_copy_back(&mut self) -> Damage {
        if self.copies.is_empty() {
            return Damage::default();
        }
        let Copied { contents, txg, life } = self.copies.remove(self.rng.index(self.copies.len()));
        let age = format!("as in txg {txg} of life {life}");
        match contents {
            Contents::Disk(path, image) if txg + TXGS_BEHIND <= self.synced => {
                self.put_disk_back(path, image, &age).unwrap_or_default()
            }
            Contents::Bank(bank, image) if txg + TXGS_BEHIND <= self.synced => {
                if self.banks[bank].image() == image {
                    return Damage::default();
                }
                note(&self.met.stale_regions, 1);
                let name = "region".to_owned();
                let fresh = self.banks[bank].with(image);
                let old = std::mem::replace(&mut self.banks[bank], fresh);
                let what = format!("bank{bank} is put back {age}");
                Damage { what, name, undo: vec![Undo::Bank(bank, old)], is_stale: true, ..Damage::default() }
            }
            _ => Damage::default(),
        }
    }

    /// What each disk is to the pool at the end of a life.
    pub fn note_roles(&mut self) {
        self.roles.clear();
        if !self.is_imported() {
            return;
        }
        let sides = self.sides();
        let holds = |other: &&SideAt| other.is_current && !self.disks[other.disk].is_loud();
        // One that failed soon after it was added has seen no more than a crash leaves.
        let vdevs: BTreeSet<u16> = sides.iter().filter(holds).map(|side| side.vdev).collect();
        for side in &sides {
            let is_other = |other: &&SideAt| other.vdev == side.vdev && other.guid != side.guid;
            let others = sides.iter().filter(is_other).filter(holds).count();
            let witnesses = vdevs.iter().filter(|vdev| **vdev != side.vdev).count();
            let role = Role { class: side.class, others, witnesses };
            self.roles.insert(self.disks[side.disk].path.clone(), role);
        }
    }

    fn put_disk_back(&mut self, path: String, image: MemImage, age: &str) -> Option<Damage> {
        let at = self.disks.iter().position(|disk| disk.path == path)?;
        let role = self.roles.get(&path)?;
        let is_told = role.others > 0 || role.witnesses > 0;
        if self.disks[at].image() == image || !is_told {
            return None;
        }
        note(
            match role {
                Role { others: 1.., .. } => &self.met.stale_sides,
                Role { class: VdevClass::Log, .. } => &self.met.stale_log_vdevs,
                _ => &self.met.stale_disks,
            },
            1,
        );
        let fresh = self.disks[at].with(image);
        let old = std::mem::replace(&mut self.disks[at], fresh);
        let what = format!("{path} is put back {age}");
        Some(Damage { what, name: path, undo: vec![Undo::Disk(old)], is_stale: true, ..Damage::default() })
    }
}
