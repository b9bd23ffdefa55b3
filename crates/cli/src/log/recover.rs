//! `fastness log recover`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use fastness_pmem::PmRange;
use fastness_pmlog::{OpenOptions, RecordId, RecordLog, Recovery};
use fastness_prb::OnLoss;
use fastness_terminal::{Outcome, fields, note};

use crate::content::{self, Content};
use crate::error::{Context, Result};
use crate::log::open_region;

pub(super) const EXAMPLES: &str = "\
Examples:
  fastness log recover orders.log --keep              what would be recovered; changes nothing
  fastness log recover orders.log --print > orders    print the records, then start an empty log
The log is emptied only after all records have been printed and flushed; a closed pipe leaves it unchanged.";

/// Arguments of `fastness log recover`.
#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    /// File or device of the log
    file: PathBuf,
    /// Leave every record in the log
    #[arg(long)]
    keep: bool,
    /// If records are missing or unreadable, recover what does not depend on them and give up the rest
    #[arg(long)]
    drop_tail: bool,
    /// Print the records, one a line
    #[arg(long)]
    print: bool,
}

/// What the records contain.
#[derive(Debug, Default)]
struct Tally {
    records: u64,
    bytes: u64,
    first: Option<RecordId>,
    last: Option<RecordId>,
    generated: u64,
    generated_first: Option<u64>,
    generated_last: Option<u64>,
    broken: u64,
    out_of_order: u64,
    scratch: Vec<u8>,
}

impl Tally {
    fn add(&mut self, id: RecordId, record: &[u8]) {
        self.records += 1;
        self.bytes += record.len() as u64;
        self.first.get_or_insert(id);
        self.last = Some(id);
        match content::check(record, &mut self.scratch) {
            Content::Other => {}
            Content::Broken => self.broken += 1,
            Content::Generated(number) => {
                self.generated += 1;
                self.generated_first.get_or_insert(number);
                if self.generated_last.is_some_and(|last| last.checked_add(1) != Some(number)) {
                    self.out_of_order += 1;
                }
                self.generated_last = Some(number);
            }
        }
    }

    fn content(&self) -> String {
        let Some((first, last)) = self.generated_first.zip(self.generated_last) else {
            return "no generated records to check".into();
        };
        let order = match self.out_of_order {
            0 => "in order, none missing in between".into(),
            places => format!("NOT consecutive in {places} places"),
        };
        format!("{} generated records, {first} to {last}: {} broken, {order}", self.generated, self.broken)
    }
}

pub(super) fn run(args: &RecoverArgs, out: &mut dyn Write) -> Result<Outcome> {
    let path = args.file.display();
    let on_loss = if args.drop_tail { OnLoss::DropTail } else { OnLoss::Fail };
    let mut recovery = RecordLog::open(open_region(&args.file)?, &OpenOptions::new().on_loss(on_loss))
        .with_context(|| format!("cannot recover the log {path}"))?;
    let mut found = report_findings(&recovery);
    let (gaps, resumed) = (recovery.gaps(), recovery.is_resumed());
    let mut tally = Tally::default();
    let mut take = |id: RecordId, record: &[u8]| -> io::Result<()> {
        tally.add(id, record);
        if args.print {
            out.write_all(record)?;
            if !record.ends_with(b"\n") {
                out.write_all(b"\n")?;
            }
        }
        Ok(())
    };
    let done = if args.keep {
        recovery.inspect(&mut take).with_context(|| format!("cannot read the log {path}"))?;
        "every record is still in the log"
    } else {
        recovery.replay(&mut take).with_context(|| format!("cannot recover the log {path}"))?;
        // The output must be written before the log forgets its records.
        out.flush()?;
        if tally.broken > 0 || (tally.out_of_order > 0 && !args.drop_tail) {
            "NOT emptied: the generated records differ from what was written"
        } else {
            recovery.finish().with_context(|| format!("cannot start a new log in {path}"))?;
            "the log is empty and can be written"
        }
    };
    found |= tally.broken > 0 || tally.out_of_order > 0;
    let show = |id: Option<RecordId>| id.map_or_else(|| "-".into(), |id| id.to_string());
    let rows = [
        ("recovered", format!("{} records, {} bytes", tally.records, tally.bytes)),
        ("first, last", format!("{}, {}", show(tally.first), show(tally.last))),
        ("gaps", format!("{gaps} (appends that had not returned)")),
        ("content", tally.content()),
        ("log", if resumed { format!("{done} (an earlier recovery had begun)") } else { done.into() }),
    ];
    // Standard output carries only records.
    if args.print {
        fields(&mut io::stderr(), &rows)?;
    } else {
        fields(out, &rows)?;
    }
    Ok(if found { Outcome::Found } else { Outcome::Clean })
}

/// Reports what opening found; true if it is damage.
fn report_findings(recovery: &Recovery<PmRange>) -> bool {
    for block in recovery.damaged_blocks() {
        note(format_args!("note: {block}; its copy is used (a crash can leave this)"));
    }
    if let Some(count) = recovery.unsafe_shutdowns().filter(|&count| count > 0) {
        note(format_args!(
            "warning: the medium had {count} unsafe shutdowns; acknowledged records may be lost"
        ));
    }
    if recovery.reappeared() > 0 {
        note(format_args!("note: {} records reappeared and are left out", recovery.reappeared()));
    }
    if let Some(loss) = recovery.loss() {
        note(format_args!("damage: {} records given up: {loss}", recovery.dropped()));
    }
    for hidden in recovery.hidden() {
        note(format_args!("damage: {hidden}"));
    }
    recovery.loss().is_some() || !recovery.hidden().is_empty()
}
