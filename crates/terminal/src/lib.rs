//! What the programs of Fastness share on a terminal: output, sizes, failures and how they are told, exit
//! codes.
//!
//! ```text
//! completions, man   for shells and for man(1), from the same source as `--help`
//! exit               how a command ends: exit codes, and what standard error says of a failure
//! failure            why a command failed, and what the user can do; `program_error!` makes a program's type of it
//! output             standard output and standard error
//! size               sizes on the command line and in the output
//! ```

#![forbid(unsafe_code)]

mod completions;
mod exit;
mod failure;
mod man;
mod output;
pub mod size;

pub use completions::{CompletionsArgs, completions};
pub use exit::{Outcome, end, number, say};
pub use failure::{Failure, it_says};
pub use man::{ManArgs, man};
pub use output::{fields, is_reader_gone, marked, note, progress_bar, stdout};

#[doc(hidden)]
pub use fastness_base as base;
#[doc(hidden)]
pub use serde_json;
