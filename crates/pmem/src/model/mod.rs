//! A model of how fast a PM device is, for machines that have none.
//!
//! Memory that stands in for PM is as fast as DRAM: any number of threads can write to it, and waiting for it
//! never shows. [`Modelled`] is a medium over such memory that makes every copy take as long as a calibrated
//! device would ([`DeviceProfile`]): bandwidth depends on the number of writers, falls when there are too
//! many, is lower from another NUMA node, and pieces of 256-byte lines cost a read-modify-write. As on the
//! real device, the writer waits *on its CPU*.
//!
//! It is a model: it says what limits of writers, queues and pinning do to such a device, not how fast a
//! machine is. Reads through a second view ([`ModelledView`]) take the time of one reader. What it leaves
//! out: other reads, the time of a fence, flush instructions, that a copy of the CPU takes time of its own
//! beyond the device's.
//!
//! **Two ways to wait.** [`Stall::Burn`] keeps the CPU busy, as the device does. A writer that is taken off
//! its CPU still counts as writing, so there must be a CPU for each writer. [`Stall::Sleep`] sleeps instead,
//! slowed down so far that sleeping is exact enough, and adds up the time that would have been burnt: any
//! number of writers then has a CPU of its own, whatever the machine has.
//!
//! Source: dissertation (2025), ch. 3 and 5.3.3; zil-pmem thesis, 5.12 and 7.3.4 (`profile`).

mod device;
mod medium;
mod profile;
mod simulated;

pub use device::{DeviceModel, Stall};
pub use medium::{Modelled, ModelledView};
pub use profile::{DeviceProfile, FOUR_INTERLEAVED, LINE_OF_DEVICE_BYTES, Node, ONE_MODULE, Point};
pub use simulated::{EngineFault, SimulatedQueue};
