//! The mount against another file system of this machine: random operations on both, with the same results
//! and the same trees in the end.
//!
//! The other one is that of the temporary folder (tmpfs, mostly). A sequence that shows a difference is made
//! as short as it can be. `FASTNESS_DIFFERENTIAL` is the number of sequences (200), its seed is
//! `FASTNESS_DIFFERENTIAL_SEED`.
//!
//! Not compared, because file systems differ in it: sizes and times of directories, blocks, times of access
//! and change, the order of names, where holes are.

#[path = "differential/ops.rs"]
mod ops;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use fastness_testkit::Rng;

use crate::{Mounted, mounted};
use ops::{Op, Seen, Tree, draw, runs};

const OPS: usize = 40;
/// Times before this moment (2001) were set, not taken from a clock.
const SET_SECONDS: i64 = 1_000_000_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// Everything in a tree, a line each.
fn describe(tree: &Path) -> Vec<String> {
    let (mut lines, mut folders) = (Vec::new(), vec![tree.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let of = fs::symlink_metadata(&path).unwrap();
            let mut line = format!(
                "{:?}: {:o} {}:{} links {} device {}",
                path.strip_prefix(tree).unwrap(),
                of.mode(),
                of.uid(),
                of.gid(),
                of.nlink(),
                of.rdev()
            );
            if of.is_dir() {
                folders.push(path.clone());
            } else {
                let is_set = of.mtime() < SET_SECONDS;
                line +=
                    &format!(" size {} set {:?}", of.len(), is_set.then(|| (of.mtime(), of.mtime_nsec())));
            }
            if of.is_file() {
                line += &format!(" bytes {}", runs(&fs::read(&path).unwrap()));
            }
            if of.is_symlink() {
                line += &format!(" to {:?}", fs::read_link(&path).unwrap());
            }
            if !of.file_type().is_fifo() && !of.file_type().is_socket() {
                line += &attributes(&path);
            }
            lines.push(line);
        }
    }
    lines.sort();
    lines
}

fn attributes(path: &Path) -> String {
    let mut names = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut names).unwrap();
    let mut text = Vec::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = [0; 1024];
        let name = str::from_utf8(name).unwrap();
        let len = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
        text.push(format!(" {name}={}", runs(&value[..len])));
    }
    text.sort();
    text.concat()
}

struct Pair<'a> {
    files: &'a Mounted,
    other: PathBuf,
    runs: u64,
}

impl Pair<'_> {
    /// Runs a sequence on both; what differs first.
    fn difference(&mut self, ops: &[Op]) -> Option<String> {
        self.runs += 1;
        let name = format!("run-{}", self.runs);
        let (mut ours, mut theirs) = (Tree::new(&self.files.path(&name)), Tree::new(&self.other.join(&name)));
        let mut found = None;
        for (n, op) in ops.iter().enumerate() {
            let (our, their): (Seen, Seen) = (ours.run(op), theirs.run(op));
            if our != their {
                found = Some(format!("operation {n}, {op:?}:\n  here  {our:?}\n  there {their:?}"));
                break;
            }
        }
        let found = found.or_else(|| {
            let (here, there) = (describe(&ours.at), describe(&theirs.at));
            let only = |these: &[String], those: &[String]| {
                these
                    .iter()
                    .filter(|line| !those.contains(line))
                    .cloned()
                    .collect::<Vec<_>>()
                    .join("\n        ")
            };
            (here != there).then(|| {
                format!("the trees:\n  here  {}\n  there {}", only(&here, &there), only(&there, &here))
            })
        });
        for tree in [ours, theirs] {
            fs::remove_dir_all(&tree.at).unwrap();
        }
        found
    }

    /// Leaves out whatever is not needed for a difference.
    fn shrink(&mut self, mut ops: Vec<Op>) -> (Vec<Op>, String) {
        let mut why = self.difference(&ops).expect("it differed before");
        let mut part = ops.len() / 2;
        while part > 0 {
            let mut at = 0;
            while at < ops.len() {
                let mut shorter = ops.clone();
                shorter.drain(at..(at + part).min(ops.len()));
                match self.difference(&shorter) {
                    Some(found) => (ops, why) = (shorter, found),
                    None => at += part,
                }
            }
            part /= 2;
        }
        (ops, why)
    }
}

#[test]
fn random_operations_do_what_they_do_on_another_file_system() {
    let Some(files) = mounted("log pm --emulate-pm --pm-size 16M") else { return };
    let other = files.bench.path("other");
    fs::create_dir(&other).unwrap();
    let mut pair = Pair { files: &files, other, runs: 0 };
    let seed = number("FASTNESS_DIFFERENTIAL_SEED", 1);
    for sequence in 0..number("FASTNESS_DIFFERENTIAL", 200) {
        let mut rng = Rng(seed.wrapping_mul(1 << 32) + sequence + 1);
        let ops: Vec<Op> = (0..OPS).map(|_| draw(&mut rng)).collect();
        if pair.difference(&ops).is_some() {
            let (shortest, why) = pair.shrink(ops);
            let shortest: Vec<String> = shortest.iter().map(|op| format!("  {op:?}")).collect();
            panic!("seed {seed}, sequence {sequence}: {why}\nafter\n{}", shortest.join("\n"));
        }
    }
    crate::used::wait_until_erased(&files);
}
