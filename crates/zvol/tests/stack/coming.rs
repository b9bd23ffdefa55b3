//! A stream on its way: it comes in parts, with other steps and txgs between them, and may end early or be
//! damaged.

use std::io::{self, Read};

use crate::rng::Rng;
use crate::streams::Sent;
use crate::world::World;

/// How a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Whole,
    /// After so many bytes.
    Early(usize),
    /// One bit of this byte is another.
    Damaged(usize),
}

impl End {
    pub fn draw(sent: &Sent, rng: &mut Rng) -> End {
        match rng.below(8) {
            0 | 1 => End::Early(rng.index(sent.bytes.len())),
            2 => End::Damaged(rng.index(sent.bytes.len())),
            _ => End::Whole,
        }
    }
}

/// What a receiver reads.
pub struct Coming<'w, 'a> {
    pub world: &'w mut World<'a>,
    bytes: Vec<u8>,
    at: usize,
    /// Steps of others come here.
    pause_at: usize,
    paused: u64,
    /// A txg syncs at one in so many reads.
    syncs: u64,
    /// The volume that nobody has open at the end.
    closes: Option<String>,
    rng: Rng,
}

impl<'w, 'a> Coming<'w, 'a> {
    pub fn new(
        world: &'w mut World<'a>,
        sent: Sent,
        end: End,
        closes: Option<String>,
        mut rng: Rng,
    ) -> Coming<'w, 'a> {
        let mut bytes = sent.bytes;
        match end {
            End::Whole => {}
            End::Early(len) => bytes.truncate(len),
            End::Damaged(at) => bytes[at] ^= 1 << rng.below(8),
        }
        let pause_at = if rng.one_in(2) { rng.index(bytes.len() + 1) } else { usize::MAX };
        let syncs = rng.pick(&[1, 4, 20, u64::MAX]);
        Coming { world, bytes, at: 0, pause_at, paused: 0, syncs, closes, rng }
    }

    fn meanwhile(&mut self) {
        if self.world.power.is_off() || self.world.is_suspended() {
            return;
        }
        if self.at >= self.pause_at {
            self.world.beside(&mut self.paused);
        }
        if !self.world.power.is_off() && !self.world.is_suspended() && self.rng.one_in(self.syncs) {
            // What fails then fails for the receiver, too.
            let _ = self.world.pool().sync();
            self.world.settle_synced();
        }
    }
}

impl Read for Coming<'_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.meanwhile();
        let len = buf.len().min(self.bytes.len() - self.at);
        buf[..len].copy_from_slice(&self.bytes[self.at..self.at + len]);
        self.at += len;
        if self.at == self.bytes.len()
            && let Some(name) = self.closes.take()
        {
            self.world.volumes.iter_mut().filter(|open| open.name == name).for_each(|open| open.close());
            self.world.cut_soon(&mut self.rng, 8);
        }
        Ok(len)
    }
}
