//! Trims, beside everything else: what is free is discarded on the devices, and nothing that an import could
//! need.

use std::sync::Arc;

use fastness_pool::{Guid, Pool, PoolError, TrimPoint, VdevClass};

use crate::met::note;
use crate::rng::Rng;
use crate::world::{Done, World};

/// Steps of a trim one after the other, at most.
const STEPS_MAX: u64 = 6;

/// Discards what was freed since the last time, or some of what is free from a point on; returns the bytes,
/// and where to go on.
pub fn trim(pool: &Arc<Pool>, seed: u64, from: TrimPoint) -> Result<(u64, TrimPoint), PoolError> {
    let mut rng = Rng::new(seed);
    if rng.one_in(3) {
        return Ok((pool.trim_freed()?, from));
    }
    let side = if rng.one_in(4) { any_side(pool, from, &mut rng) } else { None };
    let (mut bytes, mut point) = (0, from);
    for _ in 0..1 + rng.below(STEPS_MAX) {
        let step = pool.trim_step(point, side)?;
        bytes += step.discarded_bytes;
        point = step.next.unwrap_or_default();
    }
    Ok((bytes, point))
}

/// A side of the vdev that comes next.
fn any_side(pool: &Arc<Pool>, from: TrimPoint, rng: &mut Rng) -> Option<Guid> {
    let vdevs = pool.status().vdevs;
    let data = vdevs.iter().filter(|(id, class, _)| *class == VdevClass::Normal && *id >= from.vdev);
    let sides: Vec<Guid> = data.take(1).flat_map(|(.., sides)| sides).map(|side| side.guid).collect();
    (!sides.is_empty()).then(|| rng.pick(&sides))
}

impl World<'_> {
    pub fn trim(&mut self, seed: u64) -> Done {
        let pool = self.pool();
        let left =
            || (pool.status().free_bytes, pool.dataset("tank").map(|root| root.available_bytes().0).ok());
        let before = left();
        let (bytes, point) = trim(&pool, seed, self.trim_point)?;
        self.trim_point = point;
        assert_eq!(left(), before, "what a trim holds is free again afterwards");
        note(&self.met.trimmed, bytes);
        note(&self.met.trimmed_full, if self.is_full() { bytes } else { 0 });
        Ok(())
    }
}
