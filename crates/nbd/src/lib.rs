//! An NBD server over whatever can read and write bytes.
//!
//! A front end: it translates the protocol into calls of [`Export`], and errors into numbers. It stores
//! nothing, orders nothing and decides nothing; what a flush or FUA means is the export's affair, and a
//! server advertises what the export says that it can do ([`Features`]), no more.
//!
//! ```
//! use std::sync::Arc;
//! use std::thread;
//! use fastness_nbd::{Client, Endpoint, Limits, MemoryExport, Server, SingleExport};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let exports = SingleExport::new("disk", Arc::new(MemoryExport::new(1 << 20)));
//! let endpoint = Endpoint::Tcp("127.0.0.1:0".parse()?);
//! let server = Arc::new(Server::bind(&endpoint, Arc::new(exports), Limits::default())?);
//! let serving = thread::spawn({
//!     let server = server.clone();
//!     move || server.serve()
//! });
//!
//! let mut client = Client::connect(server.endpoint(), "disk")?;
//! client.write(4096, b"hello", true)?;
//! assert_eq!(client.read(4096, 5)?, b"hello");
//! client.disconnect()?;
//!
//! server.shutdown();
//! serving.join().unwrap()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Protocol
//! Fixed newstyle handshake with all options but `STARTTLS`; simple, structured and extended replies; all
//! commands; `base:allocation`. Source: NBD `doc/proto.md` (<https://github.com/NetworkBlockDevice/nbd>),
//! whose sections are named where they are used.
//!
//! # Design
//! ```text
//! listener -> one reader thread per connection --(quick)--> export -> reply
//!                        \--(slow)--> turns of connections -> workers -> export -> reply
//!                                        replies -> queue -> whoever has one sends; the writer thread if it would wait
//! ```
//! A request that is expected to be quicker than a hand-over is executed by the thread that read it: one
//! system call to receive, one to send. Requests that arrived together are answered together. Slow ones run
//! in the pool and complete out of order. A worker never waits for a client.
//!
//! # Hostile clients
//! 1. Memory: payloads are bounded per connection and per server ([`Limits`]); above that a connection is not
//!    read from. Small requests have an allowance of their own, so a greedy client does not stop them.
//! 2. Time: a handshake, a request, and a client that takes no replies have deadlines.
//! 3. Threads: workers take connections in turn, and send without waiting.
//! 4. Nonsense: a request that breaks a rule is answered with an error if the stream can be followed, and the
//!    connection is closed if not. A panic of an export is an `EIO`.
//!
//! # Shutdown
//! [`Server::shutdown`]: requests in flight finish, those behind them fail with `ESHUTDOWN`, connections
//! close.

#![forbid(unsafe_code)]

mod budget;
mod client;
mod connection;
mod error;
mod execute;
mod export;
mod input;
mod limits;
mod listen;
mod memory;
mod options;
mod output;
mod pool;
mod reply;
mod rules;
mod server;
mod service;
mod socket;
#[cfg(test)]
mod tests;
pub mod wire;

pub use client::{Chunk, Client, ClientError, Hello, Receiver, Reply, Request, Sender};
pub use error::{BindError, ConnectionError, Errno, ExportError, OpenError};
pub use export::{
    BlockSizes, Export, ExportEntry, Exports, Extent, ExtentKind, Features, SingleExport, ZeroOptions,
};
pub use limits::{FLOOR_BYTES, Limits};
pub use listen::{Endpoint, Listener};
pub use memory::MemoryExport;
pub use server::Server;
pub use service::{Service, ShutdownReport, Stats};

/// A lock whose holder panicked is taken all the same: what it guards is changed by single steps that leave
/// it whole.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
