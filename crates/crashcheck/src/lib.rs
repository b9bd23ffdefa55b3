//! Checks of crash consistency on top of the model of the PM write path, `fastness-pm-model`.
//!
//! [`litmus`] judges small programs with known sets of crash states. [`tracer`] records what larger ones do to PM, [`trace`] shows
//! it, [`generate`] makes of it what a crash can leave, [`check`] what comes of that, [`explain`] why, [`report`] says so, and
//! [`run`] does all of it. [`guest`] is for file systems of real kernels.

#![forbid(unsafe_code)]

pub mod check;
mod error;
pub mod explain;
pub mod generate;
pub mod guest;
pub mod image;
pub mod litmus;
pub mod process;
pub mod report;
pub mod run;
pub mod save;
pub mod symbols;
pub mod trace;
pub mod tracer;

pub use error::{CheckError, Result};
