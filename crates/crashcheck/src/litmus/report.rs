//! The results of judging litmus files.

use std::io::{self, Write};

use fastness_pm_model::{Config, Persistence, Rules};
use serde::Serialize;

use super::parse::State;

/// Result of one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TestReport {
    /// The program.
    pub name: String,
    /// "adr" or "eadr".
    pub mode: &'static str,
    /// Number of states that the model allows.
    pub states: usize,
    /// States that the file allows and the model does not.
    pub missing: Vec<State>,
    /// States that the model allows and the file does not.
    pub extra: Vec<State>,
}

impl TestReport {
    /// Whether file and model agree.
    pub fn agrees(&self) -> bool {
        self.missing.is_empty() && self.extra.is_empty()
    }
}

/// Result of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileReport {
    /// The file.
    pub file: String,
    /// "arch" or "dissertation".
    pub rules: &'static str,
    /// Whether non-temporal stores to one line were unordered.
    pub strict_nt: bool,
    /// Number of programs in whose states file and model agree.
    pub agree: usize,
    /// Number of programs in whose states they differ.
    pub differ: usize,
    /// The programs, in the order of the file.
    pub tests: Vec<TestReport>,
}

impl FileReport {
    /// Sums up the results of the programs.
    pub fn new(file: String, config: Config, tests: Vec<TestReport>) -> Self {
        let agree = tests.iter().filter(|test| test.agrees()).count();
        let differ = tests.len() - agree;
        let rules = match config.rules {
            Rules::Arch => "arch",
            Rules::Dissertation => "dissertation",
        };
        Self { file, rules, strict_nt: config.strict_nt, agree, differ, tests }
    }

    /// Whether file and model agree on all programs.
    pub fn agrees(&self) -> bool {
        self.differ == 0
    }

    /// Writes every difference, and a line with the sums.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for test in self.tests.iter().filter(|test| !test.agrees()) {
            writeln!(out, "{}: {} ({}): {} states", self.file, test.name, test.mode, test.states)?;
            for state in &test.missing {
                writeln!(out, "  missing {state:?}: allowed by the file, impossible in the model")?;
            }
            for state in &test.extra {
                writeln!(out, "  extra   {state:?}: possible in the model, not allowed by the file")?;
            }
        }
        let strict = if self.strict_nt { ", strict NT" } else { "" };
        let Self { file, rules, agree, differ, .. } = self;
        writeln!(out, "{file}: {} programs ({rules}{strict}), {agree} agree, {differ} differ", agree + differ)
    }
}

/// Name of a persistence in the format.
pub(crate) fn mode_name(persistence: Persistence) -> &'static str {
    match persistence {
        Persistence::Adr => "adr",
        Persistence::Eadr => "eadr",
    }
}
