//! What a seed has: its devices, and which kinds of steps at all, and how often. Most seeds have few kinds,
//! so that these come in a row, in combinations that an even mixture would hardly ever have.

use crate::rng::Rng;

/// The vdevs of a new pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    Single,
    Mirror,
    Stripe,
    Mirrors,
}

impl Layout {
    /// Disks of each vdev.
    pub fn vdevs(self) -> &'static [usize] {
        match self {
            Layout::Single => &[1],
            Layout::Mirror => &[2],
            Layout::Stripe => &[1, 1],
            Layout::Mirrors => &[2, 2],
        }
    }
}

/// Devices and sizes.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub layout: Layout,
    pub disk_bytes: u64,
    /// What a full pool leaves to its volumes.
    pub leaves_bytes: Option<u64>,
    pub chunks: usize,
    pub chunk_bytes: usize,
    /// Synchronous writes of whole blocks are in the log alone, if that is of kind pmem.
    pub is_one_copy: bool,
    /// Longest write: one record, where those of kind pmem must be short.
    pub write_max: usize,
}

impl Shape {
    pub fn draw(rng: &mut Rng) -> Shape {
        let (chunk_bytes, write_max) = rng.pick(&[(32 << 10, 24 << 10), (256 << 10, 200_000)]);
        let layouts = [Layout::Single, Layout::Single, Layout::Mirror, Layout::Stripe, Layout::Mirrors];
        let layout = rng.pick(&layouts);
        let is_full = rng.one_in(4);
        let leaves_bytes = rng.pick(&[0, 100 << 10, 400 << 10, 900 << 10, 2 << 20, 3 << 20]);
        Shape {
            layout,
            disk_bytes: if is_full { 8 << 20 } else { 12 << 20 },
            leaves_bytes: is_full.then_some(leaves_bytes),
            chunks: 3 + rng.index(6),
            chunk_bytes,
            is_one_copy: rng.one_in(2) || std::env::var_os("FASTNESS_STACK_ONE_COPY").is_some(),
            write_max,
        }
    }

    /// Size and block size of a new volume.
    pub fn volume(&self, rng: &mut Rng) -> (u64, u64) {
        let block = rng.pick(&[512, 2048, 4096, 4096, 16 << 10, 128 << 10]);
        let largest = if self.leaves_bytes.is_some() { 2 << 20 } else { 512 << 10 };
        let size = rng.pick(&[128 << 10, 256 << 10, 512 << 10, 1 << 20, largest]) + block * rng.below(3);
        (size.next_multiple_of(block), block)
    }
}

/// Kinds of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Write,
    Fill,
    Zero,
    Flush,
    Sync,
    Idle,
    Compare,
    Create,
    Destroy,
    Close,
    Resize,
    Thick,
    Snapshot,
    Stream,
    Log,
    LogVdev,
    Scrub,
    Trim,
    Sides,
    Fail,
    CutRegion,
    Copy,
    Race,
    Files,
    SyncFiles,
    RaceFiles,
}

/// Kind, weight, and in how many of 4 seeds it is there.
const KINDS: [(Kind, u64, u64); 26] = [
    (Kind::Write, 50, 4),
    (Kind::Fill, 1, 1),
    (Kind::Zero, 10, 3),
    (Kind::Flush, 12, 3),
    (Kind::Sync, 6, 3),
    (Kind::Idle, 3, 3),
    (Kind::Compare, 4, 4),
    (Kind::Create, 2, 4),
    (Kind::Destroy, 1, 2),
    (Kind::Close, 3, 2),
    (Kind::Resize, 2, 2),
    (Kind::Thick, 8, 2),
    (Kind::Snapshot, 4, 2),
    (Kind::Stream, 4, 2),
    (Kind::Log, 3, 3),
    (Kind::LogVdev, 4, 2),
    (Kind::Scrub, 1, 1),
    (Kind::Trim, 4, 2),
    (Kind::Sides, 3, 1),
    (Kind::Fail, 2, 1),
    (Kind::CutRegion, 1, 1),
    (Kind::Copy, 2, 2),
    (Kind::Race, 2, 1),
    (Kind::Files, 50, 2),
    (Kind::SyncFiles, 8, 3),
    (Kind::RaceFiles, 2, 1),
];

/// Which kinds of steps a seed has, and how often.
#[derive(Debug, Clone)]
pub struct Swarm {
    weights: Vec<(Kind, u64)>,
    /// Of 8 writes.
    pub fuas: u64,
    /// Where ranges begin and end: at any byte, sector, 4096 bytes, block of the volume.
    pub aligns: Vec<u64>,
    pub clients: usize,
    pub volumes_max: usize,
    /// Of the ends of its lives in 8.
    pub exports: u64,
    pub power_cuts: u64,
    /// Of the imports in 8: a device is an old copy of itself; a bit has flipped in the log.
    pub stale: u64,
    pub flips: u64,
}

impl Swarm {
    pub fn draw(rng: &mut Rng) -> Swarm {
        let is_there = |rng: &mut Rng, quarters: u64| rng.below(4) < quarters;
        let mut weights = Vec::new();
        for (kind, weight, quarters) in KINDS {
            if is_there(rng, quarters) {
                weights.push((kind, weight * rng.pick(&[1, 1, 1, 3, 10])));
            }
        }
        Swarm {
            weights,
            fuas: rng.pick(&[0, 1, 3, 8]),
            aligns: rng.pick::<&[u64]>(&[&[1, 512, 4096], &[1], &[512], &[4096], &[0], &[0, 1]]).to_vec(),
            clients: 1 + rng.index(2),
            volumes_max: 1 + rng.index(3),
            exports: rng.pick(&[0, 0, 1, 3]),
            power_cuts: rng.pick(&[1, 4, 6, 8]),
            stale: rng.pick(&[0, 0, 2, 4]),
            flips: rng.pick(&[0, 0, 2, 4]),
        }
    }

    /// Whether there are files.
    pub fn has_files(&self) -> bool {
        self.weights.iter().any(|(kind, _)| *kind == Kind::Files)
    }

    pub fn kind(&self, rng: &mut Rng) -> Kind {
        let mut at = rng.below(self.weights.iter().map(|(_, weight)| weight).sum());
        for (kind, weight) in &self.weights {
            if at < *weight {
                return *kind;
            }
            at -= weight;
        }
        Kind::Write
    }
}
