//! ACE, the variant for persistent memory: every short sequence of file system operations.
//!
//! A workload is made in four steps: a *skeleton* (which operations, a product of [`Kind`]s with itself);
//! *parameters* (a product of what each operation may be given); no persistence operations, as the file
//! systems that are tested are synchronous; *dependencies* (what has to be there before, [`Generated`]). A
//! `mark` precedes the last operation and a checkpoint follows it: what the earlier ones leave is the
//! business of shorter sequences.
//!
//! # The operations, and why there are so many
//! Files come in two sets, so that workloads which differ in names alone are not generated: *first* {foo,
//! A/foo}, *second* {bar, A/bar}; directories likewise, {A} and {B}. The published generator adds A/C/bar to
//! the second files and A/C to the second directories whatever it is asked (a statement that is not in the
//! `if` that it belongs to).
//!
//! | operation | parameters | [`FileSet::Intended`] | [`FileSet::Published`] |
//! |---|---|---|---|
//! | creat | first | 2 | 2 |
//! | mkdir | first directories | 1 | 1 |
//! | falloc | first x {append, start, extend}, keep-size | 6 | 6 |
//! | dwrite | first x {append, start} | 4 | 4 |
//! | link, file renamed | (first + second) x second, not to itself | 4 x 2 - 2 = 6 | 5 x 3 - 3 = 12 |
//! | unlink, remove | first + second | 4 | 5 |
//! | directory renamed | (first + second) x second, not to itself | 2 x 1 - 1 = 1 | 3 x 2 - 2 = 4 |
//! | truncate | first x {0, 256} | 4 | 4 |
//! | rmdir | first directories | 1 | 1 |
//! | together | rename is files and directories | 39 | 56 |
//!
//! So sequences of two are 39² = 1521 and 56² = 3136; of three, over dwrite, link, unlink and rename only
//! (with the published files 37 operations: 4, 12, 5 and 16 of them), 37³ = 50,653.
//!
//! # Order and names
//! Skeletons in the order of [`Kind::ALL`], the last operation fastest; within a skeleton parameters in the
//! order of [`operations`], the last fastest. `seq2-0001` is the first workload of two operations. A workload
//! of the intended files has the name of the same workload among the published, so a name means one workload.
//!
//! # Operations that fail
//! Some operations cannot succeed whatever is there before: A cannot be moved into A/C, and an empty
//! directory cannot replace one with files. They are generated all the same, as published;
//! [`Generated::fails`] counts them.

mod dependencies;
mod operation;
mod sequence;

pub use operation::{Amount, FileSet, Kind, Operation, operations};
pub use sequence::{Generated, Sequences};
