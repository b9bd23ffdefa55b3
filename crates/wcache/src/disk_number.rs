//! What a disk is recognised by. Its device number says in which order disks were found: after a reboot, or
//! when one was pulled out and put back, another disk of the same length may have it.

use std::fs;
use std::path::Path;

use crate::origin::fingerprint;

/// Files below a disk's folder in sysfs that say which one it is, best first.
const NAMES: [&str; 8] =
    ["dm/uuid", "md/uuid", "loop/backing_file", "wwid", "device/wwid", "nguid", "serial", "device/serial"];
/// Longest that is read of them.
const NAME_BYTES_MAX: usize = 4096;

/// A number that stands for the disk with that device number: of its serial number or the like, and of its
/// place there if it is a part; the device number itself if the kernel knows neither.
pub(crate) fn disk_number(rdev: u64) -> u64 {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    named(Path::new(&format!("/sys/dev/block/{major}:{minor}"))).map_or(rdev, |name| fingerprint(&name))
}

/// What the folder of a disk says that it is.
fn named(folder: &Path) -> Option<Vec<u8>> {
    // The folder of a part is in that of its disk.
    let folder = folder.canonicalize().ok()?;
    let text = |folder: &Path, name: &str| {
        let mut text = fs::read(folder.join(name)).ok()?;
        text.truncate(NAME_BYTES_MAX);
        let text = text.trim_ascii().to_vec();
        (!text.is_empty()).then_some(text)
    };
    let is_part = folder.join("partition").exists();
    let disk = if is_part { folder.parent()? } else { &folder };
    let (kind, mut name) = NAMES.iter().find_map(|kind| Some((*kind, text(disk, kind)?)))?;
    let places: &[&str] = if kind.starts_with("loop") { &["loop/offset", "loop/sizelimit"] } else { &[] };
    for place in places {
        name.extend([b" ", &*text(disk, place).unwrap_or_default()].concat());
    }
    if is_part {
        name.extend([b" ", &*text(&folder, "start")?].concat());
    }
    Some([kind.as_bytes(), b" ", &name].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_its_serial_number_and_a_part_is_a_place_there() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("sda");
        let part = disk.join("sda1");
        fs::create_dir_all(&part).unwrap();
        fs::create_dir(disk.join("device")).unwrap();
        let write = |path: &Path, text: &str| fs::write(path, text).unwrap();
        assert_eq!(named(&disk), None);
        assert_eq!(named(&folder.path().join("sdb")), None, "no such disk");
        write(&disk.join("device/serial"), "  \n");
        assert_eq!(named(&disk), None, "an empty one says nothing");
        write(&disk.join("device/serial"), "X7 \n");
        assert_eq!(named(&disk).unwrap(), b"device/serial X7");
        write(&disk.join("device/wwid"), "naa.5\n");
        assert_eq!(named(&disk).unwrap(), b"device/wwid naa.5");
        write(&part.join("partition"), "1\n");
        assert_eq!(named(&part), None, "a part without a place");
        write(&part.join("start"), "2048\n");
        assert_eq!(named(&part).unwrap(), b"device/wwid naa.5 2048");
        fs::create_dir(disk.join("loop")).unwrap();
        write(&disk.join("loop/backing_file"), "/srv/a b.img\n");
        write(&disk.join("loop/offset"), "512\n");
        write(&disk.join("loop/sizelimit"), "0\n");
        assert_eq!(named(&disk).unwrap(), b"loop/backing_file /srv/a b.img 512 0");
    }

    #[test]
    fn an_unknown_disk_is_its_device_number() {
        assert_eq!(disk_number(rustix::fs::makedev(4095, 77)), rustix::fs::makedev(4095, 77));
    }
}
