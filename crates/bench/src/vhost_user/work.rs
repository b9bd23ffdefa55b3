//! The same work through either front end.

use std::time::Instant;

use fastness_nbd::Request;
use fastness_nbd::wire::{command, command_flag};

use super::guest::Guest;
use crate::error::{Result, foreign};
use crate::histogram::Histogram;
use crate::nbd::{BLOCK_BYTES, Server, place};

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Flush,
}

/// A connection that work goes through.
pub(super) trait Disk {
    /// Sends a request, which need not have left yet.
    fn submit(&mut self, kind: Kind, offset: u64) -> Result<()>;
    /// Lets what was submitted leave, and waits for answers; returns how many there were, at least one.
    fn answers(&mut self) -> Result<usize>;
}

impl Disk for Guest {
    fn submit(&mut self, kind: Kind, offset: u64) -> Result<()> {
        Guest::submit(self, kind, offset)
    }

    fn answers(&mut self) -> Result<usize> {
        self.kick()?;
        Guest::answers(self)
    }
}

/// Our client, whose requests leave with a system call each, as those of the kernel's client do.
pub(super) struct OverNbd<'a> {
    pub(super) server: &'a mut Server,
    /// Whether writes have FUA.
    pub(super) is_durable: bool,
}

impl Disk for OverNbd<'_> {
    fn submit(&mut self, kind: Kind, offset: u64) -> Result<()> {
        const PAYLOAD: [u8; BLOCK_BYTES as usize] = [7; BLOCK_BYTES as usize];
        let fua = if self.is_durable { command_flag::FUA } else { 0 };
        let request = match kind {
            Kind::Write => {
                Request { kind: command::WRITE, flags: fua, offset, length: BLOCK_BYTES, payload: &PAYLOAD }
            }
            Kind::Flush => Request { kind: command::FLUSH, flags: 0, offset: 0, length: 0, payload: &[] },
        };
        self.server.client.send(&request).map_err(foreign)?;
        Ok(())
    }

    fn answers(&mut self) -> Result<usize> {
        self.server.answer()?;
        Ok(1)
    }
}

/// Carries out each of `kinds` after the answer to the one before, `count` times; their times go to
/// `latencies`.
pub(super) fn one_by_one(
    disk: &mut dyn Disk,
    kinds: &[Kind],
    count: u64,
    latencies: &mut Histogram,
) -> Result<()> {
    for index in 0..count {
        let begun = Instant::now();
        for kind in kinds {
            disk.submit(*kind, place(index))?;
            disk.answers()?;
        }
        latencies.add(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(())
}

/// `count` requests with `depth` of them in flight.
pub(super) fn in_flight(disk: &mut dyn Disk, kind: Kind, count: u64, depth: u64) -> Result<()> {
    let (mut sent, mut answered) = (0, 0);
    while answered < count {
        while sent < count && sent - answered < depth {
            disk.submit(kind, place(sent))?;
            sent += 1;
        }
        answered += disk.answers()? as u64;
    }
    Ok(())
}
