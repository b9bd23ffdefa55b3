//! An export in memory, for tests, examples and comparisons.

use fastness_sync::{RwLock, read, write};

use crate::error::ExportError;
use crate::export::{BlockSizes, Export, Extent, ExtentKind, Features, ZeroOptions};

/// Unit of allocation.
const PAGE_BYTES: u64 = 64 << 10;

/// Bytes in memory, allocated page by page; lost with the process, so flush and FUA have nothing to do.
pub struct MemoryExport {
    size_bytes: u64,
    blocks: BlockSizes,
    pages: Vec<RwLock<Option<Box<[u8]>>>>,
}

impl MemoryExport {
    /// `size_bytes` of zeroes.
    pub fn new(size_bytes: u64) -> Self {
        Self::with_blocks(size_bytes, BlockSizes::default())
    }

    /// The same, with other block sizes.
    pub fn with_blocks(size_bytes: u64, blocks: BlockSizes) -> Self {
        let pages = (0..size_bytes.div_ceil(PAGE_BYTES)).map(|_| RwLock::new(None)).collect();
        Self { size_bytes, blocks, pages }
    }

    /// Each page of a range: page, first byte in the page, bytes in the page.
    fn parts(offset: u64, length: u64) -> impl Iterator<Item = (usize, usize, usize)> {
        let end = offset + length;
        let mut at = offset;
        std::iter::from_fn(move || {
            let (page, first) = (at / PAGE_BYTES, at % PAGE_BYTES);
            let bytes = (PAGE_BYTES - first).min(end - at);
            at += bytes;
            (bytes > 0).then_some((page as usize, first as usize, bytes as usize))
        })
    }

    fn clear(&self, offset: u64, length: u64, may_punch_hole: bool) {
        for (page, first, bytes) in Self::parts(offset, length) {
            let mut page = write(&self.pages[page]);
            if may_punch_hole && bytes as u64 == PAGE_BYTES {
                *page = None;
            } else if let Some(page) = &mut *page {
                page[first..first + bytes].fill(0);
            } else if !may_punch_hole {
                *page = Some(new_page());
            }
        }
    }
}

fn new_page() -> Box<[u8]> {
    vec![0; PAGE_BYTES as usize].into_boxed_slice()
}

impl Export for MemoryExport {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn block_sizes(&self) -> BlockSizes {
        self.blocks
    }

    fn features(&self) -> Features {
        Features {
            flush: true,
            fua: true,
            trim: true,
            write_zeroes: true,
            fast_zero: true,
            cache: true,
            extents: true,
            multi_conn: true,
            rotational: false,
        }
    }

    fn description(&self) -> Option<String> {
        Some("memory; lost with the process".to_owned())
    }

    fn read(&self, offset: u64, mut buffer: &mut [u8]) -> Result<(), ExportError> {
        for (page, first, bytes) in Self::parts(offset, buffer.len() as u64) {
            let (part, rest) = buffer.split_at_mut(bytes);
            match &*read(&self.pages[page]) {
                Some(page) => part.copy_from_slice(&page[first..first + bytes]),
                None => part.fill(0),
            }
            buffer = rest;
        }
        Ok(())
    }

    fn write(&self, offset: u64, mut data: &[u8], _fua: bool) -> Result<(), ExportError> {
        for (page, first, bytes) in Self::parts(offset, data.len() as u64) {
            let (part, rest) = data.split_at(bytes);
            let mut page = write(&self.pages[page]);
            page.get_or_insert_with(new_page)[first..first + bytes].copy_from_slice(part);
            data = rest;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), ExportError> {
        Ok(())
    }

    fn trim(&self, offset: u64, length: u64, _fua: bool) -> Result<(), ExportError> {
        self.clear(offset, length, true);
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, length: u64, options: ZeroOptions) -> Result<(), ExportError> {
        if options.fast && !options.may_punch_hole {
            // Allocating is as slow as writing.
            return Err(ExportError::Unsupported);
        }
        self.clear(offset, length, options.may_punch_hole);
        Ok(())
    }

    fn cache(&self, _offset: u64, _length: u64) -> Result<(), ExportError> {
        Ok(())
    }

    fn block_status(&self, offset: u64, length: u64, extents: &mut Vec<Extent>) -> Result<(), ExportError> {
        for (page, _, bytes) in Self::parts(offset, length) {
            let is_hole = read(&self.pages[page]).is_none();
            let kind = if is_hole { ExtentKind::Hole } else { ExtentKind::Data };
            match extents.last_mut() {
                Some(last) if last.kind == kind => last.length += bytes as u64,
                _ => extents.push(Extent { length: bytes as u64, kind }),
            }
        }
        Ok(())
    }
}
