//! The queue, seen from the driver. Source: VIRTIO 1.2, 2.7.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use super::{Client, Result};
use crate::chain::{DESCRIPTOR_BYTES, Descriptor};
use crate::ring::{NO_INTERRUPT, NO_NOTIFY};

pub(super) const AVAILABLE: u64 = 0x1000;
pub(super) const USED: u64 = 0x2000;

impl Client {
    /// Fills a descriptor.
    ///
    /// # Errors
    /// It is outside of the memory.
    pub fn describe(&self, index: u16, descriptor: Descriptor) -> Result<()> {
        Ok(self.memory.write(DESCRIPTOR_BYTES * u64::from(index), &descriptor.encode())?)
    }

    /// Puts the head of a chain at entry `entry` of the available ring, which
    /// [`publish`](Self::publish) makes valid.
    ///
    /// # Errors
    /// It is outside of the memory.
    pub fn put_available(&self, entry: u16, head: u16) -> Result<()> {
        let at = AVAILABLE + 4 + 2 * u64::from(entry % self.size);
        Ok(self.memory.write(at, &head.to_le_bytes())?)
    }

    /// Makes the entries before `index` available.
    ///
    /// # Errors
    /// The ring is outside of the memory.
    pub fn publish(&self, index: u16) -> Result<()> {
        self.memory.half(AVAILABLE + 2)?.store(index.to_le(), Ordering::Release);
        Ok(())
    }

    /// Wakes the server.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn kick(&self) -> Result<()> {
        rustix::io::write(&self.kick, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    /// Wakes the server if it sleeps.
    ///
    /// # Errors
    /// As [`kick`](Self::kick).
    pub fn kick_if_wanted(&self) -> Result<()> {
        // What was published before the server's wish: it stores its wish, then looks.
        fence(Ordering::SeqCst);
        let flags = u16::from_le(self.memory.load_half(USED)?);
        if flags & NO_NOTIFY == 0 { self.kick() } else { Ok(()) }
    }

    /// How many entries were ever used, modulo 65536.
    ///
    /// # Errors
    /// The ring is outside of the memory.
    pub fn used_index(&self) -> Result<u16> {
        Ok(u16::from_le(self.memory.load_half(USED + 2)?))
    }

    /// The head of the chain at entry `entry` of the used ring.
    ///
    /// # Errors
    /// The ring is outside of the memory.
    pub fn used(&self, entry: u16) -> Result<u16> {
        let mut head = [0; 4];
        self.memory.read(USED + 4 + 8 * u64::from(entry % self.size), &mut head)?;
        Ok(u32::from_le_bytes(head) as u16)
    }

    /// Says whether the server should call. After `true`, [`used_index`](Self::used_index) shows what came
    /// before the server could know.
    ///
    /// # Errors
    /// The ring is outside of the memory.
    pub fn want_call(&self, is_wanted: bool) -> Result<()> {
        let flags = if is_wanted { 0 } else { NO_INTERRUPT };
        self.memory.half(AVAILABLE)?.store(flags.to_le(), Ordering::Release);
        if is_wanted {
            fence(Ordering::SeqCst);
        }
        Ok(())
    }

    /// Sleeps until the server calls.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn sleep(&self) -> Result<()> {
        retry_on_intr(|| rustix::io::read(&self.call, &mut [0; 8]))?;
        Ok(())
    }

    /// The same for at most so long; returns whether it called.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn sleep_for(&self, longest: Duration) -> Result<bool> {
        let timeout = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() };
        let mut ready = [PollFd::new(&self.call, PollFlags::IN)];
        if retry_on_intr(|| poll(&mut ready, Some(&timeout)))? == 0 {
            return Ok(false);
        }
        self.sleep()?;
        Ok(true)
    }
}
