//! Describes a device, and what survives a crash on it.

use std::path::Path;

use fastness_blkdev::{DeviceInfo, DeviceKind, WriteCache};

/// What of the flushed data a crash leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Survival {
    /// Nothing.
    Nothing,
    /// Everything, if the file system and the disk keep the promise of `fsync`.
    IfFlushIsKept,
    /// Everything.
    Everything,
}

/// Names of file systems by the magic number of `statfs`.
const FILE_SYSTEMS: [(u64, &str); 10] = [
    (0xef53, "ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683e, "Btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlayfs"),
    (0x2fc1_2fc1, "ZFS"),
    (0x6969, "NFS"),
    (0xf2f5_2010, "F2FS"),
    (0x6573_5546, "FUSE"),
];

fn file_system(path: &Path) -> Option<&'static str> {
    let magic = rustix::fs::statfs(path).ok()?.f_type as u64 & u64::from(u32::MAX);
    Some(
        FILE_SYSTEMS
            .iter()
            .find(|(known, _)| *known == magic)
            .map_or("another file system", |(_, name)| name),
    )
}

/// Describes a device, and returns what a power cut leaves of the writes flushed to it.
pub fn describe(path: &Path, info: &DeviceInfo) -> (String, Survival) {
    let file_system = match info.kind {
        DeviceKind::File => file_system(path),
        _ => None,
    };
    let in_memory = matches!(file_system, Some("tmpfs" | "ramfs")) || info.kind == DeviceKind::Memory;
    let what = match (info.kind, file_system) {
        (DeviceKind::File, Some(name)) => format!("file on {name}"),
        (DeviceKind::File, None) => "file".to_owned(),
        (DeviceKind::Block, _) => "block device".to_owned(),
        (DeviceKind::Remote, _) if info.fences_others => "RBD image, its lock is held".to_owned(),
        (DeviceKind::Remote, _) => "NBD export".to_owned(),
        _ => "memory".to_owned(),
    };
    let cache = match info.write_cache {
        _ if in_memory => "in memory",
        WriteCache::WriteThrough if info.kind == DeviceKind::Remote => "a write is on the OSDs",
        WriteCache::WriteThrough => "no volatile cache",
        WriteCache::DeviceCache if info.kind == DeviceKind::Remote => "flush is the server's",
        WriteCache::DeviceCache => "flush empties the disk's cache",
        WriteCache::PageCache => "flush is fsync",
        _ => "in memory",
    };
    let direct = if info.is_direct && info.kind != DeviceKind::Remote { ", direct I/O" } else { "" };
    let survival = match info.write_cache {
        _ if in_memory => Survival::Nothing,
        WriteCache::WriteThrough if info.kind == DeviceKind::Block => Survival::Everything,
        _ => Survival::IfFlushIsKept,
    };
    (format!("{what}{direct}, {cache}"), survival)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastness_blkdev::{BlockDevice, OpenOptions};

    #[test]
    fn a_file_in_memory_is_called_that() {
        let shm = Path::new("/dev/shm");
        if !shm.is_dir() {
            return;
        }
        let folder = tempfile::tempdir_in(shm).unwrap();
        let path = folder.path().join("disk");
        let device = OpenOptions::new().create(&path, 8 << 20).unwrap();
        let (text, survival) = describe(&path, device.info());
        assert!(text.starts_with("file on tmpfs") && text.ends_with("in memory"), "{text}");
        // Whatever cache it says that it has, there is no disk.
        let mut info = device.info().clone();
        info.write_cache = WriteCache::DeviceCache;
        assert!(!describe(&path, &info).0.contains("disk"));
        assert_eq!(survival, Survival::Nothing);
    }
}
