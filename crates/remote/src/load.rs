//! C libraries, loaded at run time.
#![allow(unsafe_code)] // A library that is loaded runs its constructors.

use libloading::Library;

use crate::error::OpenError;

/// Loads a library, for good: its threads may outlive every device.
///
/// # Errors
/// [`OpenError::Library`], with the package that has it.
pub(crate) fn library(library: &'static str, package: &'static str) -> Result<&'static Library, OpenError> {
    // SAFETY: the libraries that are loaded here have constructors without requirements; they are found by
    // the system's search path, as those are that a program is linked with.
    match unsafe { Library::new(library) } {
        Ok(loaded) => Ok(Box::leak(Box::new(loaded))),
        Err(source) => Err(OpenError::Library { library, package, source: Box::new(source) }),
    }
}

/// Functions of a C library as a table of pointers, which tests can fill with their own.
macro_rules! functions {
    (
        $(#[$doc:meta])*
        $table:ident { $($name:ident($($argument:ty),* $(,)?) $(-> $result:ty)?;)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $table {
            /// Finds all functions, or says which one is missing.
            fn find(library: &'static libloading::Library) -> Result<$table, libloading::Error> {
                Ok($table {
                    $($name: {
                        let symbol = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the type is that of the library's header, in the version that the name
                        // of its file stands for.
                        unsafe { *library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(symbol)? }
                    },)*
                })
            }
        }
    };
}

pub(crate) use functions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_absent_is_named_with_its_package() {
        let error = library("libfastness-of-nobody.so.7", "nobody7").unwrap_err();
        assert_eq!(error.kind(), fastness_base::ErrorKind::Invalid);
        let text = error.to_string();
        assert!(text.contains("libfastness-of-nobody.so.7") && text.contains("package nobody7"), "{text}");
    }
}
