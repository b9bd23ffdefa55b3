//! Files that are PM: known by device and inode, whatever the program calls them.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags, SeekFrom, Stat, fcntl_getfl, fstat, seek};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use crate::area::AREA_BYTES_MAX;

/// Descriptors of the tracer are this and up: the program's have the numbers that it expects, and programs
/// that close all those that they find open rarely look here.
const DESCRIPTOR_MIN: RawFd = 1000;

/// Why a file cannot be PM.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{0}: is not a regular file")]
    Kind(PathBuf),
    #[error("{0}: is empty, or longer than 1 TiB: it must have its size before the program runs")]
    Size(PathBuf),
    #[error("{0}: is the same file as another one")]
    Twice(PathBuf),
}

/// A file.
#[derive(Debug)]
pub(crate) struct PmFile {
    pub(crate) path: PathBuf,
    file: File,
    device: u64,
    inode: u64,
    /// When the program began.
    pub(crate) len_bytes: u64,
}

impl PmFile {
    /// # Errors
    /// [`FileError`]
    pub(crate) fn open(path: &Path) -> Result<PmFile, FileError> {
        let io = |source| FileError::Io { path: path.to_owned(), source };
        let file = moved_up(File::open(path).map_err(io)?);
        let metadata = file.metadata().map_err(io)?;
        if !metadata.is_file() {
            return Err(FileError::Kind(path.to_owned()));
        }
        if !(1..=AREA_BYTES_MAX).contains(&metadata.len()) {
            return Err(FileError::Size(path.to_owned()));
        }
        let (device, inode, len_bytes) = (metadata.dev(), metadata.ino(), metadata.len());
        Ok(PmFile { path: path.to_owned(), file, device, inode, len_bytes })
    }

    /// All of them.
    ///
    /// # Errors
    /// [`FileError`], also for one that is named twice.
    pub(crate) fn open_all(paths: &[String]) -> Result<Vec<PmFile>, FileError> {
        let mut files: Vec<PmFile> = Vec::new();
        for path in paths {
            let file = PmFile::open(Path::new(path))?;
            if files.iter().any(|other| (other.device, other.inode) == (file.device, file.inode)) {
                return Err(FileError::Twice(file.path));
            }
            files.push(file);
        }
        Ok(files)
    }

    /// The file system that it is on.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    pub(crate) fn is(&self, stat: &Stat) -> bool {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && (stat.st_dev, stat.st_ino) == (self.device, self.inode)
    }

    /// Fills the buffer, with zeroes after the end.
    ///
    /// # Errors
    /// Those of the file.
    pub(crate) fn read(&self, mut offset: u64, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.file.read_at(buffer, offset) {
                Ok(0) => {
                    buffer.fill(0);
                    return Ok(());
                }
                Ok(count) => {
                    buffer = &mut buffer[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Hands out the parts that are no holes, in order.
    ///
    /// # Errors
    /// Those of the file, and of `take`.
    pub(crate) fn for_each_part<E: From<io::Error>>(
        &self,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffer = vec![0; 1 << 20];
        let mut offset = 0;
        while offset < self.len_bytes {
            offset = match seek(&self.file, SeekFrom::Data(offset)) {
                Ok(data) => data / 4096 * 4096,
                Err(Errno::NXIO) => return Ok(()),
                // File systems without holes.
                Err(Errno::INVAL) => offset,
                Err(error) => return Err(io::Error::from(error).into()),
            };
            let len = (buffer.len() as u64).min(self.len_bytes.saturating_sub(offset)) as usize;
            self.read(offset, &mut buffer[..len])?;
            take(offset, &buffer[..len])?;
            offset += len as u64;
            if len == 0 {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Device and inode of a file.
///
/// # Errors
/// [`FileError::Io`].
pub(crate) fn identity(path: &Path) -> Result<(u64, u64), FileError> {
    let metadata =
        std::fs::metadata(path).map_err(|source| FileError::Io { path: path.to_owned(), source })?;
    Ok((metadata.dev(), metadata.ino()))
}

/// A file under a number that is out of the program's way; as it is, if there are none.
pub(crate) fn moved_up(file: File) -> File {
    fcntl_dupfd_cloexec(&file, DESCRIPTOR_MIN).map_or(file, File::from)
}

/// Asks something of a descriptor of the program, which is one of this process; none if it is not open.
#[allow(unsafe_code)]
fn ask<T>(descriptor: u64, question: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<T>) -> Option<T> {
    // Programs hand over an `int`.
    let descriptor = descriptor as RawFd;
    if descriptor < 0 {
        return None;
    }
    // SAFETY: it may be closed at any time, which the question's answer then says; it is not kept.
    question(unsafe { BorrowedFd::borrow_raw(descriptor) }).ok()
}

/// What a descriptor of the program is of.
pub(crate) fn state_of(descriptor: u64) -> Option<Stat> {
    ask(descriptor, |descriptor| fstat(descriptor))
}

/// Where the next read or write of a descriptor of the program begins.
pub(crate) fn position_of(descriptor: u64) -> Option<u64> {
    ask(descriptor, |descriptor| seek(descriptor, SeekFrom::Current(0)))
}

/// How a descriptor of the program was opened.
pub(crate) fn flags_of(descriptor: u64) -> Option<OFlags> {
    ask(descriptor, |descriptor| fcntl_getfl(descriptor))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_file_is_known_by_any_descriptor_and_read_behind_its_end() {
        let path = std::env::temp_dir().join(format!("fastness-tracer-files-{}", std::process::id()));
        std::fs::write(&path, [7; 5000]).unwrap();
        let text = path.display().to_string();
        let pm = PmFile::open(&path).unwrap();
        let other = File::open(&path).unwrap();
        assert!(pm.is(&state_of(other.as_raw_fd() as u64).unwrap()));
        assert_eq!(position_of(other.as_raw_fd() as u64), Some(0));
        assert!(state_of(u64::MAX).is_none());
        let mut buffer = [1; 8];
        pm.read(4996, &mut buffer).unwrap();
        assert_eq!(buffer, [7, 7, 7, 7, 0, 0, 0, 0]);
        let mut parts = Vec::new();
        pm.for_each_part(|offset, part| {
            parts.push((offset, part.to_vec()));
            Ok::<_, io::Error>(())
        })
        .unwrap();
        assert_eq!(parts, [(0, vec![7; 5000])]);
        assert!(matches!(PmFile::open_all(&[text.clone(), text]), Err(FileError::Twice(_))));
        std::fs::write(&path, []).unwrap();
        assert!(matches!(PmFile::open(&path), Err(FileError::Size(_))));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(PmFile::open(&path), Err(FileError::Io { .. })));
        assert!(matches!(PmFile::open(&std::env::temp_dir()), Err(FileError::Kind(_))));
    }
}
