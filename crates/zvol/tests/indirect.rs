//! Large synchronous writes whose data goes to its place at once, and only its address into the log: they are
//! written once, and are there after a crash.

#[path = "../../pool/tests/support/mod.rs"]
mod rig;
mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastness_blkdev::{BlockDevice, Fault, FaultPlan, MemImage, On, Operation, When};
use fastness_lwb::{Found, survey};
use fastness_pool::{DATA_START_BYTES, ErrorKind, Pool, Property, UNIT_BYTES, VdevSpec};
use fastness_store::survey::{DryClaim, Untouched, claim_dry, headers, record};
use fastness_store::{Consent, PoolSpace, ReplayReport, Store, StoreError, StoreOptions, Tuning};
use fastness_zil::record::{Record, Write, WriteData};
use fastness_zvol::{Volume, VolumeOptions};
use rig::{Rig, Rng, host, manual};
use support::{Parts, create as create_store, log, store_options};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 16 << 10;
/// Not the default, which may change.
const LEAST: Option<u64> = Some(256 << 10);

fn settings(indirect_bytes_min: Option<u64>) -> StoreOptions {
    let tuning = Tuning { indirect_bytes_min, ..Tuning::default() };
    StoreOptions { tuning, import: host(), ..store_options(manual()) }
}

fn bytes(seed: u64, len: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.next() as u8 | 1).collect()
}

struct Open {
    rig: Arc<Rig>,
    store: Arc<Store>,
    volume: Volume,
    report: ReplayReport,
}

fn create_on(rig: &Arc<Rig>, spec: VdevSpec, settings: StoreOptions) -> Open {
    let store = create_store(&[spec], settings);
    let properties = vec![(Property::VolBlockSize, BLOCK), (Property::Compression, 0)];
    let volume = Volume::create(&store, "tank/v", 2 * MIB, &VolumeOptions { properties }).unwrap();
    // The log's header is durable, so that records go into it.
    store.pool().sync().unwrap();
    Open { rig: rig.clone(), store, volume, report: ReplayReport::default() }
}

fn create() -> Open {
    let rig = Rig::fresh(1, 24 * MIB, 1);
    create_on(&rig, VdevSpec::single(rig.device(0)), settings(LEAST))
}

impl Open {
    fn indirect(&self) -> u64 {
        log(&self.store).stats().iter().map(|(_, stats)| stats.indirect).sum()
    }

    fn contents(&self) -> Vec<u8> {
        let mut found = vec![0xee; self.volume.size_bytes() as usize];
        self.volume.read(0, &mut found).unwrap();
        found
    }

    fn clean(&self) -> u64 {
        let report = self.store.pool().check().unwrap();
        assert!(report.is_clean(), "{report:?}");
        report.log_units
    }

    /// The power fails now.
    fn crash(self, seed: u64) -> Arc<Rig> {
        let images = self.rig.crash(seed);
        Rig::new(images, seed)
    }

    /// Where the data of the records in the log is: object offset, unit of the first block.
    fn stored(&self) -> Vec<(u64, u64)> {
        stored_on(&self.rig)
    }
}

fn stored_on(rig: &Arc<Rig>) -> Vec<(u64, u64)> {
    let images = rig.devices.iter().map(|device| device.inner().image()).collect();
    let pool = read_only(&Rig::new(images, 1));
    let mut found = Vec::new();
    for volume in headers(&pool).unwrap() {
        let Some(chain) = volume.chain() else { continue };
        let space = Untouched(PoolSpace::new(pool.log_space()));
        survey(&space, &chain, |each| {
            let Found::Record(each) = each else { return };
            let (_, decoded) = Record::decode(each.bytes).unwrap();
            if let Record::Write(Write { offset, data: WriteData::Indirect { address, .. } }) = decoded {
                assert!(record(each.bytes).unwrap().is_indirect);
                let place = u64::from_le_bytes(address[8..16].try_into().unwrap());
                found.push((offset, place & 0xffff_ffff_ffff));
            }
        });
    }
    found
}

fn read_only(rig: &Arc<Rig>) -> Arc<Pool> {
    let options = fastness_pool::PoolOptions { is_read_only: true, ..manual() };
    Arc::new(Pool::import(&rig.all(), &host(), options).unwrap())
}

fn try_import(rig: &Arc<Rig>, consent: Consent) -> Result<Open, StoreError> {
    let (store, report) = support::import(&mut Parts(rig.all()), &settings(LEAST), consent)?;
    let volume = Volume::open(&store, "tank/v").unwrap();
    Ok(Open { rig: rig.clone(), store, volume, report })
}

fn import(rig: &Arc<Rig>) -> Open {
    try_import(rig, Consent::NONE).unwrap()
}

#[test]
fn the_data_of_a_large_write_is_written_once() {
    let written = |least| {
        let rig = Rig::fresh(1, 24 * MIB, 1);
        let open = create_on(&rig, VdevSpec::single(rig.device(0)), settings(least));
        let before = rig.devices[0].stats().of(Operation::Write).bytes;
        open.volume.write(0, &bytes(1, MIB), true).unwrap();
        open.store.pool().sync().unwrap();
        let written = rig.devices[0].stats().of(Operation::Write).bytes - before;
        let stats = log(&open.store).stats()[0].1;
        assert_eq!(stats.indirect > 0, least.is_some());
        assert_eq!(stats.indirect_bytes, if least.is_some() { MIB } else { 0 });
        open.store.pool().sync().unwrap();
        assert!(open.clean() < 64, "nothing but the chain is left");
        assert_eq!(open.contents()[..MIB as usize], bytes(1, MIB));
        written
    };
    let (once, twice) = (written(LEAST), written(None));
    assert!(once < MIB + MIB / 4 && twice > 2 * MIB, "{once} and {twice} bytes");
}

#[test]
fn what_is_too_short_or_asynchronous_goes_the_old_way() {
    let open = create();
    open.volume.write(0, &bytes(1, 128 << 10), true).unwrap();
    open.volume.write(MIB, &bytes(2, MIB), false).unwrap();
    assert_eq!(open.indirect(), 0);
    open.volume.flush().unwrap();
    assert!(open.indirect() > 0, "the flush commits the MiB");
}

/// Whole blocks, parts of blocks, zeroes, and what is written twice, in one commit.
#[test]
fn after_a_crash_everything_is_there_that_was_acknowledged() {
    for seed in 0..40 {
        let open = create();
        let write = |offset, len, seed| open.volume.write(offset, &bytes(seed, len), false).unwrap();
        write(5000, 700_000, 1);
        write(100_000, 50_000, 2);
        open.volume.write_zeroes(3 * BLOCK, 2 * BLOCK, false).unwrap();
        open.volume.write(9 * BLOCK, &vec![0; 2 * BLOCK as usize], false).unwrap();
        write(MIB, 300_000, 3);
        open.volume.flush().unwrap();
        assert!(open.indirect() > 2);
        let expected = open.contents();
        let after = open.crash(seed);
        let DryClaim { summaries, problems } = claim_dry(&read_only(&after), Vec::new()).unwrap();
        assert!(problems.is_empty() && summaries[0].indirect > 2, "{summaries:?} {problems:?}");
        let open = import(&after);
        assert!(open.report.indirect > 2);
        assert_eq!(open.contents(), expected);
        open.clean();
        open.store.pool().sync().unwrap();
        assert!(open.clean() < 64, "what was claimed is given back");
        // And once more, on what replay has written.
        open.volume.write(0, &bytes(seed, MIB), true).unwrap();
        let expected = open.contents();
        assert_eq!(import(&open.crash(seed + 1)).contents(), expected);
    }
}

/// The record is of the txg before; its data is needed until that has synced, whatever the next one does.
#[test]
fn what_is_written_over_before_the_txg_syncs_is_there_for_its_record() {
    for seed in 0..20 {
        let open = create();
        open.volume.write(0, &bytes(1, MIB), true).unwrap();
        for round in 0..6 {
            // Not committed: after the crash these may be there in part, or not.
            open.volume.write(0, &bytes(10 + round, MIB), false).unwrap();
        }
        let stored = open.stored();
        assert!(!stored.is_empty());
        let after = open.crash(seed);
        assert_eq!(import(&after).contents()[..MIB as usize], bytes(1, MIB));
    }
}

/// A record is in the log only with its data: what a crash leaves in the middle of a commit is never damage.
#[test]
fn a_crash_at_any_operation_of_a_commit_is_no_damage() {
    let mut met = 0;
    for at in 1..10 {
        for seed in 0..16 {
            let open = create();
            open.volume.write(0, &bytes(1, 64 << 10), true).unwrap();
            let now = open.rig.ops.load(Ordering::SeqCst);
            open.rig.cut_at.store(now + at, Ordering::SeqCst);
            let done = open.volume.write(MIB, &bytes(2, 512 << 10), true);
            met += u64::from(done.is_err());
            let open = import(&open.crash(seed));
            let found = open.contents();
            assert_eq!(found[..64 << 10], bytes(1, 64 << 10), "cut at {at}, {seed}");
            if done.is_ok() {
                assert_eq!(found[MIB as usize..][..512 << 10], bytes(2, 512 << 10), "cut at {at}, {seed}");
            }
            open.clean();
        }
    }
    assert!(met > 30, "the power failed {met} times");
}

/// Two writes; what the volume had after the first, and where the data of the second begins.
fn written_twice() -> (Open, Vec<u8>, u64) {
    let open = create();
    open.volume.write(0, &bytes(1, 512 << 10), true).unwrap();
    let earlier = open.contents();
    open.volume.write(MIB, &bytes(2, 512 << 10), true).unwrap();
    let (_, unit) = open.stored().into_iter().find(|(offset, _)| *offset == MIB).unwrap();
    (open, earlier, unit)
}

#[test]
fn a_block_that_is_damaged_is_found_at_the_import_and_may_be_given_up() {
    let (open, earlier, unit) = written_twice();
    let mut image = open.rig.devices[0].inner().image();
    let at = DATA_START_BYTES + unit * UNIT_BYTES + 1000;
    let mut byte = [0];
    image.read(at, &mut byte);
    image.write(at, &[byte[0] ^ 0x20]);
    drop(open);
    let rig = Rig::new(vec![image], 1);
    let DryClaim { problems, .. } = claim_dry(&read_only(&rig), Vec::new()).unwrap();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].to_string().contains(&format!("vdev 0 unit {unit:#x}")), "{}", problems[0]);
    let error = try_import(&rig, Consent::NONE).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("record"), "{error}");
    let open = try_import(&rig, Consent { damaged: true, missing: false }).unwrap();
    assert_eq!(open.contents(), earlier, "what is before the damage");
    assert_eq!(open.report.damaged, 1);
    open.store.pool().sync().unwrap();
    assert!(open.clean() < 64);
}

/// As above, and the power fails again while what is left is being replayed: what was given up stays so.
#[test]
fn what_was_given_up_stays_so() {
    let mut met = 0;
    for cut in 1..80 {
        let (open, earlier, unit) = written_twice();
        let mut image = open.rig.devices[0].inner().image();
        image.write(DATA_START_BYTES + unit * UNIT_BYTES, &[0; 64]);
        drop(open);
        let dying = Rig::new(vec![image], cut);
        dying.cut_at.store(cut, Ordering::SeqCst);
        let consent = Consent { damaged: true, missing: false };
        let died = std::panic::catch_unwind(|| try_import(&dying, consent).map(drop));
        met += u64::from(!matches!(died, Ok(Ok(()))));
        let rig = Rig::new(dying.crash(cut), 1);
        let again = match try_import(&rig, Consent::NONE) {
            // The choice was not durable yet.
            Err(StoreError::Claim { .. }) => try_import(&rig, consent).unwrap(),
            other => other.unwrap(),
        };
        assert_eq!(again.contents(), earlier, "cut at {cut}");
        again.clean();
    }
    assert!(met > 10, "the power failed {met} times");
}

#[test]
fn a_device_that_does_not_take_the_data_or_its_flush_keeps_nothing_from_being_acknowledged_rightly() {
    // A write that fails: the data goes into the log.
    let open = create();
    open.rig.devices[0].set_plan(FaultPlan::new(1).rule(On::Writes, When::Nth(1), Fault::Errno(5)));
    open.volume.write(0, &bytes(1, MIB), true).unwrap();
    assert_eq!(open.indirect(), 0, "the run of the MiB was one request");
    let expected = open.contents();
    assert_eq!(import(&open.crash(3)).contents(), expected);
    // A flush that fails is no acknowledgement.
    let open = create();
    let plan = FaultPlan::new(1).rule(On::Only(Operation::Flush), When::Nth(1), Fault::Errno(5));
    open.rig.devices[0].set_plan(plan);
    assert!(open.volume.write(0, &bytes(1, MIB), true).is_err());
    assert_eq!(open.indirect(), 0);
    assert!(open.store.pool().is_suspended());
}

/// The side that is left has the data, and the label says that the other one has not.
#[test]
fn a_mirror_that_loses_a_side_meanwhile_loses_nothing() {
    for fault in [On::Writes, On::Only(Operation::Flush)] {
        let rig = Rig::fresh(2, 24 * MIB, 1);
        let open = create_on(&rig, VdevSpec::mirror(rig.all()), settings(LEAST));
        rig.devices[1].set_plan(FaultPlan::new(1).rule(fault, When::Nth(1), Fault::Errno(5)));
        open.volume.write(0, &bytes(1, MIB), true).unwrap();
        assert!(open.indirect() > 0, "one side has it");
        let expected = open.contents();
        let images: Vec<MemImage> = rig.devices.iter().map(|device| device.crash(5).unwrap()).collect();
        drop(open);
        let after = Rig::new(images, 1);
        let open = import(&after);
        assert_eq!(open.contents(), expected);
        open.clean();
    }
}
