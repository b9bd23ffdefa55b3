//! A library that `fastness run` loads into programs: their reads and writes of files with a cache go to
//! persistent memory (PM) without a system call to the mount.
//!
//! # Design
//! The cache is mounted over the directory, and everything works through the mount, for every program. This
//! library only makes some of it faster. A file that a program opens is a file of the mount; the library asks
//! the process that serves it for a lease, and with that reads and writes in PM itself
//! ([`fastness_responder::Client`]). Whatever it does not know (a `FILE`, `mmap`, `sendfile`, io_uring, a
//! static program, another library's own system calls) goes to the kernel, hence to the mount, which ends the
//! leases of the file; the next call here finds that out, and goes the same way. So what the library misses
//! costs speed and nothing else.
//!
//! The position of a file, flags and locks stay where they are, in the kernel: descriptors that are
//! duplicated, inherited or passed on work as without it. A descriptor that was inherited over `exec` gets a
//! lease when the program uses it first. Handlers of signals wait while a call is in PM, so that none meets a
//! lock that its own thread holds.
//!
//! What it cannot see: a descriptor that is closed by a system call of the program's own, whose number
//! another library opens again, while the file is still open elsewhere.
//!
//! # Code map
//! ```text
//! calls      the functions of the C library that are replaced, by what they do
//! transfer   reads and writes with a lease       buffers   what programs read into and write from
//! process    the connection; what a fork does    member    this process among those that use the cache
//! table      which descriptors have leases       own       descriptors of the library's own
//! real       the functions of the C library      signals   no handler runs in the middle of a call
//! actions    the program's handlers of signals   scratch   memory of a call
//! ```
//!
//! Source: "First Responder" in the dissertation, chapter V, which changes the kernel instead;
//! `docs/adr/2026-11-26-preload-library.md`.

// Everything here is the C library's interface: raw pointers from programs, and functions by name.
#![allow(unsafe_code)]
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod actions;
mod buffers;
mod calls;
mod member;
mod own;
mod process;
mod real;
mod scratch;
mod signals;
mod table;
mod transfer;
