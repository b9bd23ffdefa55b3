//! `fastness crashcheck fs`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use fastness_crashcheck::fuzz::FuzzedFileSystem;
use fastness_crashcheck::guest::{Guests, Snapshot};
use fastness_crashcheck::report::Report;
use fastness_crashcheck::run::{CrashesInGuests, FileSystem, FileTest, ImagesConfig, Suite};
use fastness_crashcheck::symbols::KernelSymbols;
use fastness_crashcheck::tracer::Programs;
use fastness_crashcheck_workload::Workload;
use fastness_crashcheck_workload::ace::{FileSet, Sequences};
use fastness_terminal::{Outcome, note};

use crate::error::{Context, Result, refuse};
use crate::fuzz::{LoopArgs, Replay, Task};
use crate::machine::{Booted, MachineArgs};
use crate::options::{BudgetArgs, HintArgs, ImageArgs, RecoveryCrashArgs, Subject, threads};
use crate::report::{self, OutputArgs, ShowArgs};
use crate::work::{self, Program};

mod matrix;

pub(crate) const EXAMPLES: &str = "\
Examples:
  scripts/install-qemu && scripts/crash-guest
  fastness crashcheck fs ext4-dax                           the 18 tests, and a table
  fastness crashcheck fs ext4-dax xfs-dax --test hello-world --test append -o out
  fastness crashcheck fs ext4-dax --fuzz --budget 3600      workloads that change at random; kernel code that is new leads the way
  fastness crashcheck fs ext4-dax --ace 1                   generated workloads of one operation; --ace 2: of two
  fastness crashcheck fs --print-suite mine                 the built-in suite, to be edited
  fastness crashcheck fs --suite mine nova --kernel bzImage --modules modules
Each test is traced in a QEMU guest with Debian's kernel or yours; crash images are mounted in guests, and looked at.
Exit code 1 if an operation is not crash-consistent.";

/// Images that one guest examines: so many that the cost of a new guest does not matter.
const IMAGES_PER_GUEST: usize = 1000;

/// Arguments of `crashcheck fs`.
#[derive(Debug, Args)]
pub struct FsArgs {
    /// Names in the suite; in the built-in one: ext4-dax, xfs-dax, ext4-journal-on-pm, xfs-log-on-pm
    #[arg(required_unless_present = "print_suite", value_name = "FILE-SYSTEM")]
    systems: Vec<String>,
    /// A folder of your own that says which file systems there are, and what is tested on them
    #[arg(long, value_name = "FOLDER")]
    suite: Option<PathBuf>,
    /// Write the built-in suite to a folder, to be copied and edited, and end
    #[arg(long, value_name = "FOLDER", exclusive = true)]
    print_suite: Option<PathBuf>,
    /// Only this test. May be repeated
    #[arg(long, value_name = "NAME")]
    test: Vec<String>,
    /// Run all workloads with this number of operations that ACE generates, instead of the suite's tests
    #[arg(long, value_name = "LENGTH", conflicts_with = "test", value_parser = clap::value_parser!(u32).range(1..=3))]
    ace: Option<u32>,
    /// Fuzz: workloads that change at random, instead of the suite's tests, until --runs or --budget.
    /// Findings go to the folder of -o
    #[arg(long, conflicts_with_all = ["test", "ace", "workload"])]
    fuzz: bool,
    #[command(flatten)]
    limits: LoopArgs,
    /// Run this workload, in J-lang, instead of the suite's tests. May be repeated
    #[arg(long, value_name = "FILE", conflicts_with_all = ["test", "ace"])]
    workload: Vec<PathBuf>,
    /// Start at this workload
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "ace")]
    from: u64,
    /// Run at most this many workloads
    #[arg(long, value_name = "NUMBER", requires = "ace")]
    count: Option<u64>,
    /// Record callers by frame pointers, of programs, and of a kernel that has no tables for that (ORC)
    #[arg(long)]
    stacks: bool,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    show: ShowArgs,
    /// Recoveries to spend on each crash in a report, so that it shows only the stores that must be lost
    #[arg(long, value_name = "NUMBER", default_value_t = 16)]
    shrink: usize,
    /// Guests at a time; default: as many as CPUs and memory allow
    #[arg(short, long, value_name = "NUMBER")]
    jobs: Option<usize>,
    /// Path of the plug-in
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    #[command(flatten)]
    crashes: RecoveryCrashArgs,
    #[command(flatten)]
    hints: HintArgs,
    #[command(flatten)]
    budget: BudgetArgs,
    #[command(flatten)]
    images: ImageArgs,
}

impl FsArgs {
    /// Crashes during recovery, of which images are kept in a folder.
    fn in_recovery<'a>(&self, keep: Option<&'a Path>) -> CrashesInGuests<'a> {
        CrashesInGuests { depth: self.crashes.depth(), per_point: self.crashes.per_point(), keep }
    }
}

pub(crate) fn run(args: FsArgs, program: &Program, out: &mut dyn Write) -> Result<Outcome> {
    if let Some(folder) = &args.print_suite {
        writeln!(out, "wrote {}", Suite::print(folder)?.display())?;
        return Ok(Outcome::Clean);
    }
    if !args.fuzz && !args.limits.is_empty() {
        return Err(refuse("--runs, --findings, --corpus, --shrink-runs and --ignore are for --fuzz"));
    }
    let suite = args.suite.as_deref().map_or_else(Suite::built_in, Suite::read)?;
    let systems = choose(&args.systems, &suite.systems)?;
    let tests = tests(&args, &suite)?;
    let mut names = BTreeSet::new();
    if let Some(twice) = tests.iter().find(|test| !names.insert(&test.name)) {
        return Err(refuse(format!("two tests are called {}", twice.name)));
    }
    let programs = Programs { qemu_user: None, plugin: args.plugin.clone() };
    let plugin = std::path::absolute(programs.find_plugin()?)?;
    args.output.make()?;
    // First: the snapshot is made by a guest.
    let work = work::begin(program)?;
    let Booted { traced, snapshot } = args.machine.boot(&suite, &systems)?;
    let symbols = symbols(&traced, args.output.folder())?;
    let symbols = match (symbols, args.machine.lines()?) {
        (Some(symbols), Some(lines)) => Some(symbols.with_lines(lines)),
        (symbols, _) => symbols,
    };
    let threads = args.jobs.unwrap_or_else(|| snapshot.config().at_a_time(threads()));
    let guests = Guests::new(&snapshot, IMAGES_PER_GUEST);
    let machine = Machine { traced, guests, symbols, plugin, threads };
    if args.fuzz {
        return fuzz(&args, &systems, &machine, work.path(), out);
    }
    let reports = matrix::run(&args, &systems, &tests, &machine, work.path())?;
    drop(work);
    let all: Vec<Report> = reports.iter().flatten().flatten().cloned().collect();
    args.output.save_all(&all)?;
    match &all[..] {
        [one] if tests.len() == 1 => report::show(std::slice::from_ref(one), args.show.show(), out)?,
        all => {
            report::show_causes(all, args.show.show(), out)?;
            write!(out, "{}", matrix::table(&systems, &tests, &reports))?;
        }
    }
    let has_failed = reports.iter().flatten().any(Option::is_none);
    Ok(if has_failed { Outcome::Found } else { report::outcome(&all) })
}

fn choose<'a>(
    names: &'a [String],
    known: &'a BTreeMap<String, FileSystem>,
) -> Result<Vec<(&'a str, &'a FileSystem)>> {
    let find = |name: &'a String| match known.get(name) {
        Some(system) => Ok((name.as_str(), system)),
        None => {
            let all: Vec<_> = known.keys().map(String::as_str).collect();
            Err(refuse(format!("no file system is called {name}; there are {}", all.join(", "))))
        }
    };
    names.iter().map(find).collect()
}

fn tests(args: &FsArgs, suite: &Suite) -> Result<Vec<FileTest>> {
    if let Some(length) = args.ace {
        let count = usize::try_from(args.count.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let workloads = Sequences::new(length, FileSet::Intended);
        let workloads = workloads.skip(usize::try_from(args.from).unwrap_or(usize::MAX)).take(count);
        return Ok(workloads.map(|found| FileTest::of_workload(&found.name, &found.workload)).collect());
    }
    if args.fuzz {
        return Ok(Vec::new());
    }
    if !args.workload.is_empty() {
        return args.workload.iter().map(|path| workload(path)).collect();
    }
    let all = &suite.tests;
    if all.is_empty() {
        return Err(refuse("the suite has no tests: write a [[test]], or give --ace 1"));
    }
    if args.test.is_empty() {
        return Ok(all.clone());
    }
    let find = |name: &String| match all.iter().find(|test| test.name == *name) {
        Some(test) => Ok(test.clone()),
        None => {
            let all: Vec<_> = all.iter().map(|test| test.name.as_str()).collect();
            Err(refuse(format!("no test is called {name}; there are {}", all.join(", "))))
        }
    };
    args.test.iter().map(find).collect()
}

/// A workload of a file, called as the file is.
fn workload(path: &Path) -> Result<FileTest> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let workload = Workload::parse(&text).map_err(|error| refuse(format!("{}: {error}", path.display())))?;
    let name = path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok(FileTest::of_workload(&name, &workload))
}

/// Fuzzes one file system after the other.
fn fuzz(
    args: &FsArgs,
    systems: &[(&str, &FileSystem)],
    machine: &Machine<'_>,
    work: &Path,
    out: &mut dyn Write,
) -> Result<Outcome> {
    let images = ImagesConfig { shrink: args.shrink, ..args.images.config(Subject::Guest) };
    let mut has_found = false;
    for (name, system) in systems {
        let subject = FuzzedFileSystem {
            name,
            system,
            traced: &machine.traced,
            guests: &machine.guests,
            plugin: &machine.plugin,
            threads: machine.threads,
            has_stacks: args.stacks,
            images: &images,
            in_recovery: args.in_recovery(args.output.folder()),
            exclude: &args.hints.exclude,
            symbols: machine.symbols.as_ref(),
        };
        let task = Task {
            subject: &subject,
            work,
            threads: machine.threads,
            seed: args.images.seed(),
            deadline: args.budget.deadline(),
            output: args.output.folder(),
            show: args.show.show(),
            replay: Replay::FileSystem,
        };
        has_found |= matches!(args.limits.run(&task, out)?, Outcome::Found);
    }
    Ok(if has_found { Outcome::Found } else { Outcome::Clean })
}

/// What tests are run with.
struct Machine<'a> {
    traced: Snapshot,
    guests: Guests<'a>,
    plugin: PathBuf,
    symbols: Option<KernelSymbols>,
    threads: usize,
}

/// The symbols of the guest's kernel; kept beside traces. Without them reports show addresses, which is no
/// reason not to test.
fn symbols(snapshot: &Snapshot, output: Option<&Path>) -> Result<Option<KernelSymbols>> {
    let symbols = match snapshot.kernel_symbols() {
        Ok(symbols) => symbols,
        Err(error) => {
            note(format_args!("reports will show addresses instead of kernel functions: {error}"));
            return Ok(None);
        }
    };
    if let Some(path) = output.map(|folder| folder.join("kallsyms")) {
        std::fs::write(&path, symbols.text()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(Some(symbols))
}
