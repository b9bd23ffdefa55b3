//! What programs see through the cache, and what is below it afterwards.

mod support;

use std::path::Path;
use std::sync::Arc;

use fastness_pm_model::{RecordStyle, Recorder};
use fastness_responder::*;
use support::*;

#[test]
fn a_write_is_read_and_the_directory_has_it_after_a_flush() {
    let world = World::new(8, 64);
    let file = world.open("a");
    world.write(&file, 0, b"first");
    world.write(&file, 3, b"more and more, longer than a chunk of sixty-four bytes, by a good deal");
    let expected = b"firmore and more, longer than a chunk of sixty-four bytes, by a good deal";
    assert_eq!(world.content(&file), expected);
    assert_eq!(world.below("a"), b"", "nothing was flushed");
    world.cache().flush().unwrap();
    assert_eq!(world.below("a"), expected);
    assert_eq!(world.cache().status().unwrap().dirty_chunks, 0);
    assert_eq!(world.content(&file), expected);
}

/// The cases of the algorithm, each with the counts that say so.
#[test]
fn slots_go_through_all_cases() {
    let world = World::new(1, 64);
    let (a, b, c) = (world.open("a"), world.open("b"), world.open("c"));
    let counts = || world.cache().status().unwrap().counts;
    world.write(&a, 0, &[1; 64]);
    assert_eq!((counts().placed, counts().loaded), (1, 0), "case 1");
    world.write(&a, 8, &[2; 8]);
    assert_eq!(counts().overwritten, 1, "case 2-1");
    world.write(&b, 0, &[3; 10]);
    assert_eq!((counts().placed_beside, counts().loaded), (1, 0), "case 2-2; a new file has nothing to load");
    let forced = || world.cache().status().unwrap().forced_flushes;
    world.write(&a, 0, &[4; 4]);
    assert_eq!((counts().overwritten, counts().replaced, forced()), (2, 1, 1), "case 3-1: the older one");
    assert_eq!(world.below("b"), [3; 10], "flushed to make room");
    world.write(&b, 2, &[5; 2]);
    assert_eq!((counts().placed_beside, counts().loaded), (2, 1), "case 2-2, with the rest of the chunk");
    world.write(&b, 4, &[6; 2]);
    assert_eq!((counts().overwritten, counts().replaced, forced()), (3, 2, 2), "case 3-2: the newer one");
    world.write(&a, 60, &[7; 4]);
    world.write(&c, 0, &[8; 64]);
    assert_eq!((counts().placed_beside, counts().replaced, forced()), (4, 3, 3), "case 3-3: another one");
    world.cache().flush().unwrap();
    world.write(&a, 0, &[9; 1]);
    assert_eq!((counts().replaced, forced()), (4, 3), "what is clean gives way without a flush");
    let mut expected = vec![1; 64];
    expected[8..16].fill(2);
    expected[..4].fill(4);
    expected[60..].fill(7);
    expected[0] = 9;
    assert_eq!(world.content(&a), expected);
    assert_eq!(world.content(&b), [3, 3, 5, 5, 6, 6, 3, 3, 3, 3]);
    assert_eq!(world.content(&c), [8; 64]);
}

#[test]
fn short_writes_store_the_lines_that_differ() {
    let world = World::new(1, 4096);
    let (a, b) = (world.open("a"), world.open("b"));
    let mut expected = [vec![1; 4096], vec![0; 4096]];
    let mut stored = |file: usize, at: usize, len: usize, byte: u8| {
        let before = world.recorder.op_count();
        world.write([&a, &b][file], at as u64, &vec![byte; len]);
        expected[file][at..at + len].fill(byte);
        for (handle, expected) in [(&a, &expected[0]), (&b, &expected[1])] {
            let found = world.content(handle);
            assert_eq!(found, expected[..found.len()], "{file} at {at}");
        }
        world.recorder.op_count() - before
    };
    let whole = stored(0, 0, 4096, 1);
    stored(0, 100, 10, 2);
    // Into the chunk of the first write, which lacks those of the second: two lines, and the tags.
    let short = stored(0, 130, 100, 3);
    assert!(short * 4 < whole, "{short} of {whole}");
    assert!(stored(0, 60, 10, 4) * 4 < whole);
    // One at each end of the chunk: everything between may differ.
    stored(0, 0, 1, 5);
    stored(0, 4095, 1, 6);
    stored(0, 2000, 1, 7);
    // Another file takes the place of the older one.
    stored(1, 0, 4000, 8);
    stored(0, 500, 20, 9);
    stored(0, 600, 20, 10);
    stored(0, 700, 20, 11);
}

#[test]
fn holes_read_as_zeroes_and_lengths_are_never_stale() {
    let mut world = World::new(16, 64);
    let file = world.open("a");
    world.write(&file, 300, b"end");
    assert_eq!(world.cache().stat(&file).unwrap().size, 303);
    assert_eq!(world.cache().stat_path(Path::new("a")).unwrap().size, 303);
    assert_eq!(world.cache().append(&file, b", and after it").unwrap(), (303, 14));
    let expected = [vec![0; 300], b"end, and after it".to_vec()].concat();
    assert_eq!(world.content(&file), expected);
    let modified = world.cache().stat(&file).unwrap().modified_ns;
    assert!(modified >= clock(), "the time of the write, although nothing was flushed");
    world.reopen();
    let file = world.open("a");
    assert_eq!(world.content(&file), expected);
    assert_eq!(world.cache().stat(&file).unwrap().modified_ns, modified);
    world.cache().flush().unwrap();
    assert_eq!(world.below("a"), expected);
    assert_eq!(world.backing.stat(Path::new("a")).unwrap().modified_ns, modified);
}

#[test]
fn a_write_longer_than_the_region_goes_through_in_parts() {
    let world = World::new(4, 64);
    let file = world.open("a");
    let data: Vec<u8> = (0..64 * 11 + 5).map(|at| at as u8).collect();
    world.write(&file, 7, &data);
    assert_eq!(world.content(&file)[7..], data);
    assert!(world.cache().status().unwrap().forced_flushes > 0);
}

#[test]
fn every_length_of_a_truncation() {
    for size in [0, 1, 63, 64, 65, 100, 128, 129, 192, 200, 300] {
        for flushed in [false, true] {
            let mut world = World::new(16, 64);
            let file = world.open("a");
            let data: Vec<u8> = (1..=200).collect();
            world.write(&file, 0, &data);
            if flushed {
                world.cache().flush().unwrap();
            }
            world.cache().truncate(&file, size).unwrap();
            let mut expected = data.clone();
            expected.resize(size as usize, 0);
            assert_eq!(world.content(&file), expected, "{size}");
            world.reopen();
            let file = world.open("a");
            assert_eq!(world.content(&file), expected, "{size} after a restart");
            // What was cut off does not come back when the file grows again.
            world.write(&file, 250, b"!");
            expected.resize(expected.len().max(251), 0);
            expected[250] = b'!';
            assert_eq!(world.content(&file), expected, "{size}, grown");
            world.cache().flush().unwrap();
            assert_eq!(world.below("a"), expected, "{size}, grown and flushed");
        }
    }
}

#[test]
fn no_chunk_reappears_in_another_file() {
    let mut world = World::new(4, 64);
    let a = world.open("a");
    let id = world.cache().stat(&a).unwrap().id;
    world.write(&a, 0, &[1; 100]);
    world.cache().close(a).unwrap();
    world.cache().unlink(Path::new("a")).unwrap();
    assert_eq!(world.cache().status().unwrap().dirty_chunks, 0, "they went with the name");
    // The directory gives out numbers of inodes again once they are free.
    world.backing = world.backing.crashed(|| true);
    world.reopen();
    let b = world.open("b");
    assert_eq!(world.cache().stat(&b).unwrap().id.inode, id.inode, "the test means the same number");
    assert_eq!(world.content(&b), b"");
    world.write(&b, 99, b"b");
    assert_eq!(world.content(&b), [vec![0; 99], b"b".to_vec()].concat());
}

#[test]
fn a_file_that_loses_its_name_lives_until_it_is_closed() {
    let mut world = World::new(4, 64);
    let a = world.open("a");
    world.write(&a, 0, b"nameless");
    world.cache().unlink(Path::new("a")).unwrap();
    world.write(&a, 8, b", but here");
    assert_eq!(world.content(&a), b"nameless, but here");
    // A crash: it is gone, and is no orphan.
    world.backing = world.backing.crashed(|| true);
    let recovered = world.reopen();
    assert_eq!((recovered.removals, recovered.dirty_chunks, recovered.orphaned_chunks), (1, 0, 0));
    let a = world.open("a");
    assert_eq!(world.content(&a), b"");
    world.write(&a, 0, b"again");
    world.cache().unlink(Path::new("a")).unwrap();
    world.cache().close(a).unwrap();
    assert_eq!(world.cache().status().unwrap().dirty_chunks, 0);
    assert_eq!(world.reopen().removals, 0, "its intent went, too");
}

#[test]
fn hard_links_and_renames_keep_chunks_with_their_file() {
    let mut world = World::new(8, 64);
    let (a, b) = (world.open("a"), world.open("b"));
    world.write(&a, 0, b"of a");
    world.write(&b, 0, b"of b");
    let names =
        |cache: &Cache<Pm>, from: &str, to: &str| cache.rename(Path::new(from), Path::new(to)).unwrap();
    world.cache().link(Path::new("a"), Path::new("also a")).unwrap();
    world.cache().unlink(Path::new("a")).unwrap();
    assert_eq!(world.content(&world.open("also a")), b"of a");
    names(world.cache(), "also a", "c");
    for handle in [a, b] {
        world.cache().close(handle).unwrap();
    }
    assert_eq!(world.reopen().dirty_chunks, 2);
    assert_eq!(world.content(&world.open("c")), b"of a");
    names(world.cache(), "c", "b");
    assert_eq!(world.content(&world.open("b")), b"of a");
    assert_eq!(world.reopen().orphaned_chunks, 0);
    world.cache().flush().unwrap();
    let contents = world.backing.contents();
    assert_eq!(contents.len(), 1);
    assert_eq!(world.below("b"), b"of a");
}

#[test]
fn a_cache_of_another_version_is_refused_and_stays() {
    let mut world = World::new(2, 64);
    let mut image = world.recorder.image();
    for copy in [0, 4096] {
        image[copy + 8] = 1;
        let crc = crc32c::crc32c(&image[copy..copy + 4092]);
        image[copy + 4092..copy + 4096].copy_from_slice(&crc.to_le_bytes());
    }
    world.recorder = Recorder::new(image.clone(), RecordStyle::NonTemporal);
    let error = world.try_reopen().unwrap_err();
    assert!(matches!(error, Error::Version { found: 1 }) && error.to_string().contains("detach"), "{error}");
    let region = Pm::whole(&world.recorder, &Arc::default());
    let created = Cache::create(region, Arc::new(MemoryBacking::default()), &options(64));
    assert!(matches!(created, Err(Error::Exists)), "{created:?}");
    assert_eq!(world.recorder.image(), image);
}

#[test]
fn a_wrong_pairing_is_refused_and_touches_nothing() {
    let mut world = World::new(2, 64);
    let file = world.open("a");
    world.write(&file, 0, b"kept");
    let before = world.recorder.image();
    let own = std::mem::take(&mut world.backing);
    assert!(matches!(world.try_reopen(), Err(Error::Unmarked)), "a directory without a cache");
    world.backing = World::new(2, 64).backing;
    assert!(matches!(world.try_reopen(), Err(Error::WrongDirectory(_))), "that of another region");
    assert_eq!(world.recorder.image(), before);
    let power = Arc::new(Power::default());
    let create = |backing: &MemoryBacking, recorder: &Recorder| {
        Cache::create(Pm::whole(recorder, &power), Arc::new(backing.clone()), &options(64)).map(drop)
    };
    assert!(matches!(create(&MemoryBacking::default(), &world.recorder), Err(Error::Exists)));
    assert!(matches!(create(&own, &recorder(2, 64)), Err(Error::WrongDirectory(_))));
    world.backing = own;
    assert_eq!(world.reopen().dirty_chunks, 1);
    assert_eq!(world.content(&world.open("a")), b"kept");
}

#[test]
fn detaching_leaves_everything_in_the_directory() {
    let mut world = World::new(2, 64);
    let file = world.open("a");
    world.write(&file, 0, b"kept");
    drop(file);
    world.cache.take().unwrap().detach().map_err(|failed| failed.1).unwrap();
    assert_eq!(world.below("a"), b"kept");
    assert!(matches!(world.try_reopen(), Err(Error::Superblock { .. })));
    let power = Arc::new(Power::default());
    Cache::create(Pm::whole(&world.recorder, &power), Arc::new(world.backing.clone()), &options(64)).unwrap();
}

#[test]
fn files_that_nothing_has_open_are_given_up() {
    let world = World::new(16, 64);
    for number in 0..1200 {
        let file = world.open(&number.to_string());
        world.write(&file, 0, &[number as u8]);
        world.cache().close(file).unwrap();
    }
    for number in [0, 1, 600, 1100, 1199] {
        let file = world.open(&number.to_string());
        assert_eq!(world.content(&file), [number as u8]);
        world.cache().close(file).unwrap();
    }
    world.cache().flush().unwrap();
    assert!(world.backing.contents().iter().all(|(_, content)| content.len() == 1));
}

/// The directory may be changed while the region is not in use; what it has already is read from it then.
#[test]
fn a_chunk_that_is_clean_is_given_up_by_a_recovery() {
    let mut world = World::new(2, 64);
    let file = world.open("a");
    world.write(&file, 0, &[1; 10]);
    world.write(&file, 64, &[2; 10]);
    world.cache().flush().unwrap();
    world.write(&file, 64, &[3; 4]);
    world.cache = None;
    let (below, _) = world.backing.open(Path::new("a"), None).unwrap();
    below.write_at(0, &[9; 3]).unwrap();
    assert_eq!(world.reopen().dirty_chunks, 1);
    let content = world.content(&world.open("a"));
    assert_eq!(content[..10], [9, 9, 9, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(content[64..], [3, 3, 3, 3, 2, 2, 2, 2, 2, 2]);
}
