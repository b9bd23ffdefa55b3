//! Return addresses of a guest's code: by the kernel's own tables if they are known, or else by frame
//! pointers.

use std::path::{Path, PathBuf};

use iced_x86::Register;

use super::orc::{Orc, OrcError};
use crate::api;
use crate::stack::Stack;

/// Of a stack, read at a time; a frame of the kernel has some hundred bytes. Divides a page.
const NEARBY_BYTES: u64 = 1024;

/// Why return addresses cannot be found.
#[derive(Debug, thiserror::Error)]
#[error("orc={}: {source}", path.display())]
pub(crate) struct FramesError {
    path: PathBuf,
    source: OrcError,
}

/// How return addresses are found, if they are wanted.
#[derive(Debug)]
pub(super) struct Frames {
    /// By frame pointers, where there are no tables.
    has_pointers: bool,
    orc: Option<Orc>,
}

impl Frames {
    /// `orc` says where the kernel's tables are.
    ///
    /// # Errors
    /// [`FramesError`]
    pub(super) fn new(has_pointers: bool, orc: Option<&Path>) -> Result<Frames, FramesError> {
        let read =
            |path: &Path| Orc::read(path).map_err(|source| FramesError { path: path.to_owned(), source });
        Ok(Frames { has_pointers, orc: orc.map(read).transpose()? })
    }

    /// Those of this CPU, whose code is at `pc`.
    pub(super) fn of_cpu(&self, pc: u64) -> Option<Stack> {
        let Some(orc) = self.orc.as_ref().filter(|_| pc >> 63 == 1) else {
            return self.has_pointers.then(Stack::of_cpu);
        };
        let [sp, bp] = [Register::RSP, Register::RBP].map(|name| api::read_register(name).unwrap_or(0));
        let mut nearby = Nearby { start: 0, bytes: [0; NEARBY_BYTES as usize], is_read: false };
        Some(orc.walk(pc, sp, bp, &mut |address, buffer| nearby.read(address, buffer)))
    }
}

/// A piece of memory around what was read last: words of one stack are near to each other.
struct Nearby {
    start: u64,
    bytes: [u8; NEARBY_BYTES as usize],
    is_read: bool,
}

impl Nearby {
    fn read(&mut self, address: u64, buffer: &mut [u8]) -> bool {
        let start = address / NEARBY_BYTES * NEARBY_BYTES;
        let from = (address - start) as usize;
        if from + buffer.len() > self.bytes.len() {
            return api::read_memory(address, buffer);
        }
        if !self.is_read || start != self.start {
            self.start = start;
            self.is_read = api::read_memory(start, &mut self.bytes);
        }
        if self.is_read {
            buffer.copy_from_slice(&self.bytes[from..from + buffer.len()]);
        }
        self.is_read
    }
}
