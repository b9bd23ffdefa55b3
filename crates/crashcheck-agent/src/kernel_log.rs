//! What the kernel says from a point in time on (`/dev/kmsg`).

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;

/// Longest record, in bytes (the kernel's `PRINTK_MESSAGE_MAX`, and its header).
const RECORD_BYTES_MAX: usize = 8 << 10;
/// Most of what was said, in bytes: fits into a pipe.
const TEXT_BYTES_MAX: usize = 32 << 10;

/// The kernel's log, from here on.
pub(crate) struct KernelLog(File);

impl KernelLog {
    /// `None` where it cannot be read.
    pub(crate) fn from_now() -> Option<KernelLog> {
        let nonblocking = OFlags::NONBLOCK.bits() as i32;
        let mut file = File::options().read(true).custom_flags(nonblocking).open("/dev/kmsg").ok()?;
        file.seek(SeekFrom::End(0)).ok()?;
        Some(KernelLog(file))
    }

    /// Lines without times; if there are very many the first ones are left out.
    pub(crate) fn text(mut self) -> Vec<u8> {
        let mut text = Vec::new();
        let mut record = [0; RECORD_BYTES_MAX];
        loop {
            match self.0.read(&mut record) {
                Ok(count @ 1..) => text.extend(message(&record[..count])),
                // Records were overwritten before they were read.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                _ => break,
            }
            if text.len() > TEXT_BYTES_MAX {
                text.drain(..text.len() - TEXT_BYTES_MAX / 2);
            }
        }
        text
    }
}

/// The message of a record, with its newline: after its numbers, and before more lines about it.
fn message(record: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let begin = record.iter().position(|byte| *byte == b';').map_or(0, |at| at + 1);
    let message = record[begin..].split(|byte| *byte == b'\n').next().unwrap_or_default();
    message.iter().copied().chain([b'\n'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_record_the_message_is_taken() {
        let of = |record: &str| String::from_utf8(message(record.as_bytes()).collect()).unwrap();
        assert_eq!(of("3,1086,3344,-;EXT4-fs (pmem0): a; b\n SUBSYSTEM=x\n"), "EXT4-fs (pmem0): a; b\n");
        assert_eq!(of("6,1,2,-;\n"), "\n");
        assert_eq!(of("what\n"), "what\n");
        assert_eq!(of(""), "\n");
    }
}
