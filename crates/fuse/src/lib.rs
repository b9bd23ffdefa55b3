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
//! files      the trait that is served     session   threads, interrupts, panics
//! device     reading and writing          handshake INIT
//! wire       the protocol's numbers       dispatch  requests to calls
//! answer     results to bytes             mount     mounting, unmounting, mount points
//! request    a request under way         waiting   requests that wait for long
//! stats      counters
//! ```

#![forbid(unsafe_code)]

mod answer;
mod device;
mod dispatch;
mod files;
#[cfg(fuzzing)]
pub mod fuzzing;
mod handshake;
mod mount;
mod request;
mod session;
mod stats;
mod waiting;
mod wire;

pub use answer::device_numbers;
pub use files::{
    Attr, Caller, Entry, Files, Listed, Listing, Name, NewNode, NewTime, Open, Opened, Reply, SetAttr, Space,
    Time, WriteFlags,
};
pub use handshake::SessionError;
pub use mount::{MountError, MountOptions, MountPoint, Unmount, is_mounted, mount, unmount};
pub use rustix::io::Errno;
pub use session::{Session, SessionOptions};
pub use stats::OperationStats;
