//! Which process writes how much to which region, estimated from samples of store instructions.
//!
//! # Design
//! The CPU writes a record for every Nth store instruction (Intel: PEBS) or micro-operation (AMD: IBS): which
//! thread, the instruction's address, the address that it stores to. That address says which region it was,
//! by the process's mappings; the instruction, decoded, says how many bytes. A sample stands for `size x
//! period` bytes. So any program is seen, with DAX mappings and without a system call, in any process.
//!
//! What is not seen: whether a store stays in the CPU caches, or meets a line that is dirty already; reads;
//! stores of the kernel (`write` to a DAX file) and of devices. Instructions that only flush a line are not
//! stores. A string instruction (`rep stos`, `rep movs`) counts once, however long it is: its samples have no
//! size, and [`Tally::unsized_stores`] says how many there were.
//!
//! Period: a prime, so that a loop is not sampled at the same instruction over and over; IBS takes multiples
//! of 16 only, and the CPU itself adds the randomness.
//!
//! ```text
//! event     which event this machine has, or what is missing     record    records of the kernel's buffer
//! ring      the buffer: mapped, drained                           decode    an instruction's stores
//! maps      from addresses to regions                             estimate  the sums
//! ```
//!
//! Source: dissertation (2025), 6.3 and 6.4; `perf_event_open(2)`.

mod decode;
mod error;
mod estimate;
mod event;
mod maps;
mod record;
mod ring;
mod sampling;
#[cfg(test)]
mod synthetic;

pub use decode::{Decoded, Decoder};
pub use error::SampleError;
pub use estimate::{Estimator, Processes, Tally};
pub use event::{PERIOD, StoreEvent, round_period};
pub use maps::{LiveProcesses, Mapped};
pub use record::{IpIs, Record, Sample, records};
pub use sampling::{Sampler, SamplerOptions, Target};
