//! Options of several commands: which crash images are generated, and how they are judged.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use fastness_crashcheck::explain::Exclusion;
use fastness_crashcheck::run::{
    ImagesConfig, NonTemporalConfig, OracleConfig, PersistenceConfig, PickConfig, RECOVERY_CRASHES_MAX,
    RECOVERY_IMAGES,
};
use fastness_crashcheck::symbols::{KernelSymbols, KernelSymbolsError};

/// How consecutive non-temporal stores to a line may be lost.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum NtArg {
    /// All or none; in part where states depend on it
    Auto,
    /// All or none
    Whole,
    /// In part
    Partial,
}

/// How crash images are recovered, and which states are right.
#[derive(Debug, Args)]
#[command(next_help_heading = "Recovery")]
pub(crate) struct RecoverArgs {
    /// Command that checks whether the recovered contents accept writes; run after a successful recovery
    #[arg(long, value_name = "COMMAND")]
    write: Option<String>,
    /// Program that reads each state on standard input, and exits with 1 if the state is wrong
    #[arg(long, value_name = "COMMAND")]
    predicate: Option<String>,
    /// The lines of a state are records in order; checkpoint N acknowledges N of them
    #[arg(long)]
    prefix: bool,
    /// Operations may have intermediate states
    #[arg(long)]
    not_atomic: bool,
    /// Kill a program, or a recovery, after this many seconds. Once a recovery has hung, others are killed
    /// after 20 times what the slowest one has taken, or 2 s
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) timeout: u64,
    /// Recoveries to spend on each crash in the report, so that it shows only the stores that must be lost
    #[arg(long, value_name = "NUMBER", default_value_t = 64)]
    pub(crate) shrink: usize,
    /// Recoveries at a time; default: the number of CPUs
    #[arg(short, long, value_name = "NUMBER")]
    jobs: Option<usize>,
    #[command(flatten)]
    pub(crate) crashes: RecoveryCrashArgs,
}

impl RecoverArgs {
    pub(crate) fn write(&self) -> Option<Vec<String>> {
        self.write.as_deref().map(words)
    }

    pub(crate) fn oracle(&self) -> OracleConfig {
        let predicate = self.predicate.as_deref().map(words);
        OracleConfig { atomic: !self.not_atomic, predicate, prefix: self.prefix, operations: None }
    }

    pub(crate) fn threads(&self) -> usize {
        self.jobs.unwrap_or_else(threads)
    }
}

/// Crashes during recovery.
#[derive(Debug, Args)]
#[command(next_help_heading = "Crashes during recovery")]
pub(crate) struct RecoveryCrashArgs {
    /// Let recoveries crash as well, so many times one after the other: each recovery is traced, and its
    /// crash images recovered
    #[arg(long, value_name = "DEPTH", default_value_t = 0,
        value_parser = clap::value_parser!(u64).range(..=RECOVERY_CRASHES_MAX as u64))]
    recovery_crashes: u64,
    /// Most images for a failure point of a recovery
    #[arg(long, value_name = "NUMBER", default_value_t = RECOVERY_IMAGES as u64,
        value_parser = clap::value_parser!(u64).range(1..))]
    recovery_per_point: u64,
}

impl RecoveryCrashArgs {
    pub(crate) fn depth(&self) -> usize {
        self.recovery_crashes as usize
    }

    pub(crate) fn per_point(&self) -> usize {
        usize::try_from(self.recovery_per_point).unwrap_or(usize::MAX)
    }
}

/// How long a whole command may take.
#[derive(Debug, Args)]
pub(crate) struct BudgetArgs {
    /// Begin no recovery after so many seconds; the report says what was not reached
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    budget: Option<u64>,
}

impl BudgetArgs {
    /// When that is, if the command begins now. A moment beyond the clock's range is none.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        Instant::now().checked_add(Duration::from_secs(self.budget?))
    }
}

/// What is left out of hints.
#[derive(Debug, Args)]
pub(crate) struct HintArgs {
    /// No hints about this: a range of persistent memory (0-4K, pool:0x40+64), a function, a source file.
    /// Crash images are made of it all the same. May be repeated
    #[arg(long, value_name = "WHAT")]
    pub(crate) exclude: Vec<Exclusion>,
}

/// Kernel symbols for traces of guests.
#[derive(Debug, Args)]
pub(crate) struct SymbolArgs {
    /// Symbols of the guest's kernel: the file `kallsyms` that `crashcheck fs -o` writes beside its traces
    #[arg(long, value_name = "FILE")]
    kallsyms: Option<PathBuf>,
}

impl SymbolArgs {
    pub(crate) fn read(&self) -> Result<Symbols, KernelSymbolsError> {
        Ok(Symbols(self.kallsyms.as_deref().map(KernelSymbols::read).transpose()?))
    }
}

/// The kernel's symbols, if any.
pub(crate) struct Symbols(Option<KernelSymbols>);

impl Symbols {
    pub(crate) fn find(&self, pc: u64) -> Option<String> {
        self.0.as_ref()?.find(pc)
    }
}

/// The number of CPUs.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The words of a command; words with blanks need a configuration file.
pub(crate) fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(str::to_owned).collect()
}

/// Which crash images are generated.
#[derive(Debug, Args)]
#[command(next_help_heading = "Crash images")]
pub(crate) struct ImageArgs {
    /// Caches survive a power failure, too (eADR)
    #[arg(long)]
    eadr: bool,
    /// Use the stricter model of the dissertation, for comparison
    #[arg(long)]
    dissertation: bool,
    /// Do not order non-temporal stores to the same line
    #[arg(long)]
    strict_nt: bool,
    /// Only images in program order, once for each stack: finds logic errors, quickly
    #[arg(long)]
    fast: bool,
    /// Most images for a failure point; default: 256 for programs, 8 for file systems in a guest
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    per_point: Option<u64>,
    /// If there are more images: how consecutive non-temporal stores to a line are lost
    #[arg(long, value_enum, default_value = "auto")]
    nt: NtArg,
    /// If there are still more images after the other choices: the seed for choosing among them
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// If there are more images: trace the recovery, and vary only what it reads; default for programs
    #[arg(long, overrides_with = "no_reads")]
    reads: bool,
    /// Do not trace the recovery
    #[arg(long, overrides_with = "reads")]
    no_reads: bool,
}

/// What each recovery runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A program: it takes milliseconds.
    Program,
    /// A guest with a file system: it takes most of a second, and one or two seconds if it is traced.
    Guest,
}

impl ImageArgs {
    /// The seed.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn config(&self, subject: Subject) -> ImagesConfig {
        let (per_point, reads) = match subject {
            Subject::Program => (256, true),
            Subject::Guest => (8, false),
        };
        ImagesConfig {
            persistence: if self.eadr { PersistenceConfig::Eadr } else { PersistenceConfig::Adr },
            dissertation: self.dissertation,
            strict_nt: self.strict_nt,
            pick: if self.fast { PickConfig::Fast } else { PickConfig::Subsets },
            per_point: self
                .per_point
                .map_or(per_point, |number| usize::try_from(number).unwrap_or(usize::MAX)),
            reads: self.reads || reads && !self.no_reads,
            non_temporal: match self.nt {
                NtArg::Auto => NonTemporalConfig::Auto,
                NtArg::Whole => NonTemporalConfig::Whole,
                NtArg::Partial => NonTemporalConfig::Partial,
            },
            seed: self.seed,
            ..ImagesConfig::default()
        }
    }
}
