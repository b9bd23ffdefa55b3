//! Names in a large directory, against a small one.

use std::ops::ControlFlow;

use fastness_zpl::{FileSystem, FileSystemOptions, Ino, NewFile, mode};

use super::file::new_file;
use crate::error::{Result, ensure};
use crate::measure::{by_turns, time_ns};
use crate::pool::Numbers;
use crate::sync_write::one::median;
use crate::sync_write::stack::{Plan, Site, Stack};
use crate::{Options, Row};

const SMALL: u64 = 1000;
/// Lookups of a turn.
const LOOKUPS: u64 = 500;

struct Directory<'a> {
    fs: &'a FileSystem,
    ino: Ino,
    count: u64,
    numbers: Numbers,
}

impl Directory<'_> {
    fn turn(&mut self) -> Result<f64> {
        time_ns(|| {
            for _ in 0..LOOKUPS {
                let name = name(self.numbers.below(self.count));
                self.fs.lookup(self.ino, name.as_bytes())?;
            }
            Ok(())
        })
    }
}

fn name(number: u64) -> String {
    format!("file-{number:08}")
}

pub(super) fn rows(site: &Site, options: Options) -> Result<Vec<Row>> {
    let large: u64 = if options.quick { 100_000 } else { 1_000_000 };
    let plan = Plan { volumes: 0, device_bytes: 8 << 30, region_bytes: 1 << 30, ..Plan::default() };
    let stack = Stack::new(site, "names", &plan)?;
    let fs = FileSystem::create(&stack.store, "bench/files", &FileSystemOptions::default())?;
    let make = |path: &[u8], count: u64| -> Result<(Ino, f64)> {
        let new = NewFile { mode: mode::DIRECTORY | 0o755, ..NewFile::default() };
        let ino = fs.make(Ino::ROOT, path, &new)?.ino;
        let ns = time_ns(|| {
            for number in 0..count {
                fs.make(ino, name(number).as_bytes(), &new_file(0o644))?;
            }
            Ok(())
        })?;
        stack.settle()?;
        Ok((ino, ns / count as f64))
    };
    let (small, _) = make(b"small", SMALL)?;
    let (big, create_ns) = make(b"large", large)?;
    let mut listed = 0_u64;
    let list_ns = time_ns(|| {
        Ok(fs.list(big, 0, |_| {
            listed += 1;
            ControlFlow::Continue(())
        })?)
    })?;
    ensure!(listed == large + 2, "{listed} names were listed");
    let mut of_small = Directory { fs: &fs, ino: small, count: SMALL, numbers: Numbers(1) };
    let mut of_large = Directory { fs: &fs, ino: big, count: large, numbers: Numbers(2) };
    let pair = by_turns(options.turns(), LOOKUPS as usize, || of_large.turn(), || of_small.turn())?;
    let row = |name: String, value: f64| Row {
        name,
        value: Some(value),
        unit: "ns",
        medium: site.medium(),
        threads: 1,
        ..Row::default()
    };
    Ok(vec![
        Row {
            baseline: Some(format!("a directory of {SMALL}, {:.0} ns", median(&pair.b))),
            ..Row {
                name: format!("look up one of {large} names"),
                value: Some(median(&pair.a)),
                unit: "ns",
                medium: site.medium(),
                ..Row::ratio(pair.ratio(), Some((2.0, "at most")))
            }
        },
        row(format!("create one of {large} files in a directory"), create_ns),
        row(format!("list {large} names, each"), list_ns / large as f64),
    ])
}
