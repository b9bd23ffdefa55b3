//! Nothing but tests of the shape of the source, in `tests/architecture`:
//!
//! - `layers`: a crate depends only on crates of lower layers (`ARCHITECTURE.md`);
//! - `cycles`: modules of a crate do not use each other in a circle;
//! - `errors`: errors with a kind have the trait, and no kind is found by a cast;
//! - `files`: fences have `PERSIST:` comments, files are short, comments are within 110 columns;
//! - `documents`: tests that a document names exist.
