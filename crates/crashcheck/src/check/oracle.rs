//! Oracles: they know which states are right.

use std::process::Command;
use std::time::Duration;

use super::state::State;
use crate::error::{CheckError, Result};
use crate::process::{self, Ending};

/// When a crash comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The last checkpoint before it.
    pub checkpoint: Option<u64>,
    /// Number of the first event after it.
    pub event: u64,
}

/// Judges single states.
pub trait Oracle {
    /// Why a crash at this moment must not lead to this state; `None` if it may.
    ///
    /// # Errors
    /// If the oracle itself fails.
    fn refuses(&self, state: &State, moment: Moment) -> Result<Option<String>>;

    /// Where two moments have the same period, the oracle says the same of a state.
    fn period(&self, moment: Moment) -> Option<u64> {
        moment.checkpoint
    }
}

/// A program that reads a state from standard input, and the checkpoint's number (or nothing) from
/// `CHECKPOINT`. Exit code 0: the state is right. 1: it is wrong; the first line of output says why.
/// Anything else is a failure of the oracle.
#[derive(Debug, Clone)]
pub struct Predicate {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// It is killed then.
    pub time_out: Duration,
}

impl Oracle for Predicate {
    fn refuses(&self, state: &State, moment: Moment) -> Result<Option<String>> {
        let program = self.command.first().cloned().unwrap_or_default();
        let mut command = Command::new(&program);
        command.args(self.command.iter().skip(1));
        command.env("CHECKPOINT", moment.checkpoint.map_or_else(String::new, |number| number.to_string()));
        let output = process::run(&mut command, &state.text, self.time_out)
            .map_err(|source| CheckError::Program { program: program.clone(), source })?;
        match output.ending {
            Ending::Code(0) => Ok(None),
            Ending::Code(1) => {
                let said = String::from_utf8_lossy(&output.stdout);
                let line = said.lines().next().unwrap_or_default();
                Ok(Some(line.chars().take(200).collect()))
            }
            ending => Err(CheckError::Oracle { program, ending }),
        }
    }
}

/// For logs and databases: each line of a state is a record, checkpoint N says that N records were
/// acknowledged. A state must have the first records of the complete list, in order, and all that were
/// acknowledged.
#[derive(Debug, Clone)]
pub struct Prefix {
    /// All records, as a state without a loss has them.
    pub complete: Vec<u8>,
}

impl Oracle for Prefix {
    fn refuses(&self, state: &State, moment: Moment) -> Result<Option<String>> {
        if !state.ending.is_success() {
            // Another check finds that.
            return Ok(None);
        }
        let lines = |text: &[u8]| -> Vec<Vec<u8>> {
            let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec);
            lines.filter(|line| !line.is_empty()).collect()
        };
        let (have, all) = (lines(&state.text), lines(&self.complete));
        let acknowledged = usize::try_from(moment.checkpoint.unwrap_or(0)).unwrap_or(usize::MAX);
        if let Some(wrong) = (0..have.len()).find(|at| all.get(*at) != Some(&have[*at])) {
            return Ok(Some(format!("record {} differs from the one that was written", wrong + 1)));
        }
        let is_lost = have.len() < acknowledged;
        Ok(is_lost.then(|| format!("{acknowledged} records were acknowledged, but {} are left", have.len())))
    }
}
