//! Why a program could not be traced.

use std::io;
use std::path::{Path, PathBuf};

use fastness_base::ErrorKind;
use fastness_crashcheck_trace::TraceError;

use crate::process::Ending;

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TracerError {
    /// The request lacks something.
    #[error("the request names no {0}")]
    Nothing(&'static str),
    /// QEMU is missing.
    #[error(
        "no qemu-x86_64 of version 10 or later that takes plug-ins: install it with scripts/install-qemu, or set FASTNESS_QEMU_USER to its path; tried {tried}"
    )]
    NoQemu {
        /// What was tried, and what was wrong with it.
        tried: String,
    },
    /// The plug-in is missing.
    #[error(
        "no {name}, which `cargo install` does not bring: build it with `cargo build --release -p fastness-crashcheck-tracer` and copy it from target/release into one of these folders, or set FASTNESS_TRACER_PLUGIN to its path; looked in {looked}"
    )]
    NoPlugin {
        /// Name of the file.
        name: &'static str,
        /// Folders.
        looked: String,
    },
    /// A file of PM does not exist, and no length was given.
    #[error("{0} does not exist: give it a size, such as {0}:64M")]
    NoSize(PathBuf),
    /// A file of PM has another length.
    #[error("{path} has {actual} bytes, not {expected}: remove it, or leave out the size")]
    Size {
        /// Which.
        path: PathBuf,
        /// What was asked for.
        expected: u64,
        /// What it has.
        actual: u64,
    },
    /// QEMU takes text on its command line.
    #[error("{0:?} is not valid UTF-8, which QEMU's options require")]
    NotText(PathBuf),
    /// A file, or a process.
    #[error("cannot {what} {path}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The plug-in has said on standard error why.
    #[error("the tracer gave up; its message is on standard error")]
    Failed,
    /// There is nothing.
    #[error("there is no trace; QEMU {end}")]
    NoTrace {
        /// How QEMU ended.
        end: Ending,
    },
    /// There is a trace without an end.
    #[error("the trace is incomplete; QEMU {end}")]
    Incomplete {
        /// How QEMU ended.
        end: Ending,
        /// What is wrong with it.
        #[source]
        source: TraceError,
    },
}

impl TracerError {
    pub(super) fn io(what: &'static str, path: &Path, source: io::Error) -> TracerError {
        TracerError::Io { what, path: path.to_owned(), source }
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            TracerError::Io { .. } => ErrorKind::MediaFailed,
            TracerError::Incomplete { .. } => ErrorKind::Corrupt,
            _ => ErrorKind::Invalid,
        }
    }
}

fastness_base::has_kind!(TracerError);
