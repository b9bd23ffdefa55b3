//! Thick volumes that receive increments: each block finds room afterwards, or nothing has changed.

mod support;

use fastness_base::ErrorKind;
use fastness_pool::{PoolError, Property};
use fastness_zvol::{ReceiveOptions, TransferError, Volume, VolumeOptions};

use support::side::{BLOCK_BYTES, MIB, PLAIN, Side};

const THICK_BYTES: u64 = 8 * MIB;
const BLOCKS: usize = THICK_BYTES as usize / BLOCK_BYTES;
const FORCED_AND_KEPT: ReceiveOptions = ReceiveOptions { is_resumable: true, is_forced: true };

/// A copy of `tank/v@a`, made thick, and another volume.
fn receiver(full: &[u8]) -> Side {
    let to = Side::new(48 * MIB);
    to.receive("tank/copy", full, PLAIN).unwrap();
    let copy = to.store().pool().dataset("tank/copy").unwrap();
    to.store().change_unopened(|_, tx| copy.set(tx, Property::RefReservation, Some(THICK_BYTES))).unwrap();
    let options = VolumeOptions { properties: vec![(Property::VolBlockSize, BLOCK_BYTES as u64)] };
    Volume::create(to.store(), "tank/other", 64 * MIB, &options).unwrap();
    to
}

/// The other volume takes all that it gets, but for some blocks at its beginning.
fn fill(side: &Side, spared: u64) {
    let volume = Volume::open(side.store(), "tank/other").unwrap();
    let (mut at, mut seed) = (spared, 1_u64);
    for blocks in [64, 16, 1] {
        loop {
            // Bytes that do not compress.
            let words = (0..blocks * BLOCK_BYTES / 8).flat_map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                seed.rotate_left(29).to_le_bytes()
            });
            match volume.write(at * BLOCK_BYTES as u64, &words.collect::<Vec<_>>(), false) {
                Ok(()) => at += blocks as u64,
                Err(error) if error.kind() == ErrorKind::NoSpace => break,
                Err(error) => panic!("{error}"),
            }
        }
        side.store().pool().sync().unwrap();
    }
}

/// Each block of the thick volume finds room, twice.
fn overwrite(side: &Side) {
    for salt in [0x55, 0x66] {
        for block in (0..BLOCKS).step_by(16) {
            side.write("tank/copy", block as u64, 16, salt);
        }
        side.store().pool().sync().unwrap();
    }
}

#[test]
fn an_increment_keeps_room_for_each_block() {
    let from = Side::with_volume();
    let full = from.send("tank/v@a", None);
    from.write("tank/v", 200, 1500, 2);
    from.snapshot("tank/v@b");
    let increment = from.send("tank/v@b", Some("tank/v@a"));
    for is_full_before in [false, true] {
        let mut to = receiver(&full);
        if is_full_before {
            fill(&to, 0);
            // Just so much is free again.
            let other = Volume::open(to.store(), "tank/other").unwrap();
            other.discard(0, 8 * MIB, false).unwrap();
            to.check();
        }
        to.receive("tank/copy", &increment, PLAIN).unwrap();
        assert!(to.read("tank/copy") == from.read("tank/v@b"));
        fill(&to, 64 * MIB / BLOCK_BYTES as u64 / 2);
        to.crash();
        overwrite(&to);
        assert!(to.read("tank/copy@b") == from.read("tank/v@b"));
        to.check();
    }
}

/// What others were given meanwhile is not there for a snapshot of what the volume has of its own.
#[test]
fn without_that_room_nothing_has_changed() {
    let from = Side::with_volume();
    let full = from.send("tank/v@a", None);
    from.write("tank/v", 10, 20, 2);
    from.snapshot("tank/v@b");
    let increment = from.send("tank/v@b", Some("tank/v@a"));
    let mut to = receiver(&full);
    to.write("tank/copy", 0, 1500, 3);
    to.store().pool().sync().unwrap();
    fill(&to, 0);
    let other = Volume::open(to.store(), "tank/other").unwrap();
    other.discard(0, MIB, false).unwrap();
    drop(other);
    to.check();
    let (before, own) = (to.volumes(), to.read("tank/copy"));
    let refused = to.receive("tank/copy", &increment, FORCED_AND_KEPT).unwrap_err();
    assert!(
        matches!(refused.of_pool(), Some(PoolError::NoRoomForSnapshot { volume, .. }) if volume == "tank/copy"),
        "{refused}"
    );
    assert!(matches!(&refused, TransferError::Interrupted { .. }) && refused.kind() == ErrorKind::NoSpace);
    for is_crashed in [false, true] {
        if is_crashed {
            to.crash();
        }
        assert!(to.read("tank/copy") == own, "the volume is as it was");
        assert!(to.read("tank/copy@a") == from.read("tank/v@a"));
        assert_eq!(to.volumes().len(), before.len() + 1, "and beside it what came");
        assert_eq!(to.store().pool().snapshots().len(), 1);
        to.check();
    }
    // It can still be overwritten, and the rest comes when there is room.
    overwrite(&to);
    let other = Volume::open(to.store(), "tank/other").unwrap();
    other.discard(0, 16 * MIB, false).unwrap();
    drop(other);
    to.check();
    to.receive("tank/copy", &from.resume(&to.token()), FORCED_AND_KEPT).unwrap();
    assert!(to.read("tank/copy") == from.read("tank/v@b"));
    to.check();
}
