//! The file that is the guest's RAM: copied without its holes, with PM put in and taken out.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom as RawSeek};

use super::{GuestError, PM_START, Result};

const PIECE_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;

/// Copies `from` to a new file, without holes and without the range `but`.
pub(super) fn copy(from: &Path, to: &Path, but: Range<u64>) -> Result<()> {
    let source = File::open(from).map_err(GuestError::io("cannot open", from))?;
    let target = File::create_new(to).map_err(GuestError::io("cannot make", to))?;
    let copied = source.metadata().and_then(|metadata| {
        target.set_len(metadata.len())?;
        copy_data(&source, &target, 0..but.start, 0)?;
        copy_data(&source, &target, but.end..metadata.len(), but.end)
    });
    copied.map_err(GuestError::io("cannot fill", to))
}

/// Makes a file, which may be there and open elsewhere, the same as another one.
pub(super) fn fill(from: &Path, to: &Path) -> Result<()> {
    let source = File::open(from).map_err(GuestError::io("cannot open", from))?;
    let target = File::options().write(true).create(true).truncate(false).open(to);
    let target = target.map_err(GuestError::io("cannot make", to))?;
    let fill = || -> io::Result<()> {
        let (len_bytes, old_bytes) = (source.metadata()?.len(), target.metadata()?.len());
        if old_bytes > 0 {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&target, flags, 0, old_bytes)?;
        }
        // QEMU remembers its length: it must not become shorter, even for a moment.
        target.set_len(len_bytes)?;
        copy_data(&source, &target, 0..len_bytes, 0)
    };
    fill().map_err(GuestError::io("cannot fill", to))
}

/// Makes PM zeroes.
pub(super) fn clear_pm(ram: &Path, pm_bytes: u64) -> Result<()> {
    let file = File::options().write(true).open(ram).map_err(GuestError::io("cannot open", ram))?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let cleared = rustix::fs::fallocate(file, flags, PM_START, pm_bytes).map_err(io::Error::from);
    cleared.map_err(GuestError::io("cannot clear the PM of", ram))
}

/// Puts an image of `pm_bytes` where PM is in a RAM file that has zeroes there.
pub(super) fn put_pm(image: &Path, ram: &Path, pm_bytes: u64) -> Result<()> {
    let source = File::open(image).map_err(GuestError::io("cannot open", image))?;
    let actual_bytes = source.metadata().map_err(GuestError::io("cannot read", image))?.len();
    if actual_bytes != pm_bytes {
        return Err(GuestError::ImageSize { path: image.to_owned(), actual_bytes, expected_bytes: pm_bytes });
    }
    let target = File::options().write(true).open(ram).map_err(GuestError::io("cannot open", ram))?;
    copy_data(&source, &target, 0..pm_bytes, PM_START).map_err(GuestError::io("cannot put into PM", image))
}

/// Takes PM out into a file, new or not, that gets its size.
pub(super) fn take_pm(ram: &Path, image: &Path, pm_bytes: u64) -> Result<()> {
    let source = File::open(ram).map_err(GuestError::io("cannot open", ram))?;
    let target = File::create(image).map_err(GuestError::io("cannot make", image))?;
    target
        .set_len(pm_bytes)
        .and_then(|()| copy_data(&source, &target, PM_START..PM_START + pm_bytes, 0))
        .map_err(GuestError::io("cannot write", image))
}

/// Copies a range to an offset of a file with zeroes there; holes, and pages of zeroes, are left out.
fn copy_data(source: &File, target: &File, range: Range<u64>, to: u64) -> io::Result<()> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut at = range.start;
    while at < range.end {
        let data = match rustix::fs::seek(source, RawSeek::Data(at)) {
            Ok(data) if data < range.end => data,
            Ok(_) | Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let hole = rustix::fs::seek(source, RawSeek::Hole(data))?.min(range.end);
        at = data;
        while at < hole {
            let len = usize::try_from(hole - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            source.read_exact_at(&mut buffer[..len], at)?;
            write_pages(target, &buffer[..len], to + (at - range.start))?;
            at += len as u64;
        }
    }
    Ok(())
}

/// Writes what is not zeroes, neighbours in one write.
fn write_pages(target: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    static ZEROES: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
    let is_zero = |page: &[u8]| *page == ZEROES[..page.len()];
    let mut start = 0;
    while start < bytes.len() {
        let pages = |from: usize| bytes[from..].chunks(PAGE_BYTES);
        let skip: usize = pages(start).take_while(|page| is_zero(page)).map(<[u8]>::len).sum();
        start += skip;
        let len: usize = pages(start).take_while(|page| !is_zero(page)).map(<[u8]>::len).sum();
        target.write_all_at(&bytes[start..start + len], offset + start as u64)?;
        start += len;
    }
    Ok(())
}

/// The end of a text file, for messages; empty if there is none.
pub(super) fn tail(path: &Path) -> String {
    const BYTES: u64 = 32 << 10;
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(BYTES)))?;
        let mut bytes = Vec::new();
        file.take(BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// A new file of `bytes` zeroes.
pub(super) fn create(path: &Path, bytes: u64) -> Result<()> {
    let create = || File::create_new(path)?.set_len(bytes);
    create().map_err(GuestError::io("cannot make", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_leave_out_holes_and_a_range() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        let file = File::create(path("a")).unwrap();
        file.set_len(PM_START + (4 << 20)).unwrap();
        for at in [0, 5000, PM_START - 1, PM_START + 4096, PM_START + (3 << 20)] {
            file.write_all_at(b"xy", at).unwrap();
        }
        copy(&path("a"), &path("b"), PM_START..PM_START + (2 << 20)).unwrap();
        let copy = File::open(path("b")).unwrap();
        let read = |at: u64| {
            let mut bytes = [0; 2];
            copy.read_exact_at(&mut bytes, at).unwrap();
            bytes
        };
        assert_eq!([read(0), read(5000), read(PM_START + (3 << 20))], [*b"xy"; 3]);
        assert_eq!(read(PM_START - 1), [b'x', 0]);
        assert_eq!(read(PM_START + 4096), [0, 0]);
        let blocks = |path: &Path| std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap());
        assert!(blocks(&path("b")) * 512 < 1 << 20);
        // Out, and in again.
        take_pm(&path("a"), &path("pm"), 4 << 20).unwrap();
        put_pm(&path("pm"), &path("b"), 4 << 20).unwrap();
        assert_eq!([read(PM_START + 4096), read(PM_START + (3 << 20))], [*b"xy"; 2]);
        clear_pm(&path("b"), 4 << 20).unwrap();
        assert_eq!([read(PM_START + 4096), read(PM_START + (3 << 20))], [[0; 2]; 2]);
        assert!(matches!(put_pm(&path("pm"), &path("b"), 2 << 20), Err(GuestError::ImageSize { .. })));
    }

    #[test]
    fn a_file_is_filled_again_with_nothing_left_of_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        for (name, byte, at) in [("one", 1, 5000), ("two", 2, 1 << 20)] {
            let file = File::create(path(name)).unwrap();
            file.set_len(2 << 20).unwrap();
            file.write_all_at(&[byte; 700], at).unwrap();
        }
        fill(&path("one"), &path("disk")).unwrap();
        let open = File::options().read(true).write(true).open(path("disk")).unwrap();
        open.write_all_at(&[9; 100], 300_000).unwrap();
        fill(&path("two"), &path("disk")).unwrap();
        let mut seen = vec![0; 2 << 20];
        open.read_exact_at(&mut seen, 0).unwrap();
        assert!(seen == std::fs::read(path("two")).unwrap(), "also by who had it open");
    }
}
