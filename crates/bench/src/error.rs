//! What prevents a measurement.

use std::error::Error;

use fastness_base::{AnyError, ErrorKind};

/// The result of a part of a benchmark.
pub(crate) type Result<T, E = AnyError> = std::result::Result<T, E>;

/// Something is not as this program made it.
pub(crate) fn wrong(text: impl Into<String>) -> AnyError {
    AnyError::new(ErrorKind::Bug, text)
}

/// A library failed at what this program asked for; its errors have no kind.
pub(crate) fn foreign(error: impl Error) -> AnyError {
    AnyError::of(&error, None)
}

/// What was being done when something failed.
pub(crate) trait Context<T> {
    /// Puts `text` before what the error says.
    fn context(self, text: &str) -> Result<T>;

    /// The same for a text that is made only if it is needed.
    fn with_context(self, text: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<AnyError>> Context<T> for Result<T, E> {
    fn context(self, text: &str) -> Result<T> {
        self.map_err(|error| error.into().while_doing(text))
    }

    fn with_context(self, text: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.into().while_doing(text()))
    }
}

/// Ends the benchmark unless something is as it must be.
macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err($crate::error::wrong(format!($($text)+)));
        }
    };
}
pub(crate) use ensure;
