//! What is older where region and directory do not fit.

use std::fmt;

/// Which of the two is older.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// The region: what the directory was given since would be undone.
    Region,
    /// The directory: what it was given since, and is clean in the region, is lost.
    Directory,
    /// Neither: both went on without each other. Either may lack what the other one has.
    Both,
    /// Not known: the region names none, its lines are damaged.
    Unknown,
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Copied::Region => {
                "the region is an older copy: it would undo what was written to the directory since that was made"
            }
            Copied::Directory => {
                "the directory is an older copy: what was written to it since that was made is missing, and the \
                 region has only a part of it"
            }
            Copied::Both => {
                "the region or the directory is a copy, and was used without the other one: each may lack what \
                 the other one has, or undo it"
            }
            Copied::Unknown => {
                "the region does not say whether it is an older copy, which would undo what was written to the \
                 directory since: the place where it says so is damaged"
            }
        })
    }
}
