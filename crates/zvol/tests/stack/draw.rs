//! What a program does next, drawn from a seed and from what is there.

use std::sync::Arc;

use crate::program::Step;
use crate::rng::Rng;
use crate::shape::Kind;
use crate::world::World;

/// Vdevs for logs, at most.
const LOG_VDEVS_MAX: usize = 2;

pub fn data(rng: &mut Rng, len: usize) -> Arc<[u8]> {
    match rng.below(3) {
        0 => {
            let words = (0..len.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes());
            words.take(len).collect()
        }
        1 => vec![rng.next() as u8; len].into(),
        _ => {
            let word = rng.next().to_le_bytes();
            (0..len).map(|at| word[at % 8]).collect()
        }
    }
}

/// A range of a volume: at its hot beginning, or anywhere.
fn range(world: &World<'_>, volume: usize, rng: &mut Rng) -> (usize, usize) {
    let (open, len_max) = (&world.volumes[volume], world.shape.write_max);
    let size = open.model.now.len();
    let hot = if rng.one_in(2) { size / 8 } else { size };
    let offset = rng.index(hot);
    let len = 1 + match rng.below(8) {
        0..4 => rng.index(4096),
        4..7 => rng.index(20_000),
        _ => rng.index(len_max),
    };
    let align = match rng.pick(&world.swarm.aligns) as usize {
        0 => open.block_bytes,
        align => align,
    };
    let (offset, len) = (offset / align * align, len.next_multiple_of(align));
    (offset, len.min(len_max).min(size - offset))
}

/// Draws a step that can be done now.
pub fn draw(world: &World<'_>, rng: &mut Rng) -> Step {
    if world.is_suspended() {
        return world.draw_suspended(rng);
    }
    let kind = world.swarm.kind(rng);
    if let Some(step) = of_files(world, kind, rng) {
        return step;
    }
    let there: Vec<usize> = (0..world.volumes.len()).filter(|at| world.volumes[*at].is_there()).collect();
    if there.is_empty() {
        return create(world, rng);
    }
    let volume = rng.pick(&there);
    match kind {
        Kind::Sync => Step::Sync,
        Kind::Idle => Step::Idle,
        Kind::Trim => draw_trim(world, rng),
        Kind::Create if there.len() < world.swarm.volumes_max => create(world, rng),
        Kind::Log => change_log(world, rng),
        Kind::LogVdev if !world.log_vdevs.is_empty() && rng.one_in(2) => {
            Step::RemoveVdev { nth: rng.index(world.log_vdevs.len()) }
        }
        Kind::LogVdev if world.is_lwb() && world.log_vdevs.len() < LOG_VDEVS_MAX => {
            Step::AddVdev { is_mirror: rng.one_in(3) }
        }
        Kind::Scrub | Kind::Sides | Kind::Fail | Kind::CutRegion | Kind::Copy => {
            of_devices(world, kind, rng).unwrap_or(Step::Sync)
        }
        Kind::Destroy => Step::Destroy { volume },
        Kind::Stream if world.snapshots.is_empty() => Step::Snapshot { volume },
        Kind::Stream if !world.is_nested => world.draw_stream(rng),
        _ if !world.volumes[volume].is_open() => Step::Open { volume },
        Kind::Close if world.volumes[volume].is_open() => Step::Close { volume },
        kind => of_volume(world, volume, kind, rng),
    }
}

fn of_files(world: &World<'_>, kind: Kind, rng: &mut Rng) -> Option<Step> {
    let seed = rng.next();
    match kind {
        _ if !world.has_files() => None,
        Kind::Files => Some(Step::ChangeFiles { seed }),
        Kind::SyncFiles => Some(Step::SyncFiles { seed }),
        Kind::RaceFiles => Some(Step::RaceFiles { seed }),
        _ => None,
    }
}

/// A step on a volume that is open.
fn of_volume(world: &World<'_>, volume: usize, kind: Kind, rng: &mut Rng) -> Step {
    let client = rng.index(world.swarm.clients);
    let is_fua = rng.below(8) < world.swarm.fuas;
    match kind {
        Kind::Zero => {
            let (offset, len) = range(world, volume, rng);
            Step::Zero { volume, client, offset, len, is_fua, is_discard: rng.one_in(2) }
        }
        Kind::Fill => Step::Fill { volume, byte: rng.below(255) as u8 + 1 },
        Kind::Flush => Step::Flush { volume, client },
        Kind::Compare => Step::Compare { volume },
        Kind::Snapshot => world.draw_snapshot(volume, rng),
        Kind::Resize => world.draw_resize(volume, rng),
        Kind::Thick => world.draw_thick(volume, rng),
        Kind::Race => {
            let open = (0..world.volumes.len()).filter(|at| world.volumes[*at].is_open());
            world.draw_race(&open.collect::<Vec<_>>(), rng)
        }
        _ => {
            let (offset, len) = range(world, volume, rng);
            Step::Write { volume, client, offset, data: data(rng, len), is_fua }
        }
    }
}

/// A trim, or several beside clients and txgs.
fn draw_trim(world: &World<'_>, rng: &mut Rng) -> Step {
    let open: Vec<usize> = (0..world.volumes.len()).filter(|at| world.volumes[*at].is_open()).collect();
    match !open.is_empty() && rng.one_in(2) {
        true => world.draw_trims(&open, rng),
        false => Step::Trim { seed: rng.next() },
    }
}

/// A step on devices, if there is one that can be done.
fn of_devices(world: &World<'_>, kind: Kind, rng: &mut Rng) -> Option<Step> {
    match kind {
        Kind::Fail => Some(world.draw_fault(rng)),
        Kind::Copy => Some(world.draw_copy(rng)),
        // What one copy loses with a region is lost; `zvol/tests/one_copy.rs` has that.
        Kind::CutRegion if !world.shape.is_one_copy || world.has_log_mirror() && !world.was_cut => {
            let bank = rng.index(2);
            Some(Step::CutRegion { bank, end: rng.index(world.banks[bank].len_bytes) })
        }
        Kind::Scrub if !world.is_nested => Some(Step::Scrub),
        Kind::Sides if !world.is_nested => world.draw_sides(rng),
        _ => None,
    }
}

fn create(world: &World<'_>, rng: &mut Rng) -> Step {
    let (size, block) = world.shape.volume(rng);
    Step::Create { size, block }
}

fn change_log(world: &World<'_>, rng: &mut Rng) -> Step {
    let bank = rng.index(2);
    match (world.log_vdevs.is_empty(), &world.regions()[..]) {
        (false, []) => Step::RemoveVdev { nth: 0 },
        (true, []) if rng.one_in(2) => Step::AddMirror,
        (true, []) => Step::AddRegion { bank },
        _ if rng.one_in(3) => Step::RemoveRegion,
        (_, [(only, _)]) if rng.one_in(4) => Step::ReplaceRegion { old: *only, new: 1 - only },
        (_, [(only, _)]) => Step::AttachRegion { bank: 1 - only },
        (_, regions) => match regions.iter().find(|(_, is_out)| *is_out) {
            // One that was cut short in this life is still open.
            Some((out, _)) if rng.one_in(2) && !world.banks[*out].is_cut() => {
                Step::ReplaceRegion { old: *out, new: *out }
            }
            Some((out, _)) => Step::DetachRegion { bank: *out },
            None => Step::DetachRegion { bank },
        },
    }
}
