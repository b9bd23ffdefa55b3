//! Checks of crash consistency on top of the model of the PM write path, `fastness-pm-model`.
//!
//! [`litmus`] judges small programs with known sets of crash states; [`trace`] keeps and shows what larger ones did, and
//! [`generate`] makes of it what a crash can leave, [`check`] what comes of that, [`explain`] why, and [`report`] shows it.

#![forbid(unsafe_code)]

pub mod check;
mod error;
pub mod explain;
pub mod generate;
pub mod image;
pub mod litmus;
pub mod process;
pub mod report;
pub mod run;
pub mod save;
pub mod trace;

pub use error::{CheckError, Result};
