//! How commands end: the exit code, and what standard error says about a failure.

use std::process::ExitCode;

use fastness_daemon::{Level, say as tell_service, speaks_as_service};
use fastness_terminal::Outcome;

use crate::error::{CliError, Result};

/// The exit code of a result; prints what went wrong to standard error.
pub(crate) fn code(result: Result<Outcome>) -> ExitCode {
    fastness_terminal::end(&result, say)
}

/// Prints an error that is not the last one.
pub(crate) fn tell<T>(result: &Result<T>) {
    if let Err(error) = result {
        say(error);
    }
}

fn say(error: &CliError) {
    if speaks_as_service() {
        // One entry of a journal, not several.
        let advice = error.advice().map_or_else(String::new, |advice| format!("; {advice}"));
        return tell_service(Level::Error, format_args!("{}{advice}", error.texts().join(": ")));
    }
    fastness_terminal::say("fastness", error);
}

#[cfg(test)]
mod tests {
    use std::io;

    use fastness_base::{AnyError, ErrorKind};
    use fastness_daemon::{ClientError, Failure};
    use fastness_pmlog::{AppendError, OpenError, RecoverError};
    use fastness_prb::EntryId;
    use fastness_terminal::{marked, number};

    use super::*;
    use crate::error::{Context, busy, gone, refuse};

    fn ends(error: impl Into<CliError>) -> (u8, Option<&'static str>) {
        let result = Err(error.into()).context("what was being done");
        (number(&result), result.unwrap_err().advice())
    }

    fn reader_gone() -> io::Error {
        marked(closed_pipe())
    }

    fn recovery_stopped_by(source: io::Error) -> RecoverError<io::Error> {
        RecoverError::Callback { id: EntryId::new(1, 1), source }
    }

    fn closed_pipe() -> io::Error {
        io::ErrorKind::BrokenPipe.into()
    }

    /// The codes of `fastness --help`.
    #[test]
    fn every_kind_has_its_exit_code_from_wherever_it_comes() {
        let codes = [
            (ErrorKind::Invalid, 3),
            (ErrorKind::Retry, 4),
            (ErrorKind::NoSpace, 5),
            (ErrorKind::Corrupt, 6),
            (ErrorKind::MediaFailed, 7),
            (ErrorKind::Closed, 8),
            (ErrorKind::Bug, 9),
            (ErrorKind::NotRunning, 11),
            (ErrorKind::Denied, 12),
            (ErrorKind::AddressInUse, 13),
        ];
        assert!(ErrorKind::ALL.iter().all(|kind| codes.iter().any(|(of, _)| of == kind)));
        for (kind, code) in codes {
            assert_eq!(ends(AnyError::new(kind, "own")).0, code);
            assert_eq!(ends(Failure::refuse(kind, "of the daemon")).0, code);
            assert_eq!(ends(ClientError::Failed(Failure::refuse(kind, "over the socket"))).0, code);
        }
        assert_eq!((ends(refuse("no")).0, ends(busy("no")).0, ends(gone("no")).0), (3, 4, 8));
        assert_eq!(ends(io::Error::other("disk")), (10, None));
        let (denied, advice) = ends(io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(denied == 12 && advice.is_some_and(|advice| advice.contains("user")));
        let help = crate::EXIT_CODES;
        let codes = codes.into_iter().map(|(_, code)| code).chain([0, 1, 2, 10]);
        codes.for_each(|code| assert!(help.contains(&format!("\n{code:>3}  ")), "{code} is in no help"));
        assert_eq!([Outcome::Clean, Outcome::Found].map(|outcome| number::<CliError>(&Ok(outcome))), [0, 1]);
    }

    /// Only the reader of standard output may go without that anything has failed.
    #[test]
    fn a_closed_pipe_is_a_success_for_standard_output_only() {
        let gone = ClientError::Gone { pool: "tank".to_owned(), source: closed_pipe() };
        assert_eq!(ends(gone).0, 8);
        assert_eq!(ends(closed_pipe()).0, 10);
        assert_eq!(ends(reader_gone()).0, 0);
        assert_eq!(ends(recovery_stopped_by(closed_pipe())).0, ErrorKind::Retry.exit_code());
        assert_eq!(ends(recovery_stopped_by(reader_gone())).0, 0);
    }

    /// What each surface says about the same kinds differs.
    #[test]
    fn advice_is_that_of_the_surface() {
        let closed = ends(AppendError::Closed).1;
        assert_eq!(closed, Some("open it again"));
        assert_eq!(ends(gone("the process has ended")).1, None);
        assert!(ends(OpenError::NotALog).1.is_some_and(|advice| advice.contains("log create")));
        let stopped = ClientError::NotRunning { pool: "tank".to_owned() };
        assert!(ends(stopped).1.is_some_and(|advice| advice.contains("pool import")));
        let full = fastness_pmem::RegionError::NoSpace {
            path: "log".into(),
            len_bytes: 1,
            source: io::ErrorKind::StorageFull.into(),
        };
        let advice = ends(full).1.unwrap();
        assert!(advice.contains("--size") && !advice.contains("log recover"), "nothing is in it yet");
        let bug = Failure::refuse(ErrorKind::Bug, "of the daemon");
        assert!(ends(bug).1.is_some_and(|advice| advice.contains("report it")));
    }
}
