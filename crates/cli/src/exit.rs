//! How commands end: the exit code, and what standard error says about a failure.

use std::io;
use std::process::ExitCode;

use fastness_base::ErrorKind;
use fastness_crashcheck::CheckError;
use fastness_crashcheck::guest::GuestError;
use fastness_crashcheck::litmus::LitmusError;
use fastness_crashcheck::symbols::KernelSymbolsError;
use fastness_crashcheck::trace::ShowError;
use fastness_crashcheck::tracer::TracerError;
use fastness_crashcheck_trace::TraceError;
use fastness_daemon::{ClientError, Failure, StartError};
use fastness_pmem::RegionError;
use fastness_pmlog::{AppendError, CreateError, OpenError, RecoverError, TrimError};
use fastness_store::PoolError;
use fastness_zvol::VolumeError;

use crate::output::{ReaderGone, note};

/// The outcome of a command that did what it was asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing is wrong.
    Clean,
    /// It found damage or a difference.
    Found,
}

/// An error of the command line itself, with its kind.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Refusal {
    /// What is wrong, and how to mend it.
    pub(crate) text: String,
    /// Determines the exit code.
    pub(crate) kind: ErrorKind,
}

/// The process that runs a pool, or was starting to, has ended.
pub(crate) fn gone(text: impl Into<String>) -> anyhow::Error {
    Refusal { text: text.into(), kind: ErrorKind::Closed }.into()
}

/// Another process is using what is needed.
pub(crate) fn busy(text: impl Into<String>) -> anyhow::Error {
    Refusal { text: text.into(), kind: ErrorKind::Retry }.into()
}

/// Refuses a request.
pub(crate) fn refuse(text: impl Into<String>) -> anyhow::Error {
    Refusal { text: text.into(), kind: ErrorKind::Invalid }.into()
}

/// The exit code of a result; prints what went wrong to standard error.
pub(crate) fn code(result: anyhow::Result<Outcome>) -> ExitCode {
    let error = match result {
        Ok(Outcome::Clean) => return ExitCode::SUCCESS,
        Ok(Outcome::Found) => return ExitCode::from(1),
        Err(error) => error,
    };
    if is_reader_gone(&error) {
        return ExitCode::SUCCESS;
    }
    note(format_args!("fastness: {error}"));
    let mut said = error.to_string();
    for cause in error.chain().skip(1) {
        let text = cause.to_string();
        // An error with the same text as its source is printed once.
        if !said.ends_with(&text) {
            note(format_args!("  because: {text}"));
        }
        said = text;
    }
    if let Some(failure) = error.chain().find_map(failure_of) {
        failure.causes.iter().for_each(|cause| note(format_args!("  because: {cause}")));
    }
    let kind = kind_of(&error);
    if let Some(advice) = kind.and_then(|kind| advice(&error, kind)) {
        note(format_args!("  {advice}"));
    }
    ExitCode::from(kind.map_or(10, ErrorKind::exit_code))
}

/// An error of the process that runs the pool; its causes crossed the socket as text.
fn failure_of<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a Failure> {
    match cause.downcast_ref::<ClientError>() {
        Some(ClientError::Failed(failure)) => Some(failure),
        _ => cause.downcast_ref::<Failure>(),
    }
}

fn is_reader_gone(error: &anyhow::Error) -> bool {
    let inner = |cause: &'_ (dyn std::error::Error + 'static)| {
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.is_some_and(|inner| inner.is::<ReaderGone>())
    };
    error.chain().any(inner)
}

pub(crate) fn kind_of(error: &anyhow::Error) -> Option<ErrorKind> {
    error.chain().find_map(|cause| {
        let kind = cause.downcast_ref::<Refusal>().map(|error| error.kind);
        kind.or_else(|| cause.downcast_ref::<RegionError>().map(RegionError::kind))
            .or_else(|| cause.downcast_ref::<CreateError>().map(CreateError::kind))
            .or_else(|| cause.downcast_ref::<OpenError>().map(OpenError::kind))
            .or_else(|| cause.downcast_ref::<AppendError>().map(AppendError::kind))
            .or_else(|| cause.downcast_ref::<TrimError>().map(TrimError::kind))
            .or_else(|| cause.downcast_ref::<ClientError>().map(ClientError::kind))
            .or_else(|| cause.downcast_ref::<Failure>().map(Failure::kind))
            .or_else(|| cause.downcast_ref::<StartError>().map(StartError::kind))
            .or_else(|| cause.downcast_ref::<PoolError>().map(PoolError::kind))
            .or_else(|| cause.downcast_ref::<VolumeError>().map(VolumeError::kind))
            .or_else(|| cause.downcast_ref::<CheckError>().map(CheckError::kind))
            .or_else(|| cause.is::<GuestError>().then_some(ErrorKind::Invalid))
            .or_else(|| cause.downcast_ref::<TraceError>().map(TraceError::kind))
            .or_else(|| cause.downcast_ref::<KernelSymbolsError>().map(KernelSymbolsError::kind))
            .or_else(|| cause.downcast_ref::<TracerError>().map(TracerError::kind))
            .or_else(|| cause.downcast_ref::<ShowError>().and_then(show_kind))
            .or_else(|| cause.downcast_ref::<LitmusError>().and_then(litmus_kind))
            .or_else(|| cause.downcast_ref::<RecoverError<io::Error>>().map(RecoverError::kind))
            .or_else(|| {
                cause.downcast_ref::<RecoverError<std::convert::Infallible>>().map(RecoverError::kind)
            })
    })
}

/// A litmus file that cannot be judged is a wrong request.
fn litmus_kind(error: &LitmusError) -> Option<ErrorKind> {
    match error {
        LitmusError::Write(_) => None,
        _ => Some(ErrorKind::Invalid),
    }
}

/// Standard output was closed by its reader, which is not an error.
fn show_kind(error: &ShowError) -> Option<ErrorKind> {
    match error {
        ShowError::Trace(error) => Some(error.kind()),
        ShowError::Write(_) => None,
    }
}

fn says_what_to_do(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.is::<Refusal>()
        || cause.is::<PoolError>()
        || cause.is::<StartError>()
        // The same, from the process that was starting to run the pool.
        || cause.is::<Failure>()
}

/// What the user can do, if the error itself does not say so.
fn advice(error: &anyhow::Error, kind: ErrorKind) -> Option<&'static str> {
    let client = error.chain().find_map(|cause| cause.downcast_ref::<ClientError>());
    if let Some(ClientError::NotRunning { .. } | ClientError::Gone { .. }) = client {
        return Some("start it with `fastness pool import NAME`, or `fastness up DIR`");
    }
    if client.is_some() || error.chain().any(says_what_to_do) {
        // These say what to do, if anything can be done.
        return (kind == ErrorKind::Bug).then_some("this is a defect of fastness; please report it");
    }
    if error
        .chain()
        .any(|cause| cause.is::<TraceError>() || cause.is::<ShowError>() || cause.is::<CheckError>())
    {
        return (kind == ErrorKind::Bug).then_some("this is a defect of the program that wrote the trace");
    }
    let open = error.chain().find_map(|cause| cause.downcast_ref::<OpenError>());
    Some(match (open, kind) {
        (Some(OpenError::NotALog), _) => "create one with `fastness log create`",
        (Some(OpenError::Truncated { .. }), _) => {
            "the file was cut off; `fastness log dump` shows what is left of it"
        }
        (Some(open), _) if open.is_loss() => {
            "examine it with `fastness log verify` and `fastness log dump`; `fastness log recover --drop-tail` \
             recovers what does not depend on the loss, and gives up the rest"
        }
        (Some(_), ErrorKind::Corrupt | ErrorKind::MediaFailed) => {
            "`fastness log dump` shows what is left of it"
        }
        (_, ErrorKind::Retry) => "another process has it open; try again after that process has ended",
        (_, ErrorKind::NoSpace) => "empty the log with `fastness log recover`, or use a larger region",
        (_, ErrorKind::MediaFailed) => "copy the readable data, and replace the medium",
        (_, ErrorKind::Closed) => "open it again",
        (_, ErrorKind::Bug) => "this is a defect of fastness; please report it",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed_pipe() -> io::Error {
        io::ErrorKind::BrokenPipe.into()
    }

    /// Only the reader of standard output may go without that anything has failed.
    #[test]
    fn a_closed_pipe_is_a_success_for_standard_output_only() {
        let gone = ClientError::Gone { pool: "tank".to_owned(), source: closed_pipe() };
        assert_eq!(code(Err(gone.into())), ExitCode::from(8));
        assert_eq!(code(Err(closed_pipe().into())), ExitCode::from(10));
        let printed = io::Error::new(io::ErrorKind::BrokenPipe, ReaderGone);
        assert_eq!(code(Err(anyhow::Error::from(printed).context("cannot print"))), ExitCode::SUCCESS);
    }
}
