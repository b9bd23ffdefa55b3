//! What the fuzz targets share: inputs, logs to damage, and the oracle.
//!
//! The oracle: bytes from a medium are never trusted, so nothing panics and nothing is read outside of the
//! medium; and damage forges nothing, so what comes back was written. An input may ask for checksums to be
//! made right again behind the damage (*resealed*). That is forgery: it reaches the checks behind the
//! checksums, and only the first half of the oracle holds.

use arbitrary::Arbitrary;
use fastness_pmem::ReadErrorKind;
use fastness_prb::{Alignment, ChecksumKind, Config, End, HEADER_BYTES, Insertion};
use fastness_testkit::{Edit, Heap, SeededEntropy};

/// One edit as a fuzzer makes it; [`Edit`] says what becomes of it.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub struct RawEdit {
    kind: u8,
    place: u32,
    other: u32,
    len: u16,
}

/// Damages the memory; then, if asked to, makes the checksums of all headers in it fit again.
#[derive(Debug, Clone, Arbitrary)]
pub struct Damage {
    edits: Vec<RawEdit>,
    pub reseal: bool,
}

impl Damage {
    pub fn is_none(&self) -> bool {
        self.edits.is_empty()
    }

    pub fn apply(&self, heap: &Heap) {
        let len = heap.bytes().len();
        for edit in self.edits.iter().take(8) {
            Edit::from_numbers(len, edit.kind, edit.place, edit.other, edit.len).apply(heap);
        }
        if self.reseal {
            heap.edit(reseal_entries);
        }
    }
}

/// Makes the header checksum fit wherever an entry header may be.
pub fn reseal_entries(bytes: &mut [u8]) {
    let places = bytes.len().saturating_sub(HEADER_BYTES - 1);
    for offset in (0..places).step_by(64) {
        reseal_entry(&mut bytes[offset..offset + HEADER_BYTES]);
    }
}

/// Makes the checksum of one entry header fit, if it looks like one.
pub fn reseal_entry(header: &mut [u8]) {
    // The version, the checksum kind and the tags of words: docs/format.md.
    let looks_like_one = header[18..20] == [2, 0] && header[..8] != [0; 8];
    if let Some(kind) = ChecksumKind::from_byte(header[20]).filter(|_| looks_like_one) {
        let words = match kind {
            ChecksumKind::Fletcher4 => 5,
            ChecksumKind::Crc32c => 1,
            ChecksumKind::Xxh3 => 2,
        };
        let sum = kind.of(&header[..216]);
        for (word, seven) in header[216..].chunks_exact_mut(8).zip(sum.chunks(7)).take(words) {
            word[..7].fill(0);
            word[..seven.len()].copy_from_slice(seven);
            word[7] = 0xa5;
        }
    }
}

/// How entries are laid out.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub struct Layout {
    checksum: u8,
    one_fence: bool,
    optane: bool,
}

impl Layout {
    pub fn config(self, seed: u64) -> Config {
        let checksum = ChecksumKind::ALL[usize::from(self.checksum) % 3];
        let one_fence = self.one_fence && checksum.is_strong();
        Config {
            ncommitters: 1,
            checksum,
            insertion: if one_fence { Insertion::OneFence } else { Insertion::TwoFences },
            alignment: if self.optane { Alignment::Optane } else { Alignment::Line },
            entropy: SeededEntropy::new(seed),
            clock: || 0,
            ..Config::default()
        }
    }
}

/// A body that no other number has.
pub fn body(number: usize, len: usize) -> Vec<u8> {
    let mut body: Vec<u8> = (0..len).map(|i| (number.wrapping_mul(37) ^ i.wrapping_mul(11)) as u8).collect();
    body.splice(..len.min(2), (number as u16).to_le_bytes().into_iter().take(len));
    body
}

/// Whoever walks over a chunk never leaves it.
pub fn assert_inside(end: End) {
    if let End::Poison(error) = end {
        assert_ne!(error.kind, ReadErrorKind::OutOfRange, "an access outside of the chunk");
    }
}
