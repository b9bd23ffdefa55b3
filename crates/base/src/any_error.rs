//! An error of any surface, for programs: what happened, in words, and what the caller must do.

use std::error::Error;
use std::fmt;
use std::io;

use crate::error::{ErrorKind, HasKind};

/// Why a program could not do what it was asked to do. Only errors that have a kind become one, and errors of
/// the program's own input and output, which have none; so no kind is lost on the way to the exit code.
#[derive(Clone, PartialEq, Eq)]
pub struct AnyError {
    texts: Vec<String>,
    kind: Option<ErrorKind>,
}

impl AnyError {
    /// An error without a source.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> AnyError {
        AnyError { texts: vec![text.into()], kind: Some(kind) }
    }

    /// An error with its sources; `kind` is that of the outermost error of ours, or none: input or output of
    /// the program itself failed.
    pub fn of(error: &dyn Error, kind: Option<ErrorKind>) -> AnyError {
        let mut texts = vec![error.to_string()];
        let mut source = error.source();
        while let Some(cause) = source {
            texts.push(cause.to_string());
            source = cause.source();
        }
        AnyError { texts, kind }
    }

    /// The same, with causes that are known as text only.
    #[must_use]
    pub fn because(mut self, causes: impl IntoIterator<Item = String>) -> AnyError {
        self.texts.extend(causes);
        self
    }

    /// The same, with what was being done.
    #[must_use]
    pub fn while_doing(mut self, text: impl fmt::Display) -> AnyError {
        self.texts.insert(0, text.to_string());
        self
    }

    /// What happened, and why, outermost first; at least one.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// What the caller must do; none: input or output of the program itself failed.
    pub fn kind(&self) -> Option<ErrorKind> {
        self.kind
    }
}

/// What happened, without the causes; with `#`, with them.
impl fmt::Display for AnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&if f.alternate() { self.texts.join(": ") } else { self.texts[0].clone() })
    }
}

impl fmt::Debug for AnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#} ({:?})", self.kind)
    }
}

impl<E: HasKind> From<E> for AnyError {
    fn from(error: E) -> AnyError {
        AnyError::of(&error, Some(error.kind()))
    }
}

impl From<io::Error> for AnyError {
    fn from(error: io::Error) -> AnyError {
        AnyError::of(&error, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Full(io::Error);

    impl fmt::Display for Full {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the log is full")
        }
    }

    impl Error for Full {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    impl HasKind for Full {
        fn kind(&self) -> ErrorKind {
            ErrorKind::NoSpace
        }
    }

    #[test]
    fn it_keeps_the_kind_and_says_everything() {
        let error =
            AnyError::from(Full(io::Error::other("no block"))).while_doing("record 7 was not written");
        let error = error.because(["the disk is full".to_owned()]);
        assert_eq!(error.kind(), Some(ErrorKind::NoSpace));
        assert_eq!(error.to_string(), "record 7 was not written");
        let all = "record 7 was not written: the log is full: no block: the disk is full";
        assert_eq!(format!("{error:#}"), all);
        assert_eq!(AnyError::from(io::Error::other("gone")).kind(), None);
    }
}
