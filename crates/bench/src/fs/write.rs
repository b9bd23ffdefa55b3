//! Writes of 4 KiB to a file that was opened with `O_SYNC`.

use fastness_pmem::WriteMethod;
use fastness_prb::Alignment;
use fastness_store::{LogData, Property};
use fastness_zpl::WriteHow;

use super::file::OneFile;
use crate::error::{Result, ensure};
use crate::measure::{by_turns, time_ns};
use crate::medium::{cut, emulated_pm};
use crate::pool::{Numbers, noise};
use crate::prb::work::{CHUNKS, Floor, REGION_BYTES};
use crate::sync_write::one::{median, swapped};
use crate::sync_write::stack::{BLOCK_BYTES, LogKind, Plan, Site, Stack};
use crate::{Options, Row};

/// Writes of a turn: about a millisecond.
const WRITES: u64 = 500;
/// Turns between two syncs.
const TURNS_PER_SYNC: u64 = 16;
const FILE_BYTES: u64 = 64 << 20;
/// Bytes of a record's head, before the data.
const HEAD_BYTES: u64 = 64;

/// A file system with one file, every block of which was written twice.
struct Writer<'a> {
    stack: &'a Stack,
    file: OneFile,
    numbers: Numbers,
    data: Vec<u8>,
    count: u64,
}

impl<'a> Writer<'a> {
    fn new(stack: &'a Stack, name: &str) -> Result<Writer<'a>> {
        let file = OneFile::new(&stack.store, name)?;
        let data = noise(BLOCK_BYTES as usize, 3);
        for _ in 0..2 {
            for block in 0..FILE_BYTES / BLOCK_BYTES {
                file.write(block * BLOCK_BYTES, &data, WriteHow::default())?;
            }
            stack.settle()?;
        }
        Ok(Writer { stack, file, numbers: Numbers(7), data, count: 0 })
    }

    fn turn(&mut self) -> Result<f64> {
        self.turn_as(false, false)
    }

    /// Writes, with an fsync after each if `syncs`; the record of the write has the times if `keeps_times`.
    fn turn_as(&mut self, keeps_times: bool, syncs: bool) -> Result<f64> {
        if self.count.is_multiple_of(TURNS_PER_SYNC) {
            self.stack.settle()?;
        }
        self.count += 1;
        let how = WriteHow { is_sync: true, keeps_times, ..WriteHow::default() };
        time_ns(|| {
            for _ in 0..WRITES {
                let offset = self.numbers.below(FILE_BYTES / BLOCK_BYTES) * BLOCK_BYTES;
                self.file.write(offset, &self.data, how)?;
                if syncs {
                    self.file.sync()?;
                }
            }
            Ok(())
        })
    }

    fn disable(&self) -> Result<()> {
        let value = Property::Sync.parse("disabled")?;
        self.stack.store.pool().transact(|tx| self.file.fs.dataset().set(tx, Property::Sync, Some(value)))?;
        Ok(())
    }
}

pub(super) fn rows(site: &Site, options: Options) -> Result<Vec<Row>> {
    let plan = Plan { volumes: 0, ..Plan::default() };
    let stack = Stack::new(site, "files", &plan)?;
    let turns = options.turns();
    let mut logged = Writer::new(&stack, "logged")?;
    let mut disabled = Writer::new(&stack, "disabled")?;
    disabled.disable()?;
    let mut floor = Floor::new(cut(emulated_pm(REGION_BYTES, WriteMethod::Auto)?, CHUNKS)?);
    let entry = vec![0xa5; (HEAD_BYTES + BLOCK_BYTES) as usize];
    let mut of_floor = || floor.turn(&entry, Alignment::Optane, WRITES as usize);
    let to_floor = by_turns(turns, WRITES as usize, || logged.turn(), &mut of_floor)?;
    let to_disabled = by_turns(turns, WRITES as usize, || logged.turn(), || disabled.turn())?;
    let mut timed = Writer::new(&stack, "timed")?;
    let one_copy = Stack::new(site, "one-copy", &Plan { log_data: LogData::Pm, ..plan.clone() })?;
    let mut alone = Writer::new(&one_copy, "files")?;
    let alone_to_floor = by_turns(turns, WRITES as usize, || alone.turn(), of_floor)?;
    let alone_to_both = by_turns(turns, WRITES as usize, || alone.turn(), || logged.turn())?;
    let with_fsync =
        by_turns(turns, WRITES as usize, || timed.turn_as(true, true), || logged.turn_as(false, true))?;
    ensure!(stack.fallbacks() + one_copy.fallbacks() == 0, "writes waited for txgs");
    drop((logged, disabled, timed, alone));
    drop((stack, one_copy));
    let pmem = Stack::new(site, "pmem", &plan)?;
    let lwb = Stack::new(site, "lwb", &Plan { kind: LogKind::LwbInMemory, ..plan })?;
    let (mut by_pmem, mut by_lwb) = (Writer::new(&pmem, "files")?, Writer::new(&lwb, "files")?);
    let to_lwb = by_turns(turns.min(101), WRITES as usize, || by_pmem.turn(), || by_lwb.turn())?;
    let row =
        |name: &str, ratio: Row| Row { name: name.to_owned(), unit: "ns", medium: site.medium(), ..ratio };
    Ok(vec![
        Row {
            value: Some(median(&to_floor.a)),
            baseline: Some(format!("floor, {:.0} ns", median(&to_floor.b))),
            ..row(
                "write 4 KiB, O_SYNC, to a file in process",
                Row::ratio(to_floor.ratio(), Some((4.0, "at most"))),
            )
        },
        Row {
            value: Some(median(&alone_to_floor.a)),
            baseline: Some(format!("floor, {:.0} ns", median(&alone_to_floor.b))),
            ..row("the same, logdata=pm", Row::ratio(alone_to_floor.ratio(), None))
        },
        Row {
            value: Some(median(&alone_to_both.a)),
            baseline: Some(format!("both, {:.0} ns", median(&alone_to_both.b))),
            ..row("the same, logdata=pm beside logdata=both", Row::ratio(alone_to_both.ratio(), None))
        },
        Row {
            value: Some(median(&with_fsync.a)),
            baseline: Some(format!("the fsync logs the times, {:.0} ns", median(&with_fsync.b))),
            ..row(
                "the same, and the fsync that the kernel sends after it",
                Row::ratio(with_fsync.ratio(), None),
            )
        },
        Row {
            value: Some(median(&to_disabled.a)),
            baseline: Some(format!("sync=disabled, {:.0} ns; writes a second", median(&to_disabled.b))),
            ..row(
                "the same with sync=disabled (upper bound)",
                Row::ratio(swapped(&to_disabled).ratio(), None),
            )
        },
        Row {
            value: Some(median(&to_lwb.a)),
            baseline: Some(format!(
                "kind lwb in the same memory, {:.0} ns; writes a second",
                median(&to_lwb.b)
            )),
            ..row("the same with log-write blocks", Row::ratio(swapped(&to_lwb).ratio(), None))
        },
    ])
}
