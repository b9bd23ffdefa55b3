//! Which crash images: options that several commands have.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fastness_crashcheck::run::{
    ImagesConfig, NonTemporalConfig, OracleConfig, PersistenceConfig, PickConfig,
};
use fastness_crashcheck::symbols::{KernelSymbols, KernelSymbolsError};

/// What becomes of non-temporal stores that follow each other in a line.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum NtArg {
    /// All or none; in part where states hang on them
    Auto,
    /// All or none
    Whole,
    /// In part
    Partial,
}

/// How crash images are recovered, and what is right.
#[derive(Debug, Args)]
#[command(next_help_heading = "Recovery")]
pub(crate) struct RecoverArgs {
    /// Run after a recovery that ended well: does what was recovered take writes?
    #[arg(long, value_name = "COMMAND")]
    write: Option<String>,
    /// Gets each state as its standard input; exit code 1 refuses it
    #[arg(long, value_name = "COMMAND")]
    predicate: Option<String>,
    /// Lines of a state are records in order, and checkpoint N has acknowledged N of them
    #[arg(long)]
    prefix: bool,
    /// Operations may have states between that before and that after
    #[arg(long)]
    not_atomic: bool,
    /// Kill a program, or a recovery, after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) timeout: u64,
    /// Recoveries for each crash of the report, to show only what it must have lost
    #[arg(long, value_name = "NUMBER", default_value_t = 64)]
    pub(crate) shrink: usize,
    /// Recoveries at a time; as many as there are CPUs without one
    #[arg(short, long, value_name = "NUMBER")]
    jobs: Option<usize>,
}

impl RecoverArgs {
    pub(crate) fn write(&self) -> Option<Vec<String>> {
        self.write.as_deref().map(words)
    }

    pub(crate) fn oracle(&self) -> OracleConfig {
        let predicate = self.predicate.as_deref().map(words);
        OracleConfig { atomic: !self.not_atomic, predicate, prefix: self.prefix }
    }

    pub(crate) fn threads(&self) -> usize {
        self.jobs.unwrap_or_else(threads)
    }
}

/// Names for the addresses of a kernel, in traces of guests.
#[derive(Debug, Args)]
pub(crate) struct SymbolArgs {
    /// For traces of guests, symbols of their kernel: the file `kallsyms` that `crashcheck fs -o` leaves
    /// beside them
    #[arg(long, value_name = "FILE")]
    kallsyms: Option<PathBuf>,
}

impl SymbolArgs {
    pub(crate) fn read(&self) -> Result<Symbols, KernelSymbolsError> {
        Ok(Symbols(self.kallsyms.as_deref().map(KernelSymbols::read).transpose()?))
    }
}

/// Those of a kernel, or none.
pub(crate) struct Symbols(Option<KernelSymbols>);

impl Symbols {
    pub(crate) fn find(&self, pc: u64) -> Option<String> {
        self.0.as_ref()?.find(pc)
    }
}

/// As many as there are CPUs.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Of a command line; whoever needs blanks in a word writes a configuration.
pub(crate) fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(str::to_owned).collect()
}

/// Which crash images.
#[derive(Debug, Args)]
#[command(next_help_heading = "Crash images")]
pub(crate) struct ImageArgs {
    /// Caches survive a power failure too
    #[arg(long)]
    eadr: bool,
    /// The narrower model of the dissertation, for comparison
    #[arg(long)]
    dissertation: bool,
    /// Leave non-temporal stores to one line unordered
    #[arg(long)]
    strict_nt: bool,
    /// In program order alone, once for each stack: finds errors of the logic, fast
    #[arg(long)]
    fast: bool,
    /// Most images of a failure point; 256 for programs, 8 for file systems in a guest without one
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    per_point: Option<u64>,
    /// Where there are more: non-temporal stores that follow each other in a line
    #[arg(long, value_enum, default_value = "auto")]
    nt: NtArg,
    /// Where there are more, and still after the other choices: seed of those that are taken
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Where there are more: trace the recovery, to vary only what it reads; for programs without being told
    #[arg(long, overrides_with = "no_reads")]
    reads: bool,
    /// Do not trace the recovery
    #[arg(long, overrides_with = "reads")]
    no_reads: bool,
}

/// Whether there is a machine to boot for each recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A program: a recovery takes milliseconds.
    Program,
    /// A file system in a guest: it takes a good part of a second, and one or two if it is traced.
    Guest,
}

impl ImageArgs {
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
