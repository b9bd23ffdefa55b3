//! The regions of a cache: one, or the two sides of a mirror; which of them may be read.
//!
//! A side may be read if it has everything that was acknowledged. Both have as long as both take part. When
//! one does not, the state of the other says so before anything more is acknowledged (`loss`, `open`), and
//! the origin's mark changes with it. So:
//! - A side whose state says that the other is out is current. The other is not read.
//! - Two that know of no loss are current together, if their states are at most one update apart: a crash
//!   leaves that. Otherwise the older one is a copy of another time.
//! - One that knows of no loss and is alone may be the one that was lost: then the origin's mark is another.
//!   Where no mark can be had, nobody knows, and somebody has to take it upon himself.
//! - Two that both say that the other is out have each gone on alone, the second because somebody took it
//!   upon himself. The origin's mark tells which; otherwise he has to say it.

use std::path::PathBuf;

use fastness_base::chain;
use fastness_pmem::{Medium, Mirror, View};

use crate::error::Error;
use crate::front::{FrontSide, superblock};
use crate::parts::Parts;
use crate::slot::Slot;
use crate::superblock::Superblock;
use crate::views::Views;

/// The regions of a cache: one, or two that are the sides of a mirror.
#[derive(Debug)]
pub struct Sides<M> {
    pub(crate) first: Parts<M>,
    pub(crate) second: Option<Result<Parts<M>, String>>,
}

impl<M> From<Parts<M>> for Sides<M> {
    fn from(only: Parts<M>) -> Sides<M> {
        Sides { first: only, second: None }
    }
}

impl<M> Sides<M> {
    /// Two sides. Of one that cannot be had: why.
    pub fn pair(first: Parts<M>, second: Result<Parts<M>, String>) -> Sides<M> {
        Sides { first, second: Some(second) }
    }
}

/// A region that holds a cache, and what it says.
struct Candidate<M> {
    superblock: Superblock,
    front: FrontSide<M>,
    slot: Slot,
    chunks: Vec<M>,
    view: Box<dyn View>,
    path: PathBuf,
    /// It was named first.
    is_named: bool,
}

impl<M: Medium> Candidate<M> {
    fn of(parts: Parts<M>, is_named: bool) -> Result<Candidate<M>, Error> {
        let Parts { front, chunks, view, path, .. } = parts;
        let superblock = superblock(&front)?;
        let (front, slot) = FrontSide::open(front, &superblock)?;
        if superblock.side.as_ref().is_some_and(|side| slot.out(side.mirror) == Some(side.side)) {
            return Err(Error::SideJoining);
        }
        Ok(Candidate { superblock, front, slot, chunks, view, path, is_named })
    }

    /// The number of its mirror, and which side it is.
    fn place(&self) -> Option<(u64, usize)> {
        self.superblock.side.as_ref().map(|side| (side.mirror, side.side))
    }

    /// Whether it says that the other side is out.
    fn is_left_alone(&self) -> bool {
        self.place().is_some_and(|(mirror, side)| self.slot.out(mirror) == Some(1 - side))
    }

    /// Where the other side was last.
    fn other_path(&self) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        let bytes = self.superblock.side.as_ref().map_or(&[][..], |side| &side.other_path);
        std::ffi::OsStr::from_bytes(bytes).into()
    }
}

/// A side that takes no part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Absent {
    /// Which one.
    pub(crate) side: usize,
    /// Where it was last.
    pub(crate) path: PathBuf,
    /// Why.
    pub(crate) why: String,
    /// Nothing in the regions tells whether it is newer than the other side.
    pub(crate) may_be_newer: bool,
}

/// The regions that are used.
pub(crate) struct Chosen<M> {
    /// Of each that is used.
    pub(crate) superblocks: Vec<Superblock>,
    pub(crate) fronts: Vec<FrontSide<M>>,
    pub(crate) chunks: Vec<Mirror<M>>,
    pub(crate) views: Views,
    pub(crate) paths: Vec<PathBuf>,
    /// The state in force.
    pub(crate) slot: Slot,
    /// Which of these was named first.
    pub(crate) named: Option<usize>,
    /// The side that is not used.
    pub(crate) absent: Option<Absent>,
}

/// The chunks of one region, or those of two as mirrors.
pub(crate) fn mirrored<M: Medium>(sides: Vec<Vec<M>>) -> Vec<Mirror<M>> {
    let mut sides = sides.into_iter();
    let (first, second) = (sides.next().unwrap_or_default(), sides.next());
    match second {
        None => first.into_iter().map(Mirror::single).collect(),
        Some(second) => {
            first.into_iter().zip(second).map(|(first, second)| Mirror::pair(first, second)).collect()
        }
    }
}

impl<M: Medium> Chosen<M> {
    fn one(one: Candidate<M>, absent: Option<Absent>) -> Chosen<M> {
        Chosen {
            superblocks: vec![one.superblock],
            fronts: vec![one.front],
            chunks: mirrored(vec![one.chunks]),
            views: Views::new(vec![one.view]),
            paths: vec![one.path],
            slot: one.slot,
            named: one.is_named.then_some(0),
            absent,
        }
    }

    /// Without the other side of its mirror.
    fn alone(one: Candidate<M>, path: Option<PathBuf>, why: String, may_be_newer: bool) -> Chosen<M> {
        let (_, side) = one.place().expect("the side of a mirror");
        let path = path.filter(|path| !path.as_os_str().is_empty()).unwrap_or_else(|| one.other_path());
        let may_be_newer = may_be_newer && !one.is_left_alone();
        let absent = Absent { side: 1 - side, path, why, may_be_newer };
        Chosen::one(one, Some(absent))
    }

    fn both(one: Candidate<M>, other: Candidate<M>) -> Chosen<M> {
        let is_first = one.place().is_some_and(|(_, side)| side == 0);
        let (first, second) = if is_first { (one, other) } else { (other, one) };
        let named = Some(usize::from(second.is_named));
        let slot = if second.slot.sequence > first.slot.sequence { second.slot } else { first.slot };
        Chosen {
            superblocks: vec![first.superblock, second.superblock],
            fronts: vec![first.front, second.front],
            chunks: mirrored(vec![first.chunks, second.chunks]),
            views: Views::new(vec![first.view, second.view]),
            paths: vec![first.path, second.path],
            slot,
            named,
            absent: None,
        }
    }
}

/// Decides which of the regions are used. `mark`: the opening that the origin knows of; `is_degraded`:
/// somebody takes it upon himself that the region named first goes on without the other.
///
/// # Errors
/// [`Error`]: no region holds a cache; [`Error::SideReplaced`], [`Error::SidesApart`].
pub(crate) fn choose<M: Medium>(
    sides: Sides<M>,
    mark: Option<u64>,
    is_degraded: bool,
) -> Result<Chosen<M>, Error> {
    let Sides { first, second } = sides;
    let second_path = second.as_ref().and_then(|second| second.as_ref().ok()).map(|parts| parts.path.clone());
    let second = second.map(|second| {
        second.map_err(Stranger::Other).and_then(|parts| Candidate::of(parts, false).map_err(Stranger::of))
    });
    let first_path = first.path.clone();
    let (one, other, other_path) = match (Candidate::of(first, true), second) {
        (Ok(one), second) => (one, second, second_path),
        // What is wrong with the one that was named need not be wrong with the other.
        (Err(error), Some(Ok(other))) if other.place().is_some() => {
            (other, Some(Err(Stranger::of(error))), Some(first_path))
        }
        (Err(error), _) => return Err(error),
    };
    let Some(place) = one.place() else {
        return match other {
            None => Ok(Chosen::one(one, None)),
            Some(_) => Err(Error::Refused("the cache has one region, and is no mirror".to_owned())),
        };
    };
    let other = other.unwrap_or_else(|| Err(Stranger::Other("it was not looked for".to_owned())));
    match other.and_then(|other| partner(&one, place, other)) {
        Ok(other) => compare(one, other, mark, is_degraded),
        Err(Stranger::Replaced) if !one.is_left_alone() && !is_degraded => Err(Error::SideReplaced),
        Err(why) => Ok(Chosen::alone(one, other_path, why.to_string(), !matches!(why, Stranger::Joining))),
    }
}

/// Why a region is not the other side.
enum Stranger {
    /// It was to become that, and never took part.
    Joining,
    /// It belongs to another mirror of the same cache.
    Replaced,
    Other(String),
}

impl Stranger {
    fn of(error: Error) -> Stranger {
        match error {
            Error::SideJoining => Stranger::Joining,
            error => Stranger::Other(chain(&error)),
        }
    }
}

impl std::fmt::Display for Stranger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stranger::Joining => f.write_str("it was to join the mirror, and that was cut short"),
            Stranger::Replaced => f.write_str("it belongs to another mirror of the cache"),
            Stranger::Other(why) => f.write_str(why),
        }
    }
}

/// Whether a region is the other side of the mirror that `one` is a side of.
fn partner<M: Medium>(
    one: &Candidate<M>,
    (mirror, side): (u64, usize),
    other: Candidate<M>,
) -> Result<Candidate<M>, Stranger> {
    let stranger = |why: &str| Err(Stranger::Other(why.to_owned()));
    if other.superblock.id != one.superblock.id {
        return stranger("another cache is there");
    }
    match other.place() {
        Some((of, at)) if of == mirror && at == side => stranger("a copy of the same side is there"),
        Some((of, _)) if of == mirror && other.superblock.geometry == one.superblock.geometry => Ok(other),
        _ => Err(Stranger::Replaced),
    }
}

/// Decides which of two sides of a mirror may be read.
fn compare<M: Medium>(
    one: Candidate<M>,
    other: Candidate<M>,
    mark: Option<u64>,
    is_degraded: bool,
) -> Result<Chosen<M>, Error> {
    let (newer, older) = match other.slot.sequence > one.slot.sequence {
        true => (&other, &one),
        false => (&one, &other),
    };
    let distance = newer.slot.sequence - older.slot.sequence;
    let out = match (newer.is_left_alone(), older.is_left_alone()) {
        // The state of the one that is left is written after every one that both got.
        (true, false) if distance > 0 => Some("it missed writes"),
        (false, false) if distance == 1 || distance == 0 && newer.slot.is_same_state(&older.slot) => None,
        (false, false) if distance > 1 => Some("it is an older copy"),
        _ => return apart(one, other, mark, is_degraded),
    };
    let Some(why) = out else { return Ok(Chosen::both(one, other)) };
    let (stays, leaves) = if one.slot.sequence > other.slot.sequence { (one, other) } else { (other, one) };
    Ok(Chosen::alone(stays, Some(leaves.path), why.to_owned(), false))
}

/// Both have gone on alone: one of them because somebody took it upon himself.
fn apart<M: Medium>(
    one: Candidate<M>,
    other: Candidate<M>,
    mark: Option<u64>,
    is_degraded: bool,
) -> Result<Chosen<M>, Error> {
    let is_marked = |side: &Candidate<M>| mark.is_some_and(|mark| side.slot.openings.contains(&mark));
    let why = "both sides have gone on alone, and this one is not used".to_owned();
    match (is_marked(&one), is_marked(&other)) {
        (true, false) => Ok(Chosen::alone(one, Some(other.path), why, false)),
        (false, true) => Ok(Chosen::alone(other, Some(one.path), why, false)),
        _ if is_degraded => Ok(Chosen::alone(one, Some(other.path), why, false)),
        _ => Err(Error::SidesApart),
    }
}
