//! Requests of clients, and when they were under way.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::stamp::{Content, WriteId, Wrong};

/// A moment. Of two moments of one [`Clock`] the later one is larger; no two are equal.
pub type Tick = u64;

/// Gives out moments; one for all connections of a run.
#[derive(Debug)]
pub struct Clock(AtomicU64);

impl Default for Clock {
    fn default() -> Clock {
        // Moment 0 is before everything.
        Clock(AtomicU64::new(1))
    }
}

impl Clock {
    /// The moment now.
    ///
    /// Concurrency: a thread that has seen what another did after its tick gets a later one.
    pub fn tick(&self) -> Tick {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The client had a reply of success.
    Acknowledged(Tick),
    /// It failed, or its connection did, and it cannot have an effect any more. It may have had one.
    Over(Tick),
    /// Nothing is known: it may have been carried out, or be carried out yet.
    Open,
}

impl End {
    /// When it was over.
    pub(crate) fn tick(self) -> Tick {
        match self {
            End::Acknowledged(tick) | End::Over(tick) => tick,
            End::Open => Tick::MAX,
        }
    }

    pub(crate) fn is_acknowledged(self) -> bool {
        matches!(self, End::Acknowledged(_))
    }
}

/// What a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A write of what [`fill`](crate::stamp::fill) makes.
    Write,
    /// Write zeroes.
    Zeroes,
    /// A trim: zeroes, too.
    Trim,
    /// A flush of the volume.
    Flush,
    /// A read that succeeded, and what it had, by sector. A read that did not succeed says nothing.
    Read(Vec<Result<Content, Wrong>>),
}

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Which one.
    pub id: WriteId,
    /// What it is.
    pub what: What,
    /// Sectors that it is about; empty for a flush.
    pub sectors: Range<u32>,
    /// Durable when it is acknowledged: it has FUA, or the volume has `sync=always`.
    pub is_sync: bool,
    /// Before the client sent it.
    pub call: Tick,
    /// How it ended.
    pub end: End,
}

impl Operation {
    /// What a change leaves; `None` for a flush or a read.
    pub(crate) fn content(&self) -> Option<Content> {
        match self.what {
            What::Write => Some(Content::Write(self.id)),
            What::Zeroes | What::Trim => Some(Content::Zeroes),
            What::Flush | What::Read(_) => None,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.what {
            What::Write => "write",
            What::Zeroes => "zeroes",
            What::Trim => "trim",
            What::Flush => "flush",
            What::Read(_) => "read",
        }
    }
}
