//! Crash images: what a crash at any moment of a trace can leave in PM and on the disks.
//!
//! Motivation: a crash can happen between any two instructions, and leave any of the images that the model
//! allows then. There are up to 2 to the power of the number of pending lines, and a program has to run on
//! each.
//!
//! Design: the events of a trace go through the model ([`Replay`]). Before each event that makes something
//! certain, at each checkpoint and at the end is a *failure point*: what a crash at any other moment leaves
//! can also be left at one of these. A failure point with few images gets all of them. Where there are more,
//! heuristics choose ([`Options`]): lines that a recovery reads ([`Recovery`]), non-temporal stores whole,
//! and finally a bound, with images drawn at random. They choose among the images that the model allows, and
//! never make others. Images go to a [`Sink`], one after another, and are not kept: an exhaustive run has
//! more than memory holds. [`Known`] tells a sink which of the newest it has had.
//!
//! PM and disks: at a point of PM its images are combined with the disks that have lost nothing, and
//! everything, that is pending; at a point of a disk the other way round; at checkpoints both.
//!
//! Source: PM file systems dissertation, 8.2 to 8.5; the model's rules are those of `docs/pm-model.md`.

#[cfg(test)]
pub(crate) mod collect;
mod disk;
mod known;
mod layout;
mod options;
mod outline;
mod point;
mod reads;
mod replay;
mod run;
mod sink;

pub use disk::Disk;
pub use known::{KNOWN_IMAGES, Known};
pub use layout::{Layout, Part as RegionPart, Place};
pub use options::{NonTemporal, Options, Pick};
pub use outline::{Outline, outline};
pub use point::{Contents, Part, Point, PointKind};
pub use reads::Recovery;
pub use replay::Replay;
pub use run::generate;
pub use sink::Sink;

#[cfg(test)]
mod tests;
