//! Checks of crash consistency on top of the model of the PM write path, `fastness-pm-model`.
//!
//! [`litmus`] judges small programs with known sets of crash states. For larger programs, [`tracer`] records
//! what they do to PM, [`trace`] shows it, [`generate`] makes the crash images, [`check`] recovers and judges
//! them, [`explain`] finds the stores that were lost, [`report`] presents the result, and [`run`] does all of
//! it. [`guest`] is for file systems of real kernels. [`fuzz`] finds the inputs that a program is to be
//! tested with.
//!
//! # Code map
//! ```text
//! program, file system --tracer, guest--> trace --generate--> crash images --check--> states, findings --report--> people
//!                                            \-- explain: which stores an image lacks, patterns
//! run/       the whole test: config, analysis; user: programs; file_system: in a guest
//! generate/  replay: the model, event by event; disk: blocks; run: failure points; reads, options: which images;
//!            point: where from; sink: where to; known: which there were
//! check/     extract: one recovery; workers: in parallel; stream: from images, by recoveries, to the judge; state;
//!            judge, finding: operations between checkpoints; losses; oracle, operations: which states may be;
//!            left_out: images that a bound cut; shrink: what must be lost; in_recovery: recoveries that crash
//! explain/   pending: stores and where they came from; lines: kept, torn, lost; patterns; exclude: no hints of these
//! report/    data: what JSON has; build, evidence (lost, chain), hints, left_out: from results; cause, place: what
//!            findings have in common; text, cause_text, html, junit: from data
//! image/     contents that share what they have in common
//! fuzz/      inputs of programs that reach something new: session, runner, findings, corpus
//! trace/     show, record                          tracer/   starts the plug-in
//! litmus/    small programs with known sets of states
//! symbols/   lines of a program, functions of a kernel
//! process/   programs and QEMU: nothing outlives us
//! guest/     config: the machine, and what one restore has; snapshot: boot, keep, restore, extract (key: which);
//!            machine: one QEMU (commands, PM, its end); ram: copies without holes, PM in and out; qmp, agent: the
//!            two sockets; pool: guests that look at one image after another
//! ```
//! Invariants: no image is kept, only its hash, so memory is bounded; `generate` yields what the model allows
//! and nothing else, whatever is chosen; the same trace, options and recovery give the same report; nothing
//! here interprets a state.

#![forbid(unsafe_code)]

pub mod check;
mod error;
pub mod explain;
pub mod fuzz;
pub mod generate;
pub mod guest;
pub mod image;
pub mod litmus;
pub mod process;
pub mod report;
pub mod run;
pub mod save;
mod size;
pub mod symbols;
pub mod trace;
pub mod tracer;

pub use error::{CheckError, Result};
