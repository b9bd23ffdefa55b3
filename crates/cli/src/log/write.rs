//! `fastness log write`.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use fastness_pmem::PmRange;
use fastness_pmlog::{OpenOptions, RecordLog};
use fastness_terminal::{Outcome, note, size};

use crate::content;
use crate::error::{Context, Result, refuse};
use crate::log::open_region;

pub(super) const EXAMPLES: &str = "\
Examples:
  fastness log write orders.log --count 1000             a thousand generated records
  fastness log write orders.log --count 0 --ack          until killed; prints the number of each durable record
  journalctl -f | fastness log write orders.log --stdin  one record for each line
Records left in the log must be recovered first: fastness log recover";

/// Arguments of `fastness log write`.
#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// File or device of the log
    file: PathBuf,
    /// Number of generated records; 0: until the log is full
    #[arg(long, value_name = "N", default_value = "1000")]
    count: u64,
    /// Append the lines of standard input instead
    #[arg(long, conflicts_with_all = ["count", "size"])]
    stdin: bool,
    /// Length of a generated record, at least 64 bytes
    #[arg(long, value_name = "BYTES", value_parser = size::parse, default_value = "256")]
    size: u64,
    /// Records per second at most
    #[arg(long, value_name = "N")]
    rate: Option<u32>,
    /// Print the number of each record once it is durable
    #[arg(long)]
    ack: bool,
    /// Trim the log after every N records, as if their effects were durable elsewhere
    #[arg(long, value_name = "N")]
    trim_every: Option<u64>,
}

/// Writes records and keeps count.
struct Writer<'a> {
    log: RecordLog<PmRange>,
    args: &'a WriteArgs,
    out: &'a mut dyn Write,
    started: Instant,
    records: u64,
    bytes: u64,
}

impl Writer<'_> {
    /// Appends the next record, and acknowledges it when it is durable.
    fn append(&mut self, record: &[u8]) -> Result<()> {
        let number = self.records + 1;
        self.pace();
        self.log.append(record).with_context(|| format!("record {number} was not written"))?;
        self.records = number;
        self.bytes += record.len() as u64;
        if self.args.ack {
            writeln!(self.out, "{number}")?;
            self.out.flush()?;
        }
        if self.args.trim_every.is_some_and(|every| every > 0 && number.is_multiple_of(every)) {
            let trimmed = self.log.trim().context("the log was not trimmed")?;
            for fault in &trimmed.faults {
                note(format_args!("warning: {fault:?}: the medium did not keep the written bytes"));
            }
            if self.args.ack {
                writeln!(self.out, "trimmed {number}")?;
                self.out.flush()?;
            }
        }
        Ok(())
    }

    /// Waits until the next record is due.
    fn pace(&self) {
        if let Some(rate) = self.args.rate.filter(|&rate| rate > 0) {
            let due = Duration::from_secs_f64(self.records as f64 / f64::from(rate));
            std::thread::sleep(due.saturating_sub(self.started.elapsed()));
        }
    }
}

pub(super) fn run(args: &WriteArgs, out: &mut dyn Write) -> Result<Outcome> {
    let path = args.file.display();
    let recovery = RecordLog::open(open_region(&args.file)?, &OpenOptions::new())
        .with_context(|| format!("cannot open the log {path}"))?;
    if recovery.records() > 0 {
        let records = recovery.records();
        return Err(refuse(format!(
            "{path} holds {records} records that were not recovered; run `fastness log recover {path}`"
        )));
    }
    let log = recovery.finish().with_context(|| format!("cannot start the log {path}"))?;
    let max = log.record_bytes_max();
    let mut writer = Writer { log, args, out, started: Instant::now(), records: 0, bytes: 0 };
    let result = if args.stdin { write_lines(&mut writer, max) } else { write_generated(&mut writer, max) };
    let Writer { records, bytes, started, .. } = writer;
    let seconds = started.elapsed().as_secs_f64();
    let summary = format!("{records} records, {bytes} bytes in {seconds:.3} s");
    if args.ack {
        note(summary);
    } else {
        writeln!(out, "{summary}")?;
    }
    result.map(|()| Outcome::Clean)
}

fn write_generated(writer: &mut Writer<'_>, max: usize) -> Result<()> {
    let len = usize::try_from(writer.args.size).unwrap_or(usize::MAX);
    if !(content::LEN_MIN..=max).contains(&len) {
        return Err(refuse(format!(
            "a generated record has from {} to {max} bytes, not {len}",
            content::LEN_MIN
        )));
    }
    let mut record = vec![0; len];
    while writer.args.count == 0 || writer.records < writer.args.count {
        content::fill(writer.records + 1, &mut record);
        writer.append(&record)?;
    }
    Ok(())
}

fn write_lines(writer: &mut Writer<'_>, max: usize) -> Result<()> {
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        // Never more in memory than fits into a record.
        let mut limited = io::Read::take(&mut input, max as u64 + 2);
        if limited.read_until(b'\n', &mut line).context("cannot read standard input")? == 0 {
            return Ok(());
        }
        if line.ends_with(b"\n") {
            line.pop();
        }
        writer.append(&line)?;
    }
}
