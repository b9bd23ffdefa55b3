//! Texts and vectors in the program's memory.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::api;

/// Longest path of Linux.
const PATH_BYTES_MAX: u64 = 4096;
/// Most parts of a vector, as Linux has it.
const PARTS_MAX: u64 = 1024;

/// A path; none if it cannot be read.
pub(super) fn path(mut address: u64) -> Option<PathBuf> {
    let mut text = Vec::new();
    while (text.len() as u64) < PATH_BYTES_MAX {
        // Not over the end of a page: the next one may not be there.
        let mut bytes = vec![0; (64 - address % 64) as usize];
        if !api::read_memory(address, &mut bytes) {
            return None;
        }
        if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&bytes[..end]);
            return Some(OsString::from_vec(text).into());
        }
        text.extend_from_slice(&bytes);
        address = address.wrapping_add(bytes.len() as u64);
    }
    None
}

/// A number.
pub(super) fn number(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    api::read_memory(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
}

/// The first `len` bytes of a vector of buffers, as address and length of each part.
pub(super) fn parts(vector: u64, count: u64, mut len: u64) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    for index in 0..count.min(PARTS_MAX) {
        let part = (number(vector.wrapping_add(16 * index)), number(vector.wrapping_add(16 * index + 8)));
        let (Some(address), Some(part_len)) = part else { break };
        let part_len = part_len.min(len);
        parts.push((address, part_len));
        len -= part_len;
        if len == 0 {
            break;
        }
    }
    parts
}
