//! A random program, which does the same to a file of another file system, and compares.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fastness_testkit::Rng;

use super::in_child;
use crate::{bench, passes, root};

#[test]
fn random_programs_find_what_another_file_system_would_have() {
    let Some(bench) = bench() else { return };
    passes(&bench, "preloaded::random::program_that_compares");
}

/// The same file twice: with the cache, and as it should be.
struct Twice {
    paths: [PathBuf; 2],
    open: Vec<[File; 2]>,
}

fn options(rng: &mut Rng) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).create(true);
    match rng.index(4) {
        0 => options.append(true),
        1 => options.write(true).truncate(rng.one_in(4)),
        _ => options.write(true),
    };
    options
}

fn both<T: PartialEq + std::fmt::Debug>(files: &[File; 2], act: impl Fn(&File) -> T, what: &str) -> T {
    let [found, expected] = [act(&files[0]), act(&files[1])];
    assert_eq!(found, expected, "{what}");
    found
}

fn sum(bytes: &[u8]) -> (usize, u64) {
    let add = |sum: u64, &byte: &u8| sum.wrapping_mul(31).wrapping_add(byte.into());
    (bytes.len(), bytes.iter().fold(7, add))
}

impl Twice {
    fn step(&mut self, rng: &mut Rng) {
        if self.open.is_empty() || rng.one_in(12) {
            let options = options(rng);
            self.open.push([0, 1].map(|which| options.open(&self.paths[which]).unwrap()));
            return;
        }
        let which = rng.index(self.open.len());
        let files = &self.open[which];
        let at = rng.below(60_000);
        let len = 1 + if rng.one_in(8) { rng.index(40_000) } else { rng.index(5000) };
        let data = vec![rng.below(255) as u8 + 1; len];
        match rng.index(20) {
            0..=4 => _ = both(files, |mut file| file.write(&data).unwrap(), "write"),
            5..=7 => _ = both(files, |file| file.write_at(&data, at).unwrap(), "pwrite"),
            8..=9 => {
                let read = |mut file: &File| {
                    let mut buffer = vec![0; len];
                    let count = file.read(&mut buffer).unwrap();
                    sum(&buffer[..count])
                };
                both(files, read, "read");
            }
            10..=11 => {
                let read = |file: &File| {
                    let mut buffer = vec![0; len];
                    let count = file.read_at(&mut buffer, at).unwrap();
                    sum(&buffer[..count])
                };
                both(files, read, "pread");
            }
            12 => _ = both(files, |mut file| file.seek(SeekFrom::Start(at)).unwrap(), "seek"),
            13 => _ = both(files, |mut file| file.seek(SeekFrom::End(0)).unwrap(), "end"),
            14 => _ = both(files, |file| file.metadata().unwrap().len(), "length"),
            15 => {
                both(files, |file| file.set_len(at).is_ok(), "truncate");
            }
            16 => {
                let [first, second] = [0, 1].map(|of| files[of].try_clone().unwrap());
                self.open.push([first, second]);
            }
            17 => {
                drop(self.open.swap_remove(which));
            }
            18 if rng.one_in(6) => {
                // Another process, with descriptors that it has inherited.
                in_child(|| {
                    both(files, |mut file| file.write(&data).unwrap(), "write of a child");
                });
            }
            19 if rng.one_in(10) => {
                for path in &self.paths {
                    let mut shell = Command::new("sh");
                    shell.args(["-c", "printf shell >> \"$1\"; cat \"$1\" > /dev/null", "sh"]).arg(path);
                    if at.is_multiple_of(2) {
                        shell.env_remove("LD_PRELOAD");
                    }
                    assert!(shell.status().unwrap().success());
                }
            }
            _ => {
                both(files, |file| file.sync_data().is_ok(), "sync");
            }
        }
    }

    fn compare(&self, seed: u64) {
        let [found, expected] = [0, 1].map(|which| fs::read(&self.paths[which]).unwrap());
        assert_eq!(sum(&found), sum(&expected), "seed {seed}");
    }
}

#[test]
fn program_that_compares() {
    let Some(root) = root() else { return };
    let other = tempfile::tempdir().unwrap();
    let start = |at: &Path| {
        let path = at.join("file");
        fs::write(&path, "").unwrap();
        path
    };
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let mut twice = Twice { paths: [start(&root), start(other.path())], open: Vec::new() };
        for step in 0..150 {
            twice.step(&mut rng);
            if step % 50 == 49 {
                twice.compare(seed);
            }
            if twice.open.len() > 6 {
                twice.open.remove(0);
            }
        }
        drop(twice.open.drain(..));
        twice.compare(seed);
    }
}
