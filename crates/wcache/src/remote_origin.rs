//! An RBD image or an NBD export as an origin.
//!
//! The mark of an image is among its metadata; an export has none. An image that is open is this client's
//! alone: its exclusive lock is held. An export has no lock that holds on several hosts.

use std::io;
use std::sync::{Arc, Weak};

use fastness_blkdev::BlockDevice;
use fastness_remote::{Access, OpenError, RbdDevice, open, open_image};
use fastness_sync::{Mutex, lock};

use crate::id::CacheId;
use crate::origin::{Mark, Origin, fingerprint};

/// Key of the metadata that has the mark of an image.
const KEY: &str = "fastness.wcache";

/// An RBD image, or an NBD export.
#[derive(Debug)]
pub struct RemoteOrigin {
    name: String,
    /// The image while it is open.
    image: Mutex<Weak<RbdDevice>>,
}

impl RemoteOrigin {
    /// The device of that name (`rbd:POOL/IMAGE`, `nbd://...`).
    pub fn new(name: &str) -> RemoteOrigin {
        RemoteOrigin { name: name.to_owned(), image: Mutex::default() }
    }

    fn image(&self) -> io::Result<Arc<RbdDevice>> {
        lock(&self.image).upgrade().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

impl Origin for RemoteOrigin {
    fn open(&self) -> Result<Arc<dyn BlockDevice>, OpenError> {
        if let Some(image) = open_image(&self.name)? {
            let image = Arc::new(image);
            *lock(&self.image) = Arc::downgrade(&image);
            return Ok(image);
        }
        open(&self.name, Access::Write)
    }

    fn number(&self) -> io::Result<(u64, u64)> {
        let identity = match self.image() {
            Ok(image) => image.identity()?,
            Err(_) => self.name.clone(),
        };
        Ok((fingerprint(identity.as_bytes()), 0))
    }

    fn path(&self) -> Vec<u8> {
        self.name.as_bytes().to_vec()
    }

    fn mark(&self) -> io::Result<Option<Mark>> {
        let Some(text) = self.image()?.note(KEY)? else { return Ok(None) };
        let mark = decode(&text);
        mark.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its mark is damaged"))
    }

    fn set_mark(&self, mark: Option<Mark>) -> io::Result<()> {
        self.image()?.set_note(KEY, mark.map(encode).as_deref())
    }
}

/// As it is stored: the cache's id and the opening, both in hexadecimal digits.
fn encode(mark: Mark) -> String {
    let id: String = mark.cache.0.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{id} {:016x}", mark.opening)
}

fn decode(text: &str) -> Option<Mark> {
    let (id, opening) = text.split_once(' ')?;
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if id.len() != 32 || opening.len() != 16 || !is_hex(id) || !is_hex(opening) {
        return None;
    }
    let cache = CacheId(u128::from_str_radix(id, 16).ok()?.to_be_bytes());
    Some(Mark { cache, opening: u64::from_str_radix(opening, 16).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_nothing_else_is() {
        let mark = Mark { cache: CacheId(std::array::from_fn(|at| 0xf0 + at as u8)), opening: 0x0102_0304 };
        let text = encode(mark);
        assert_eq!(text, "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff 0000000001020304");
        assert_eq!(decode(&text), Some(mark));
        for wrong in ["", " ", "f0", &text[1..], &text[..48], &format!("{text}0"), &text.replace("f0", "+0")]
        {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_not_open_has_no_mark() {
        let origin = RemoteOrigin::new("nbd://127.0.0.1:1/x");
        assert_eq!(origin.mark().unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(origin.set_mark(None).unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(origin.number().unwrap(), (fingerprint(b"nbd://127.0.0.1:1/x"), 0));
        assert!(RemoteOrigin::new("rbd:").open().is_err());
    }
}
