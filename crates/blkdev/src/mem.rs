//! A device in memory, and device images that are cheap to copy.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use crate::check::len64;
use crate::device::BlockDevice;
use crate::error::{BlockError, Operation};
use crate::info::{DeviceInfo, DeviceKind, Engine, WriteCache};
use crate::stats::{Stats, StatsSnapshot};

const PAGE_BYTES: usize = 4096;
type Page = [u8; PAGE_BYTES];

/// Contents of a whole device; copies share unchanged pages.
#[derive(Debug, Clone)]
pub struct MemImage {
    pages: Vec<Arc<Page>>,
    len_bytes: u64,
}

impl MemImage {
    /// `len_bytes` zeroes.
    pub fn zeroed(len_bytes: u64) -> MemImage {
        let pages = usize::try_from(len_bytes).expect("an image fits into memory").div_ceil(PAGE_BYTES);
        let zeroes = Arc::new([0; PAGE_BYTES]);
        MemImage { pages: vec![zeroes; pages], len_bytes }
    }

    /// A copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> MemImage {
        let mut image = MemImage::zeroed(len64(bytes.len()));
        image.write(0, bytes);
        image
    }

    /// A copy of the current contents of `device`.
    ///
    /// # Errors
    /// Errors of reading it.
    pub fn of_device(device: &dyn BlockDevice) -> Result<MemImage, BlockError> {
        const STEP_BYTES: u64 = 1 << 20;
        let mut image = MemImage::zeroed(device.len_bytes());
        let mut offset = 0;
        while offset < image.len_bytes {
            let mut buf = vec![0; usize::try_from(STEP_BYTES.min(image.len_bytes - offset)).expect("a MiB")];
            device.read_at(offset, &mut buf)?;
            image.write(offset, &buf);
            offset += len64(buf.len());
        }
        Ok(image)
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Fills `buf` from `offset` on.
    ///
    /// # Panics
    /// If the range is outside the image.
    pub fn read(&self, offset: u64, buf: &mut [u8]) {
        for (page, at, range) in self.walk(offset, buf.len()) {
            let part = &mut buf[range];
            part.copy_from_slice(&self.pages[page][at..at + part.len()]);
        }
    }

    /// Replaces the bytes from `offset` on.
    ///
    /// # Panics
    /// If the range is outside the image.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (page, at, range) in self.walk(offset, data.len()) {
            let part = &data[range];
            let is_same = self.pages[page][at..at + part.len()] == *part;
            // Unchanged pages stay shared: most of an image is zeroes.
            if !is_same {
                Arc::make_mut(&mut self.pages[page])[at..at + part.len()].copy_from_slice(part);
            }
        }
    }

    /// Zeroes a range from `offset` on.
    ///
    /// # Panics
    /// If the range is outside the image.
    pub fn zero(&mut self, offset: u64, len_bytes: u64) {
        let zeroes = [0; PAGE_BYTES];
        let len = usize::try_from(len_bytes).expect("inside of the image");
        for (page, at, range) in self.walk(offset, len) {
            if range.len() == PAGE_BYTES {
                self.pages[page] = Arc::new(zeroes);
            } else {
                Arc::make_mut(&mut self.pages[page])[at..at + range.len()].fill(0);
            }
        }
    }

    /// All bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.len_bytes).expect("an image fits into memory")];
        self.read(0, &mut bytes);
        bytes
    }

    /// Splits a range at page borders: (page, offset in it, range of the buffer).
    fn walk(
        &self,
        offset: u64,
        len: usize,
    ) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> + use<> {
        let is_inside = offset.checked_add(len64(len)).is_some_and(|end| end <= self.len_bytes);
        assert!(is_inside, "{len} bytes at {offset:#x} of an image of {} bytes", self.len_bytes);
        let start = usize::try_from(offset).expect("inside of the image");
        let mut done = 0;
        std::iter::from_fn(move || {
            (done < len).then(|| {
                let (page, at) = ((start + done) / PAGE_BYTES, (start + done) % PAGE_BYTES);
                let part = (PAGE_BYTES - at).min(len - done);
                let range = done..done + part;
                done += part;
                (page, at, range)
            })
        })
    }
}

impl PartialEq for MemImage {
    fn eq(&self, other: &MemImage) -> bool {
        let same_page = |(a, b): (&Arc<Page>, &Arc<Page>)| Arc::ptr_eq(a, b) || a == b;
        self.len_bytes == other.len_bytes && self.pages.iter().zip(&other.pages).all(same_page)
    }
}

impl Eq for MemImage {}

/// A block device in memory, for tests and for data that need not last.
///
/// Every operation takes effect at once and never fails for a valid request; wrap it in a
/// [`Faulty`](crate::Faulty) for failures and crashes.
#[derive(Debug)]
pub struct MemDevice {
    info: DeviceInfo,
    image: RwLock<MemImage>,
    stats: Stats,
}

impl MemDevice {
    /// A device of `len_bytes` zeroes with logical blocks of 512 bytes and physical blocks of 4096.
    ///
    /// # Panics
    /// If the length is not a multiple of 512.
    pub fn new(name: &str, len_bytes: u64) -> MemDevice {
        MemDevice::from_image(name, MemImage::zeroed(len_bytes), 512)
    }

    /// A device that holds `image`.
    ///
    /// # Panics
    /// If the logical block size is not a power of two of at least 512, or does not divide the length.
    pub fn from_image(name: &str, image: MemImage, logical_block_bytes: u32) -> MemDevice {
        assert!(logical_block_bytes.is_power_of_two() && logical_block_bytes >= 512);
        assert!(image.len_bytes().is_multiple_of(u64::from(logical_block_bytes)));
        let info = DeviceInfo {
            name: name.into(),
            len_bytes: image.len_bytes(),
            logical_block_bytes,
            physical_block_bytes: logical_block_bytes.max(4096),
            memory_align_bytes: 1,
            is_read_only: false,
            can_discard: true,
            discard_zeroes: true,
            fences_others: false,
            is_direct: true,
            write_cache: WriteCache::Memory,
            kind: DeviceKind::Memory,
            engine: Engine::Memory,
            notes: Vec::new(),
        };
        MemDevice { info, image: RwLock::new(image), stats: Stats::default() }
    }

    /// Makes every operation except reads and flushes fail.
    #[must_use]
    pub fn read_only(mut self) -> MemDevice {
        self.info.is_read_only = true;
        self
    }

    /// Changes what it says of itself.
    #[must_use]
    pub fn with_info(mut self, change: impl FnOnce(&mut DeviceInfo)) -> MemDevice {
        change(&mut self.info);
        self
    }

    /// The current contents.
    pub fn image(&self) -> MemImage {
        // A panic of another thread cannot leave an invalid image: it is only bytes.
        self.image.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn run(
        &self,
        operation: Operation,
        offset: u64,
        len_bytes: u64,
        act: impl FnOnce(),
    ) -> Result<(), BlockError> {
        self.info.check(operation, offset, len_bytes)?;
        let since = Instant::now();
        act();
        self.stats.note(operation, len_bytes, since, false);
        Ok(())
    }

    fn change(&self, act: impl FnOnce(&mut MemImage)) {
        act(&mut self.image.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl BlockDevice for MemDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        self.run(Operation::Read, offset, len64(buf.len()), || {
            self.image.read().unwrap_or_else(PoisonError::into_inner).read(offset, buf);
        })
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.run(Operation::Write, offset, len64(data.len()), || {
            self.change(|image| image.write(offset, data));
        })
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.run(Operation::WriteFua, offset, len64(data.len()), || {
            self.change(|image| image.write(offset, data));
        })
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.run(Operation::Flush, 0, 0, || ())
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.run(Operation::Discard, offset, len_bytes, || self.change(|image| image.zero(offset, len_bytes)))
    }

    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.run(Operation::WriteZeroes, offset, len_bytes, || {
            self.change(|image| image.zero(offset, len_bytes));
        })
    }

    fn stats(&self) -> StatsSnapshot {
        self.stats.snapshot()
    }

    fn is_poisoned(&self) -> bool {
        false
    }
}
