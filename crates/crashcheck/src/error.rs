//! Why a test could not be carried out. A program that loses data is not an error but a result.

use std::io;
use std::path::{Path, PathBuf};

use fastness_base::ErrorKind;
use fastness_crashcheck_trace::TraceError;

use crate::guest::GuestError;
use crate::process::Ending;
use crate::tracer::TracerError;

/// Result of a step of a test.
pub type Result<T, E = CheckError> = std::result::Result<T, E>;

/// Why a test could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The trace cannot be read, or is contradictory.
    #[error("the trace cannot be used")]
    Trace(#[from] TraceError),
    /// A file of the test itself.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A program that the test needs cannot be run.
    #[error("cannot run {program}")]
    Program {
        /// Its name.
        program: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The configuration of a test.
    #[error("{}: {what}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        what: String,
    },
    /// The program's log of operations.
    #[error("the log of operations, at event {event} of the trace: {what}")]
    Operations {
        /// Number of the event; that after the last one if something is missing.
        event: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A guest failed.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// A program could not be traced.
    #[error(transparent)]
    Tracer(#[from] TracerError),
    /// The program under test has failed while it was traced.
    #[error("the program under test {end}; its output ends with:\n{said}")]
    Failed {
        /// How it ended.
        end: Ending,
        /// The end of what it wrote.
        said: String,
    },
    /// The test itself failed in the guest while it was traced.
    #[error("the test failed in the guest; its output:\n{said}")]
    InGuest {
        /// What it wrote.
        said: String,
    },
    /// An oracle that neither accepts nor rejects a state.
    #[error("the oracle {program} {ending}")]
    Oracle {
        /// Its name.
        program: String,
        /// How it ended.
        ending: Ending,
    },
}

/// Creates a folder of the test, and those above it.
pub(crate) fn make_dir(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(CheckError::file("create", path))
}

impl CheckError {
    /// For `map_err`: what could not be done with a file.
    pub fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CheckError {
        let path = path.to_owned();
        move |source| CheckError::File { what, path, source }
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CheckError::Trace(error) => error.kind(),
            CheckError::Tracer(error) => error.kind(),
            CheckError::File { .. } => ErrorKind::MediaFailed,
            CheckError::Guest(_)
            | CheckError::Program { .. }
            | CheckError::Config { .. }
            | CheckError::Operations { .. }
            | CheckError::Oracle { .. }
            | CheckError::InGuest { .. }
            | CheckError::Failed { .. } => ErrorKind::Invalid,
        }
    }
}

fastness_base::has_kind!(CheckError);
