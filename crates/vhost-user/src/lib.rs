//! Disks for virtual machines: virtio-blk over vhost-user.
//!
//! A front end: it takes requests from queues in memory that a hypervisor shares with this process, and
//! translates them into calls of [`Disk`]. A request that a quick disk answers costs no system call on
//! either side while the queue is busy. It stores nothing and orders nothing; the disk defines what a flush
//! does.
//!
//! # Protocol
//! Messages on a Unix socket hand over memory, queues and descriptors to signal with; one front end at a
//! time. Source: QEMU `docs/interop/vhost-user.rst` (whose sections are cited where they are used), VIRTIO
//! 1.2, 2.7 (split queues) and 5.2 (block devices). Not offered: packed queues, migration (logs of changed
//! pages).
//!
//! # Design
//! ```text
//! Server::run_client: message -> Session -> Queue (a thread each) -> chain -> request -> Disk -> answer
//!                                              \--(slow, and others wait)--> helpers --/
//! ```
//! A queue's thread looks for requests for a while before it sleeps, as long as that has paid of late
//! ([`Polling`]).
//!
//! # When this process dies
//! The front end keeps a table of requests that have no answer yet, in memory that outlives this process
//! (`inflight`). The next process that it connects to carries these out again, so a virtual machine sees
//! nothing but a pause. Durability is the disk's: what it has acknowledged is there, and what is carried out
//! twice was not acknowledged.
//!
//! # Hostile front ends and guests
//! 1. All that lies in their memory is copied before it is checked, and checked before it is used.
//! 2. Memory: a queue has at most 1024 entries, a chain as many descriptors; data goes through a buffer of
//!    at most 1 MiB for each thread.
//! 3. Memory that is cut short is replaced (`fastness_pmem::ForeignMemory`), and the front end disconnected.
//! 4. A queue that breaks the rules is stopped, and the reason noted.

#![forbid(unsafe_code)]

mod buffer;
mod chain;
pub mod client;
mod config;
mod disk;
mod inflight;
mod memory;
mod message;
mod options;
mod pace;
mod poll;
mod queue;
mod request;
mod ring;
mod server;
mod session;
mod socket;
mod stats;
mod thread;

pub use chain::{Descriptor, INDIRECT, NEXT, WRITE};
pub use disk::{Disk, DiskError};
pub use message::ProtocolError;
pub use options::Options;
pub use poll::Polling;
pub use server::Server;
pub use stats::RequestStats;
