//! The memory of a guest: parts of files of the front end, at addresses of two kinds.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fastness_pmem::{ForeignMemory, OutOfRange};

/// Most regions that a front end may hand over.
pub(crate) const REGIONS_MAX: usize = 64;

/// Where a region lies. Source: vhost-user.rst, "Memory region description".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Address that the guest uses.
    pub(crate) guest: u64,
    pub(crate) len_bytes: u64,
    /// Address that the front end uses.
    pub(crate) user: u64,
    pub(crate) file_offset: u64,
}

impl Layout {
    fn is_valid(&self) -> bool {
        let ends = [self.guest, self.user].map(|start| start.checked_add(self.len_bytes));
        self.len_bytes > 0 && ends.iter().all(Option::is_some)
    }

    fn overlaps(&self, other: &Layout) -> bool {
        self.guest < other.guest + other.len_bytes && other.guest < self.guest + self.len_bytes
    }
}

#[derive(Debug)]
pub(crate) struct Region {
    layout: Layout,
    pub(crate) memory: ForeignMemory,
}

/// Bytes in one region.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) region: Arc<Region>,
    pub(crate) offset: u64,
}

/// All regions. Replaced as a whole when one comes or goes; requests in work keep the one that they began
/// with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    regions: Vec<Arc<Region>>,
}

impl Memory {
    /// The same with one region more.
    ///
    /// # Errors
    /// It overlaps another one, is not as long as its file, or is one too many; those of mapping it.
    pub(crate) fn with(&self, layout: Layout, file: OwnedFd) -> io::Result<Memory> {
        let refused = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.regions.len() == REGIONS_MAX {
            return refused("too many memory regions");
        }
        if !layout.is_valid() || self.regions.iter().any(|region| region.layout.overlaps(&layout)) {
            return refused("a memory region that overlaps another one, or is empty");
        }
        let memory = ForeignMemory::map(&File::from(file), layout.file_offset, layout.len_bytes)?;
        let mut regions = self.regions.clone();
        regions.push(Arc::new(Region { layout, memory }));
        Ok(Memory { regions })
    }

    /// The same without the region at these addresses; `None` if there is none.
    pub(crate) fn without(&self, layout: &Layout) -> Option<Memory> {
        let is_it = |region: &Arc<Region>| {
            let own = &region.layout;
            (own.guest, own.user, own.len_bytes) == (layout.guest, layout.user, layout.len_bytes)
        };
        let at = self.regions.iter().position(is_it)?;
        let mut regions = self.regions.clone();
        regions.remove(at);
        Some(Memory { regions })
    }

    /// Whether some of it went away under us.
    pub(crate) fn is_lost(&self) -> bool {
        self.regions.iter().any(|region| region.memory.is_lost())
    }

    fn find(&self, address: u64, len: u64, start: impl Fn(&Layout) -> u64) -> Result<Place, OutOfRange> {
        let found = self.regions.iter().find_map(|region| {
            let offset = address.checked_sub(start(&region.layout))?;
            let end = offset.checked_add(len)?;
            (end <= region.layout.len_bytes).then(|| Place { region: region.clone(), offset })
        });
        found.ok_or(OutOfRange)
    }

    /// `len` bytes at an address of the front end, in one region.
    pub(crate) fn of_user(&self, address: u64, len: u64) -> Result<Place, OutOfRange> {
        self.find(address, len, |layout| layout.user)
    }

    /// Calls `each` with the parts of the bytes at an address of the guest: region, offset and length. They
    /// may go on in the next region.
    pub(crate) fn of_guest(
        &self,
        mut address: u64,
        mut len: u64,
        mut each: impl FnMut(usize, u64, u64),
    ) -> Result<(), OutOfRange> {
        while len > 0 {
            let inside =
                |region: &Arc<Region>| address.wrapping_sub(region.layout.guest) < region.layout.len_bytes;
            let number = self.regions.iter().position(inside).ok_or(OutOfRange)?;
            let layout = &self.regions[number].layout;
            let offset = address - layout.guest;
            let part = len.min(layout.len_bytes - offset);
            each(number, offset, part);
            // The last byte of the last address may be the end: the loop ends there.
            address = address.wrapping_add(part);
            len -= part;
        }
        Ok(())
    }

    pub(crate) fn region(&self, number: usize) -> &ForeignMemory {
        &self.regions[number].memory
    }
}
