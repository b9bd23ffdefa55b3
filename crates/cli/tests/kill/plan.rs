//! What follows from a seed.

use std::fmt;
use std::time::Duration;

/// A generator; one seed, one sequence.
#[derive(Debug, Clone)]
pub struct Rng(fastness_testkit::Rng);

impl Rng {
    /// A sequence for each list of numbers.
    pub fn of(numbers: &[u64]) -> Rng {
        let mut rng = fastness_testkit::Rng(0x6b69_6c6c);
        for number in numbers {
            rng.0 ^= number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            rng.0 = rng.next();
        }
        Rng(rng)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// True in so many of a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        self.0.pick(of)
    }

    /// Between two numbers, small ones as often as large ones.
    pub fn spread(&mut self, from: u64, to: u64) -> u64 {
        let share = self.below(1 << 20) as f64 / f64::from(1 << 20);
        let (low, high) = ((from as f64).ln(), (to as f64 + 1.0).ln());
        ((low + (high - low) * share).exp() as u64).clamp(from, to)
    }

    /// The same for times.
    pub fn time(&mut self, from_us: u64, to_us: u64) -> Duration {
        Duration::from_micros(self.spread(from_us, to_us))
    }
}

/// Where the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Blocks among the data.
    Pool,
    /// Blocks on a device for logs.
    LogDevice,
    /// A file that stands in for persistent memory.
    Pmem,
    /// The same, and synchronous writes are in it alone.
    OneCopy,
    /// Two of them.
    Mirror,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Pool, Kind::LogDevice, Kind::Pmem, Kind::OneCopy, Kind::Mirror];

    /// Words of `pool create`.
    fn words(self) -> &'static str {
        match self {
            Kind::Pool => "",
            Kind::LogDevice => " log logdev",
            Kind::Pmem => " log pm.a --emulate-pm --pm-size 16M",
            Kind::OneCopy => " log pm.a --emulate-pm --pm-size 16M -o logdata=pm",
            Kind::Mirror => " log mirror pm.a pm.b --emulate-pm --pm-size 16M",
        }
    }
}

#[derive(Debug, Clone)]
pub struct VolumePlan {
    pub len_bytes: u64,
    pub block_bytes: u64,
    pub is_sync_always: bool,
    pub is_compressed: bool,
    /// Served again by each import; else the test has to.
    pub is_kept: bool,
}

/// A pool and its volumes.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub kind: Kind,
    pub is_mirrored: bool,
    pub volumes: Vec<VolumePlan>,
}

impl Plan {
    /// Of this kind, or of one that follows from the seed.
    pub fn new(seed: u64, kind: Option<Kind>) -> Plan {
        let mut rng = Rng::of(&[seed]);
        let drawn = rng.one_of(&Kind::ALL);
        let mut blocks: Vec<u64> = vec![512, 4 << 10, 16 << 10, 128 << 10];
        let count = 2 + rng.below(3);
        let volumes = (0..count).map(|_| VolumePlan {
            len_bytes: (1 + rng.below(10)) << 20,
            block_bytes: blocks.swap_remove(rng.below(blocks.len() as u64) as usize),
            is_sync_always: rng.percent(25),
            is_compressed: rng.percent(50),
            is_kept: rng.percent(50),
        });
        let volumes = volumes.collect();
        Plan { seed, kind: kind.unwrap_or(drawn), is_mirrored: rng.percent(25), volumes }
    }

    /// The command that makes the pool.
    pub fn create(&self, file_size: &str) -> String {
        let vdevs = if self.is_mirrored { "mirror a b" } else { "a" };
        format!("pool create tank {vdevs}{} --file-size {file_size} --no-import", self.kind.words())
    }

    /// The commands that make the volumes.
    pub fn create_volume(&self, volume: usize) -> String {
        let of = &self.volumes[volume];
        let sync = if of.is_sync_always { "always" } else { "standard" };
        let compression = if of.is_compressed { "lz4" } else { "off" };
        let properties = format!("-o sync={sync} -o compression={compression}");
        format!("volume create tank/v{volume} {} -b {} {properties}", of.len_bytes, of.block_bytes)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.kind, if self.is_mirrored { ", mirrored" } else { "" })?;
        for (index, volume) in self.volumes.iter().enumerate() {
            let VolumePlan { len_bytes, block_bytes, is_sync_always, is_compressed, is_kept } = volume;
            write!(f, "; v{index} {} MiB, blocks of {block_bytes}", len_bytes >> 20)?;
            let words = [(is_sync_always, "sync=always"), (is_compressed, "lz4"), (is_kept, "kept")];
            for (_, word) in words.iter().filter(|(is_so, _)| **is_so) {
                write!(f, ", {word}")?;
            }
        }
        Ok(())
    }
}
