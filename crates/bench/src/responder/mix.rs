//! The mix of files that the source makes its case with: 21 files, each with its own sizes, places and share
//! of writes, together larger than PM.
//!
//! Its pauses between requests are left out, and its gigabytes are 2 MiB each: 308 MiB of files in front of
//! 256 MiB of PM, as 154 GB are in front of 128 GB there. Source: table 8 and figure 17 of the dissertation.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fastness_responder::{Handle, ProtocolKind};

use super::cached::{Cached, PROTOCOLS, fill};
use crate::error::{Result, ensure};
use crate::folder::Folder;
use crate::measure::{Pair, by_turns, in_parallel};
use crate::pool::{Numbers, noise};
use crate::sync_write::one::{median, swapped};
use crate::{Options, Row};

const UNIT_BYTES: u64 = 2 << 20;
pub(super) const REGION_BYTES: usize = 256 << 20;
/// Sizes of the files, in units: each of 1 to 14 once, and seven of them twice.
const SIZES: [u64; 21] = [1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 12, 13, 14];
pub(super) const PERIOD: Duration = Duration::from_millis(10);

/// Where in a file requests go.
#[derive(Debug, Clone, Copy)]
enum Places {
    Random,
    Normal,
    Pareto(f64),
    Zipf(f64),
}

impl Places {
    /// A block of `blocks`; popular ones are scattered over the file.
    fn next(self, blocks: u64, numbers: &mut Numbers) -> u64 {
        let mut part = || numbers.below(1 << 30) as f64 / (1_u64 << 30) as f64;
        let count = blocks as f64;
        let scattered = |rank: f64| (rank as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks;
        match self {
            Places::Random => (part() * count) as u64,
            // Twelve uniform parts have a deviation of one; here it is a tenth of the file.
            Places::Normal => {
                let sum: f64 = (0..12).map(|_| part()).sum();
                ((0.5 + (sum - 6.0) / 10.0).clamp(0.0, 0.999_999) * count) as u64
            }
            Places::Pareto(h) => scattered(part().powf(h.ln() / (1.0 - h).ln()) * (count - 1.0)),
            Places::Zipf(theta) => {
                let most = count.powf(1.0 - theta);
                scattered((part() * (most - 1.0) + 1.0).powf(1.0 / (1.0 - theta)) - 1.0)
            }
        }
    }
}

/// What is done to a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    len_bytes: u64,
    block_bytes: u64,
    places: Places,
    /// Writes among 20 requests.
    writes: u64,
    /// Syncs among 100 writes.
    syncs: u64,
}

/// The files; which size has which kind is drawn once.
pub(super) fn kinds() -> Vec<Kind> {
    let places = [
        vec![Places::Pareto(0.1); 2],
        vec![Places::Pareto(0.5); 2],
        vec![Places::Zipf(0.2); 5],
        vec![Places::Zipf(1.2); 1],
        vec![Places::Normal; 6],
        vec![Places::Random; 5],
    ]
    .concat();
    let blocks = [vec![4096; 14], vec![8192; 7]].concat();
    let writes = [vec![0; 4], vec![1; 9], vec![10; 8]].concat();
    let syncs: Vec<u64> = (0..SIZES.len() as u64).map(|file| file % 6).collect();
    let mut numbers = Numbers(21);
    let mut order = |len: usize| {
        let mut order: Vec<usize> = (0..len).collect();
        for at in (1..len).rev() {
            order.swap(at, numbers.below(at as u64 + 1) as usize);
        }
        order
    };
    let orders: Vec<Vec<usize>> = (0..4).map(|_| order(SIZES.len())).collect();
    let kind = |file: usize| Kind {
        len_bytes: SIZES[file] * UNIT_BYTES,
        block_bytes: blocks[orders[0][file]],
        places: places[orders[1][file]],
        writes: writes[orders[2][file]],
        syncs: syncs[orders[3][file]],
    };
    (0..SIZES.len()).map(kind).collect()
}

/// Files that requests go to.
pub(super) trait Target: Sync {
    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) -> Result<()>;
    fn write(&self, file: usize, offset: u64, data: &[u8]) -> Result<()>;
    fn sync(&self, file: usize) -> Result<()>;
}

/// Files behind a cache: writes are durable, or with Log once they are synced.
pub(super) struct Behind<'a> {
    cached: &'a Cached,
    files: Vec<Handle>,
}

impl<'a> Behind<'a> {
    pub(super) fn new(cached: &'a Cached, kinds: &[Kind]) -> Result<Behind<'a>> {
        let file = |(number, kind): (usize, &Kind)| cached.file(&number.to_string(), kind.len_bytes);
        Ok(Behind { cached, files: kinds.iter().enumerate().map(file).collect::<Result<_>>()? })
    }

    pub(super) fn close(self) -> Result<()> {
        self.cached.cache.flush()?;
        for file in self.files {
            self.cached.cache.close(file)?;
        }
        Ok(())
    }
}

impl Target for Behind<'_> {
    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.cached.cache.read(&self.files[file], offset, buffer)?;
        Ok(())
    }

    fn write(&self, file: usize, offset: u64, data: &[u8]) -> Result<()> {
        let done = self.cached.cache.write(&self.files[file], offset, data)?;
        ensure!(done == data.len(), "a write was made in part");
        Ok(())
    }

    fn sync(&self, file: usize) -> Result<()> {
        Ok(self.cached.cache.sync(&self.files[file])?)
    }
}

/// The same files on the file system alone.
struct Plain {
    files: Vec<File>,
    /// As each write behind a cache is.
    syncs_each: bool,
}

impl Plain {
    fn new(folder: &Folder, kinds: &[Kind], syncs_each: bool) -> Result<Plain> {
        let directory = folder.join(if syncs_each { "each" } else { "plain-mix" });
        std::fs::create_dir(&directory)?;
        let file = |(number, kind): (usize, &Kind)| -> Result<File> {
            let path = directory.join(number.to_string());
            fill(&path, kind.len_bytes)?;
            Ok(File::options().read(true).write(true).open(path)?)
        };
        Ok(Plain { files: kinds.iter().enumerate().map(file).collect::<Result<_>>()?, syncs_each })
    }
}

impl Target for Plain {
    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        Ok(self.files[file].read_exact_at(buffer, offset)?)
    }

    fn write(&self, file: usize, offset: u64, data: &[u8]) -> Result<()> {
        self.files[file].write_all_at(data, offset)?;
        if self.syncs_each { self.sync(file) } else { Ok(()) }
    }

    fn sync(&self, file: usize) -> Result<()> {
        Ok(self.files[file].sync_data()?)
    }
}

/// One round: to each file as many bytes of requests as it has, divided by `less`; `threads` files at a time.
/// Returns the ns for each MiB.
pub(super) fn round(
    kinds: &[Kind],
    target: &impl Target,
    threads: usize,
    less: u64,
    round: u64,
) -> Result<f64> {
    let next = AtomicUsize::new(0);
    let data = noise(8192, 5);
    let work = |_: usize| -> Result<()> {
        let mut buffer = [0; 8192];
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(kind) = kinds.get(at) else { return Ok(()) };
            let mut numbers = Numbers(round << 8 | at as u64);
            let (blocks, len) = (kind.len_bytes / kind.block_bytes, kind.block_bytes as usize);
            for _ in 0..blocks / less {
                let offset = kind.places.next(blocks, &mut numbers) * kind.block_bytes;
                if numbers.below(20) >= kind.writes {
                    target.read(at, offset, &mut buffer[..len])?;
                    continue;
                }
                target.write(at, offset, &data[..len])?;
                if numbers.below(100) < kind.syncs {
                    target.sync(at)?;
                }
            }
        }
    };
    let wall = in_parallel(0..threads, work)?.wall;
    let bytes: u64 = kinds.iter().map(|kind| kind.len_bytes / less).sum();
    Ok(wall * f64::from(1 << 20) / bytes as f64)
}

pub(super) fn rows(folder: &Folder, options: Options) -> Result<Vec<Row>> {
    const THREADS: [(usize, &str); 2] = [(6, "light"), (12, "heavy")];
    let (turns, less) = if options.quick { (3, 8) } else { (9, 1) };
    let kinds = kinds();
    let mut rows = Vec::new();
    for (protocol, name) in PROTOCOLS {
        let cached = Cached::new(folder, &format!("mix-{name}"), (protocol, REGION_BYTES), Some(PERIOD))?;
        let ours = Behind::new(&cached, &kinds)?;
        for (threads, weight) in THREADS {
            let plain = Plain::new(folder, &kinds, false)?;
            let (mut of_ours, mut of_plain) = (0, 0);
            let pair = by_turns(
                turns,
                1,
                || round(&kinds, &ours, threads, less, numbered(&mut of_ours)),
                || round(&kinds, &plain, threads, less, numbered(&mut of_plain)),
            )?;
            std::fs::remove_dir_all(folder.join("plain-mix"))?;
            rows.push(row(name, (threads, weight), &pair, folder));
        }
        if !options.quick && protocol == ProtocolKind::Fr {
            let plain = Plain::new(folder, &kinds, true)?;
            let pair = by_turns(3, 1, || round(&kinds, &ours, 6, 8, 1), || round(&kinds, &plain, 6, 8, 1))?;
            let of = row(name, (6, "light"), &pair, folder);
            let baseline = of.baseline.map(|baseline| format!("{baseline}, each write synced"));
            rows.push(Row { baseline, goal: None, met: None, ..of });
        }
        ours.close()?;
    }
    Ok(rows)
}

/// The next round, the same requests for both sides.
fn numbered(rounds: &mut u64) -> u64 {
    *rounds += 1;
    *rounds
}

fn row(name: &str, (threads, weight): (usize, &str), pair: &Pair, folder: &Folder) -> Row {
    let mib = |ns: &[f64]| 1e9 / median(ns);
    Row {
        name: format!("{name}: mix larger than PM, {weight}: bytes a second"),
        value: Some(mib(&pair.a)),
        unit: "MiB/s",
        baseline: Some(format!("{}, {:.0} MiB/s", folder.file_system(), mib(&pair.b))),
        threads,
        ..Row::ratio(swapped(pair).ratio(), Some((3.0, "at least")))
    }
}
