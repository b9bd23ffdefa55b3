//! `fastness crashcheck trace record`.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fastness_crashcheck::tracer::{OperationsLog, PmFile, Programs, UserTracer};
use fastness_terminal::Outcome;
use fastness_terminal::size;

use crate::error::Result;

pub(crate) const EXAMPLES: &str = "\
Examples:
  fastness crashcheck trace record --pm pool.pm:64M -o run.trace -- ./program pool.pm
  fastness crashcheck trace record --pm a.pm:16M --pm b.pm:16M --reads --stacks -o run.trace -- ./program a.pm b.pm
  fastness crashcheck trace show run.trace
The files are the persistent memory: the program maps them, and may write them. Needs QEMU (scripts/install-qemu) and the
plug-in (cargo build --release -p fastness-crashcheck-tracer). Exit code 1 if the program did not end with 0.";

/// Arguments of `trace record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// A file that stands for persistent memory; with a size, it is created if it does not exist; may be
    /// repeated
    #[arg(long, value_name = "FILE[:SIZE]", required = true, value_parser = pm_file)]
    pm: Vec<PmFile>,
    /// The file for the trace
    #[arg(short, long, value_name = "TRACE")]
    output: PathBuf,
    /// Record loads, too
    #[arg(long)]
    reads: bool,
    /// Record this many return addresses for each event; needs frame pointers
    #[arg(long)]
    stacks: bool,
    /// File into which the program writes its log of operations; it is made anew
    #[arg(long, value_name = "FILE")]
    operations: Option<PathBuf>,
    /// Stop the program after this time: 60s, 5m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    timeout: Duration,
    /// Path of a qemu-x86_64 with support for plug-ins
    #[arg(long, value_name = "PROGRAM")]
    qemu: Option<PathBuf>,
    /// Path of the plug-in
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// The program, and its arguments
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// The part after the last colon is a size, if it looks like one.
fn pm_file(text: &str) -> Result<PmFile, String> {
    match text.rsplit_once(':') {
        Some((path, size)) if !path.is_empty() && size.starts_with(|first: char| first.is_ascii_digit()) => {
            Ok(PmFile { path: path.into(), len_bytes: Some(size::parse(size)?) })
        }
        _ if text.is_empty() => Err("name a file".to_owned()),
        _ => Ok(PmFile { path: text.into(), len_bytes: None }),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(['s', 'm']);
    let unit = match &text[digits.len()..] {
        "" | "s" => Some(1),
        "m" => Some(60),
        _ => None,
    };
    let seconds = digits.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    seconds.map(Duration::from_secs).ok_or_else(|| format!("{text} is not a time: write 60s or 5m"))
}

pub(crate) fn run(args: RecordArgs, out: &mut dyn Write) -> Result<Outcome> {
    let RecordArgs { pm, output, reads, stacks, operations, timeout, qemu, plugin, command } = args;
    let tracer = UserTracer {
        pm,
        has_reads: reads,
        has_stacks: stacks,
        timeout,
        output: None,
        operations: operations.map(|path| OperationsLog { path, is_stdout: false }),
        coverage: None,
        input: None,
        current_dir: None,
        tools: Programs { qemu_user: qemu, plugin }.find()?,
    };
    let traced = tracer.trace(&command, &output)?;
    writeln!(out, "{} events in {}; the program {}", traced.events, output.display(), traced.end)?;
    Ok(if traced.end.is_success() { Outcome::Clean } else { Outcome::Found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_times_are_read() {
        let file = |path: &str, len_bytes| Ok(PmFile { path: path.into(), len_bytes });
        assert_eq!(pm_file("a.pm:64M"), file("a.pm", Some(64 << 20)));
        assert_eq!(pm_file("a:b"), file("a:b", None));
        assert_eq!(pm_file("/dev/shm/a"), file("/dev/shm/a", None));
        assert!(pm_file("").is_err() && pm_file("a:6X").is_err());
        assert_eq!(duration("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("7"), Ok(Duration::from_secs(7)));
        assert!(["", "s", "1h", "5ms", "-1s"].into_iter().all(|text| duration(text).is_err()));
    }
}
