//! Which crash images: options that several commands have.

use clap::{Args, ValueEnum};
use fastness_crashcheck::run::{ImagesConfig, NonTemporalConfig, PersistenceConfig, PickConfig};

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
    /// A file system in a guest: it takes a good part of a second, and several if it is traced.
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
        }
    }
}
