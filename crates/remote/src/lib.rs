//! Block devices of others: RBD images through librbd, NBD exports through libnbd.
//!
//! A device has a name: a path, `rbd:POOL/IMAGE[@OPTION=VALUE,...]`, or the URI of an NBD export. [`open`]
//! opens all of them as a [`BlockDevice`](fastness_blkdev::BlockDevice). The libraries are loaded when the
//! first such device is opened; without them everything else works.
//!
//! Crash cases, in the order of those of `fastness-blkdev`:
//! 1. An RBD image. librbd's cache is off, which is checked after the image was opened, so a write that has
//!    returned is on all OSDs that the pool asks for. A flush waits for what is in flight.
//! 2. An NBD export. A write is durable after a flush or with FUA, as the server says. A server without
//!    flush is not opened for writing.
//! 3. A failed flush or FUA write poisons the device; as with files.
//! 4. **The process dies** with requests in flight: each is executed or not. Those of an image arrive before
//!    its lock can be broken, or never: whoever breaks the lock puts the dead client on the blocklist first.
//! 5. **The host dies, or is taken for dead.** An image's exclusive lock is taken when it is opened for
//!    writing, and held until it is closed. Another host gets it only by breaking it, 30 s
//!    (`osd_client_watch_timeout`) after the owner was last heard of. From then on every request of the old
//!    owner fails, for good ([`Cause::Fenced`](fastness_blkdev::Cause::Fenced)), also one that was sent
//!    before. An NBD server knows no such lock: two hosts that write to one export destroy what is on it. On
//!    one machine a second writer of the same URI is refused (`claim`).
//! 6. **The cluster is gone.** Requests wait, without an error, until it is back: minutes or days. With the
//!    option `timeout` they fail instead; a request that timed out may still be executed later, so that the
//!    device is fenced then, and nothing succeeds through it any more.
//! 7. **The connection to an NBD server is lost**: the device is lost; it does not connect again, because
//!    what had not been flushed may be gone.
//!
//! Never `fork` without `exec` while an image is open: librbd has some 17 threads, and a child has none.
//!
//! Performance: a request to an image is one `rbd_aio_*` and a wait; the requests of a batch are in flight
//! at once. An export is one connection, or up to four if the server says that it keeps them in agreement; a
//! connection runs one call, or one batch, at a time.
//!
//! Nothing here knows about pools of ours, labels or logs.
//!
//! # Code map
//! ```text
//! name     devices' names                         rbd/api        functions of librados and librbd
//! open     by name                                rbd/cluster    connections, what is set and read back
//! load     libraries at run time                  rbd/image      an open image: requests, the lock
//! claim    one writer on one machine              rbd/device     the trait
//! latch    what fenced a device, for good         rbd/note       its number, notes of its users
//!                                                 nbd/api, nbd/connection, nbd/device: the same
//! ```

mod access;
mod claim;
mod error;
mod latch;
mod load;
mod name;
mod nbd;
mod open;
mod rbd;

pub use access::Access;
pub use error::OpenError;
pub use name::is_remote;
pub use nbd::NbdDevice;
pub use open::{images, open, open_image};
pub use rbd::RbdDevice;
