//! A device: who writes to it at the moment, and how long that takes them.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::profile::{DeviceProfile, Node};

/// A write is served in pieces of this much work: after each, the number of writers counts anew.
const PIECE_BYTES: u64 = 1024;
/// A writer that is later than this was taken off its CPU; the device does not work ahead for it.
const LATE: Duration = Duration::from_micros(20);

/// How a writer waits for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stall {
    /// On its CPU, in real time, as on the device. There must be a CPU for each writer.
    Burn,
    /// Off its CPU, in time that is so many times slower; the time that would have been burnt is counted.
    Sleep {
        /// Real time for each time of the model.
        slower: u32,
    },
}

/// A modelled device, which all media on it share.
#[derive(Debug)]
pub struct DeviceModel {
    profile: DeviceProfile,
    stall: Stall,
    writers: OwnLine<AtomicU32>,
    transfers: OwnLine<AtomicU32>,
    stalled_ns: OwnLine<AtomicU64>,
    most_writers: OwnLine<AtomicU32>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct OwnLine<T>(T);

impl DeviceModel {
    /// A device that nobody writes to yet.
    pub fn new(profile: DeviceProfile, stall: Stall) -> DeviceModel {
        DeviceModel {
            profile,
            stall,
            writers: OwnLine::default(),
            transfers: OwnLine::default(),
            stalled_ns: OwnLine::default(),
            most_writers: OwnLine::default(),
        }
    }

    /// Its figures.
    pub fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    /// Time that writers, and readers of a [`ModelledView`](super::ModelledView), have waited for it,
    /// together, in ns of the model: CPU time of theirs.
    pub fn stalled_ns(&self) -> u64 {
        self.stalled_ns.0.load(Ordering::Relaxed)
    }

    /// The most writers at one time so far.
    pub fn most_writers(&self) -> u32 {
        self.most_writers.0.load(Ordering::Relaxed)
    }

    /// Time of the model that has passed in a real time.
    pub fn time_of(&self, real: Duration) -> Duration {
        real / self.slower()
    }

    /// Spends time that is the caller's own, not the device's, on its CPU: burnt, or slept and counted.
    pub fn work(&self, time: Duration) {
        let begun = Instant::now();
        self.wait_until(begun + time * self.slower());
        if matches!(self.stall, Stall::Sleep { .. }) {
            self.stalled_ns.0.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    fn slower(&self) -> u32 {
        match self.stall {
            Stall::Burn => 1,
            Stall::Sleep { slower } => slower.max(1),
        }
    }

    /// Makes a write of `len_bytes` at `offset`, done by `copy`, take as long as on the device.
    pub(super) fn write(&self, node: Node, offset: u64, len_bytes: usize, copy: impl FnOnce()) {
        let mut due = Instant::now();
        let now_writing = self.writers.0.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_writers.0.fetch_max(now_writing, Ordering::Relaxed);
        let _writing = Counted(&self.writers.0);
        copy();
        let (mut left, mut stalled_ns) = (self.profile.work_bytes(offset, len_bytes), 0.0);
        while left > 0 {
            let piece = left.min(PIECE_BYTES);
            let writers = self.writers.0.load(Ordering::Relaxed);
            let share = self.profile.gib_per_s(node, writers) / f64::from(writers);
            let ns = nanoseconds(piece, share);
            stalled_ns += ns;
            due += Duration::from_nanos((ns * f64::from(self.slower())) as u64);
            due = self.wait_until(due);
            left -= piece;
        }
        self.stalled_ns.0.fetch_add(stalled_ns as u64, Ordering::Relaxed);
    }

    /// Makes a read of `len_bytes`, done by `copy`, take as long as on the device for a reader that has it
    /// for itself.
    pub(super) fn read<T>(&self, len_bytes: usize, copy: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let read = copy();
        let ns = self.profile.read_ns as f64 + nanoseconds(len_bytes as u64, self.profile.read_gib_per_s);
        self.wait_until(begun + Duration::from_nanos((ns * f64::from(self.slower())) as u64));
        self.stalled_ns.0.fetch_add(ns as u64, Ordering::Relaxed);
        read
    }

    /// Makes a transfer of a DMA engine take its time: off the CPU, whoever waits.
    pub fn transfer(&self, offset: u64, len_bytes: usize, copy: impl FnOnce()) {
        let begun = Instant::now();
        let running = self.transfers.0.fetch_add(1, Ordering::Relaxed) + 1;
        let _transferring = Counted(&self.transfers.0);
        copy();
        let share = self.profile.dma_gib_per_s / f64::from(running);
        let ns = nanoseconds(self.profile.work_bytes(offset, len_bytes), share) * f64::from(self.slower());
        sleep((begun + Duration::from_nanos(ns as u64)).saturating_duration_since(Instant::now()));
    }

    /// When the next piece begins: then, or now for a writer that was away.
    fn wait_until(&self, due: Instant) -> Instant {
        match self.stall {
            Stall::Burn => loop {
                let now = Instant::now();
                if now >= due {
                    break if now - due > LATE { now } else { due };
                }
                spin_loop();
            },
            // What one sleep is too long, the next one is shorter.
            Stall::Sleep { .. } => {
                sleep(due.saturating_duration_since(Instant::now()));
                due
            }
        }
    }
}

fn nanoseconds(bytes: u64, gib_per_s: f64) -> f64 {
    bytes as f64 / gib_per_s / (1_u64 << 30) as f64 * 1e9
}

/// Counts down, however the copy ends.
struct Counted<'a>(&'a AtomicU32);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
