//! Inputs as files of a folder.

use std::path::{Path, PathBuf};

use fastness_crashcheck_fuzz::features::mix_bytes;

use crate::error::{CheckError, Result, make_dir};

/// Longest input, in bytes; of a longer one the beginning is taken.
pub(super) const INPUT_BYTES_MAX: usize = 64 << 10;
/// Most inputs that are read.
const INPUTS_MAX: usize = 10_000;

/// The inputs of a folder, by name; none if it is not there.
///
/// # Errors
/// Those of the files.
pub(super) fn read(folder: Option<&Path>) -> Result<Vec<Vec<u8>>> {
    let mut inputs = Vec::new();
    if let Some(folder) = folder.filter(|folder| folder.exists()) {
        let entries = std::fs::read_dir(folder).map_err(CheckError::file("read", folder))?;
        let mut paths: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        paths.sort();
        for path in paths.iter().take(INPUTS_MAX) {
            inputs.push(read_one(path)?);
        }
    }
    Ok(inputs)
}

/// An input.
///
/// # Errors
/// Those of the file.
pub(super) fn read_one(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read as _;
    let mut input = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(INPUT_BYTES_MAX as u64).read_to_end(&mut input))
        .map_err(CheckError::file("read", path))?;
    Ok(input)
}

/// Keeps an input that has reached something new. Its name comes from its bytes: none is there twice.
///
/// # Errors
/// Those of the file.
pub(super) fn save(folder: &Path, input: &[u8]) -> Result<()> {
    make_dir(folder)?;
    let path = folder.join(format!("{:016x}", mix_bytes(input)));
    std::fs::write(&path, input).map_err(CheckError::file("write", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_kept_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("corpus");
        assert!(read(Some(&folder)).unwrap().is_empty() && read(None).unwrap().is_empty(), "not there");
        save(&folder, b"one").unwrap();
        save(&folder, b"two").unwrap();
        save(&folder, b"one").unwrap();
        std::fs::create_dir(folder.join("a folder")).unwrap();
        std::fs::write(folder.join("long"), vec![0; INPUT_BYTES_MAX + 1]).unwrap();
        let mut inputs = read(Some(&folder)).unwrap();
        inputs.sort();
        assert_eq!(inputs.len(), 3);
        assert_eq!(
            (inputs[0].len(), &inputs[1][..], &inputs[2][..]),
            (INPUT_BYTES_MAX, &b"one"[..], &b"two"[..])
        );
    }
}
