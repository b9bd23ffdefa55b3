//! Litmus programs: a few operations on PM, and the exact set of states that a crash after them can leave.
//!
//! A file states what the hardware allows; the model has to give the same states, no more and no fewer.
//!
//! # Format
//! A JSON object of `meta` (`format` is 1; `about`, a text; optionally `rules`, "arch" or "dissertation",
//! and `strict_nt`, a boolean: for which model the sets are meant) and `tests`, an array of objects:
//!
//! | field | meaning |
//! |---|---|
//! | `name` | unique in the file |
//! | `mode` | "adr" or "eadr" |
//! | `ops` | objects with `op`: `store`, `ntstore` {`addr`, `data` in hexadecimal, optionally `atomic64`}; `rmw` {`addr`, `data`}; `clwb`, `clflushopt`, `clflush` {`addr`}; `sfence`, `mfence`, `lfence` |
//! | `observe` | ranges {`addr`, `size` 1 to 8} of PM that make up a state |
//! | `allowed` | the states; each an array with one unsigned little-endian value per range |
//!
//! PM is zero before the first operation, and the crash comes after the last operation was issued; a
//! fence or a locked operation at the end has completed.
//!
//! Files are not trusted: unknown fields, sizes over the [`limits`], and values that do not fit are errors
//! with the name of the program and the index of the operation.

mod error;
pub mod limits;
mod parse;
mod report;
mod run;

pub use error::{LitmusError, Location, Problem};
pub use parse::{LitmusFile, LitmusTest, Range, State, parse};
pub use report::{FileReport, TestReport};
pub use run::{LitmusArgs, ModeOverride, run, run_file, run_tests};
