//! The layout of a trace's regions in one image.

use fastness_crashcheck_trace::{Header, Region, TraceError};

use crate::image::PAGE_BYTES;

/// The regions of a trace one after the other, each starting at a page boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    parts: Vec<Part>,
    len_bytes: u64,
}

/// One region of a trace, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The region, with its addresses in the trace.
    pub region: Region,
    /// Offset of its first byte in the image.
    pub offset: u64,
}

/// Where a range of addresses is in PM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// From this offset of the image on.
    Inside(u64),
    /// Of no region.
    Outside,
    /// Partly of a region.
    Crossing,
}

impl Layout {
    /// The regions in the order of the header.
    ///
    /// # Errors
    /// [`TraceError::Invalid`] if they are longer together than addresses are.
    pub fn of(header: &Header) -> Result<Layout, TraceError> {
        let what = || "its regions together exceed the address space".to_owned();
        Layout::in_a_row(header).ok_or_else(|| TraceError::Invalid { number: 0, what: what() })
    }

    fn in_a_row(header: &Header) -> Option<Layout> {
        let mut len_bytes = 0_u64;
        let mut parts = Vec::new();
        for region in &header.regions {
            parts.push(Part { region: region.clone(), offset: len_bytes });
            let whole = region.len_bytes.checked_next_multiple_of(PAGE_BYTES as u64)?;
            len_bytes = len_bytes.checked_add(whole)?;
        }
        Some(Layout { parts, len_bytes })
    }

    /// Length of the image in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The regions.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Where `len_bytes` bytes from `address` on are.
    pub fn place(&self, address: u64, len_bytes: usize) -> Place {
        let end = address.saturating_add(len_bytes as u64);
        for part in &self.parts {
            let (start, part_end) = (part.region.start, part.region.start + part.region.len_bytes);
            if address >= start && end <= part_end {
                return Place::Inside(part.offset + (address - start));
            }
            if end > start && address < part_end {
                return Place::Crossing;
            }
        }
        Place::Outside
    }

    /// The address in the trace of an offset of the image, and its region; `None` between two regions.
    pub fn address_of(&self, offset: u64) -> Option<(u64, &Region)> {
        self.parts.iter().find_map(|part| {
            let within = offset.checked_sub(part.offset)?;
            (within < part.region.len_bytes).then_some((part.region.start + within, &part.region))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_offsets_there_and_back() {
        let region = |name: &str, start, len_bytes| Region { name: name.to_owned(), start, len_bytes };
        let regions = vec![region("a", 1 << 40, 5000), region("b", 0, 100)];
        let layout = Layout::of(&Header { regions, ..Header::default() }).unwrap();
        assert_eq!(layout.len_bytes(), 8192 + 4096);
        assert_eq!(layout.place((1 << 40) + 4999, 1), Place::Inside(4999));
        assert_eq!(layout.place((1 << 40) + 4999, 2), Place::Crossing);
        assert_eq!(layout.place((1 << 40) - 1, 2), Place::Crossing);
        assert_eq!(layout.place(99, 1), Place::Inside(8192 + 99));
        assert_eq!(layout.place(100, 8), Place::Outside);
        assert_eq!(layout.place(u64::MAX, 8), Place::Outside);
        let address =
            |offset| layout.address_of(offset).map(|(address, region)| (address, region.name.as_str()));
        assert_eq!(address(4999), Some(((1 << 40) + 4999, "a")));
        assert_eq!(address(5000), None);
        assert_eq!(address(8192), Some((0, "b")));
        let regions = vec![region("a", 0, u64::MAX)];
        let error = Layout::of(&Header { regions, ..Header::default() }).unwrap_err();
        assert!(matches!(error, TraceError::Invalid { number: 0, .. }), "{error}");
    }
}
