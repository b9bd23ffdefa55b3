//! The error of a command of the crash tester. Each type of error becomes one by its own line, so that no
//! kind gets lost on the way to the exit code.

use fastness_base::ErrorKind;
use fastness_crashcheck::CheckError;
use fastness_crashcheck::guest::GuestError;
use fastness_crashcheck::litmus::LitmusError;
use fastness_crashcheck::symbols::KernelSymbolsError;
use fastness_crashcheck::trace::ShowError;
use fastness_crashcheck::tracer::TracerError;
use fastness_crashcheck_trace::TraceError;
use fastness_terminal::{Failure, it_says};

fastness_terminal::program_error! {
    /// Why a command of the crash tester failed.
    pub struct CheckerError;

    CheckError => for_traces,
    TraceError => for_traces,
    TracerError => for_tests,
    GuestError => for_tests,
    KernelSymbolsError => for_tests,
}

/// For what is wrong with a trace.
fn for_traces(kind: ErrorKind) -> Option<&'static str> {
    (kind == ErrorKind::Bug).then_some("this is a defect of the program that wrote the trace")
}

/// For programs and guests under test.
fn for_tests(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Retry => Some("another process has it open; try again after that process has ended"),
        ErrorKind::NoSpace => Some("make room on its file system"),
        kind => it_says(kind),
    }
}

impl From<ShowError> for CheckerError {
    fn from(error: ShowError) -> CheckerError {
        match error {
            ShowError::Trace(error) => error.into(),
            ShowError::Write(source) => Failure::from(source).while_doing("cannot write").into(),
        }
    }
}

/// A litmus file that cannot be judged is a wrong request.
impl From<LitmusError> for CheckerError {
    fn from(error: LitmusError) -> CheckerError {
        match error {
            LitmusError::Write(source) => Failure::from(source).while_doing("cannot write the report").into(),
            error => Failure::new(&error, ErrorKind::Invalid, None).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_reader_that_has_gone_is_no_failure_of_a_command() {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        let gone = || fastness_terminal::marked(closed());
        assert!(CheckerError::from(ShowError::Write(gone())).is_reader_gone());
        assert!(CheckerError::from(LitmusError::Write(gone())).is_reader_gone());
        assert!(!CheckerError::from(ShowError::Write(closed())).is_reader_gone());
    }
}
