//! Snapshots of volumes that go from one pool to another.
//!
//! `outgoing`: what a snapshot has, or what it has changed since another one, as a stream. `incoming`: a
//! stream becomes a volume, or the next state of one. `state`: what is stored with a volume that is not
//! whole yet. The format of streams: `fastness_stream`. How a volume becomes whole in one step: `received`
//! of the pool.

mod error;
mod incoming;
mod outgoing;
mod state;

pub use error::TransferError;
pub use incoming::{
    Incoming, ReceiveOptions, Received, abort_receiving, drop_interrupted, receive, receiving, volume_of,
};
pub use outgoing::{Outgoing, StreamSize};
