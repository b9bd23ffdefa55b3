//! Why a command failed: what is printed about it, what the user can do, and how the program ends.

use std::error::Error;
use std::fmt::Display;
use std::io;

use fastness_base::{AnyError, ErrorKind};

use crate::output::is_reader_gone;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    error: AnyError,
    advice: Option<&'static str>,
    is_reader_gone: bool,
}

impl Failure {
    /// An error of a kind, with its sources, and what the user can do.
    pub fn new(error: &dyn Error, kind: ErrorKind, advice: Option<&'static str>) -> Failure {
        Failure { error: AnyError::of(error, Some(kind)), advice, is_reader_gone: false }
    }

    /// Input or output of the program itself failed, in the words of a library.
    pub fn own(error: &dyn Error) -> Failure {
        AnyError::of(error, None).into()
    }

    /// The same; if `has_closed`, it is that the reader of standard output has closed it.
    #[must_use]
    pub fn reader_gone(self, has_closed: bool) -> Failure {
        Failure { is_reader_gone: has_closed, ..self }
    }

    /// The same, with what was being done.
    #[must_use]
    pub fn while_doing(self, text: impl Display) -> Failure {
        Failure { error: self.error.while_doing(text), ..self }
    }

    /// What happened, and why, outermost first; at least one.
    pub fn texts(&self) -> &[String] {
        self.error.texts()
    }

    /// Determines the exit code; none: input or output of the program itself failed.
    pub fn kind(&self) -> Option<ErrorKind> {
        self.error.kind()
    }

    /// What the user can do, if the error itself does not say so.
    pub fn advice(&self) -> Option<&'static str> {
        self.advice
    }

    /// The reader of standard output has closed it, which is no failure.
    pub fn is_reader_gone(&self) -> bool {
        self.is_reader_gone
    }
}

/// Advice for errors that say what to do themselves, if anything can be done.
pub fn it_says(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Bug => Some("this is a defect of fastness; please report it"),
        ErrorKind::Denied => {
            Some("look at its owner and mode, or run the command as the user who has the right")
        }
        ErrorKind::AddressInUse => Some("choose another port or socket, or end what listens there"),
        _ => None,
    }
}

impl From<AnyError> for Failure {
    fn from(error: AnyError) -> Failure {
        let advice = error.kind().and_then(it_says);
        Failure { error, advice, is_reader_gone: false }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        let in_use = (error.kind() == io::ErrorKind::AddrInUse).then_some(ErrorKind::AddressInUse);
        if let Some(kind) = ErrorKind::of_denial(&error).or(in_use) {
            return Failure::new(&error, kind, it_says(kind));
        }
        Failure::own(&error).reader_gone(is_reader_gone(&error))
    }
}

/// A report that could not be made into text.
impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        Failure::own(&error)
    }
}

/// Makes the error of a program, so that the errors of other crates can become it: a new type around
/// [`Failure`], with `Result`, `refuse` and the trait `Context` beside it. After it come errors that have a
/// kind, each with what gives advice for a kind.
///
/// ```
/// mod error {
///     fastness_terminal::program_error! {
///         /// Why a command of this program failed.
///         pub(crate) struct ProgramError;
///     }
/// }
/// use error::{Context, Result, refuse};
///
/// fn read(path: &str) -> Result<String> {
///     if path.is_empty() {
///         return Err(refuse("name a file"));
///     }
///     std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
/// }
/// assert_eq!(read("").unwrap_err().texts(), ["name a file"]);
/// assert_eq!(read("/no/such").unwrap_err().texts()[0], "cannot read /no/such");
/// ```
#[macro_export]
macro_rules! program_error {
    ($(#[$meta:meta])* $visible:vis struct $name:ident; $($error:ty => $advice:expr),* $(,)?) => {
        $(#[$meta])*
        #[derive(Debug)]
        $visible struct $name($crate::Failure);

        /// The result of a part of a command.
        pub(crate) type Result<T, E = $name> = std::result::Result<T, E>;

        impl std::ops::Deref for $name {
            type Target = $crate::Failure;

            fn deref(&self) -> &$crate::Failure {
                &self.0
            }
        }

        impl From<$name> for $crate::Failure {
            fn from(error: $name) -> $crate::Failure {
                error.0
            }
        }

        impl From<$crate::Failure> for $name {
            fn from(failure: $crate::Failure) -> $name {
                $name(failure)
            }
        }

        impl From<$crate::base::AnyError> for $name {
            fn from(error: $crate::base::AnyError) -> $name {
                $name(error.into())
            }
        }

        impl From<std::io::Error> for $name {
            fn from(error: std::io::Error) -> $name {
                $name(error.into())
            }
        }

        impl From<$crate::serde_json::Error> for $name {
            fn from(error: $crate::serde_json::Error) -> $name {
                $name(error.into())
            }
        }

        $(impl From<$error> for $name {
            fn from(error: $error) -> $name {
                let kind = $crate::base::HasKind::kind(&error);
                $crate::Failure::new(&error, kind, $advice(kind)).into()
            }
        })*

        /// Refuses a request.
        pub(crate) fn refuse(text: impl Into<String>) -> $name {
            let kind = $crate::base::ErrorKind::Invalid;
            $crate::base::AnyError::new(kind, text).into()
        }

        /// What was being done when something failed.
        pub(crate) trait Context<T> {
            /// Puts `text` before what the error says.
            fn context(self, text: impl std::fmt::Display) -> Result<T>;

            /// The same for a text that is made only if it is needed.
            fn with_context<D: std::fmt::Display>(self, text: impl FnOnce() -> D) -> Result<T>;
        }

        impl<T, E: Into<$name>> Context<T> for std::result::Result<T, E> {
            fn context(self, text: impl std::fmt::Display) -> Result<T> {
                self.with_context(|| text)
            }

            fn with_context<D: std::fmt::Display>(self, text: impl FnOnce() -> D) -> Result<T> {
                self.map_err(|error| $name(error.into().0.while_doing(text())))
            }
        }
    };
}
