//! Core specialisation: threads that overload a region share a few CPUs, so that fewer of them wait for it at
//! a time, and the other CPUs are free for others.
//!
//! A thread that stores to PM waits on its CPU, and with more writers than the medium can serve the medium
//! gets slower, too. Pinned to a few CPUs, the threads take turns. What it costs: a pinned thread has less
//! CPU time for what it does beside PM.
//!
//! ```text
//! policy     when a region is overloaded, which threads are pinned and released: no clock, no system call
//! affinity   pinning threads, and giving them back what they had
//! record     what is pinned, in a file, for the case that the process is killed
//! ```
//!
//! Source: dissertation (2025), 6.5 and 6.6.3.

mod affinity;
mod policy;
mod record;

pub use affinity::{Pins, Refused};
pub use policy::{Action, Load, PinRule, Policy, ThreadId};
