//! What a gigabyte costs: CPU time and energy of a load, measured on the whole machine.
//!
//! The *CPU cost* of a load is the CPU time of all CPUs for each GiB that it reads or writes; its *energy
//! cost* is the energy for each GiB beyond what the idle machine takes. Both do not depend on how fast the
//! load is, so systems of different speed can be compared. The time is not filtered by process, because file
//! systems work in threads of the kernel; so the machine must be idle but for the load, and [`Idle`] measures
//! that first.
//!
//! How it is measured: a thread reads the counters of CPUs, energy and bytes ten times a second
//! ([`Session`]). The first and the last second are cut off, averages of the rest are divided ([`RunCost`]).
//! A figure that cannot be measured is missing, with the reason; nothing is estimated in its place.
//!
//! Source: dissertation (2025), 4.1 (the metrics), 4.2.1 (counters), 4.2.4 (cuts); chapter 6 (accounting,
//! sampling and core specialisation).
//!
//! ```text
//! machine  where the counters are read         session  samples a load in a thread
//! cpu      CPU time of all CPUs                idle     the machine before the load, and who is busy
//! meter/   energy: RAPL, an external meter     cost     the arithmetic; the report
//! bytes    where the bytes of a load come from plot     the report as pictures
//! window   the samples without both ends       error
//! accounting/  which thread writes how much to which region of PM
//! sampler/     the same of any program, from samples of its store instructions
//! pin/         threads that overload a region share a few CPUs
//! perf_event   a system call
//! ```

pub mod accounting;
mod bytes;
mod cost;
mod cpu;
mod error;
mod idle;
mod machine;
mod meter;
mod perf_event;
pub mod pin;
mod plot;
pub mod sampler;
mod session;
mod window;

pub use bytes::{ByteSource, Counted};
pub use cost::{Cores, NoFigure, Report, RunCost};
pub use cpu::{CpuTimes, ticks_per_second};
pub use error::CostError;
pub use idle::{Idle, IdleRule};
pub use machine::Machine;
pub use meter::{External, Meter, NoMeter};
pub use plot::draw_costs;
pub use session::{Run, Session};
pub use window::{Sample, Window};
