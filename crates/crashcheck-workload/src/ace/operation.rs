//! The operations with their parameters.

use crate::jlang::Path;

/// Which files the operations are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileSet {
    /// foo, bar, A/foo, A/bar, and the directories A and B: 39 operations.
    Intended,
    /// Also A/C/bar and A/C, as the published generator has them: 56 operations.
    Published,
}

impl FileSet {
    const ALL: [&str; 12] =
        ["test", "A", "A/C", "B", "foo", "bar", "A/foo", "A/bar", "B/foo", "B/bar", "A/C/foo", "A/C/bar"];

    /// What the section `define` of every workload has: also what renamed directories may have in them.
    pub(super) fn defined() -> Vec<Path> {
        paths(&Self::ALL)
    }

    fn first(self) -> Vec<Path> {
        paths(&["foo", "A/foo"])
    }

    fn second(self) -> Vec<Path> {
        match self {
            FileSet::Intended => paths(&["bar", "A/bar"]),
            FileSet::Published => paths(&["bar", "A/bar", "A/C/bar"]),
        }
    }

    fn directories(self) -> Vec<Path> {
        paths(&["A"])
    }

    fn second_directories(self) -> Vec<Path> {
        match self {
            FileSet::Intended => paths(&["B"]),
            FileSet::Published => paths(&["B", "A/C"]),
        }
    }
}

fn paths(names: &[&str]) -> Vec<Path> {
    names.iter().map(|name| Path::new(name).expect("a constant")).collect()
}

/// What an operation does, without parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the system calls")]
pub enum Kind {
    Creat,
    Mkdir,
    Falloc,
    Dwrite,
    Link,
    Unlink,
    Remove,
    Rename,
    Truncate,
    Rmdir,
}

impl Kind {
    /// In the order of the generator.
    pub const ALL: [Kind; 10] = [
        Kind::Creat,
        Kind::Mkdir,
        Kind::Falloc,
        Kind::Dwrite,
        Kind::Link,
        Kind::Unlink,
        Kind::Remove,
        Kind::Rename,
        Kind::Truncate,
        Kind::Rmdir,
    ];
    /// Of sequences of three.
    pub const OF_THREE: [Kind; 4] = [Kind::Dwrite, Kind::Link, Kind::Unlink, Kind::Rename];
}

/// Which bytes of a file; its size is known when the dependencies are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Amount {
    /// 4096 bytes at the end.
    Append,
    /// 1024 bytes at the start.
    Start,
    /// 2048 bytes, half of them beyond the end.
    Extend,
}

impl Amount {
    /// Offset and length in bytes, in a file of `size` bytes.
    pub(super) fn range(self, size: u64) -> (u64, u64) {
        match self {
            Amount::Append => (size, 4096),
            Amount::Start => (0, 1024),
            Amount::Extend => (size.saturating_sub(1024), 2048),
        }
    }
}

/// An operation with its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "as in J-lang")]
pub enum Operation {
    /// A file that was not there before.
    Creat { file: Path },
    /// A directory that was not there before.
    Mkdir { directory: Path },
    /// Room is allocated; the size of the file stays.
    Falloc { file: Path, amount: Amount },
    /// Bytes are written.
    Dwrite { file: Path, amount: Amount },
    /// A second name for a file.
    Link { file: Path, name: Path },
    /// A name of a file goes.
    Unlink { file: Path },
    /// The same, by C's `remove`.
    Remove { file: Path },
    /// A file or a directory gets another name, which may be in use.
    Rename { from: Path, to: Path },
    /// The size becomes `len` bytes.
    Truncate { file: Path, len: u64 },
    /// An empty directory goes.
    Rmdir { directory: Path },
}

/// All parameters of one kind, in the order of the generator.
pub fn operations(kind: Kind, set: FileSet) -> Vec<Operation> {
    let files = || set.first().into_iter();
    let both = || set.first().into_iter().chain(set.second());
    let amounts = |amounts: &'static [Amount]| {
        files().flat_map(move |file| amounts.iter().map(move |amount| (file.clone(), *amount)))
    };
    match kind {
        Kind::Creat => files().map(|file| Operation::Creat { file }).collect(),
        Kind::Mkdir => {
            set.directories().into_iter().map(|directory| Operation::Mkdir { directory }).collect()
        }
        Kind::Falloc => amounts(&[Amount::Append, Amount::Start, Amount::Extend])
            .map(|(file, amount)| Operation::Falloc { file, amount })
            .collect(),
        Kind::Dwrite => amounts(&[Amount::Append, Amount::Start])
            .map(|(file, amount)| Operation::Dwrite { file, amount })
            .collect(),
        Kind::Link => {
            pairs(both(), &set.second()).map(|(file, name)| Operation::Link { file, name }).collect()
        }
        Kind::Unlink => both().map(|file| Operation::Unlink { file }).collect(),
        Kind::Remove => both().map(|file| Operation::Remove { file }).collect(),
        Kind::Rename => {
            let directories = set.directories().into_iter().chain(set.second_directories());
            pairs(both(), &set.second())
                .chain(pairs(directories, &set.second_directories()))
                .map(|(from, to)| Operation::Rename { from, to })
                .collect()
        }
        Kind::Truncate => files()
            .flat_map(|file| [0, 256].map(|len| Operation::Truncate { file: file.clone(), len }))
            .collect(),
        Kind::Rmdir => {
            set.directories().into_iter().map(|directory| Operation::Rmdir { directory }).collect()
        }
    }
}

/// The product of both, without what is a pair with itself.
fn pairs(from: impl Iterator<Item = Path>, to: &[Path]) -> impl Iterator<Item = (Path, Path)> {
    from.flat_map(move |from| to.iter().map(move |to| (from.clone(), to.clone())))
        .filter(|(from, to)| from != to)
}
