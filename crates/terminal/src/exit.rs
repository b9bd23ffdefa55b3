//! How commands end: the exit code, and what standard error says about a failure.

use std::ops::Deref;
use std::process::ExitCode;

use fastness_base::ErrorKind;

use crate::failure::Failure;
use crate::output::note;

/// The outcome of a command that did what it was asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is wrong.
    Clean,
    /// It found damage or a difference.
    Found,
    /// It ran a program, which ended so.
    Program(u8),
}

/// Input or output of the program itself failed.
const OWN_IO: u8 = 10;

/// The exit code of a result: the only place where a kind of errors becomes one.
pub fn number<E: Deref<Target = Failure>>(result: &Result<Outcome, E>) -> u8 {
    match result {
        Ok(Outcome::Clean) => 0,
        Ok(Outcome::Found) => 1,
        Ok(Outcome::Program(code)) => *code,
        Err(failure) if failure.is_reader_gone() => 0,
        Err(failure) => failure.kind().map_or(OWN_IO, ErrorKind::exit_code),
    }
}

/// How a program ends; `say` prints what went wrong, unless only the reader of standard output has gone.
pub fn end<E: Deref<Target = Failure>>(result: &Result<Outcome, E>, say: impl FnOnce(&E)) -> ExitCode {
    if let Err(error) = result
        && !error.is_reader_gone()
    {
        say(error);
    }
    ExitCode::from(number(result))
}

/// Prints a failure of `program` to standard error: what happened, why, what the user can do.
pub fn say(program: &str, failure: &Failure) {
    let texts = failure.texts();
    note(format_args!("{program}: {}", texts[0]));
    for (text, said) in texts[1..].iter().zip(texts) {
        // An error with the same text as its source is printed once.
        if !said.ends_with(text) {
            note(format_args!("  because: {text}"));
        }
    }
    if let Some(advice) = failure.advice() {
        note(format_args!("  {advice}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn of(error: io::Error) -> u8 {
        number(&Err(Box::new(Failure::from(error))))
    }

    #[test]
    fn a_closed_pipe_is_a_success_for_standard_output_only() {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(of(closed()), OWN_IO);
        assert_eq!(of(crate::marked(closed())), 0);
    }

    #[test]
    fn what_a_user_may_not_do_is_no_failure_of_our_own() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(of(denied()), ErrorKind::Denied.exit_code());
        assert!(Failure::from(denied()).advice().is_some_and(|advice| advice.contains("user")));
        assert_eq!(of(io::Error::other("disk")), OWN_IO);
    }
}
