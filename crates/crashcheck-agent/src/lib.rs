//! What the program in the guest of crash tests does, as a library; `fastness-agent` is its command line.
//!
//! Motivation: a tester outside a guest has to see what a user inside it would see. The program is small and
//! static, so that a guest needs one file in an initramfs only, and it also runs natively, so that it can be
//! tested without a guest.
//!
//! [`dump`] prints a tree so that equal trees are equal bytes; [`mod@recover`] mounts, dumps and unmounts
//! what a crash left; [`run`] interprets workloads; [`hypercall`] tells the tracer where it is; [`clock`]
//! sets the time; [`serve`] runs commands for [`protocol`]'s client, outside.
//!
//! # Code map
//! ```text
//! dump/     a tree as text: entry, content     run/       J-lang as system calls
//! recover   mount, dump, write, unmount        kernel_log what the kernel says meanwhile
//! protocol  frames on the wire                 serve      the guest's side of the protocol
//! ```

#![deny(unsafe_code)]

pub mod clock;
pub mod dump;
pub mod hypercall;
mod kernel_log;
pub mod protocol;
pub mod recover;
pub mod run;
pub mod seed;
pub mod serve;
