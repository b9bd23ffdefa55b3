//! Serves file systems to the Linux kernel over the FUSE protocol.
//!
//! Motivation: programs use files through the kernel, and nothing of ours is in the kernel.
//!
//! Design: [`mount()`] mounts and returns the kernel's side; a [`Session`] answers requests that come from
//! there with what [`Files`] says. Nothing here knows what stores the files. Requests are decoded with the
//! care that bytes from outside need, although they come from the kernel.
//!
//! The kernel keeps advisory locks itself: a mount has one server, and all its users are on this machine. Why
//! this is our own layer: `docs/adr/2026-11-24-own-fuse-layer.md`.
//!
//! # Code map
//! ```text
//! files      the trait that is served     session   threads and their queues
//! channel    a thread's way to the kernel serving   requests, interrupts, panics
//! device     over /dev/fuse               rings     over io_uring
//! wire       the protocol's numbers       dispatch  requests to calls
//! answer     results to bytes             mount     mounting, unmounting, mount points
//! request    a request under way         waiting   requests that wait for long
//! stats      counters                     handshake INIT
//! slot       memory of a place in a ring
//! ```

mod answer;
mod channel;
mod device;
mod dispatch;
mod files;
#[cfg(fuzzing)]
pub mod fuzzing;
mod handshake;
mod mount;
mod namespace;
mod request;
mod rings;
mod serving;
mod session;
mod slot;
mod stats;
mod waiting;
mod wire;

pub use answer::device_numbers;
pub use files::{
    Attr, Caller, Entry, Files, Listed, Listing, Name, NewNode, NewTime, Open, Opened, Reply, SetAttr, Space,
    Time, WriteFlags,
};
pub use handshake::SessionError;
pub use mount::{MountError, MountOptions, MountPoint, Unmount, is_in_use, is_mounted, mount, unmount};
pub use namespace::{join_mounts, own_mounts};
pub use rings::NoRings;
pub use rustix::io::Errno;
pub use session::{Session, SessionOptions, Transport};
pub use stats::OperationStats;
