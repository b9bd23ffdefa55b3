//! How commands end: the exit code, and what standard error says about a failure.

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
pub fn number(result: Result<Outcome, &Failure>) -> u8 {
    match result {
        Ok(Outcome::Clean) => 0,
        Ok(Outcome::Found) => 1,
        Ok(Outcome::Program(code)) => code,
        Err(failure) if failure.is_reader_gone() => 0,
        Err(failure) => failure.kind().map_or(OWN_IO, ErrorKind::exit_code),
    }
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

    #[test]
    fn a_closed_pipe_is_a_success_for_standard_output_only() {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(number(Err(&Failure::from(closed()))), OWN_IO);
        assert_eq!(number(Err(&Failure::from(crate::marked(closed())))), 0);
    }

    #[test]
    fn what_a_user_may_not_do_is_no_failure_of_our_own() {
        let denied = Failure::from(io::Error::from(io::ErrorKind::PermissionDenied));
        assert_eq!(number(Err(&denied)), ErrorKind::Denied.exit_code());
        assert!(denied.advice().is_some_and(|advice| advice.contains("user")));
        assert_eq!(number(Err(&Failure::from(io::Error::other("disk")))), OWN_IO);
    }
}
