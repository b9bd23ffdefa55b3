//! The kinds of errors that every surface of Fastness sorts its own into.

use std::fmt;
use std::str::FromStr;

/// What a caller must do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Try again later; nothing is wrong with the request.
    Retry,
    /// The request or the configuration is wrong; change it.
    Invalid,
    /// Make room first.
    NoSpace,
    /// Bytes on the medium contradict themselves.
    Corrupt,
    /// The medium failed; use a copy, replace it.
    MediaFailed,
    /// The object was closed or poisoned; open it again, and recover.
    Closed,
    /// A defect of this program or of its caller.
    Bug,
    /// No process has what was asked for; start it.
    NotRunning,
    /// The user may not do that; get the right to, or be another user.
    Denied,
    /// Another server listens at the address or socket; choose another, or end that server.
    AddressInUse,
}

impl ErrorKind {
    /// All of them.
    pub const ALL: [ErrorKind; 10] = [
        ErrorKind::Retry,
        ErrorKind::Invalid,
        ErrorKind::NoSpace,
        ErrorKind::Corrupt,
        ErrorKind::MediaFailed,
        ErrorKind::Closed,
        ErrorKind::Bug,
        ErrorKind::NotRunning,
        ErrorKind::Denied,
        ErrorKind::AddressInUse,
    ];

    /// As programs read it.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Retry => "retry",
            ErrorKind::Invalid => "invalid",
            ErrorKind::NoSpace => "no-space",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::MediaFailed => "media-failed",
            ErrorKind::Closed => "closed",
            ErrorKind::Bug => "bug",
            ErrorKind::NotRunning => "not-running",
            ErrorKind::Denied => "denied",
            ErrorKind::AddressInUse => "address-in-use",
        }
    }

    /// The kind of an error of a system call that says whether the user may do something at all.
    ///
    /// `None`: it says something else.
    pub fn of_denial(error: &std::io::Error) -> Option<ErrorKind> {
        (error.kind() == std::io::ErrorKind::PermissionDenied).then_some(ErrorKind::Denied)
    }

    /// Exit code of the program; 0 is success, 1 a finding, 2 wrong usage, 10 a failure of its own input or
    /// output.
    pub fn exit_code(self) -> u8 {
        match self {
            ErrorKind::Invalid => 3,
            ErrorKind::Retry => 4,
            ErrorKind::NoSpace => 5,
            ErrorKind::Corrupt => 6,
            ErrorKind::MediaFailed => 7,
            ErrorKind::Closed => 8,
            ErrorKind::Bug => 9,
            ErrorKind::NotRunning => 11,
            ErrorKind::Denied => 12,
            ErrorKind::AddressInUse => 13,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error that says what its caller must do.
pub trait HasKind: std::error::Error {
    /// What the caller must do.
    fn kind(&self) -> ErrorKind;
}

/// [`HasKind`] for errors with a method `kind` of their own, so that their callers need no trait.
#[macro_export]
macro_rules! has_kind {
    ($($error:ty),* $(,)?) => {$(
        impl $crate::HasKind for $error {
            fn kind(&self) -> $crate::ErrorKind {
                <$error>::kind(self)
            }
        }
    )*};
}

/// An error and its sources in one line. A source whose text ends that of the error before is not said twice.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |cause| cause.source()) {
        let cause = cause.to_string();
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// What a thread said when it panicked.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// A text that names no kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownKind;

impl FromStr for ErrorKind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<ErrorKind, UnknownKind> {
        ErrorKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or(UnknownKind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[derive(Debug)]
    struct Failed(&'static str, Option<Box<Failed>>);

    impl fmt::Display for Failed {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl std::error::Error for Failed {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            self.1.as_deref().map(|source| source as _)
        }
    }

    #[test]
    fn a_chain_says_everything_once() {
        let disk = Failed("no space left", None);
        let write = Failed("cannot write block 7: no space left", Some(Box::new(disk)));
        let sync = Failed("txg 3 failed", Some(Box::new(write)));
        assert_eq!(chain(&sync), "txg 3 failed: cannot write block 7: no space left");
    }

    #[test]
    fn names_go_there_and_back_and_codes_differ() {
        for kind in ErrorKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let codes: BTreeSet<u8> = ErrorKind::ALL.into_iter().map(ErrorKind::exit_code).collect();
        assert_eq!(codes.len(), ErrorKind::ALL.len());
        assert!(codes.iter().all(|code| *code > 2));
    }
}
