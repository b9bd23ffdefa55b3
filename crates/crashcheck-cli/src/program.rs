//! The program that `crashcheck run` and `crashcheck fuzz` test.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use fastness_crashcheck::run::{
    HintsConfig, ImagesConfig, OperationsConfig, OracleConfig, PmConfig, RecoverConfig, Test, TraceConfig,
};
use fastness_crashcheck::tracer::{Programs, Tools};
use fastness_terminal::size;

use crate::error::{Result, refuse};
use crate::options::{HintArgs, ImageArgs, RecoverArgs, Subject, words};

/// Where a program logs its operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OperationsArg {
    /// In a file, whose name the program gets where its arguments have {operations}
    File,
    /// On standard output
    Stdout,
    /// By the instruction
    Instruction,
}

/// A program under test: options of several commands.
#[derive(Debug, Args)]
pub(crate) struct ProgramArgs {
    /// Size of a file that stands for persistent memory; may be repeated
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pm: Vec<u64>,
    /// Command that recovers a crash image, and prints what a user would see
    #[arg(long, value_name = "COMMAND")]
    recover: Option<String>,
    /// Record this many return addresses for each event; needs frame pointers
    #[arg(long)]
    stacks: bool,
    /// The program logs its operations, there; a line of a state is a key and its value
    #[arg(long, value_enum, value_name = "WHERE", conflicts_with = "prefix")]
    operations: Option<OperationsArg>,
    /// Path of a qemu-x86_64 with support for plug-ins
    #[arg(long, value_name = "PROGRAM")]
    qemu: Option<PathBuf>,
    /// Path of the plug-in
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    #[command(flatten)]
    judge: RecoverArgs,
    #[command(flatten)]
    hints: HintArgs,
    #[command(flatten)]
    images: ImageArgs,
    /// The program under test, and its arguments
    #[arg(last = true)]
    command: Vec<String>,
}

impl ProgramArgs {
    /// Where QEMU and the plug-in are.
    pub(crate) fn tools(&self) -> Result<Tools> {
        Ok(Programs { qemu_user: self.qemu.clone(), plugin: self.plugin.clone() }.find()?)
    }

    /// Programs and recoveries at a time.
    pub(crate) fn threads(&self) -> usize {
        self.judge.threads()
    }

    /// The seed of what is chosen at random.
    pub(crate) fn seed(&self) -> u64 {
        self.images.seed()
    }

    /// The test that the command line describes.
    pub(crate) fn test(&self) -> Result<Test> {
        let missing = |what| refuse(format!("{what} is missing; see the examples of --help"));
        let recover = self.recover.as_deref().ok_or_else(|| missing("--recover COMMAND"))?;
        let program = self.command.first().ok_or_else(|| missing("-- PROGRAM"))?;
        if self.pm.is_empty() {
            return Err(missing("--pm SIZE"));
        }
        let name = Path::new(program)
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let plain =
            |char: char| if char.is_ascii_alphanumeric() || "-_.+".contains(char) { char } else { '_' };
        let pm = self.pm.iter().enumerate();
        let test = Test {
            name: name.chars().map(plain).collect(),
            pm: pm
                .map(|(index, size)| PmConfig { name: format!("pm{index}"), size: *size, initial: None })
                .collect(),
            trace: TraceConfig {
                command: self.command.clone(),
                stacks: self.stacks,
                timeout_s: self.judge.timeout,
            },
            recover: RecoverConfig {
                command: words(recover),
                write: self.judge.write(),
                timeout_s: self.judge.timeout,
                crashes: self.judge.crashes.depth(),
                per_point: self.judge.crashes.per_point(),
            },
            images: ImagesConfig { shrink: self.judge.shrink, ..self.images.config(Subject::Program) },
            oracle: OracleConfig {
                operations: self.operations.map(|place| match place {
                    OperationsArg::File => OperationsConfig::File,
                    OperationsArg::Stdout => OperationsConfig::Stdout,
                    OperationsArg::Instruction => OperationsConfig::Instruction,
                }),
                ..self.judge.oracle()
            },
            hints: HintsConfig { exclude: self.hints.exclude.clone() },
            dir: PathBuf::from("."),
        };
        test.check().map_err(refuse)?;
        Ok(test)
    }
}
