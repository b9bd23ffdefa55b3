//! The crate's own front end, with requests that a test fills by hand and waits that end.

use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastness_vhost_user::client::Client;
pub(crate) use fastness_vhost_user::client::DATA;
use fastness_vhost_user::{Descriptor, NEXT, WRITE};

pub(crate) const MEMORY_BYTES: u64 = 1 << 20;
pub(crate) const SIZE: u16 = 16;
/// VERSION_1, PROTOCOL_FEATURES and FLUSH.
pub(crate) const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 9;
/// REPLY_ACK, BACKEND_REQ, CONFIG and INFLIGHT.
pub(crate) const PROTOCOL: u64 = 1 << 3 | 1 << 5 | 1 << 9 | 1 << 12;

pub(crate) struct Front(Client);

impl Deref for Front {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0
    }
}

impl Front {
    pub(crate) fn connect(path: &Path) -> Front {
        Front(Client::connect(path, MEMORY_BYTES, SIZE).unwrap())
    }

    pub(crate) fn negotiate(&self) {
        self.0.negotiate(FEATURES, PROTOCOL).unwrap();
    }

    pub(crate) fn start(&self, base: u32) {
        self.0.start(base).unwrap();
    }

    /// Fills a descriptor.
    pub(crate) fn describe(&self, index: u16, address: u64, len: u32, flags: u16, next: u16) {
        self.0.describe(index, Descriptor { address, len, flags, next }).unwrap();
    }

    /// A request of one data buffer, in descriptors `head` to `head + 2`. Its status is at the returned
    /// place.
    pub(crate) fn request(&self, head: u16, kind: u32, sector: u64, byte: u8) -> u64 {
        let at = DATA + u64::from(head) * 4096;
        let mut header = [kind, 0].map(u32::to_le_bytes).concat();
        header.extend(sector.to_le_bytes());
        self.memory().write(at, &header).unwrap();
        self.memory().write(at + 1024, &[byte; 512]).unwrap();
        self.memory().write(at + 2048, &[0xff]).unwrap();
        let direction = if kind == 0 { WRITE } else { 0 };
        self.describe(head, at, 16, NEXT, head + 1);
        self.describe(head + 1, at + 1024, 512, NEXT | direction, head + 2);
        self.describe(head + 2, at + 2048, 1, WRITE, 0);
        at + 2048
    }

    /// Makes `heads` available, from entry `from` on, and kicks.
    pub(crate) fn offer(&self, from: u16, heads: &[u16]) {
        for (entry, head) in (from..).zip(heads) {
            self.put_available(entry, *head).unwrap();
        }
        self.offer_up_to(from.wrapping_add(heads.len() as u16));
    }

    pub(crate) fn offer_up_to(&self, index: u16) {
        self.publish(index).unwrap();
        self.kick().unwrap();
    }

    /// Waits until so many entries are used.
    pub(crate) fn wait_used(&self, index: u16) {
        while self.used_index().unwrap() != index {
            let is_called = self.sleep_for(Duration::from_secs(20)).unwrap();
            assert!(is_called, "{:?} of {index} entries are used", self.used_index());
        }
    }

    pub(crate) fn byte(&self, at: u64) -> u8 {
        self.memory().byte(at).unwrap().load(Ordering::Acquire)
    }
}
