//! Media that lose power, with logs of either kind on them, for tests that run with both.

use std::sync::Arc;

use fastness_blkdev::{FaultPlan, Faulty, MemDevice, MemImage};
use fastness_lwb::DeviceSpace;
use fastness_testkit::{Heap, HeapRange};
use fastness_zil::*;

use super::*;

/// Runs each test with both kinds, as `pmem::name` and `lwb::name`.
#[macro_export]
macro_rules! on_each_kind {
    ($($name:ident)*) => {
        mod pmem {
            $(#[test] fn $name() { super::$name::<$crate::support::PmRig>(); })*
        }
        mod lwb {
            $(#[test] fn $name() { super::$name::<$crate::support::LwbRig>(); })*
        }
    };
}

type Choose<'a> = &'a mut dyn FnMut(&ClaimProblem) -> Option<Choice>;
type Headers = Vec<(DatasetId, Option<Vec<u8>>)>;

/// A medium.
pub trait Rig: Sized + 'static {
    type Logs: super::Logs;

    /// One with room for what a test writes.
    fn roomy() -> Self;

    /// One that a few hundred small records fill.
    fn tight() -> Self;

    /// Logs of no dataset on it.
    fn format(&self) -> Self::Logs;

    /// Claims; asks for each problem what to do about it.
    fn claim(
        &self,
        pool: &PoolRef,
        first: Txg,
        headers: Headers,
        choose: Choose<'_>,
    ) -> Result<(Self::Logs, Vec<ClaimSummary>), ClaimProblem>;

    /// What a power cut now leaves.
    fn crashed(&self) -> Self;

    /// The bytes that it leaves.
    fn image(&self) -> Vec<u8>;

    /// The same medium with these bytes.
    fn with_image(&self, bytes: &[u8]) -> Self;

    fn world(&self, contents: Contents) -> World<Self::Logs> {
        World::with(self.format(), contents)
    }

    fn import(&self, disk: Disk) -> Result<World<Self::Logs>, ClaimProblem> {
        World::imported(disk, |pool, first, headers| {
            self.claim(pool, first, headers, &mut |_| None).map(|(logs, _)| logs)
        })
    }

    /// The crash: the medium as it is, the pool as of its last synced txg.
    fn crash(&self, world: &World<Self::Logs>) -> World<Self::Logs> {
        let disk = world.pool.disk();
        self.crashed().import(disk).unwrap()
    }
}

macro_rules! resolve {
    ($import:ident, $pool:ident, $choose:ident) => {{
        let problems: Vec<_> = $import.problems().cloned().collect();
        for problem in problems {
            let Some(choice) = $choose(&problem) else { return Err(problem) };
            $import.resolve(problem.dataset, choice)?;
        }
        let summaries = $import.summaries().to_vec();
        Ok(($import.finish($pool, &$pool.tx()).unwrap(), summaries))
    }};
}

/// Persistent memory of which every store is durable at once.
pub struct PmRig {
    pub heap: Heap,
    pub chunk_bytes: usize,
    seed: u64,
}

impl PmRig {
    pub fn new(chunks: usize, chunk_bytes: usize) -> Self {
        Self { heap: Heap::new(vec![0; chunks * chunk_bytes]), chunk_bytes, seed: 1 }
    }

    fn ranges(&self) -> Vec<HeapRange> {
        self.heap.chunks(self.chunk_bytes)
    }
}

impl Rig for PmRig {
    type Logs = PmemLogs<HeapRange>;

    fn roomy() -> Self {
        Self::new(16, 8192)
    }

    fn tight() -> Self {
        Self::new(6, 2048)
    }

    fn format(&self) -> Self::Logs {
        PmemLogs::format(config(self.seed, 2), self.ranges()).unwrap()
    }

    fn claim(
        &self,
        pool: &PoolRef,
        first: Txg,
        headers: Headers,
        choose: Choose<'_>,
    ) -> Result<(Self::Logs, Vec<ClaimSummary>), ClaimProblem> {
        let mut import = PmemLogs::import(config(self.seed, 2), self.ranges(), first, headers).unwrap();
        resolve!(import, pool, choose)
    }

    fn crashed(&self) -> Self {
        self.with_image(&self.image())
    }

    fn image(&self) -> Vec<u8> {
        self.heap.bytes()
    }

    fn with_image(&self, bytes: &[u8]) -> Self {
        Self { heap: Heap::new(bytes.to_vec()), seed: self.seed + 1, ..*self }
    }
}

pub type BlockDisk = Arc<Faulty<MemDevice>>;
pub type DiskSpace = DeviceSpace<BlockDisk>;

/// A block device with a volatile cache.
pub struct LwbRig {
    pub disk: BlockDisk,
    pub space: Arc<DiskSpace>,
    seed: u64,
}

impl LwbRig {
    pub fn new(len_bytes: u64, plan: FaultPlan) -> Self {
        Self::of(MemImage::zeroed(len_bytes), plan, 1)
    }

    pub fn of(image: MemImage, plan: FaultPlan, seed: u64) -> Self {
        let len_bytes = image.len_bytes();
        let disk = Arc::new(Faulty::new(MemDevice::from_image("disk", image, 512), plan));
        let space = Arc::new(DeviceSpace::new(Arc::clone(&disk), 0..len_bytes).unwrap());
        Self { disk, space, seed }
    }
}

impl Rig for LwbRig {
    type Logs = LwbLogs<DiskSpace>;

    fn roomy() -> Self {
        Self::new(8 << 20, FaultPlan::new(1))
    }

    fn tight() -> Self {
        Self::new(192 << 10, FaultPlan::new(1))
    }

    fn format(&self) -> Self::Logs {
        LwbLogs::new(Arc::clone(&self.space), Txg(0))
    }

    fn claim(
        &self,
        pool: &PoolRef,
        first: Txg,
        headers: Headers,
        choose: Choose<'_>,
    ) -> Result<(Self::Logs, Vec<ClaimSummary>), ClaimProblem> {
        assert_eq!(self.space.used_bytes(), 0, "a space is imported from once");
        let mut import = LwbLogs::import(Arc::clone(&self.space), first, headers);
        resolve!(import, pool, choose)
    }

    fn crashed(&self) -> Self {
        self.with_image(&self.image())
    }

    fn image(&self) -> Vec<u8> {
        self.disk.crash(self.seed).unwrap().to_vec()
    }

    fn with_image(&self, bytes: &[u8]) -> Self {
        let image = MemImage::from_bytes(bytes);
        Self::of(image, FaultPlan::new(self.seed), self.seed.wrapping_mul(31) + 7)
    }
}
