//! `fastness cost`: what a gigabyte of a command's reads or writes costs.

mod command;
mod options;
mod show;

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use fastness_efficiency::{Idle, Machine, Meter, Report, RunCost, Session, draw_costs};
use fastness_terminal::{Outcome, note};

use crate::error::{Context, Result, refuse};
pub(crate) use options::MeasureArgs;

const EXAMPLES: &str = "\
Examples:
  fastness cost -- dd if=/dev/zero of=/srv/file bs=16k count=500000 oflag=sync
  fastness cost --bytes device:nvme0n1 -- fio job.fio
  fastness cost --for 1,2,4,8 --bytes 30G --svg cost.svg -- fio --numjobs={} job.fio
  fastness cost --for 1,2,4,8 --name ext4 --json -- ./load {} > ext4.json
  fastness cost --for 1,2,4,8 --name xfs --with ext4.json --svg both.svg -- ./load {}
The CPU time of the whole machine counts, not that of the command alone: file systems work in threads of the
kernel. So the machine is watched first, and refused (exit code 4) if it is not idle. Averages are those without
the first and the last second. Energy is what exceeds that of the idle machine; without a meter there is no
figure. What the command prints goes to standard error. The exit code is the command's; 127: it could not be
started. The counters, and the protocol of --meter: docs/guide/cost.md.";

/// The largest report that is read.
const REPORT_BYTES_MAX: u64 = 16 << 20;

/// Arguments of `fastness cost`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CostArgs {
    #[command(flatten)]
    measure: MeasureArgs,
    /// The bytes: SIZE, `written`, `read` or `both` (system calls of the command), `device:NAME[,NAME]`,
    /// `report` (lines that the command writes to the file $FASTNESS_BYTES_FILE), or `meter`
    #[arg(long, value_name = "WHAT", default_value = "written", value_parser = options::bytes)]
    bytes: options::Bytes,
    /// Run the command for each of these values, which take the place of {}
    #[arg(long = "for", value_name = "VALUES", value_delimiter = ',')]
    values: Vec<String>,
    /// Name in pictures and JSON; otherwise that of the command
    #[arg(long)]
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw speed and costs as SVG into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Draw this report, too: what --json printed earlier
    #[arg(long, value_name = "FILE", requires = "svg")]
    with: Vec<PathBuf>,
    /// The command, and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &CostArgs, out: &mut dyn Write) -> Result<Outcome> {
    let has_place = args.command.iter().any(|word| word.to_str().is_some_and(|word| word.contains("{}")));
    if has_place == args.values.is_empty() {
        return Err(refuse("--for needs a {} in the command, and the other way round"));
    }
    let mut drawn = args.with.iter().map(|path| read_report(path)).collect::<Result<Vec<_>>>()?;
    let machine = Machine::default();
    let meter = args.measure.meter()?;
    let idle = Idle::measure(&machine, &meter, args.measure.idle_rule())?;
    let name = args.name.clone().unwrap_or_else(|| name_of(&args.command));
    let mut report = Report::new(name, &idle, &meter);
    let mut outcome = Outcome::Clean;
    let values: Vec<Option<&String>> =
        if args.values.is_empty() { vec![None] } else { args.values.iter().map(Some).collect() };
    for value in values {
        let (ran, code) = run_for(args, &machine, &meter, &idle, value)?;
        report.runs.push(ran);
        if code != 0 {
            note(format_args!(
                "fastness: the command ended with exit code {code}; its figures may mean nothing"
            ));
            outcome = Outcome::Program(code);
            break;
        }
    }
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        show::report(out, &report)?;
    }
    if let Some(path) = &args.svg {
        drawn.push(report);
        draw_costs(path, &drawn)?;
    }
    Ok(outcome)
}

fn run_for(
    args: &CostArgs,
    machine: &Machine,
    meter: &Meter,
    idle: &Idle,
    value: Option<&String>,
) -> Result<(RunCost, u8)> {
    let words: Vec<OsString> = args.command.iter().map(|word| with_value(word, value)).collect();
    let source = args.bytes.source()?;
    let session = Session::start(machine, meter, source.source.clone(), args.measure.cut())?;
    let code = command::run(&words, source.path.as_deref());
    let ran = session.finish(0)?;
    let cost = RunCost::of(idle, meter, &source.source, &ran);
    let code = code?;
    Ok((RunCost { value: value.cloned(), exit_code: (code != 0).then_some(code), ..cost }, code))
}

fn with_value(word: &OsString, value: Option<&String>) -> OsString {
    match (word.to_str(), value) {
        (Some(text), Some(value)) => text.replace("{}", value).into(),
        _ => word.clone(),
    }
}

fn name_of(command: &[OsString]) -> String {
    let program = Path::new(&command[0]);
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}

fn read_report(path: &Path) -> Result<Report> {
    let shown = path.display();
    let mut text = String::new();
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    file.take(REPORT_BYTES_MAX).read_to_string(&mut text).with_context(|| format!("cannot read {shown}"))?;
    serde_json::from_str(&text)
        .map_err(|error| refuse(format!("{shown} is no report of fastness cost: {error}")))
}
