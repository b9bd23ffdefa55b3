//! Serves a directory through FUSE, as it is or with the First Responder cache in front of it; and a block
//! device through NBD, with the write cache in front of it ([`block`]).
//!
//! Motivation: a program that is not changed gets durable writes at the speed of persistent memory, over the
//! file system that it has.
//!
//! Design: [`PassThrough`] does each operation of the kernel on the directory; what is done to the bytes and
//! names of files is a trait ([`Contents`]): [`Plain`] leaves it to the directory and makes nothing durable,
//! [`Cached`] puts it into a cache. A [`Service`] is a mount with its cache, its flusher and a socket for the
//! commands of other processes ([`Report`]).
//!
//! Nodes are descriptors without access (`O_PATH`), so no name is looked up twice, and no rename misleads; if
//! there are too few for all, files that were not used for long are found again by their names.
//! The kernel checks permissions (`default_permissions`); files are made in the name of the caller
//! (`caller`).
//!
//! # Code map
//! ```text
//! service      a mount with its cache        control, report   its socket; what it says
//! server       operations of the kernel      names             those that change names
//! contents     the trait, and Plain          cached            the cache as contents
//! nodes        files that the kernel knows   handles           files that are open
//! descriptors  how many there may be         owners            to whom files belong
//! leases       files that processes of the same user change without the kernel
//! attributes   changes of attributes         xattrs            extended attributes
//! caller       in whose name files are made  region            the region of a cache
//! orphans      data of files that are not in the directory, saved
//! places       where files are, by what they are
//! block/       a block device with its cache, served
//! ```

#![forbid(unsafe_code)]

mod attributes;
pub mod block;
mod cached;
mod caller;
mod contents;
mod control;
mod descriptors;
mod error;
mod handles;
mod leases;
mod listing;
mod names;
mod nodes;
mod orphans;
mod owners;
mod pairing;
mod places;
mod region;
mod report;
mod server;
mod service;
mod xattrs;

pub use cached::Cached;
pub use contents::{Contents, Plain, Writing};
pub use control::{Answer, Request, ask};
pub use error::FrontError;
pub use fastness_nbd::{Access, Endpoint};
pub use fastness_responder::ProtocolKind;
pub use fastness_wcache::{OnLoss, Options, WhenFull};
pub use orphans::SavedOrphan;
pub use pairing::{Pair, Recovery, TakeUp, inspect};
pub use region::{RegionUse, open_region};
pub use report::{DirtyReport, FailureReport, LateReport, Report};
pub use server::{PassThrough, serve};
pub use service::{Place, Service, ServiceOptions};
