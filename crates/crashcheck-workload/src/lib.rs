//! Workloads for crash tests of file systems: what is done to a file system before it crashes.
//!
//! Motivation: crash consistency bugs show in short sequences of operations, if one tries all of them.
//! [`ace`] generates them (bounded black-box testing); [`jlang`] is the language that they are written in, so
//! that a workload is a file that can be kept, edited, and read by other testers. Who executes workloads is
//! not known here: `fastness-agent` does, inside a guest.
//!
//! A workload is bytes from outside as soon as it is a file: the parser is bounded, and says line and column.
//!
//! # Code map
//! ```text
//! jlang/  the language: parse, print, flags, paths
//! ace/    operations, their dependencies, sequences
//! ```
//!
//! Source: Mohan et al., "Finding Crash-Consistency Bugs with Bounded Black-Box Crash Testing" (OSDI 2018);
//! LeBlanc et al., "Chipmunk" (EuroSys 2023); PM file systems dissertation, 10.2.2.

#![forbid(unsafe_code)]

pub mod ace;
pub mod jlang;

pub use ace::{FileSet, Generated, Sequences};
pub use jlang::{Command, FallocFlags, OpenFlags, ParseError, ParseErrorKind, Workload};
