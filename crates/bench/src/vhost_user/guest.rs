//! What a guest's driver does with its disk: one queue, with so many requests in flight.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fastness_vhost_user::client::{Client, DATA};
use fastness_vhost_user::{Descriptor, NEXT, WRITE};

use super::work::Kind;
use crate::error::{Result, ensure, foreign, wrong};
use crate::nbd::BLOCK_BYTES;

/// Most requests in flight. Each has three descriptors.
pub(super) const DEPTH_MAX: u16 = 32;
const QUEUE: u16 = 128;
/// Header and status of a slot.
const SLOT_BYTES: u64 = 64;
const STATUS_AT: u64 = 32;
/// First byte of the blocks.
const BLOCKS: u64 = DATA + 0x1_0000;
const MEMORY_BYTES: u64 = BLOCKS + DEPTH_MAX as u64 * BLOCK_BYTES;

/// VERSION_1, PROTOCOL_FEATURES, CONFIG_WCE and FLUSH.
const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 11 | 1 << 9;
/// REPLY_ACK, CONFIG and INFLIGHT.
const PROTOCOL: u64 = 1 << 3 | 1 << 9 | 1 << 12;
const SET_CONFIG: u32 = 25;
const WRITEBACK_AT: u32 = 32;
const OK: u8 = 0;

/// How a guest waits for answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// It sleeps until it is called.
    Sleep,
    /// It looks at the queue again and again.
    Look,
}

pub(super) struct Guest {
    client: Client,
    wait: Wait,
    /// Slots without a request.
    free: Vec<u16>,
    /// Entries that were ever made available, and used, modulo 65536.
    offered: u16,
    taken: u16,
}

impl Guest {
    /// Connects as soon as there is a server.
    pub(super) fn connect(path: &Path) -> Result<Guest> {
        let client = Client::connect(path, MEMORY_BYTES, QUEUE).map_err(foreign)?;
        client.negotiate(FEATURES, PROTOCOL).map_err(foreign)?;
        let guest = Guest { client, wait: Wait::Sleep, free: Vec::new(), offered: 0, taken: 0 };
        guest
            .client
            .memory()
            .write(BLOCKS, &[7; (DEPTH_MAX as u64 * BLOCK_BYTES) as usize])
            .map_err(foreign)?;
        guest.client.keep_inflight().map_err(foreign)?;
        guest.client.start(0).map_err(foreign)?;
        Ok(Guest { free: (0..DEPTH_MAX).collect(), ..guest })
    }

    /// How it waits, and whether each write is durable when it is answered.
    pub(super) fn set(&mut self, wait: Wait, is_write_through: bool) -> Result<()> {
        self.wait = wait;
        let mut payload = [WRITEBACK_AT, 1, 0].map(u32::to_ne_bytes).concat();
        payload.push(u8::from(!is_write_through));
        let answer = self.client.ask(SET_CONFIG, &payload, &[]).map_err(foreign)?;
        ensure!(answer == 0, "the server does not change how it writes");
        Ok(())
    }

    /// Makes a request available; the server may not know yet.
    pub(super) fn submit(&mut self, kind: Kind, offset: u64) -> Result<()> {
        let slot = self.free.pop().ok_or_else(|| wrong("a request too many"))?;
        self.request(slot, kind, offset).map_err(foreign)
    }

    fn request(
        &mut self,
        slot: u16,
        kind: Kind,
        offset: u64,
    ) -> Result<(), fastness_vhost_user::client::ClientError> {
        let (head, at) = (3 * slot, DATA + u64::from(slot) * SLOT_BYTES);
        let number = match kind {
            Kind::Write => 1_u32,
            Kind::Flush => 4,
        };
        let mut header = [0; 16];
        header[..4].copy_from_slice(&number.to_le_bytes());
        header[8..].copy_from_slice(&(offset / 512).to_le_bytes());
        let client = &self.client;
        client.memory().write(at, &header)?;
        client.memory().byte(at + STATUS_AT)?.store(0xff, Ordering::Relaxed);
        let first = if kind == Kind::Flush { head + 2 } else { head + 1 };
        client.describe(head, Descriptor { address: at, len: 16, flags: NEXT, next: first })?;
        if kind != Kind::Flush {
            let address = BLOCKS + u64::from(slot) * BLOCK_BYTES;
            let len = BLOCK_BYTES as u32;
            client.describe(head + 1, Descriptor { address, len, flags: NEXT, next: head + 2 })?;
        }
        let status = Descriptor { address: at + STATUS_AT, len: 1, flags: WRITE, next: 0 };
        client.describe(head + 2, status)?;
        client.put_available(self.offered, head)?;
        self.offered = self.offered.wrapping_add(1);
        client.publish(self.offered)
    }

    /// Tells the server of what was submitted, if it sleeps.
    pub(super) fn kick(&self) -> Result<()> {
        self.client.kick_if_wanted().map_err(foreign)
    }

    /// Waits for answers; returns how many there were, at least one.
    pub(super) fn answers(&mut self) -> Result<usize> {
        match self.wait {
            Wait::Look => self.look()?,
            Wait::Sleep => self.sleep()?,
        }
        let mut count = 0;
        while self.has_answer()? {
            let head = self.client.used(self.taken).map_err(foreign)?;
            let slot = head / 3;
            let at = DATA + u64::from(slot) * SLOT_BYTES + STATUS_AT;
            let status = self.client.memory().byte(at).map_err(foreign)?.load(Ordering::Acquire);
            ensure!(status == OK, "a request of the guest has status {status}");
            self.free.push(slot);
            self.taken = self.taken.wrapping_add(1);
            count += 1;
        }
        Ok(count)
    }

    fn has_answer(&self) -> Result<bool> {
        Ok(self.client.used_index().map_err(foreign)? != self.taken)
    }

    fn look(&self) -> Result<()> {
        self.client.want_call(false).map_err(foreign)?;
        let mut begun = None;
        loop {
            for _ in 0..1000 {
                if self.has_answer()? {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            let begun = begun.get_or_insert_with(Instant::now);
            ensure!(begun.elapsed() < PATIENCE, "the server did not answer within {PATIENCE:?}");
        }
    }

    fn sleep(&self) -> Result<()> {
        while !self.has_answer()? {
            self.client.want_call(true).map_err(foreign)?;
            if !self.has_answer()? {
                let is_called = self.client.sleep_for(PATIENCE).map_err(foreign)?;
                ensure!(is_called, "the server did not answer within {PATIENCE:?}");
            }
            self.client.want_call(false).map_err(foreign)?;
        }
        Ok(())
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
