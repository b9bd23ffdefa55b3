//! Volumes as their users see them: bytes, sizes, what a crash leaves. The pool's log is of kind lwb.

mod support;

use std::sync::Arc;

use fastness_blkdev::MemImage;
use fastness_pool::{Device, ErrorKind, PoolError, Property, VdevSpec};
use fastness_store::Operation;
use fastness_store::{Consent, Store};
use fastness_zvol::{Volume, VolumeError, VolumeOptions};
use proptest::prelude::*;
use support::{Parts, create, log, manual, memory, store_options};

const MIB: u64 = 1 << 20;

fn disk() -> Device {
    memory("disk", MemImage::zeroed(64 * MIB))
}

fn store_on(disk: &Device) -> Arc<Store> {
    create(&[VdevSpec::single(disk.clone())], store_options(manual()))
}

fn import(disk: &Device) -> Arc<Store> {
    support::import(&mut Parts(vec![disk.clone()]), &store_options(manual()), Consent::NONE).unwrap().0
}

fn small_blocks() -> VolumeOptions {
    VolumeOptions { properties: vec![(Property::VolBlockSize, 4096)] }
}

/// What a read of everything returns.
fn contents(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0xee; volume.size_bytes() as usize];
    volume.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn what_was_flushed_is_there_after_a_crash_and_what_was_not_is_not() {
    let disk = disk();
    let store = store_on(&disk);
    let volume = Volume::create(&store, "tank/v", 8 * MIB, &small_blocks()).unwrap();
    volume.write(5000, b"flushed", false).unwrap();
    volume.flush().unwrap();
    volume.write(9000, b"with FUA", true).unwrap();
    volume.write(4 * MIB, b"neither", false).unwrap();
    drop((volume, store));
    let volume = Volume::open(&import(&disk), "tank/v").unwrap();
    let bytes = contents(&volume);
    assert_eq!(&bytes[5000..5007], b"flushed");
    assert_eq!(&bytes[9000..9008], b"with FUA");
    assert_eq!(&bytes[4 << 20..][..7], [0; 7]);
}

#[test]
fn a_flush_covers_the_writes_of_other_handles() {
    let disk = disk();
    let store = store_on(&disk);
    let one = Volume::create(&store, "tank/v", MIB, &VolumeOptions::default()).unwrap();
    let other = Volume::open(&store, "tank/v").unwrap();
    one.write(0, b"by one", false).unwrap();
    other.flush().unwrap();
    drop((one, other, store));
    let volume = Volume::open(&import(&disk), "tank/v").unwrap();
    assert_eq!(&contents(&volume)[..6], b"by one");
}

/// A flush is a commit of the log; it ends no txg, whatever it has to do.
#[test]
fn a_flush_with_nothing_to_do_writes_nothing() {
    let disk = disk();
    let store = store_on(&disk);
    let volume = Volume::create(&store, "tank/v", MIB, &VolumeOptions::default()).unwrap();
    // The log's header is durable, so that records go into it.
    store.pool().sync().unwrap();
    let before = store.pool().synced_txg();
    let stats = || log(&store).stats()[0].1;
    volume.flush().unwrap();
    assert_eq!((stats().records, stats().fallbacks_total()), (0, 0));
    volume.write(0, &[1], false).unwrap();
    volume.flush().unwrap();
    assert_eq!((stats().records, stats().fallbacks_total()), (1, 0));
    assert_eq!(store.pool().synced_txg(), before);
    drop((volume, store));
    assert_eq!(contents(&Volume::open(&import(&disk), "tank/v").unwrap())[..2], [1, 0]);
}

#[test]
fn the_sync_property_decides_what_waits() {
    let disk = disk();
    let store = store_on(&disk);
    let volume = Volume::create(&store, "tank/v", MIB, &VolumeOptions::default()).unwrap();
    let set = |store: &Store, volume: &Volume, value| {
        let pool = store.pool();
        let value = Property::Sync.parse(value).unwrap();
        pool.transact(|tx| volume.dataset().set(tx, Property::Sync, Some(value))).unwrap();
        pool.sync().unwrap();
        pool.synced_txg()
    };
    let before = set(&store, &volume, "always");
    volume.write(0, b"always", false).unwrap();
    let stats = log(&store).stats()[0].1;
    assert_eq!((stats.records, stats.fallbacks_total(), store.pool().synced_txg()), (1, 0, before));
    drop((volume, store));
    let store = import(&disk);
    let volume = Volume::open(&store, "tank/v").unwrap();
    assert_eq!(&contents(&volume)[..6], b"always");
    let before = set(&store, &volume, "disabled");
    volume.write(100, b"disabled", true).unwrap();
    volume.flush().unwrap();
    assert_eq!(store.pool().synced_txg(), before);
    drop((volume, store));
    let volume = Volume::open(&import(&disk), "tank/v").unwrap();
    assert_eq!((&contents(&volume)[..6], &contents(&volume)[100..108]), (&b"always"[..], &[0; 8][..]));
}

#[test]
fn sizes_grow_and_shrink_and_the_end_is_the_end() {
    let disk = disk();
    let store = store_on(&disk);
    let volume = Volume::create(&store, "tank/v", MIB, &small_blocks()).unwrap();
    volume.write(MIB - 4, b"last", false).unwrap();
    let outside = volume.write(MIB - 3, b"last", false).unwrap_err();
    assert!(matches!(outside, VolumeError::OutOfRange { offset, .. } if offset == MIB - 3), "{outside}");
    assert!(volume.read(u64::MAX, &mut [0; 2]).is_err());
    volume.resize(2 * MIB).unwrap();
    volume.write(2 * MIB - 4, b"more", false).unwrap();
    volume.resize(MIB / 2).unwrap();
    volume.resize(2 * MIB).unwrap();
    assert!(contents(&volume).iter().all(|byte| *byte == 0));
    for (size, kind) in
        [(0, ErrorKind::Invalid), (1000, ErrorKind::Invalid), (u64::MAX - 4095, ErrorKind::Invalid)]
    {
        assert_eq!(volume.resize(size).unwrap_err().kind(), kind, "{size}");
    }
    drop((volume, store));
    assert_eq!(Volume::open(&import(&disk), "tank/v").unwrap().size_bytes(), 2 * MIB);
}

#[test]
fn a_volume_larger_than_its_pool_runs_full_and_lives() {
    let store = store_on(&disk());
    let volume = Volume::create(&store, "tank/v", 1 << 40, &small_blocks()).unwrap();
    let part: Vec<u8> = (0..MIB as usize).map(|at| (at * 7 + at / 4096) as u8).collect();
    let mut at = 0;
    let full = loop {
        match volume.write(at, &part, false) {
            Ok(()) => at += MIB,
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::NoSpace);
    assert!(at > 32 * MIB, "{at}");
    volume.flush().unwrap();
    volume.discard(0, at, true).unwrap();
    volume.write(0, &part, true).unwrap();
    assert!(store.pool().check().unwrap().is_clean());
}

#[test]
fn what_is_no_volume_is_not_opened() {
    let store = store_on(&disk());
    let error = Volume::open(&store, "tank").unwrap_err();
    assert!(matches!(error, VolumeError::NotAVolume { .. }), "{error}");
    let error = Volume::open(&store, "tank/v").unwrap_err();
    assert!(matches!(error, VolumeError::Pool(PoolError::NoDataset(_))), "{error}");
    let error = Volume::create(&store, "tank/v", 1, &VolumeOptions::default()).unwrap_err();
    assert!(matches!(error, VolumeError::BadSize { .. }), "{error}");
    assert_eq!(store.pool().datasets().len(), 1);
}

#[test]
fn a_read_only_volume_refuses_changes() {
    let store = store_on(&disk());
    let options = VolumeOptions::default();
    let volume = Volume::create(&store, "tank/v", MIB, &options).unwrap();
    store.pool().transact(|tx| volume.dataset().set(tx, Property::ReadOnly, Some(1))).unwrap();
    assert!(volume.is_read_only());
    assert_eq!(volume.write(0, &[1], false).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(volume.discard(0, 10, false).unwrap_err().kind(), ErrorKind::Invalid);
    let stats = volume.stats(Operation::Write);
    assert_eq!((stats.ops, stats.errors, stats.bytes), (1, 1, 0));
}

#[derive(Debug, Clone)]
enum Step {
    Write { offset: u64, len: u64, fill: u8 },
    Zero { offset: u64, len: u64 },
    Discard { offset: u64, len: u64 },
    Resize { blocks: u64 },
    Flush,
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = (0..MIB, 1..80_000u64);
    let step = prop_oneof![
        6 => (range.clone(), any::<u8>()).prop_map(|((offset, len), fill)| Step::Write { offset, len, fill }),
        2 => range.clone().prop_map(|(offset, len)| Step::Zero { offset, len }),
        2 => range.prop_map(|(offset, len)| Step::Discard { offset, len }),
        1 => (1..256u64).prop_map(|blocks| Step::Resize { blocks }),
        2 => Just(Step::Flush),
        1 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// One volume against an array: with one writer and no txg that ends by itself, a crash leaves what the
    /// last flush, or resize, made durable.
    #[test]
    fn a_volume_behaves_like_an_array(steps in steps()) {
        let disk = disk();
        let mut volume = Volume::create(&store_on(&disk), "tank/v", MIB, &small_blocks()).unwrap();
        let mut now = vec![0; MIB as usize];
        let mut durable = now.clone();
        for step in steps {
            let clip = |offset: u64, len: u64| {
                let offset = offset.min(now.len() as u64);
                offset as usize..(offset + len).min(now.len() as u64) as usize
            };
            match step {
                Step::Write { offset, len, fill } => {
                    let range = clip(offset, len);
                    let data: Vec<u8> = range.clone().map(|at| fill.wrapping_add((at / 512) as u8)).collect();
                    volume.write(range.start as u64, &data, false).unwrap();
                    now[range].copy_from_slice(&data);
                }
                Step::Zero { offset, len } => {
                    let range = clip(offset, len);
                    volume.write_zeroes(range.start as u64, range.len() as u64, false).unwrap();
                    now[range].fill(0);
                }
                Step::Discard { offset, len } => {
                    let range = clip(offset, len);
                    volume.discard(range.start as u64, range.len() as u64, false).unwrap();
                    now[range].fill(0);
                }
                Step::Resize { blocks } => {
                    volume.resize(blocks * 4096).unwrap();
                    now.resize(blocks as usize * 4096, 0);
                    durable.clone_from(&now);
                }
                Step::Flush => {
                    volume.flush().unwrap();
                    durable.clone_from(&now);
                }
                Step::Crash => {
                    drop(volume);
                    volume = Volume::open(&import(&disk), "tank/v").unwrap();
                    now.clone_from(&durable);
                }
            }
            prop_assert!(contents(&volume) == now);
        }
    }
}

/// What is discarded is free when its txg has synced: a write that finds no room waits for that, and no txg
/// ends by itself.
#[test]
fn a_write_to_a_full_pool_waits_for_what_was_discarded() {
    let store = store_on(&disk());
    let volume = Volume::create(&store, "tank/v", 128 * MIB, &small_blocks()).unwrap();
    let data: Vec<u8> = (0..65_536_u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
    let mut at = 0;
    // Until a sync gives nothing back of what was reserved for it.
    loop {
        let before = at;
        let error = loop {
            match volume.write(at, &data, false) {
                Ok(()) => at += 65_536,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        store.pool().sync().unwrap();
        if at == before {
            break;
        }
    }
    assert!(at > 48 * MIB, "it is full, not only reserved: {at}");
    for part in 0..4 {
        volume.discard(part * MIB, MIB, false).unwrap();
        (0..12).for_each(|index| volume.write(part * MIB + index * 65_536, &data, false).unwrap());
    }
}
