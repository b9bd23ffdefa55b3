//! The error of a command: what is printed about it, what the user can do, and how the program ends.
//!
//! Each type of error becomes one by its own line in this file, which says whose advice it needs. A type
//! without a line does not compile, so no kind gets lost on the way to the exit code.

use std::error::Error;
use std::io;

use fastness_base::{AnyError, ErrorKind};
use fastness_crashcheck_cli::CheckerError;
use fastness_daemon::{ClientError, Failure, StartError};
use fastness_efficiency::CostError;
use fastness_efficiency::sampler::SampleError;
use fastness_pmem::RegionError;
use fastness_pmlog::{AppendError, CreateError, OpenError, RecoverError, TrimError};
use fastness_store::{PoolError, StoreError};
use fastness_terminal::{is_reader_gone, it_says};
use fastness_zvol::VolumeError;

fastness_terminal::program_error! {
    /// Why a command failed.
    pub(crate) struct CliError;

    StartError => it_says,
    PoolError => it_says,
    StoreError => it_says,
    VolumeError => it_says,
    RegionError => for_making,
    CreateError => for_making,
    AppendError => for_logs,
    TrimError => for_logs,
    RecoverError<std::convert::Infallible> => for_logs,
    CostError => for_costs,
    SampleError => it_says,
}

/// The process that runs a pool, or was starting to, has ended.
pub(crate) fn gone(text: impl Into<String>) -> CliError {
    AnyError::new(ErrorKind::Closed, text).into()
}

/// No process has what is asked for.
pub(crate) fn not_running(text: impl Into<String>) -> CliError {
    AnyError::new(ErrorKind::NotRunning, text).into()
}

/// Another process is using what is needed.
pub(crate) fn busy(text: impl Into<String>) -> CliError {
    AnyError::new(ErrorKind::Retry, text).into()
}

impl CliError {
    fn new(error: &dyn Error, kind: ErrorKind, advice: Option<&'static str>) -> CliError {
        CliError(fastness_terminal::Failure::new(error, kind, advice))
    }
}

/// For record logs, and the regions that they are in.
fn for_logs(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Retry => Some("another process has it open; try again after that process has ended"),
        ErrorKind::NoSpace => Some("empty the log with `fastness log recover`, or use a larger region"),
        ErrorKind::MediaFailed => Some("copy the readable data, and replace the medium"),
        ErrorKind::Closed => Some("open it again"),
        kind => it_says(kind),
    }
}

/// For regions and logs that are to be made.
fn for_making(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::NoSpace => Some("make room on its file system, or choose a smaller --size"),
        kind => for_logs(kind),
    }
}

/// For a record log that could not be opened.
fn for_opening(error: &OpenError) -> Option<&'static str> {
    match (error, error.kind()) {
        (OpenError::NotALog, _) => Some("create one with `fastness log create`"),
        (OpenError::Truncated { .. }, _) => {
            Some("the file was cut off; `fastness log dump` shows what is left of it")
        }
        _ if error.is_loss() => Some(
            "examine it with `fastness log verify` and `fastness log dump`; `fastness log recover --drop-tail` \
             recovers what does not depend on the loss, and gives up the rest",
        ),
        (_, ErrorKind::Corrupt | ErrorKind::MediaFailed) => {
            Some("`fastness log dump` shows what is left of it")
        }
        (_, kind) => for_logs(kind),
    }
}

/// For requests to a pool.
fn for_requests(error: &ClientError) -> Option<&'static str> {
    match error {
        ClientError::NotRunning { .. } | ClientError::Gone { .. } => {
            Some("start it with `fastness pool import NAME`, or `fastness up DIR`")
        }
        error => it_says(error.kind()),
    }
}

/// For measurements of costs.
fn for_costs(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Retry => Some("try again when that has ended, or say with --idle-max what counts as idle"),
        kind => it_says(kind),
    }
}

impl From<CheckerError> for CliError {
    fn from(error: CheckerError) -> CliError {
        fastness_terminal::Failure::from(error).into()
    }
}

impl From<OpenError> for CliError {
    fn from(error: OpenError) -> CliError {
        CliError::new(&error, error.kind(), for_opening(&error))
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> CliError {
        let advice = for_requests(&error);
        match error {
            ClientError::Failed(failure) => failure.into(),
            error => CliError::new(&error, error.kind(), advice),
        }
    }
}

/// Its causes crossed the socket as text.
impl From<Failure> for CliError {
    fn from(failure: Failure) -> CliError {
        AnyError::new(failure.kind(), failure.message).because(failure.causes).into()
    }
}

impl From<RecoverError<io::Error>> for CliError {
    fn from(error: RecoverError<io::Error>) -> CliError {
        let has_closed = matches!(&error, RecoverError::Callback { source, .. } if is_reader_gone(source));
        let kind = error.kind();
        CliError(CliError::new(&error, kind, for_logs(kind)).0.reader_gone(has_closed))
    }
}
