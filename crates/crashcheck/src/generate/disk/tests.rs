use std::collections::BTreeSet;

use super::*;

const BLOCKS: u64 = 8;

fn disk() -> Disk {
    Disk::new(&Device { name: "disk".to_owned(), len_bytes: BLOCKS * 512, block_bytes: 512 })
}

fn write(disk: &mut Disk, command: u32, block: u64, values: &[u8], is_fua: bool) {
    let data: Vec<u8> = values.iter().flat_map(|value| [*value; 512]).collect();
    disk.apply(command, &BlockEvent::Write { offset: block * 512, data: &data, is_fua }).unwrap();
}

fn end(disk: &mut Disk, command: u32) {
    disk.apply(command, &BlockEvent::Completion { is_ok: true }).unwrap();
}

fn flush(disk: &mut Disk, command: u32) {
    disk.apply(command, &BlockEvent::Flush).unwrap();
    end(disk, command);
}

/// First byte of each of the first three blocks.
fn words(image: &Image) -> [u8; 3] {
    [0, 1, 2].map(|block| {
        let mut byte = [0];
        image.read(block * 512, &mut byte);
        byte[0]
    })
}

fn left(disk: &Disk) -> BTreeSet<[u8; 3]> {
    let mut found = BTreeSet::new();
    let (is_all, _) = disk.for_each(0, 1000, &mut |image| {
        found.insert(words(image));
        ControlFlow::Continue(())
    });
    assert!(is_all);
    assert!(found.contains(&words(&disk.persistent())) && found.contains(&words(&disk.volatile())));
    found
}

fn set(images: &[[u8; 3]]) -> BTreeSet<[u8; 3]> {
    images.iter().copied().collect()
}

#[test]
fn a_write_tears_between_its_blocks_until_it_is_flushed() {
    let mut disk = disk();
    write(&mut disk, 1, 0, &[1, 2], false);
    let torn = set(&[[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0]]);
    assert_eq!(left(&disk), torn);
    end(&mut disk, 1);
    assert_eq!(left(&disk), torn, "what has ended is in the cache");
    flush(&mut disk, 2);
    assert_eq!(left(&disk), set(&[[1, 2, 0]]));
    assert_eq!(disk.pending_blocks(), 0);
}

#[test]
fn a_flush_covers_what_had_ended_before_it_was_handed_over() {
    let mut disk = disk();
    write(&mut disk, 1, 0, &[1], false);
    write(&mut disk, 2, 1, &[1], false);
    end(&mut disk, 1);
    disk.apply(3, &BlockEvent::Flush).unwrap();
    end(&mut disk, 2);
    write(&mut disk, 4, 2, &[1], false);
    assert!(!disk.can_shrink(4, &BlockEvent::Completion { is_ok: true }));
    assert!(disk.can_shrink(3, &BlockEvent::Completion { is_ok: true }));
    end(&mut disk, 3);
    assert_eq!(left(&disk), set(&[[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]]));
}

#[test]
fn a_flush_that_has_not_ended_or_has_failed_promises_nothing() {
    let mut disk = disk();
    write(&mut disk, 1, 0, &[1], false);
    end(&mut disk, 1);
    disk.apply(2, &BlockEvent::Flush).unwrap();
    assert_eq!(left(&disk), set(&[[0, 0, 0], [1, 0, 0]]));
    disk.apply(2, &BlockEvent::Completion { is_ok: false }).unwrap();
    assert_eq!(left(&disk), set(&[[0, 0, 0], [1, 0, 0]]));
}

#[test]
fn a_write_with_fua_is_durable_when_it_has_ended_and_no_other_is() {
    let mut disk = disk();
    write(&mut disk, 1, 0, &[1], false);
    end(&mut disk, 1);
    write(&mut disk, 2, 1, &[1], true);
    assert!(disk.can_shrink(2, &BlockEvent::Completion { is_ok: true }));
    end(&mut disk, 2);
    assert_eq!(left(&disk), set(&[[0, 1, 0], [1, 1, 0]]));
}

#[test]
fn writes_in_flight_together_may_end_up_in_either_order() {
    let mut disk = disk();
    write(&mut disk, 1, 0, &[1], false);
    write(&mut disk, 2, 0, &[2], false);
    end(&mut disk, 2);
    end(&mut disk, 1);
    flush(&mut disk, 3);
    assert_eq!(left(&disk), set(&[[1, 0, 0], [2, 0, 0]]));
    write(&mut disk, 1, 0, &[3], false);
    end(&mut disk, 1);
    assert_eq!(left(&disk), set(&[[1, 0, 0], [2, 0, 0], [3, 0, 0]]), "older ones may be left until a flush");
    flush(&mut disk, 3);
    assert_eq!(left(&disk), set(&[[3, 0, 0]]));
}

#[test]
fn a_write_that_failed_leaves_either() {
    let mut disk = disk();
    write(&mut disk, 1, 0, &[1], false);
    disk.apply(1, &BlockEvent::Completion { is_ok: false }).unwrap();
    flush(&mut disk, 2);
    assert_eq!(left(&disk), set(&[[0, 0, 0], [1, 0, 0]]));
}

#[test]
fn zeroes_and_discards_are_writes() {
    for is_discard in [false, true] {
        let mut disk = disk();
        let (offset, len_bytes) = (0, BLOCKS * 512);
        let zeroes = match is_discard {
            true => BlockEvent::Discard { offset, len_bytes },
            false => BlockEvent::WriteZeroes { offset, len_bytes, is_fua: false },
        };
        disk.apply(1, &zeroes).unwrap();
        end(&mut disk, 1);
        assert_eq!(disk.pending_blocks(), 0, "zeroes over zeroes are nothing");
        write(&mut disk, 1, 0, &[1, 1, 1], false);
        end(&mut disk, 1);
        flush(&mut disk, 2);
        disk.apply(1, &zeroes).unwrap();
        end(&mut disk, 1);
        assert_eq!(left(&disk).len(), 8);
        flush(&mut disk, 2);
        assert_eq!(left(&disk), set(&[[0, 0, 0]]));
    }
}

#[test]
fn what_a_disk_held_at_the_beginning_is_durable() {
    let mut disk = disk();
    let data: Vec<u8> = [9, 0, 8].iter().flat_map(|value| [*value; 512]).collect();
    disk.initial(0, &data).unwrap();
    assert_eq!((left(&disk), disk.pending_blocks()), (set(&[[9, 0, 8]]), 0));
    write(&mut disk, 1, 0, &[1], false);
    assert_eq!(left(&disk), set(&[[9, 0, 8], [1, 0, 8]]));
    for (offset, len) in [(BLOCKS * 512, 512), (512, 1), (1, 512), (u64::MAX - 511, 512)] {
        let error = self::disk().initial(offset, &vec![1; len]).unwrap_err();
        assert!(error.contains(&format!("{len} bytes at {offset}")), "{error}");
    }
    assert!(disk.initial(0, &data).unwrap_err().contains("after a command"));
}

#[test]
fn a_discard_of_several_ranges_is_one_command() {
    let mut disk = disk();
    disk.initial(0, &[7; 3 * 512]).unwrap();
    for block in [0, 2] {
        disk.apply(5, &BlockEvent::Discard { offset: block * 512, len_bytes: 512 }).unwrap();
    }
    end(&mut disk, 5);
    assert_eq!(left(&disk), set(&[[7, 7, 7], [0, 7, 7], [7, 7, 0], [0, 7, 0]]));
    flush(&mut disk, 6);
    assert_eq!(left(&disk), set(&[[0, 7, 0]]));
    // Another command of the same number while it is in flight is none of it.
    disk.apply(5, &BlockEvent::Discard { offset: 512, len_bytes: 512 }).unwrap();
    assert!(disk.apply(5, &BlockEvent::Flush).is_err());
}

#[test]
fn what_no_disk_does_is_refused() {
    let mut disk = disk();
    let refused = |disk: &mut Disk, command, event| disk.apply(command, &event).unwrap_err();
    let long = BlockEvent::Write { offset: 7 * 512, data: &[1; 1024], is_fua: false };
    assert!(refused(&mut disk, 1, long).contains("1024 bytes at 3584"));
    let odd = BlockEvent::Discard { offset: 1, len_bytes: 512 };
    assert!(refused(&mut disk, 1, odd).contains("512 bytes at 1"));
    let far = BlockEvent::WriteZeroes { offset: u64::MAX, len_bytes: 512, is_fua: false };
    assert!(refused(&mut disk, 1, far).contains("of a disk"));
    assert!(refused(&mut disk, 9, BlockEvent::Completion { is_ok: true }).contains("command 9"));
    disk.apply(2, &BlockEvent::Flush).unwrap();
    assert!(refused(&mut disk, 2, BlockEvent::Flush).contains("command 2"));
}

#[test]
fn too_many_are_drawn_at_random_and_are_allowed() {
    let mut disk = disk();
    for block in 0..3 {
        for value in 1..4 {
            write(&mut disk, value, block, &[value as u8], false);
            end(&mut disk, value);
        }
    }
    let all = left(&disk);
    assert_eq!(all.len(), 64);
    let mut drawn = BTreeSet::new();
    let (is_all, _) = disk.for_each(3, 60, &mut |image| {
        drawn.insert(words(image));
        ControlFlow::Continue(())
    });
    assert!(!is_all && drawn.is_subset(&all) && drawn.len() > 10, "{drawn:?}");
}
