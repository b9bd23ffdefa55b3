//! From virtual to physical addresses, as the CPU does it: by its page tables.
//!
//! ```text
//! CR3 -> (level 5) -> level 4 -> level 3 (or 1 GiB) -> level 2 (or 2 MiB) -> level 1 -> 4 KiB
//! ```
//! Source: Intel 64 and IA-32 manual, volume 3, 4.5 (4-level and 5-level paging).

/// Registers that say how addresses are translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paging {
    pub(crate) cr0: u64,
    pub(crate) cr3: u64,
    pub(crate) cr4: u64,
}

const CR0_PAGING: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
/// Five levels.
const CR4_LA57: u64 = 1 << 12;
const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
/// Bits 12 to 51.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Physical address; none if it is not mapped, a table is not in memory, or the CPU is in a mode of 32 bits
/// with paging but without PAE. `word` reads eight bytes of physical memory.
pub(crate) fn physical(
    paging: Paging,
    address: u64,
    mut word: impl FnMut(u64) -> Option<u64>,
) -> Option<u64> {
    if paging.cr0 & CR0_PAGING == 0 {
        return Some(address);
    }
    if paging.cr4 & CR4_PAE == 0 {
        return None;
    }
    let levels = if paging.cr4 & CR4_LA57 == 0 { 4 } else { 5 };
    let mut table = paging.cr3 & ADDRESS;
    for level in (1..=levels).rev() {
        let shift = 12 + 9 * (level - 1);
        let entry = word(table + (address >> shift & 0x1ff) * 8)?;
        if entry & PRESENT == 0 {
            return None;
        }
        if level == 1 || level <= 3 && entry & LARGE != 0 {
            let within = (1 << shift) - 1;
            // Large pages have attributes in the lower bits of the address.
            return Some(entry & ADDRESS & !within | address & within);
        }
        table = entry & ADDRESS;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const FOUR: Paging = Paging { cr0: CR0_PAGING | 1, cr3: 0x1000 | 0x18, cr4: CR4_PAE };
    const FIVE: Paging = Paging { cr4: CR4_PAE | CR4_LA57, cr3: 0x9000, ..FOUR };
    const NO_EXECUTE: u64 = 1 << 63;

    /// One page of each size.
    fn memory() -> HashMap<u64, u64> {
        let address = 0xffff_8880_1234_5678u64;
        let index = |level: u32| (address >> (12 + 9 * (level - 1)) & 0x1ff) * 8;
        HashMap::from([
            (0x9000 + index(5), 0x1000 | 0x63),
            (0x1000 + index(4), 0x2000 | 0x67),
            (0x2000 + index(3), 0x3000 | 0x67),
            (0x2000 + index(3) + 8, 0x4000_0000 | 0x10e3 | NO_EXECUTE),
            (0x3000 + index(2), 0x4000 | 0x67),
            (0x3000 + index(2) + 8, 0x1060_0000 | 0x10e3),
            (0x4000 + index(1), 0x1000_5000 | 0x63 | NO_EXECUTE | 1 << 59),
            (0x4000 + index(1) + 8, 0x1000_6000 | 0x62),
        ])
    }

    #[test]
    fn pages_of_all_sizes() {
        let memory = memory();
        let address = 0xffff_8880_1234_5678u64;
        for paging in [FOUR, FIVE] {
            let physical = |address| physical(paging, address, |at| memory.get(&at).copied());
            assert_eq!(physical(address), Some(0x1000_5678));
            assert_eq!(
                physical(address + (2 << 20)),
                Some(0x1060_0000 + ((address + (2 << 20)) & 0x1f_ffff))
            );
            assert_eq!(
                physical(address + (1 << 30)),
                Some(0x4000_0000 + ((address + (1 << 30)) & 0x3fff_ffff))
            );
            // Not present; a table that is not there.
            assert_eq!(physical(address + 4096), None);
            assert_eq!(physical(address + (4 << 20)), None);
            assert_eq!(physical(0), None);
        }
    }

    #[test]
    fn modes_without_page_tables() {
        assert_eq!(physical(Paging { cr0: 1, ..FOUR }, 0x1234, |_| None), Some(0x1234));
        assert_eq!(physical(Paging { cr4: 0, ..FOUR }, 0x1234, |_| Some(1)), None);
    }
}
