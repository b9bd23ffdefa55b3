//! The trailers of sectors, from `docs/format.md` and not from the code: to make them fit for what is forged.

use twox_hash::XxHash3_64;

pub const SECTOR_BYTES: usize = 512;
const CONTENTS_BYTES: usize = SECTOR_BYTES - 16;

/// Makes all trailers fit of every block, as far as the block says what it is.
pub fn forge(bytes: &mut [u8]) {
    for at in (0..bytes.len()).step_by(4096) {
        let block = &mut bytes[at..];
        let used = u32::from_le_bytes([block[12], block[13], block[14], block[15]]) as usize;
        let written = (used.div_ceil(CONTENTS_BYTES) * SECTOR_BYTES).next_multiple_of(4096);
        if block[..8] == *b"FASTLWBK" && (4096..=block.len()).contains(&written) {
            let tag = XxHash3_64::oneshot(&block[16..40]);
            for (index, sector) in block[..written].chunks_exact_mut(SECTOR_BYTES).enumerate() {
                let tag = tag.wrapping_add(index as u64);
                let sum = XxHash3_64::oneshot(&sector[..CONTENTS_BYTES]) ^ tag;
                sector[CONTENTS_BYTES..CONTENTS_BYTES + 8].copy_from_slice(&tag.to_le_bytes());
                sector[CONTENTS_BYTES + 8..].copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
}
