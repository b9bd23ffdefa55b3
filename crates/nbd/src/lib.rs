//! An NBD server for anything that can read and write bytes.
//!
//! A front end: it translates the protocol into calls of [`Export`], and errors into numbers. It stores
//! nothing, orders nothing and decides nothing; the export defines what a flush or FUA does, and a server
//! advertises only what the export supports ([`Features`]).
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
//! Fixed newstyle handshake with all options; TLS 1.3, required or not there at all ([`Tls`]); simple,
//! structured and extended replies; all commands; `base:allocation`. Source: NBD `doc/proto.md`
//! (<https://github.com/NetworkBlockDevice/nbd>), whose sections are cited where they are used.
//!
//! # Design
//! ```text
//! listener -> one reader thread per connection --(quick)--> export -> reply
//!                        \--(slow)--> turns of connections -> workers -> export -> reply
//!                                        replies -> queue -> one sender; the writer thread if it would wait
//! ```
//! A request that is expected to be quicker than a hand-over is executed by the thread that read it: one
//! system call to receive, one to send. Requests that arrived together are answered together. Slow ones run
//! in the pool and complete out of order. A worker never waits for a client.
//!
//! # Hostile clients
//! 1. Memory: payloads are bounded per connection and per server ([`Limits`]); beyond that, the server stops
//!    reading from a connection. Small requests have an allowance of their own, so a greedy client cannot
//!    block them.
//! 2. Time: handshakes, requests, and clients that do not read their replies have deadlines.
//! 3. Threads: workers take connections in turn, and send without waiting.
//! 4. TLS: its handshake has the same deadline, and a limit in bytes; a record that is not finished in time
//!    ends the connection. What arrives before TLS has no effect on what comes after it.
//! 5. Invalid input: a request that breaks a rule is answered with an error if the stream can still be
//!    parsed; otherwise the connection is closed. A panic of an export is an `EIO`.
//!
//! # Shutdown
//! [`Server::shutdown`]: requests in flight finish, later ones fail with `ESHUTDOWN`, connections close.

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
mod stream;
#[cfg(test)]
mod tests;
mod tls;
mod uri;
pub mod wire;

pub use client::{Chunk, Client, ClientError, Hello, Receiver, Reply, Request, Sender};
pub use error::{BindError, ConnectionError, Errno, ExportError, OpenError};
pub use export::{
    BlockSizes, Export, ExportEntry, Exports, Extent, ExtentKind, Features, SingleExport, ZeroOptions,
};
pub use limits::{FLOOR_BYTES, Limits};
pub use listen::{Endpoint, Listener};
pub use memory::MemoryExport;
pub use server::{Access, Server};
pub use service::{Clients, Service, ShutdownReport, Stats};
pub use tls::{CA_FILE, CERTIFICATE_FILE, KEY_FILE, Tls, TlsError};
