//! Executable model of the x86 write path to persistent memory (PM): which images can a crash leave?
//!
//! Stores wait in store buffers, caches and write-combining buffers before they reach PM. The
//! [`Machine`] takes the operations of a program one by one and knows, after each of them, the exact set
//! of PM images that a power failure could leave at that moment. A [`Recorder`] stands in for a PM region
//! and turns the work of a real structure into a [`Trace`]; [`explore`] replays a trace and hands every
//! image of every crash point to an oracle.
//!
//! # The rules
//! The numbered rules are the contract; `docs/pm-model.md` discusses each of them, and every rule has
//! litmus programs in `crates/crashcheck/litmus` that name it.
//!
//! - **R1 pieces.** A store persists in pieces cut at 8-byte boundaries; each piece persists whole or not
//!   at all. Pieces of one store are not ordered with each other. `movdir64b` is a single piece.
//! - **R2 order in a line.** A store persists only after every earlier store to the same 64-byte line has
//!   persisted completely. [`Config::strict_nt`] takes this away between two non-temporal stores.
//! - **R3 lines are independent.** Cached stores to different lines persist independently.
//! - **R4 weak flush.** `clwb` and `clflushopt` cover the earlier stores to their line. These have
//!   persisted once the next fence has completed; before it they may or may not have.
//! - **R5 ordered flush.** `clflush` is an R4 flush, and besides: if any piece of a later cached store, to
//!   any line, has persisted, then so has everything that the `clflush` covers.
//! - **R6 non-temporal stores** are unordered with all stores to other lines, and have persisted once the
//!   next fence has completed; with R2, so have the earlier cached stores to the same line.
//! - **R7 fences** are `sfence`, `mfence` and locked operations; `lfence` orders nothing here.
//! - **R8 a fence is not a flush.** A fenced but unflushed cached store can still be lost.
//! - **R9 eADR.** With persistent caches, cached stores persist in program order across all lines, R6 holds
//!   for non-temporal stores, and a fence leaves everything before it persistent.
//! - **R10 locked operations** are a fence, a cached store, and a fence; the crash comes before or after.
//! - **R11 dissertation mode** ([`Rules::Dissertation`]): cached stores form one global prefix that reaches
//!   at least to the last fence, combined with a subset of the lines; `clflush` is an R4 flush. With eADR
//!   this is the same as R9.
//! - **R12 issue.** A crash at the end of a sequence finds all of its operations issued; a fence or locked
//!   operation at the end has completed.
//! - **R13 processors.** A flush covers the stores of all processors, but for what others have in their
//!   write-combining buffers; a fence completes the flushes and non-temporal stores of its own. All other
//!   rules take the operations of all processors in the one order in which they come.
//!
//! # Why the enumeration is exact
//! Per line, the rules allow few states: a complete prefix of the line's stores and a subset of the
//! pieces that come next. Every rule across lines (R5, R9, R11) has the form "no piece of a store later
//! than *t* unless this line has reached that far", so a state carries two times: the newest cached store
//! that it contains, and the oldest operation that it still lacks something for. A combination of line
//! states is allowed if and only if the maximum of the former does not exceed the minimum of the latter.
//! Byte-identical states of a line are merged, and keep those pairs of times that are not dominated.
//!
//! # Performance
//! Enumeration changes one scratch image line by line; an image costs one copy of a line.

#![forbid(unsafe_code)]

mod config;
mod count;
mod enumerate;
mod explore;
mod fault;
mod labels;
mod line;
mod machine;
mod memory;
mod op;
mod recorder;
mod rng;
mod sample;
mod scope;
mod states;
mod trace;

pub use config::{Config, Persistence, Rules};
pub use count::ImageCount;
pub use enumerate::{Enumerated, TooMany};
pub use explore::{Budget, CrashPoint, CrashPoints, Summary, explore};
pub use fault::Fault;
pub use machine::{Machine, ModelError};
pub use memory::Memory;
pub use op::{FenceKind, FlushKind, Op};
pub use recorder::{RecordStyle, Recorder, RecordingRange};
pub use rng::Rng;
pub use scope::{CrashImage, Scope};
pub use trace::Trace;
