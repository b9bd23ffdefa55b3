//! The error of a command: what is printed about it, what the user can do, and how the program ends.
//!
//! Each type of error becomes one by its own line in this file, which says whose advice it needs. A type
//! without a line does not compile, so no kind gets lost on the way to the exit code.

use std::error::Error;
use std::fmt::Display;
use std::io;

use fastness_base::{AnyError, ErrorKind, HasKind};
use fastness_crashcheck::CheckError;
use fastness_crashcheck::guest::GuestError;
use fastness_crashcheck::litmus::LitmusError;
use fastness_crashcheck::symbols::KernelSymbolsError;
use fastness_crashcheck::trace::ShowError;
use fastness_crashcheck::tracer::TracerError;
use fastness_crashcheck_trace::TraceError;
use fastness_daemon::{ClientError, Failure, StartError};
use fastness_efficiency::CostError;
use fastness_efficiency::sampler::SampleError;
use fastness_pmem::RegionError;
use fastness_pmlog::{AppendError, CreateError, OpenError, RecoverError, TrimError};
use fastness_store::{PoolError, StoreError};
use fastness_zvol::VolumeError;

use crate::output::is_reader_gone;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct CliError {
    error: AnyError,
    advice: Option<&'static str>,
    is_reader_gone: bool,
}

/// The result of a part of a command.
pub(crate) type Result<T, E = CliError> = std::result::Result<T, E>;

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

/// Refuses a request.
pub(crate) fn refuse(text: impl Into<String>) -> CliError {
    AnyError::new(ErrorKind::Invalid, text).into()
}

impl CliError {
    /// Input or output of the program itself failed, in the words of a library.
    fn own(error: &dyn Error) -> CliError {
        AnyError::of(error, None).into()
    }

    /// What happened, and why, outermost first; at least one.
    pub(crate) fn texts(&self) -> &[String] {
        self.error.texts()
    }

    /// Determines the exit code; none: input or output of the program itself failed.
    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        self.error.kind()
    }

    /// What the user can do, if the error itself does not say so.
    pub(crate) fn advice(&self) -> Option<&'static str> {
        self.advice
    }

    /// The reader of standard output has closed it, which is no failure.
    pub(crate) fn is_reader_gone(&self) -> bool {
        self.is_reader_gone
    }

    fn while_doing(self, text: impl Display) -> CliError {
        CliError { error: self.error.while_doing(text), ..self }
    }

    fn new(error: &dyn Error, kind: ErrorKind, advice: Option<&'static str>) -> CliError {
        CliError { error: AnyError::of(error, Some(kind)), advice, is_reader_gone: false }
    }
}

/// What was being done when something failed.
pub(crate) trait Context<T> {
    /// Puts `text` before what the error says.
    fn context(self, text: impl Display) -> Result<T>;

    /// The same for a text that is made only if it is needed.
    fn with_context<D: Display>(self, text: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: Into<CliError>> Context<T> for Result<T, E> {
    fn context(self, text: impl Display) -> Result<T> {
        self.with_context(|| text)
    }

    fn with_context<D: Display>(self, text: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| error.into().while_doing(text()))
    }
}

/// For errors that say what to do themselves, if anything can be done.
fn it_says(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Bug => Some("this is a defect of fastness; please report it"),
        ErrorKind::Denied => {
            Some("look at its owner and mode, or run the command as the user who has the right")
        }
        ErrorKind::AddressInUse => Some("choose another port or socket, or end what listens there"),
        _ => None,
    }
}

/// For what is wrong with a trace.
fn for_traces(kind: ErrorKind) -> Option<&'static str> {
    (kind == ErrorKind::Bug).then_some("this is a defect of the program that wrote the trace")
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

macro_rules! from {
    ($($error:ty => $advice:expr),* $(,)?) => {$(
        impl From<$error> for CliError {
            fn from(error: $error) -> CliError {
                let kind = HasKind::kind(&error);
                CliError::new(&error, kind, $advice(kind))
            }
        }
    )*};
}

from! {
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
    CheckError => for_traces,
    TraceError => for_traces,
    TracerError => for_logs,
    GuestError => for_logs,
    KernelSymbolsError => for_logs,
}

impl From<AnyError> for CliError {
    fn from(error: AnyError) -> CliError {
        let advice = error.kind().and_then(it_says);
        CliError { error, advice, is_reader_gone: false }
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> CliError {
        let in_use = (error.kind() == io::ErrorKind::AddrInUse).then_some(ErrorKind::AddressInUse);
        if let Some(kind) = ErrorKind::of_denial(&error).or(in_use) {
            return CliError::new(&error, kind, it_says(kind));
        }
        CliError { is_reader_gone: is_reader_gone(&error), ..CliError::own(&error) }
    }
}

/// A report that could not be made into text.
impl From<serde_json::Error> for CliError {
    fn from(error: serde_json::Error) -> CliError {
        CliError::own(&error)
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
        CliError { is_reader_gone: has_closed, ..CliError::new(&error, kind, for_logs(kind)) }
    }
}

impl From<ShowError> for CliError {
    fn from(error: ShowError) -> CliError {
        match error {
            ShowError::Trace(error) => error.into(),
            ShowError::Write(source) => CliError::from(source).while_doing("cannot write"),
        }
    }
}

/// A litmus file that cannot be judged is a wrong request.
impl From<LitmusError> for CliError {
    fn from(error: LitmusError) -> CliError {
        match error {
            LitmusError::Write(source) => CliError::from(source).while_doing("cannot write the report"),
            error => CliError::new(&error, ErrorKind::Invalid, None),
        }
    }
}
