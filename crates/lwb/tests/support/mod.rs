//! An owner with a log on a device that loses power, and the oracle: which records replay must give.
#![allow(dead_code, unused_imports, unreachable_pub)]

mod gate;
mod trailer;

use std::convert::Infallible;
use std::sync::Arc;

use fastness_blkdev::{BlockDevice, FaultPlan, Faulty, MemDevice, MemImage};
use fastness_lwb::{
    ClaimError, Claimed, CommitError, DeviceSpace, Extent, Header, Log, Lsn, OnLoss, Options, Place, Space,
    SpaceError, Txg, claim,
};
pub use fastness_testkit::Rng;
pub use gate::{Gate, Kind};
pub use trailer::{SECTOR_BYTES, forge};

pub type Disk = Arc<Faulty<MemDevice>>;
pub type DiskSpace = Arc<DeviceSpace<Disk>>;

pub fn disk(image: MemImage, plan: FaultPlan) -> Disk {
    Arc::new(Faulty::new(MemDevice::from_image("disk", image, 512), plan))
}

pub fn space(disk: &Disk) -> DiskSpace {
    Arc::new(DeviceSpace::new(Arc::clone(disk), 0..disk.len_bytes()).unwrap())
}

/// A record that was appended.
pub type Appended = (Lsn, Txg, Vec<u8>);

/// What a recovery found.
pub struct Recovered {
    pub records: Vec<Appended>,
    pub claimed: Claimed<DiskSpace>,
}

/// Claims and replays everything; checks the space that is held.
pub fn recover(image: &MemImage, header: &Header, first_txg: Txg) -> Result<Recovered, ClaimError> {
    let space = space(&disk(image.clone(), FaultPlan::new(0)));
    recover_in(&space, header, first_txg)
}

pub fn recover_in(space: &DiskSpace, header: &Header, first_txg: Txg) -> Result<Recovered, ClaimError> {
    let mut claimed = claim(Arc::clone(space), header, first_txg, OnLoss::Fail)?;
    assert_eq!(space.used_bytes(), total(claimed.extents()), "held is what is reachable");
    let mut records = Vec::new();
    claimed
        .replay(|record, _| {
            records.push((record.lsn, record.txg, record.bytes.to_vec()));
            Ok::<_, Infallible>(())
        })
        .expect("what was claimed can be replayed");
    assert_eq!(claimed.records(), records.len() as u64);
    assert_eq!(claimed.record_bytes(), records.iter().map(|(_, _, bytes)| bytes.len() as u64).sum::<u64>());
    Ok(Recovered { records, claimed })
}

pub fn total(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.len_bytes)).sum()
}

/// The oracle: what is replayed is a prefix of what was appended and has not synced, with everything
/// committed.
pub fn check(records: &[Appended], appended: &[Appended], synced: Txg, committed: Lsn) {
    let unsynced: Vec<_> = appended.iter().filter(|(_, txg, _)| *txg > synced).collect();
    for (at, record) in records.iter().enumerate() {
        let expected = unsynced.get(at).map(|(lsn, txg, _)| (*lsn, *txg));
        assert_eq!(Some((record.0, record.1)), expected, "replayed record {at}");
        assert!(record.2 == unsynced[at].2, "bytes of record {}", record.0.0);
    }
    let needed = unsynced.iter().filter(|(lsn, ..)| *lsn <= committed).count();
    assert!(records.len() >= needed, "{} records replayed, {needed} were committed", records.len());
}

/// A log, what its owner stores, and what was done.
pub struct Owner {
    pub disk: Disk,
    pub log: Log<DiskSpace>,
    pub header: Header,
    pub open: Txg,
    pub synced: Txg,
    pub appended: Vec<Appended>,
    pub committed: Lsn,
}

pub fn options() -> Options {
    Options { block_bytes_max: 16 << 10, ..Options::default() }
}

impl Owner {
    /// A new log that is up.
    pub fn new(len_bytes: u64, plan: FaultPlan) -> Owner {
        let mut owner = Owner::idle(len_bytes, plan);
        owner.log.start();
        owner.sync();
        owner
    }

    /// A log without a chain.
    pub fn idle(len_bytes: u64, plan: FaultPlan) -> Owner {
        let disk = disk(MemImage::zeroed(len_bytes), plan);
        Owner::on(disk.clone(), space(&disk), Txg(1))
    }

    pub fn on(disk: Disk, space: DiskSpace, synced: Txg) -> Owner {
        Owner {
            disk,
            log: Log::new(space, synced, options()),
            header: Header::None,
            open: Txg(synced.0 + 1),
            synced,
            appended: Vec::new(),
            committed: Lsn(0),
        }
    }

    pub fn append(&mut self, bytes: &[u8]) -> Lsn {
        self.append_in(self.open, bytes)
    }

    pub fn append_in(&mut self, txg: Txg, bytes: &[u8]) -> Lsn {
        let lsn = self.log.append(txg, bytes);
        self.appended.push((lsn, txg, bytes.to_vec()));
        lsn
    }

    pub fn commit(&mut self, upto: Lsn) -> Result<(), CommitError> {
        self.log.commit(upto)?;
        self.committed = self.committed.max(upto);
        Ok(())
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<Lsn, CommitError> {
        let lsn = self.append(bytes);
        self.commit(lsn).map(|()| lsn)
    }

    /// One txg: its header is durable in an instant.
    pub fn sync(&mut self) {
        let txg = self.open;
        self.open = Txg(txg.0 + 1);
        self.header = Header::decode(&self.log.sync_header(txg).encode()).unwrap();
        self.synced = txg;
        self.log.synced(txg);
        self.check_space();
    }

    pub fn check_space(&self) {
        assert_eq!(
            self.log.space().used_bytes(),
            total(&self.log.extents()),
            "allocated is what the log knows"
        );
    }

    /// What the device may hold after a crash now; what is replayed is as it must be.
    pub fn check_crash(&self, seed: u64) -> Recovered {
        self.check_image(&self.disk.crash(seed).unwrap())
    }

    pub fn check_image(&self, image: &MemImage) -> Recovered {
        let recovered = recover(image, &self.header, Txg(self.synced.0 + 1)).expect("no damage");
        check(&recovered.records, &self.appended, self.synced, self.committed);
        recovered
    }
}

/// Counts and delegates.
pub struct Narrow {
    pub inner: DiskSpace,
    pub left: std::sync::atomic::AtomicI64,
}

impl Space for Narrow {
    fn allocate(&self, len_bytes: u32) -> Result<Place, SpaceError> {
        use std::sync::atomic::Ordering;
        if self.left.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(SpaceError::new(fastness_blkdev::ErrorKind::NoSpace, "none left"));
        }
        self.inner.allocate(len_bytes)
    }
    fn free(&self, extent: Extent) {
        self.inner.free(extent);
    }
    fn claim(&self, extent: Extent) -> Result<(), SpaceError> {
        self.inner.claim(extent)
    }
    fn contains(&self, extent: Extent) -> bool {
        self.inner.contains(extent)
    }
    fn write(&self, place: Place, data: &[u8]) -> Result<(), SpaceError> {
        self.inner.write(place, data)
    }
    fn read(&self, place: Place, buf: &mut [u8]) -> Result<(), SpaceError> {
        self.inner.read(place, buf)
    }
    fn flush(&self, devices: &[u32]) -> Result<(), SpaceError> {
        self.inner.flush(devices)
    }
}
