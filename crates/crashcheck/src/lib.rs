//! Checks of crash consistency on top of the model of the PM write path, `fastness-pm-model`.
//!
//! [`litmus`] judges small programs with known sets of crash states; [`trace`] keeps and shows what larger ones did; [`guest`] runs real
//! kernels on images of PM.

#![forbid(unsafe_code)]

pub mod guest;
pub mod image;
pub mod litmus;
pub mod trace;
