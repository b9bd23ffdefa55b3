//! Why a litmus file could not be judged.

use std::fmt;
use std::io;
use std::path::PathBuf;

use fastness_pm_model::{ModelError, TooMany};

/// A litmus file could not be judged at all; differences in the states are not errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LitmusError {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
    /// The report could not be written.
    #[error("cannot write the report")]
    Write(#[source] io::Error),
    /// The contents are not a litmus file.
    #[error("{}: {location}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        location: Location,
        /// What is wrong there.
        #[source]
        problem: Problem,
    },
}

/// A place in a litmus file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Location {
    /// Index of the program.
    pub test_index: Option<usize>,
    /// Name of the program, if it was readable.
    pub test: Option<String>,
    /// Index of the operation.
    pub op_index: Option<usize>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.test_index, &self.test) {
            (None, _) => write!(f, "the file as a whole")?,
            (Some(index), None) => write!(f, "test {index}")?,
            (Some(index), Some(name)) => write!(f, "test {index} ({name})")?,
        }
        self.op_index.map_or(Ok(()), |index| write!(f, ", operation {index}"))
    }
}

/// What is wrong at a [`Location`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Not JSON, a missing or unknown field, or a field of another type.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Another version of the format.
    #[error("format {found}, not 1")]
    Format {
        /// The version given.
        found: u64,
    },
    /// More of something than [`limits`](super::limits) allow.
    #[error("{what}: {found}, at most {max}")]
    TooLarge {
        /// What is counted.
        what: &'static str,
        /// How much there is.
        found: u64,
        /// How much is allowed.
        max: u64,
    },
    /// Something that must not be empty is.
    #[error("no {what}")]
    Empty {
        /// What is missing.
        what: &'static str,
    },
    /// Two programs have the same name, or a name contains control characters.
    #[error("the name is not unique or contains control characters")]
    Name,
    /// No such operation.
    #[error("unknown operation {op:?}")]
    UnknownOp {
        /// The name given.
        op: String,
    },
    /// A field that the operation needs is missing, or one that it does not have is given.
    #[error("{op} with wrong fields: {field}")]
    Field {
        /// The operation.
        op: String,
        /// The field.
        field: &'static str,
    },
    /// The data are not pairs of hexadecimal digits.
    #[error("the data are not pairs of hexadecimal digits")]
    Hex,
    /// A state has another number of values than there are observed ranges.
    #[error("allowed state {state} has {found} values for {expected} observed ranges")]
    StateLength {
        /// Index of the state.
        state: usize,
        /// Its values.
        found: usize,
        /// Observed ranges.
        expected: usize,
    },
    /// A value does not fit into its observed range.
    #[error("allowed state {state} has the value {value}, too large for {size} bytes")]
    Value {
        /// Index of the state.
        state: usize,
        /// The value.
        value: u64,
        /// Bytes of the range.
        size: usize,
    },
    /// The operation does not fit the model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The program has too many crash images.
    #[error(transparent)]
    TooMany(#[from] TooMany),
}
