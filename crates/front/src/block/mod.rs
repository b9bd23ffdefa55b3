//! A block device served through NBD, with the write cache of [`fastness_wcache`] in front of it.
//!
//! A [`Pair`] makes a cache in a region, or in two; [`TakeUp`] takes one up, and brings its log to the
//! origin; a [`Service`] serves it, with a cleaner, and a socket for the commands of other processes.

mod export;
mod pairing;
mod regions;
mod report;
mod service;

pub use pairing::{Pair, Recovery, TakeUp, inspect};
pub use report::{Report, SideReport};
pub use service::{Service, ServiceOptions, access};
