//! What is promised of mapped files: one view of the bytes, whichever way they are read and written.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use rustix::fs::FallocateFlags;

use crate::mapping::Mapping;
use crate::watch::operations;
use crate::{Mounted, mounted};

const PAGE: usize = 4096;
const PAGES: usize = 8;
const LEN: usize = PAGE * PAGES;
const O_DIRECT: i32 = 0o40_000;

/// A file of ones, and a mapping of it.
fn ones(files: &Mounted) -> (File, Mapping) {
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(files.path("a"));
    let file = open.unwrap();
    file.write_all_at(&[1; LEN], 0).unwrap();
    let mapping = Mapping::of(&file, LEN);
    (file, mapping)
}

fn read(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

#[test]
fn mappings_descriptors_and_direct_reads_see_one_file() {
    let Some(files) = mounted("") else { return };
    let (file, mapping) = ones(&files);
    let other = File::options().read(true).write(true).open(files.path("a")).unwrap();
    let second = Mapping::of(&other, LEN);
    mapping.write(100, b"mapped");
    assert_eq!(second.read(100, 6), b"mapped");
    assert_eq!(read(&other, 100, 6), b"mapped");
    // O_DIRECT goes past the page cache; the kernel writes it out first.
    let direct = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(files.path("a")).unwrap();
    assert_eq!(&read(&direct, 0, PAGE)[100..106], b"mapped");
    other.write_all_at(b"written", 9000).unwrap();
    assert_eq!((mapping.read(9000, 7), second.read(9000, 7)), (b"written".to_vec(), b"written".to_vec()));
    let mut writes = OpenOptions::new();
    let direct = writes.write(true).custom_flags(O_DIRECT).open(files.path("a")).unwrap();
    direct.write_all_at(&[3; PAGE], 4 * PAGE as u64).unwrap();
    assert_eq!(
        (mapping.read(4 * PAGE, PAGE), read(&file, 4 * PAGE as u64, PAGE)),
        (vec![3; PAGE], vec![3; PAGE])
    );
    // Bytes that are in the mapping alone are copied, too.
    mapping.write(200, b"copied");
    let copy = File::create(files.path("b")).unwrap();
    assert_eq!(rustix::fs::copy_file_range(&file, Some(&mut 0), &copy, Some(&mut 0), LEN), Ok(LEN));
    assert_eq!(&fs::read(files.path("b")).unwrap()[200..206], b"copied");
}

#[test]
fn a_mapping_follows_truncation_and_holes() {
    let Some(files) = mounted("") else { return };
    let (file, mapping) = ones(&files);
    mapping.write(0, &[2; LEN]);
    file.set_len(5 * PAGE as u64 + 100).unwrap();
    // The rest of the last page reads as zeroes; pages after it are gone, and to touch them is SIGBUS.
    assert_eq!(
        (mapping.read(5 * PAGE, 100), mapping.read(5 * PAGE + 100, PAGE - 100)),
        (vec![2; 100], vec![0; PAGE - 100])
    );
    assert!(mapping.is_there(5 * PAGE) && !mapping.is_there(6 * PAGE) && !mapping.is_there(7 * PAGE));
    mapping.write(5 * PAGE + 50, &[4; 50]);
    file.set_len(LEN as u64).unwrap();
    assert!(mapping.is_there(7 * PAGE));
    let end = [&[2; 50][..], &[4; 50], &[0; 3 * PAGE - 100]].concat();
    assert!(mapping.read(5 * PAGE, 3 * PAGE) == end && read(&file, 5 * PAGE as u64, 3 * PAGE) == end);
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, flags, PAGE as u64, 2 * PAGE as u64).unwrap();
    let punched = [&[2; PAGE][..], &[0; 2 * PAGE], &[2; PAGE]].concat();
    assert!(mapping.read(0, 4 * PAGE) == punched && read(&file, 0, 4 * PAGE) == punched);
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 100).unwrap();
    assert_eq!(mapping.read(0, 200), [[0; 100], [2; 100]].concat());
}

#[test]
fn a_mapping_outlives_its_descriptor_and_its_name() {
    let Some(files) = mounted("") else { return };
    let (file, mapping) = ones(&files);
    drop(file);
    fs::remove_file(files.path("a")).unwrap();
    mapping.write(PAGE, b"still there");
    mapping.sync().unwrap();
    assert_eq!((mapping.read(PAGE, 11), files.check()), (b"still there".to_vec(), 1));
    drop(mapping);
    crate::used::wait_until_erased(&files);
}

/// What is in a mapping when it ends is in the file, without `msync`, as long as nothing crashes.
#[test]
fn bytes_of_a_mapping_that_has_ended_are_in_the_file() {
    let Some(files) = mounted("") else { return };
    let (file, mapping) = ones(&files);
    mapping.write(3 * PAGE + 5, b"mapped");
    drop((mapping, file));
    files.bench.ok("pool export tank");
    files.bench.ok("pool import tank");
    assert_eq!(&fs::read(files.path("a")).unwrap()[3 * PAGE + 5..][..6], b"mapped");
}

/// Nothing is sent to the server when a descriptor is closed, but what is dirty in the page cache is.
#[test]
fn what_was_written_through_a_mapping_reaches_the_server_when_a_descriptor_is_closed() {
    let Some(files) = mounted("") else { return };
    for round in 2..5 {
        let (file, mapping) = ones(&files);
        // The command that is started for this closes what it inherits.
        let before = operations(&files, "write");
        mapping.write(100, &[round]);
        drop(file);
        assert_eq!(operations(&files, "write"), before + 1, "{round}");
        // Unmapping would have done it, too.
        drop(mapping);
    }
    // Once; or twice, if two asked before either was answered (what other tests start inherits descriptors).
    let asked = operations(&files, "flush");
    assert!([1, 2].contains(&asked), "{asked}");
}
