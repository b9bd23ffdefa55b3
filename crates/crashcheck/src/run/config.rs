//! The configuration of a test, from a TOML file.
//!
//! ```toml
//! name = "journal"
//!
//! [[pm]]                                   # files that are persistent memory: {pm} or {0}, {1}, ...
//! name = "pool"
//! size = "1M"
//!
//! [trace]                                  # the program under test
//! command = ["./journal", "append", "{pm}"]
//!
//! [recover]                                # run on each crash image; what it prints is the state
//! command = ["./journal", "show", "{pm}"]
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fastness_pm_model::{Config, Persistence, Rules};
use serde::Deserialize;

use crate::error::{CheckError, Result};
use crate::explain::Exclusion;
use crate::generate::{NonTemporal, Options, Outline, Pick};
use crate::size::size_of;

/// A test.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// Its name, also in file names.
    pub name: String,
    /// Files that are persistent memory.
    #[serde(default)]
    pub pm: Vec<PmConfig>,
    /// The program under test.
    pub trace: TraceConfig,
    /// How a crash image becomes a state.
    pub recover: RecoverConfig,
    /// Which crash images.
    #[serde(default)]
    pub images: ImagesConfig,
    /// Further oracles.
    #[serde(default)]
    pub oracle: OracleConfig,
    /// What the report hints at.
    #[serde(default)]
    pub hints: HintsConfig,
    /// Where commands are run, and what relative names of files are relative to; that of the file by default.
    #[serde(default)]
    pub dir: PathBuf,
}

/// A file that is persistent memory.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PmConfig {
    /// What it is called in reports.
    pub name: String,
    /// Its length: bytes, or with a unit.
    #[serde(deserialize_with = "size")]
    pub size: u64,
    /// A file with its contents at the beginning; zeroes without one.
    pub initial: Option<PathBuf>,
}

/// The program under test.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceConfig {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Return addresses of each event; needs frame pointers.
    #[serde(default)]
    pub stacks: bool,
    /// Killed after this many seconds.
    #[serde(default = "seconds")]
    pub timeout_s: u64,
}

/// How a crash image becomes a state.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecoverConfig {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Run after a successful recovery: do the recovered contents accept writes?
    pub write: Option<Vec<String>>,
    /// Each is killed after this many seconds.
    #[serde(default = "seconds")]
    pub timeout_s: u64,
    /// So many crashes of recoveries, one after the other, follow that of the program.
    #[serde(default)]
    pub crashes: usize,
    /// Most images of a failure point of a recovery.
    #[serde(default = "recovery_images")]
    pub per_point: usize,
}

/// Which crash images.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImagesConfig {
    /// What survives a power failure.
    pub persistence: PersistenceConfig,
    /// The rules of the dissertation, for comparison.
    pub dissertation: bool,
    /// Non-temporal stores to one line are not ordered with each other.
    pub strict_nt: bool,
    /// Which images of a failure point.
    pub pick: PickConfig,
    /// Most images of a failure point.
    pub per_point: usize,
    /// Where there are more, vary only lines that the recovery reads; it is traced for that.
    pub reads: bool,
    /// Where there are more, what becomes of non-temporal stores that follow each other in a line.
    pub non_temporal: NonTemporalConfig,
    /// Seed of what is chosen at random.
    pub seed: u64,
    /// Recoveries for each crash that a report shows, to find the part of what it has lost that is enough.
    pub shrink: usize,
}

impl Default for ImagesConfig {
    fn default() -> ImagesConfig {
        ImagesConfig {
            persistence: PersistenceConfig::Adr,
            dissertation: false,
            strict_nt: false,
            pick: PickConfig::Subsets,
            per_point: 256,
            reads: true,
            non_temporal: NonTemporalConfig::Auto,
            seed: 0,
            shrink: 64,
        }
    }
}

/// What survives a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PersistenceConfig {
    /// What has left the caches.
    Adr,
    /// The caches too.
    Eadr,
}

/// Which images of a failure point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PickConfig {
    /// With a part of what is pending.
    Subsets,
    /// In program order, once for each stack.
    Fast,
}

/// How consecutive non-temporal stores to a line may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NonTemporalConfig {
    /// All or none; in part where states depend on it.
    Auto,
    /// All or none.
    Whole,
    /// In part.
    Partial,
}

/// What the report hints at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HintsConfig {
    /// Not these: ranges of PM, functions, files. Crash images are made of them all the same.
    pub exclude: Vec<Exclusion>,
}

/// Further oracles.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OracleConfig {
    /// An operation has at most the states before and after it.
    pub atomic: bool,
    /// A program that gets a state ([`Predicate`](crate::check::Predicate)).
    pub predicate: Option<Vec<String>>,
    /// Lines are records, checkpoints say how many were acknowledged ([`Prefix`](crate::check::Prefix)).
    pub prefix: bool,
    /// The program logs its operations, there; a line of a state is a key and its value
    /// ([`Operations`](crate::check::Operations)). Then that says what is right, not `atomic`.
    pub operations: Option<OperationsConfig>,
}

/// Where a program logs its operations. A message by an instruction counts in any case
/// ([`OPERATION`](fastness_crashcheck_trace::hypercall::OPERATION)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationsConfig {
    /// In a file of which the command has the name, where it says [`OPERATIONS_FILE`].
    File,
    /// On standard output.
    Stdout,
    /// By the instruction only.
    Instruction,
}

/// Stands for the name of the log's file in the command of the program under test.
pub const OPERATIONS_FILE: &str = "{operations}";

/// Stands for the name of the file with the input in the command of a program that is fuzzed. Without it the
/// program gets its input on standard input.
pub const INPUT_FILE: &str = "@@";

impl Default for OracleConfig {
    fn default() -> OracleConfig {
        OracleConfig { atomic: true, predicate: None, prefix: false, operations: None }
    }
}

fn seconds() -> u64 {
    60
}

/// Most images of a failure point of a recovery, if nothing else is asked for.
pub const RECOVERY_IMAGES: usize = 16;
/// Most crashes of recoveries that follow each other.
pub const RECOVERY_CRASHES_MAX: usize = 100;

fn recovery_images() -> usize {
    RECOVERY_IMAGES
}

fn size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Size {
        Bytes(u64),
        Text(String),
    }
    let text = match Size::deserialize(deserializer)? {
        Size::Bytes(bytes) => return Ok(bytes),
        Size::Text(text) => text,
    };
    size_of(&text).map_err(serde::de::Error::custom)
}

/// Whether it can be the name of a file, in any folder.
pub(super) fn is_plain(name: &str) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_.+".contains(char);
    !name.is_empty() && name.len() <= 100 && !name.starts_with('.') && name.chars().all(is_plain)
}

impl Test {
    /// Reads a file.
    ///
    /// # Errors
    /// [`CheckError::File`], and [`CheckError::Config`] with line and column.
    pub fn read(path: &Path) -> Result<Test> {
        let text = std::fs::read_to_string(path).map_err(CheckError::file("read", path))?;
        let mut test =
            Test::parse(&text).map_err(|what| CheckError::Config { path: path.to_owned(), what })?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        test.dir = dir.join(&test.dir);
        Ok(test)
    }

    /// Reads the text of a file; says what is wrong with it, and where.
    ///
    /// # Errors
    /// That.
    pub fn parse(text: &str) -> Result<Test, String> {
        let test: Test = parse_toml(text)?;
        test.check()?;
        Ok(test)
    }

    /// Says what is wrong with it beyond its form.
    ///
    /// # Errors
    /// That.
    pub fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        // They become names of files.
        for name in std::iter::once(&self.name).chain(self.pm.iter().map(|pm| &pm.name)) {
            if !is_plain(name) {
                return Err(format!("name {name:?}: letters, digits, and - _ . + only"));
            }
        }
        if let Some(pm) = self.pm.iter().find(|pm| !names.insert(&pm.name)) {
            return Err(format!("two files of persistent memory have the name {}", pm.name));
        }
        if self.trace.command.is_empty() || self.recover.command.is_empty() {
            return Err("a command is empty".to_owned());
        }
        if let Some(pm) = self.pm.iter().find(|pm| pm.size == 0) {
            return Err(format!("size of {}: 0", pm.name));
        }
        let names_log = self.trace.command.iter().any(|word| word.contains(OPERATIONS_FILE));
        let is_file = self.oracle.operations == Some(OperationsConfig::File);
        if names_log != is_file {
            let what = "the log of operations is a file (`operations = \"file\"`, `--operations file`) if, and \
                        only if, the program gets its name: the command must have {operations}";
            return Err(what.to_owned());
        }
        if self.oracle.operations.is_some() && self.oracle.prefix {
            return Err("a state has either records (prefix) or keys and values (operations)".to_owned());
        }
        if self.images.per_point == 0 {
            return Err("images.per_point: 0".to_owned());
        }
        if self.recover.per_point == 0 || self.recover.crashes > RECOVERY_CRASHES_MAX {
            return Err(format!(
                "recover: at most {RECOVERY_CRASHES_MAX} crashes, at least 1 image per_point"
            ));
        }
        Ok(())
    }
}

impl ImagesConfig {
    /// The machine.
    pub fn config(&self) -> Config {
        let persistence = match self.persistence {
            PersistenceConfig::Adr => Persistence::Adr,
            PersistenceConfig::Eadr => Persistence::Eadr,
        };
        let rules = if self.dissertation { Rules::Dissertation } else { Rules::Arch };
        Config { persistence, rules, strict_nt: self.strict_nt }
    }

    /// Options for a trace with this outline.
    pub fn options(&self, outline: Outline) -> Options {
        Options {
            config: self.config(),
            outline,
            pick: match self.pick {
                PickConfig::Subsets => Pick::Subsets,
                PickConfig::Fast => Pick::Fast,
            },
            images_per_point: self.per_point,
            seed: self.seed,
            non_temporal: match self.non_temporal {
                NonTemporalConfig::Auto | NonTemporalConfig::Whole => NonTemporal::Whole,
                NonTemporalConfig::Partial => NonTemporal::Partial,
            },
            ..Options::default()
        }
    }
}

/// Reads TOML. What is wrong is said with its line; with the text of that as well, unless it is very long.
pub(super) fn parse_toml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    const SAID_BYTES_MAX: usize = 1000;
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let said = error.to_string();
        if said.len() <= SAID_BYTES_MAX {
            return said;
        }
        let before = text.get(..error.span().map_or(0, |span| span.start)).unwrap_or(text);
        let line = 1 + before.matches('\n').count();
        let message: String = error.message().chars().take(SAID_BYTES_MAX / 4).collect();
        format!("line {line}: {message}")
    })
}
