//! A block device served through NBD, with the write cache of [`fastness_wcache`] in front of it.
//!
//! A [`Pair`] makes a cache in a region; [`Recovery`] takes one up, and brings its log to the origin; a
//! [`Service`] serves it, with a cleaner, and a socket for the commands of other processes.

mod export;
mod pairing;
mod report;
mod service;

pub use pairing::{Pair, Recovery, inspect};
pub use report::Report;
pub use service::{Service, ServiceOptions};
