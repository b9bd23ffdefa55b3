//! An origin in use: open, and opened again when it has failed.

use std::io;
use std::sync::Arc;

use fastness_blkdev::BlockDevice;
use fastness_sync::{Mutex, RwLock, RwLockReadGuard, lock, read, write};

use crate::error::Error;
use crate::origin::{Identity, Mark, Origin};

/// An origin that is open, unless it has failed.
pub(crate) struct Target {
    origin: Box<dyn Origin>,
    identity: Identity,
    device: RwLock<Option<Arc<dyn BlockDevice>>>,
    /// What the origin has to say of its cache when it is opened again; `None`: it was not marked here.
    marked: Mutex<Option<Mark>>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// A device, for as long as the guard lives.
pub(crate) struct Opened<'a>(RwLockReadGuard<'a, Option<Arc<dyn BlockDevice>>>);

impl Opened<'_> {
    pub(crate) fn device(&self) -> &dyn BlockDevice {
        &**self.0.as_ref().expect("looked at before the guard was made")
    }
}

impl Target {
    /// Opens an origin, whatever it is.
    pub(crate) fn open(origin: Box<dyn Origin>) -> Result<Target, Error> {
        let device = origin.open().map_err(Error::OpenOrigin)?;
        let (number, inode) = origin.number().map_err(Error::LookAtOrigin)?;
        let (info, len_bytes) = (device.info(), device.len_bytes());
        let identity = Identity { len_bytes, block_bytes: info.logical_block_bytes, device: number, inode };
        if info.is_read_only {
            return Err(Error::Refused("the origin is read-only".to_owned()));
        }
        if !identity.is_possible() {
            let Identity { len_bytes, block_bytes, .. } = identity;
            let text = format!(
                "an origin has blocks of 512 to 4096 bytes, and at least one: not {len_bytes} bytes in blocks of \
                 {block_bytes}"
            );
            return Err(Error::Refused(text));
        }
        Ok(Target { origin, identity, device: RwLock::new(Some(device)), marked: Mutex::new(None) })
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    pub(crate) fn origin(&self) -> &dyn Origin {
        &*self.origin
    }

    /// The device. One that refuses everything after a failed flush is opened again.
    ///
    /// # Errors
    /// It cannot be opened, or is not what it was.
    pub(crate) fn get(&self) -> Result<Opened<'_>, Error> {
        let usable =
            |device: &Option<Arc<dyn BlockDevice>>| device.as_ref().is_some_and(|it| !it.is_poisoned());
        for _ in 0..2 {
            let opened = read(&self.device);
            if usable(&opened) {
                return Ok(Opened(opened));
            }
            drop(opened);
            let mut device = write(&self.device);
            if !usable(&device) {
                // The last handle has to be gone before another one can be had.
                *device = None;
                let again = self.origin.open().map_err(Error::OpenOrigin)?;
                self.check(&*again)?;
                *device = Some(again);
            }
        }
        Err(Error::Refused("the origin fails as often as it is opened".to_owned()))
    }

    /// Whether a device that was opened again is the one that it was: another file may have got its name, or
    /// another cache may have it meanwhile.
    fn check(&self, again: &dyn BlockDevice) -> Result<(), Error> {
        let (expected, found) = (self.identity.len_bytes, again.len_bytes());
        if expected != found {
            return Err(Error::Resized { expected, found });
        }
        let number = self.origin.number().map_err(Error::LookAtOrigin)?;
        let is_same = number == (self.identity.device, self.identity.inode);
        if !is_same || again.logical_block_bytes() != self.identity.block_bytes {
            return Err(Error::OtherOrigin);
        }
        let Some(expected) = *lock(&self.marked) else { return Ok(()) };
        match self.mark()? {
            Marked::By(mark) if mark == expected => Ok(()),
            Marked::By(mark) if mark.cache != expected.cache => Err(Error::Foreign { cache: mark.cache }),
            Marked::By(_) => Err(Error::OldCopy),
            Marked::Not | Marked::Never => Err(Error::OtherOrigin),
        }
    }

    /// Lets go of a device that has gone away: the next use opens it again.
    pub(crate) fn forget(&self) {
        *write(&self.device) = None;
    }

    /// The mark; `None` also if there can be none.
    pub(crate) fn mark(&self) -> Result<Marked, Error> {
        match self.origin.mark() {
            Ok(Some(mark)) => Ok(Marked::By(mark)),
            Ok(None) => Ok(Marked::Not),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(Marked::Never),
            Err(error) => Err(Error::LookAtOrigin(error)),
        }
    }

    /// Whether the origin has a mark that was set here.
    pub(crate) fn is_marked(&self) -> bool {
        lock(&self.marked).is_some()
    }

    /// Whether that is this one.
    pub(crate) fn has_mark(&self, mark: Mark) -> bool {
        *lock(&self.marked) == Some(mark)
    }

    /// Sets the mark, if there can be one.
    pub(crate) fn set_mark(&self, mark: Option<Mark>) -> Result<(), Error> {
        match self.origin.set_mark(mark) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(()),
            set => set.map_err(Error::MarkOrigin)?,
        }
        *lock(&self.marked) = mark;
        Ok(())
    }
}

/// What is known of an origin's mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marked {
    By(Mark),
    Not,
    /// It cannot have one.
    Never,
}

impl Marked {
    /// The opening that it names.
    pub(crate) fn opening(self) -> Option<u64> {
        match self {
            Marked::By(mark) => Some(mark.opening),
            Marked::Not | Marked::Never => None,
        }
    }
}
