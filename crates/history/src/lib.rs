//! What clients did to a block device, and which contents each sector may have: while it runs, and after a
//! crash.
//!
//! Motivation: a store that loses what it acknowledged looks right to every test that does not remember what
//! it did, and a test that derives what is right from the store's own code repeats its mistakes. This is a
//! judge that knows nothing of the store: it sees requests, replies and contents. Only tests depend on it; it
//! depends on nothing.
//!
//! # What is allowed
//! A request is under way from when a client began to send it ([`Operation::call`]) to when the client had
//! the reply ([`End::Acknowledged`]); one without a reply may have been carried out or not. Each sector of
//! 512 bytes is judged by itself:
//!
//! 1. *While the device runs* a sector is an atomic register: all its changes and reads can be put into one
//!    order in which no request stands before another that had its reply before the first was called, and
//!    each read has what the change before it left. Two requests that were under way at the same time may be
//!    in either order, but all reads agree on it. (NBD, "Ordering of messages and writes": no order among
//!    requests in flight. `docs/semantics.md`: a read returns what was written last, by any client.)
//! 2. *Durable* is a change that had its reply and either has FUA (or a volume with `sync=always`), or had
//!    its reply before a flush was called that has its reply, through any connection. (NBD, `NBD_CMD_FLUSH`:
//!    all write commands completed before it are on stable storage before its reply;
//!    `NBD_FLAG_CAN_MULTI_CONN`: through any connection. Write, write zeroes and trim are write commands.)
//! 3. *After a crash* a sector has what one of its changes left, after which no durable change stands in an
//!    order that 1 allows; what was there before all of them counts as a durable change. Of changes that are
//!    not durable, any may be missing, without regard to the order among them. (`docs/semantics.md`, "The
//!    log".) A clean end, an export that has returned, makes durable all that had a reply before it.
//! 4. A trim reads as zeroes, as `docs/semantics.md` promises; NBD leaves it open.
//! 5. A sector is never a mixture: a change covers it as a whole. (`docs/semantics.md`, "Volumes".)
//! 6. *What an import shows is durable*: what was seen of a sector after a crash is what was there before all
//!    changes that come then, also if it was not flushed before the crash. An import brings the log into
//!    the pool and waits for that before it serves anybody, so a second crash has nothing to take away.
//!
//! # Design
//! Every sector that is written says which write it is from, in every 32 bytes ([`stamp`]). [`History`] keeps
//! the requests since the last restart, by sector, and is shown what each restart left; it judges sector by
//! sector with `Register` and goes on from there.
//!
//! Limits: of two zeroings a read does not tell which one it saw. Reads of zeroes are put down to one only if
//! no other explains them; so nothing that is allowed is refused, and some of what is not allowed passes.
//! That a write of several sectors is there as a whole is not judged.
//!
//! Source of the rule for registers: Gibbons and Korach, "Testing Shared Memories", SIAM J. Comput. 26(4),
//! 1997 (zones of clusters of a write and its reads).

#![forbid(unsafe_code)]

mod finding;
mod history;
mod operation;
mod register;
pub mod stamp;

pub use finding::Finding;
pub use history::History;
pub use operation::{Clock, End, Operation, Tick, What};
pub use stamp::{Content, SECTOR_BYTES, WriteId};
