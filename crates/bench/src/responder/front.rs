//! Writes of programs: through the preload library, and through the mount.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fastness_front::{Plain, serve};
use fastness_pmem::{Medium, NoSum, PmRange, WriteMethod};

use super::cached::fill;
use crate::error::{Context, Result, ensure, foreign, wrong};
use crate::folder::Folder;
use crate::measure::{Pair, Spread, by_turns, time_ns};
use crate::medium::emulated_pm;
use crate::pool::{Numbers, noise};
use crate::server::Server;
use crate::{Options, Row};

const BLOCK_BYTES: usize = 4096;
const FILE_BYTES: u64 = 32 << 20;
/// Calls of a turn: about a millisecond.
const CALLS: u64 = 500;
/// As many through a mount.
const CALLS_OF_MOUNT: u64 = 50;
/// A record as databases append them.
const RECORD_BYTES: usize = 100;

/// Serves `dir` at `mount_point` as it is, until it is unmounted.
///
/// # Errors
/// If it cannot be mounted.
pub fn serve_plain(dir: &Path, mount_point: &Path) -> Result<()> {
    let root = File::open(dir).with_context(|| format!("cannot open {}", dir.display()))?;
    let (session, _files) = serve(Plain, root, mount_point, "pass-through".to_owned())?;
    session.wait(None);
    Ok(())
}

/// Overwrites of blocks of a file, at random places.
struct Writer {
    file: File,
    data: Vec<u8>,
    numbers: Numbers,
}

impl Writer {
    fn new(folder: &Path) -> Result<Writer> {
        let path = folder.join("blocks");
        fill(&path, FILE_BYTES)?;
        let file = OpenOptions::new().write(true).open(path)?;
        let mut writer = Writer { file, data: noise(BLOCK_BYTES, 3), numbers: Numbers(7) };
        for block in 0..FILE_BYTES / BLOCK_BYTES as u64 {
            writer.write(block)?;
        }
        Ok(writer)
    }

    fn write(&mut self, block: u64) -> Result<()> {
        Ok(self.file.write_all_at(&self.data, block * BLOCK_BYTES as u64)?)
    }

    fn turn(&mut self, calls: u64) -> Result<f64> {
        time_ns(|| {
            for _ in 0..calls {
                let block = self.numbers.below(FILE_BYTES / BLOCK_BYTES as u64);
                self.write(block)?;
            }
            Ok(())
        })
    }
}

/// Appends records to a file that begins anew every 100,000 of them.
fn appends(file: &mut File) -> Result<f64> {
    let record = noise(RECORD_BYTES + 4, 9);
    if file.metadata()?.len() > 100_000 * RECORD_BYTES as u64 {
        file.set_len(0)?;
    }
    time_ns(|| {
        for _ in 0..CALLS {
            file.write_all(&record[..RECORD_BYTES])?;
        }
        Ok(())
    })
}

fn floor(range: &mut PmRange, numbers: &mut Numbers, data: &[u8]) -> Result<f64> {
    let blocks = (range.len_bytes() / data.len()) as u64;
    time_ns(|| {
        for _ in 0..CALLS {
            let block = numbers.below(blocks) as usize;
            // PERSIST: nothing relies on it; it is what a write costs at least.
            range.copy(block * data.len(), data, data.len(), &mut NoSum);
            range.fence()?;
        }
        Ok(())
    })
}

/// In a program under `fastness run` in `dir`: what it measures, as a line of JSON for each pair.
///
/// # Errors
/// A call fails.
pub fn report_from_inside(dir: &Path, options: Options) -> Result<String> {
    let mut writer = Writer::new(dir)?;
    let (mut range, mut numbers) = (emulated_pm(2 * FILE_BYTES as usize, WriteMethod::Auto)?, Numbers(7));
    let data = noise(BLOCK_BYTES, 3);
    let blocks = by_turns(
        options.turns(),
        CALLS as usize,
        || writer.turn(CALLS),
        || floor(&mut range, &mut numbers, &data),
    )?;
    let in_memory = PathBuf::from(format!("/dev/shm/fastness-bench-records-{}", std::process::id()));
    let open = |path: &Path| OpenOptions::new().append(true).create(true).open(path);
    let (mut ours, mut theirs) = (open(&dir.join("records"))?, open(&in_memory)?);
    std::fs::remove_file(&in_memory)?;
    let records = by_turns(options.turns(), CALLS as usize, || appends(&mut ours), || appends(&mut theirs))?;
    let line = |pair: &Pair| serde_json::to_string(&(&pair.a, &pair.b)).map_err(foreign);
    Ok(format!("{}\n{}\n", line(&blocks)?, line(&records)?))
}

fn row(name: &str, pair: &Pair, against: &str, ratio: Row) -> Row {
    let (ours, theirs) = (Spread::of(pair.a.clone()), Spread::of(pair.b.clone()));
    Row {
        name: name.to_owned(),
        value: Some(ours.median),
        unit: "ns",
        baseline: Some(format!("{against}, {:.0} ns", theirs.median)),
        ..ratio
    }
}

pub(super) fn rows(folder: &Folder, options: Options) -> Result<Vec<Row>> {
    let mut rows = preloaded(folder, options)?;
    rows.push(mounted(folder, options)?);
    Ok(rows)
}

/// A region of its own, which goes with it.
struct RegionFile(PathBuf);

impl RegionFile {
    fn new(name: &str) -> RegionFile {
        RegionFile(PathBuf::from(format!("/dev/shm/fastness-bench-{name}-{}", std::process::id())))
    }
}

impl Drop for RegionFile {
    fn drop(&mut self) {
        // It is memory; who benchmarks sees what is left.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn preloaded(folder: &Folder, options: Options) -> Result<Vec<Row>> {
    let (dir, region) = (folder.join("run-under"), RegionFile::new("run"));
    std::fs::create_dir(&dir)?;
    let mut command = folder.program()?;
    command.arg("run").arg("--pm").arg(&region.0).args(["--size", "128M", "--dir"]).arg(&dir).arg("--");
    command.arg(std::env::current_exe()?).args(["bench", "responder", "--inside"]).arg(&dir);
    command.args(options.quick.then_some("--quick"));
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{command:?}` failed: {said}");
    ensure!(!said.contains("through the mount"), "the library is not beside this program: {said}");
    let text = String::from_utf8_lossy(&output.stdout);
    let pair = |line: &str| serde_json::from_str::<(Vec<f64>, Vec<f64>)>(line).map_err(foreign);
    let mut pairs = text.lines().map(|line| pair(line).map(|(a, b)| Pair { a, b }));
    let mut next = || pairs.next().ok_or_else(|| wrong("a program said too little"))?;
    let (blocks, records) = (next()?, next()?);
    let ratio = |pair: &Pair, goal| Row::ratio(pair.ratio(), goal);
    Ok(vec![
        row(
            "FR: overwrite 4 KiB, a program under `fastness run`",
            &blocks,
            "a copy and its fence",
            ratio(&blocks, Some((2.5, "at most"))),
        ),
        row(
            "FR: append 100 B, a program under `fastness run`",
            &records,
            "tmpfs",
            ratio(&records, Some((1.25, "at most"))),
        ),
    ])
}

/// Through a mount of ours, and through one that passes everything on, to a folder in memory.
fn mounted(folder: &Folder, options: Options) -> Result<Row> {
    let region = RegionFile::new("mount");
    let memory = RegionFile::new("plain");
    let (dir, at, plain_at) = (folder.join("behind"), folder.join("mounted"), folder.join("plain-mounted"));
    for path in [&dir, &at, &plain_at, &memory.0] {
        std::fs::create_dir(path)?;
    }
    let mut command = folder.program()?;
    command
        .args(["responder", "mount"])
        .args([&dir, &at])
        .arg("--pm")
        .arg(&region.0)
        .args(["--size", "128M"]);
    let ours = Server::start(command, at.clone())?;
    let mut command = folder.program()?;
    command.args(["bench", "responder", "--serve-plain"]).args([&memory.0, &plain_at]);
    let plain = Server::start(command, plain_at.clone())?;
    let (mut writer, mut other) = (Writer::new(&at)?, Writer::new(&plain_at)?);
    let pair = by_turns(
        options.turns(),
        CALLS_OF_MOUNT as usize,
        || writer.turn(CALLS_OF_MOUNT),
        || other.turn(CALLS_OF_MOUNT),
    )?;
    drop((writer, other, ours, plain));
    std::fs::remove_dir_all(&memory.0)?;
    let name = "FR: overwrite 4 KiB, through the mount";
    Ok(row(name, &pair, "pass-through without durability", Row::ratio(pair.ratio(), Some((1.15, "at most")))))
}
