//! Checks of crash consistency on top of the model of the PM write path, `fastness-pm-model`.
//!
//! [`litmus`] judges small programs with known sets of crash states; [`trace`] keeps and shows what larger ones did; [`tracer`] records what a
//! program does to PM.

#![forbid(unsafe_code)]

pub mod image;
pub mod litmus;
pub mod trace;
pub mod tracer;
