//! What a program does, drawn from a seed.

use std::fmt;

use crate::power::Rng;
use crate::world::World;

/// Volumes of a program, at most.
const VOLUMES_MAX: usize = 3;
/// Vdevs for logs, at most.
const LOG_VDEVS_MAX: usize = 2;

/// A step.
#[derive(Debug, Clone)]
pub enum Step {
    Write { volume: usize, offset: usize, data: Vec<u8>, is_fua: bool },
    Zero { volume: usize, offset: usize, len: usize, is_fua: bool, is_discard: bool },
    Flush { volume: usize },
    Compare { volume: usize },
    Sync,
    Create,
    AddRegion { bank: usize },
    AddMirror,
    RemoveRegion,
    AttachRegion { bank: usize },
    DetachRegion { bank: usize },
    ReplaceRegion { old: usize, new: usize },
    AddVdev,
    RemoveVdev { nth: usize },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fua = |is_fua: &bool| if *is_fua { " fua" } else { "" };
        match self {
            Step::Write { volume, offset, data, is_fua } => {
                let (len, first) = (data.len(), &data[..data.len().min(4)]);
                write!(f, "write v{volume} {offset}+{len} {first:02x?}{}", fua(is_fua))
            }
            Step::Zero { volume, offset, len, is_fua, is_discard } => {
                let what = if *is_discard { "discard" } else { "zero" };
                write!(f, "{what} v{volume} {offset}+{len}{}", fua(is_fua))
            }
            other => write!(f, "{other:?}"),
        }
    }
}

fn data(rng: &mut Rng, len: usize) -> Vec<u8> {
    match rng.below(3) {
        0 => {
            let words = (0..len.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes());
            words.take(len).collect()
        }
        1 => vec![rng.next() as u8; len],
        _ => {
            let word = rng.next().to_le_bytes();
            (0..len).map(|at| word[at % 8]).collect()
        }
    }
}

fn range(rng: &mut Rng, size: usize, len_max: usize) -> (usize, usize) {
    let hot = if rng.one_in(2) { size / 8 } else { size };
    let offset = rng.below(hot as u64) as usize;
    let len = 1 + match rng.below(8) {
        0..4 => rng.below(4096),
        4..7 => rng.below(20_000),
        _ => rng.below(len_max as u64),
    } as usize;
    let (offset, len) = match rng.below(3) {
        0 => (offset, len),
        1 => (offset / 512 * 512, len.next_multiple_of(512)),
        _ => (offset / 4096 * 4096, len.next_multiple_of(4096)),
    };
    (offset, len.min(len_max).min(size - offset))
}

/// Draws a step that can be done now.
pub fn draw(world: &World<'_>, rng: &mut Rng) -> Step {
    let volumes = world.volumes.len();
    if volumes == 0 {
        return Step::Create;
    }
    let volume = rng.below(volumes as u64) as usize;
    let size = world.volumes[volume].model.now.len();
    match rng.below(100) {
        0..52 => {
            let (offset, len) = range(rng, size, world.shape.write_max);
            Step::Write { volume, offset, data: data(rng, len), is_fua: rng.one_in(3) }
        }
        52..62 => {
            let (offset, len) = range(rng, size, world.shape.write_max);
            Step::Zero { volume, offset, len, is_fua: rng.one_in(4), is_discard: rng.one_in(2) }
        }
        62..74 => Step::Flush { volume },
        74..80 => Step::Sync,
        80..84 => Step::Compare { volume },
        84..86 if volumes < VOLUMES_MAX => Step::Create,
        // Long in events: in most lives they are rare, so that many ends come elsewhere.
        86..93 if world.is_restless || rng.one_in(10) => change_log(world, rng),
        93..97 if world.is_restless && world.is_lwb() && world.log_vdevs.len() < LOG_VDEVS_MAX => {
            Step::AddVdev
        }
        97..100 if world.is_restless && !world.log_vdevs.is_empty() => {
            Step::RemoveVdev { nth: rng.below(world.log_vdevs.len() as u64) as usize }
        }
        _ => {
            let (offset, len) = range(rng, size, world.shape.write_max);
            Step::Write { volume, offset, data: data(rng, len), is_fua: false }
        }
    }
}

fn change_log(world: &World<'_>, rng: &mut Rng) -> Step {
    let bank = rng.below(2) as usize;
    match (world.log_vdevs.is_empty(), &world.regions()[..]) {
        (false, []) => Step::RemoveVdev { nth: 0 },
        (true, []) if rng.one_in(2) => Step::AddMirror,
        (true, []) => Step::AddRegion { bank },
        _ if rng.one_in(3) => Step::RemoveRegion,
        (_, [(only, _)]) if rng.one_in(4) => Step::ReplaceRegion { old: *only, new: 1 - only },
        (_, [(only, _)]) => Step::AttachRegion { bank: 1 - only },
        (_, regions) => match regions.iter().find(|(_, is_out)| *is_out) {
            Some((out, _)) if rng.one_in(2) => Step::ReplaceRegion { old: *out, new: *out },
            Some((out, _)) => Step::DetachRegion { bank: *out },
            None => Step::DetachRegion { bank },
        },
    }
}
