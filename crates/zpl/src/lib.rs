//! A POSIX file system on a pool.
//!
//! Motivation: databases and everything else that calls `fsync` should get the speed of the intent log
//! without being changed.
//!
//! Design: a [`FileSystem`] is a front end of the store. Inodes, entries of directories and extended
//! attributes are rows of its dataset's ordered tables (`tables`), the bytes of a file an object with the
//! file's number. Every operation is an *edit* (`edit`): it reads, decides, and changes all rows in one step
//! of one transaction, which also keeps its records for the log; so an operation that is refused has done
//! nothing, and a crash leaves it whole or not at all. Replay makes the same edits (`replay`).
//!
//! Who may do what is checked by the kernel, which has the modes and access control lists from here. What is
//! open, and so how long a file without a name lives, is the caller's to know ([`FileSystem::reap`]).
//!
//! # Code map
//! ```text
//! file_system  open, and how operations are made   edit    what an operation changes
//! make         new files, new names                inode   rows of inodes
//! remove       names removed, files without one    names   names, their hashes, entries
//! rename       all kinds of renames                tables  the tables
//! list         lookup, listings, symlinks          locks   one order of changes and records
//! attributes   modes, owners, sizes, times         late    times that rows do not have yet
//! data         reading, writing                    acl     access control lists
//! range        holes, copies                       xattr   extended attributes
//! sync         fsync, times, space                 replay  records after a crash
//! kept         rows in memory             check    the whole against itself
//! ```
//!
//! Source: zil-pmem thesis, 2.3 and 6.3.4; reference of intent log behaviour, section 2.

#![forbid(unsafe_code)]

mod acl;
mod attributes;
mod check;
mod data;
mod edit;
mod error;
mod file_system;
mod ino;
mod inode;
mod kept;
mod late;
mod list;
mod locks;
mod make;
mod names;
mod range;
mod remove;
mod rename;
mod replay;
mod sync;
mod tables;
mod xattr;

pub use attributes::{Attributes, FILE_BYTES_MAX, NewTime, SetAttributes};
pub use check::{Finding, FsReport, check, check_in_use};
pub use data::WriteHow;
pub use error::{FsError, Result};
pub use fastness_store::record::Time;
pub use fastness_store::{Counts, Operation};
pub use file_system::{Clock, FileSystem, FileSystemOptions, LateTimes, now};
pub use ino::Ino;
pub use inode::{Inode, mode};
pub use list::Listed;
pub use make::NewFile;
pub use names::{NAME_BYTES_MAX, TARGET_BYTES_MAX};
pub use range::{Allocate, Seek};
pub use rename::RenameHow;
pub use replay::FileReplay;
pub use rustix::io::Errno;
pub use sync::Space;
pub use xattr::{XATTR_BYTES_MAX, XATTR_NAMES_BYTES_MAX, XattrHow};
