//! What the blocks in front of the chunks have in common: a magic at the beginning, a checksum at the end.

use crate::error::Error;

/// Bytes of a superblock and of a state slot.
pub(crate) const FRAME_BYTES: usize = 4096;
const SUMMED_BYTES: usize = FRAME_BYTES - 4;

pub(crate) type Frame = [u8; FRAME_BYTES];

/// Puts the magic and the checksum into a block.
pub(crate) fn seal(frame: &mut Frame, magic: &[u8; 8]) {
    frame[..8].copy_from_slice(magic);
    let sum = crc32c::crc32c(&frame[..SUMMED_BYTES]);
    frame[SUMMED_BYTES..].copy_from_slice(&sum.to_le_bytes());
}

/// Checks a block found at `region_offset`.
///
/// # Errors
/// [`Error::Block`].
pub(crate) fn check(
    frame: &Frame,
    magic: &[u8; 8],
    block: &'static str,
    region_offset: usize,
) -> Result<(), Error> {
    let wrong = |reason| Err(Error::Block { block, region_offset: region_offset as u64, reason });
    if frame.iter().all(|byte| *byte == 0) {
        return wrong("it is empty");
    }
    if &frame[..8] != magic {
        return wrong("it is something else");
    }
    if crc32c::crc32c(&frame[..SUMMED_BYTES]).to_le_bytes() != frame[SUMMED_BYTES..] {
        return wrong("its checksum does not match");
    }
    Ok(())
}

/// Reads numbers and bytes one after the other.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn bytes<const LEN: usize>(&mut self) -> [u8; LEN] {
        let (bytes, rest) = self.0.split_first_chunk().expect("the layout is inside of the block");
        self.0 = rest;
        *bytes
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}
