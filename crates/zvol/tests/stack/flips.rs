//! Bits that flip in the log, in log-write blocks or in entries in persistent memory; and in a log that was
//! idle, parts of them that turn to zeroes, which looks like a crash.

use std::ops::Range;

use fastness_lwb::{Found, survey as survey_chain};
use fastness_pool::{DATA_START_BYTES, Pool};
use fastness_prb::{HEADER_BYTES, Located, LogGuid, Traversal, Txg};
use fastness_store::survey::{self, Untouched, VolumeSurvey};
use fastness_store::{PoolLog, PoolSpace};
use fastness_testkit::media::Disk;
use fastness_zil::KindId;

use crate::damage::{Damage, Undo};
use crate::log::bank_of;
use crate::met::note;
use crate::world::World;

/// Bytes of a log-write block's header, which are hit as often as all the rest.
const BLOCK_HEADER_BYTES: u64 = 104;
const SECTOR_BYTES: u64 = 512;

/// Something of a log that can be hit.
#[derive(Debug, Clone)]
struct Target {
    volume: String,
    /// What it is, for people.
    name: String,
    place: Place,
    len_bytes: u64,
    head_bytes: u64,
}

/// Damage, from the beginning of what is hit.
enum Hit {
    Bit(u64, u8),
    Zeroes(Range<u64>),
}

#[derive(Debug, Clone)]
enum Place {
    /// Disks that are sides of the vdev, offset.
    Disks(Vec<String>, u64),
    /// Region offset.
    Banks(Vec<usize>, u64),
}

impl World<'_> {
    /// Flips a bit of something that the log is made of, or lets a part of it turn to zeroes.
    pub fn flip(&mut self, loses_power: bool) -> Damage {
        let targets = self.targets();
        if targets.is_empty() {
            return Damage::default();
        }
        let target = targets[self.rng.index(targets.len())].clone();
        let is_head = self.rng.one_in(2);
        let (from, to) = match is_head {
            true => (0, target.head_bytes),
            false => (target.head_bytes.min(target.len_bytes - 1), target.len_bytes),
        };
        let (at, bit) = (from + self.rng.below(to - from), 1 << self.rng.below(8));
        // Log-write blocks record what is durable with the next flush, which may not have come.
        let is_recorded = self.is_idle && !(loses_power && matches!(target.place, Place::Disks(..)));
        let hit = match is_recorded && !self.rng.one_in(4) {
            true => self.zeroes(&target, at),
            false => Hit::Bit(at, bit),
        };
        let copies = match &target.place {
            Place::Disks(disks, _) => disks.len(),
            Place::Banks(banks, _) => banks.len(),
        };
        let is_covered = copies > 1 && self.is_on_all(&target) && self.rng.one_in(2);
        let met = self.met;
        note(
            if matches!(target.place, Place::Disks(..)) {
                &met.flips_in_blocks
            } else {
                &met.flips_in_entries
            },
            1,
        );
        note(&met.flips_on_one_side, u64::from(is_covered));
        let Target { volume, name, place, .. } = target;
        note(&met.zeroed_in_logs, u64::from(matches!(hit, Hit::Zeroes(_))));
        let what = match &hit {
            Hit::Bit(at, bit) => format!("bit {bit:#x} of byte {at} flips in {name} of {volume}"),
            Hit::Zeroes(range) => format!("bytes {range:?} of {name} of {volume} turn to zeroes"),
        };
        let undo = self.hit(&place, &hit, if is_covered { 1 } else { copies });
        Damage { what, name: "the log of".into(), undo, is_covered, ..Damage::default() }
    }

    /// Whether all sides have the same: one that was not acknowledged may be on one of them only.
    fn is_on_all(&self, target: &Target) -> bool {
        let len = target.len_bytes as usize;
        let copies: Vec<Vec<u8>> = match &target.place {
            Place::Disks(paths, offset) => {
                let disks = self.disks.iter().filter(|disk| paths.contains(&disk.path));
                let bytes = |disk: &Disk| {
                    let mut bytes = vec![0; len];
                    disk.image().read(*offset, &mut bytes);
                    bytes
                };
                disks.map(bytes).collect()
            }
            Place::Banks(banks, offset) => banks
                .iter()
                .map(|bank| self.banks[*bank].image()[*offset as usize..][..len].to_vec())
                .collect(),
        };
        copies.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// What turns to zeroes at once: a sector of a log-write block; the header of an entry, or all of it.
    fn zeroes(&mut self, target: &Target, at: u64) -> Hit {
        Hit::Zeroes(match target.place {
            Place::Disks(..) => {
                at / SECTOR_BYTES * SECTOR_BYTES..target.len_bytes.min((at / SECTOR_BYTES + 1) * SECTOR_BYTES)
            }
            Place::Banks(..) if self.rng.one_in(2) => 0..target.head_bytes,
            Place::Banks(..) => 0..target.len_bytes,
        })
    }

    fn hit(&mut self, place: &Place, hit: &Hit, copies: usize) -> Vec<Undo> {
        let mut undo = Vec::new();
        match place {
            Place::Disks(paths, offset) => {
                for path in &paths[..copies] {
                    let disk =
                        self.disks.iter_mut().find(|disk| disk.path == *path).expect("a disk of the pool");
                    let mut image = disk.image();
                    match hit {
                        Hit::Bit(at, bit) => {
                            let mut byte = [0];
                            image.read(offset + at, &mut byte);
                            image.write(offset + at, &[byte[0] ^ bit]);
                        }
                        Hit::Zeroes(range) => {
                            image.write(offset + range.start, &vec![0; (range.end - range.start) as usize]);
                        }
                    }
                    let fresh = disk.with(image);
                    undo.push(Undo::Disk(std::mem::replace(disk, fresh)));
                }
            }
            Place::Banks(banks, offset) => {
                for bank in &banks[..copies] {
                    let mut image = self.banks[*bank].image();
                    match hit {
                        Hit::Bit(at, bit) => image[(offset + at) as usize] ^= bit,
                        Hit::Zeroes(range) => {
                            let (start, end) = (offset + range.start, offset + range.end);
                            image[start as usize..end as usize].fill(0);
                        }
                    }
                    let fresh = self.banks[*bank].with(image);
                    undo.push(Undo::Bank(*bank, std::mem::replace(&mut self.banks[*bank], fresh)));
                }
            }
        }
        undo
    }

    fn targets(&mut self) -> Vec<Target> {
        let Ok(pool) = self.look() else { return Vec::new() };
        let (Ok(config), Ok(volumes)) = (PoolLog::config(&pool), survey::headers(&pool)) else {
            return Vec::new();
        };
        match config.kind {
            KindId::Lwb => volumes.iter().flat_map(|volume| blocks(&pool, volume)).collect(),
            KindId::Pmem => {
                let banks: Vec<usize> = config.in_use().map(bank_of).collect();
                self.entries(&banks, &volumes, Txg(survey::first_needed_txg(&pool).0))
            }
        }
    }

    /// Entries that the logs need.
    fn entries(&self, banks: &[usize], volumes: &[VolumeSurvey], first_txg: Txg) -> Vec<Target> {
        let needed_by = |entry: &Located| {
            volumes.iter().find(|volume| {
                let log: Option<(LogGuid, Txg)> = volume.entries(first_txg);
                log.is_some_and(|(log, first)| entry.header.log == log && entry.header.txg >= first)
            })
        };
        let Some(first) = banks.first() else { return Vec::new() };
        let parts = self.banks[*first].parts();
        let mut found: Vec<(usize, Located, &VolumeSurvey)> = Vec::new();
        for (index, chunk) in parts.chunks.iter().enumerate() {
            let entries = Traversal::new(chunk).filter_map(|entry| Some((index, entry, needed_by(&entry)?)));
            found.extend(entries);
        }
        let target = |(index, entry, volume): &(usize, Located, &VolumeSurvey)| {
            let (offset, header) = (entry.offset, entry.header);
            let region_offset = fastness_pmem::Medium::region_offset(&parts.chunks[*index]) + offset as u64;
            let len_bytes = HEADER_BYTES as u64 + header.body_len_bytes;
            Target {
                volume: volume.name.clone(),
                name: format!("entry {} at {region_offset}", header.id),
                place: Place::Banks(banks.to_vec(), region_offset),
                len_bytes,
                head_bytes: HEADER_BYTES as u64,
            }
        };
        found.iter().map(target).collect()
    }
}

/// The blocks of a chain.
fn blocks(pool: &std::sync::Arc<Pool>, volume: &VolumeSurvey) -> Vec<Target> {
    let Some(chain) = volume.chain() else { return Vec::new() };
    let mut blocks = Vec::new();
    survey_chain(&Untouched(PoolSpace::new(pool.log_space())), &chain, |found| {
        if let Found::Block(block) = found {
            blocks.push(block);
        }
    });
    let vdevs = pool.status().vdevs;
    let target = |at: usize| {
        let block = blocks[at];
        let (_, _, sides) = vdevs.iter().find(|(id, ..)| u32::from(*id) == block.extent.place.device)?;
        let disks = sides.iter().filter(|side| side.is_present && !side.is_stale);
        let disks = disks.map(|side| side.path.clone()).collect();
        let offset = DATA_START_BYTES + block.extent.place.offset;
        Some(Target {
            volume: volume.name.clone(),
            name: format!("block {} of {}", block.seq.0, blocks.last().map_or(0, |last| last.seq.0)),
            place: Place::Disks(disks, offset),
            len_bytes: u64::from(block.used_bytes),
            head_bytes: BLOCK_HEADER_BYTES,
        })
    };
    (0..blocks.len()).filter_map(target).collect()
}
