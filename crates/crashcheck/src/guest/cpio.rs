//! Archives that a kernel unpacks as its first root file system: cpio, format "newc", without compression.
//!
//! A kernel unpacks several of them one after another; a file of a later one replaces that of an earlier one.
//!
//! Layout of an entry: 6 bytes `070701`, 13 numbers of 8 hexadecimal digits (inode, mode, uid, gid, links,
//! mtime, length, four of devices, length of the name with its NUL, check), the name, zeroes up to a multiple
//! of 4, the contents, zeroes up to a multiple of 4. The entry `TRAILER!!!` is the last one. Source: the
//! kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const HEADER_BYTES: usize = 110;
const MAGIC: &[u8] = b"070701";
const TRAILER: &str = "TRAILER!!!";
const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_755;

/// Whether it begins as an archive, or as one that a kernel can decompress (gzip, bzip2, LZMA, xz, LZO, LZ4,
/// zstd). Source: the kernel's `lib/decompress.c`.
pub(super) fn is_archive(bytes: &[u8]) -> bool {
    let packed: [&[u8]; 8] = [
        &[0x1f, 0x8b],
        &[0x1f, 0x9e],
        b"BZh",
        &[0x5d, 0, 0],
        &[0xfd, b'7', b'z', b'X', b'Z', 0],
        &[0x89, b'L', b'Z', b'O'],
        &[0x02, 0x21],
        &[0x28, 0xb5, 0x2f, 0xfd],
    ];
    bytes.starts_with(MAGIC)
        || bytes.starts_with(b"070702")
        || packed.iter().any(|magic| bytes.starts_with(magic))
}

/// The names in an archive, without `./` before them; `None` if it is not such an archive.
pub(super) fn names(archive: &[u8]) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut at = 0_usize;
    loop {
        let header = archive.get(at..at.checked_add(HEADER_BYTES)?)?;
        let number = |index: usize| {
            let digits = header.get(6 + 8 * index..14 + 8 * index)?;
            usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        if !header.starts_with(MAGIC) {
            return None;
        }
        let (len, name_len) = (number(6)?, number(11)?);
        let name = archive.get(at + HEADER_BYTES..(at + HEADER_BYTES).checked_add(name_len)?)?;
        let name = String::from_utf8_lossy(name.strip_suffix(b"\0")?).into_owned();
        if name == TRAILER {
            return Some(names);
        }
        names.insert(name.strip_prefix("./").unwrap_or(&name).to_owned());
        at = (at + HEADER_BYTES + name_len)
            .next_multiple_of(4)
            .checked_add(len)?
            .checked_next_multiple_of(4)?;
    }
}

/// An archive with these files, and the folders above them, by name: owned by root, of 1970, and programs.
/// The same files give the same bytes.
pub(super) fn archive(files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let mut entries: BTreeMap<String, Option<&[u8]>> = BTreeMap::new();
    for (name, contents) in files {
        for folder in Path::new(name).ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
            entries.insert(folder.to_string_lossy().into_owned(), None);
        }
        entries.insert(name.clone(), Some(contents));
    }
    let mut out = Vec::new();
    for (index, (name, contents)) in entries.iter().enumerate() {
        entry(&mut out, index + 1, name, *contents);
    }
    entry(&mut out, 0, TRAILER, Some(&[]));
    out
}

fn entry(out: &mut Vec<u8>, inode: usize, name: &str, contents: Option<&[u8]>) {
    let mode = if contents.is_some() { FILE } else { DIRECTORY };
    let contents = contents.unwrap_or_default();
    out.extend_from_slice(MAGIC);
    let numbers = [inode, mode as usize, 0, 0, 1, 0, contents.len(), 0, 0, 0, 0, name.len() + 1, 0];
    out.extend(numbers.iter().flat_map(|number| format!("{number:08x}").into_bytes()));
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend_from_slice(contents);
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_has_its_names_and_folders() {
        let files = [("suite/a", "x"), ("suite/bin/longer", "abcde"), ("etc/modules-suite", "")];
        let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).into();
        let archive = archive(&files);
        assert_eq!(archive.len() % 4, 0);
        let expected = ["etc", "etc/modules-suite", "suite", "suite/a", "suite/bin", "suite/bin/longer"];
        assert_eq!(names(&archive).unwrap().iter().map(String::as_str).collect::<Vec<_>>(), expected);
        assert!(archive.windows(8).any(|bytes| bytes == b"abcde\0\0\0"), "contents, and zeroes after them");
    }

    #[test]
    fn what_is_not_an_archive_or_is_cut_is_none() {
        let whole = archive(&[("a".to_owned(), vec![1; 10])].into());
        assert!(names(&whole).is_some());
        for len in 0..whole.len() - 4 {
            assert!(names(&whole[..len]).is_none(), "{len}");
        }
        let mut huge = whole.clone();
        huge[6 + 8 * 6..6 + 8 * 7].copy_from_slice(b"ffffffff");
        assert!(names(&huge).is_none());
        let mut wrong = whole.clone();
        wrong[6 + 8 * 11..6 + 8 * 12].copy_from_slice(b"zzzzzzzz");
        assert!(names(&wrong).is_none());
        assert!(names(&[0x1f, 0x8b, 8, 0]).is_none());
    }
}
