//! Direct writes, past the kernel's cache.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::mounted;

/// Linux makes an I/O error of an answer that only a part of a direct write was made.
#[test]
fn a_direct_write_that_finds_no_room_says_so() {
    let Some(files) = mounted("log pm --emulate-pm --pm-size 16M") else { return };
    files.bench.ok("dataset set quota=4M tank/home");
    let bytes: Vec<u8> =
        (0..500_000 + 4096_u32).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    let start = bytes.as_ptr().align_offset(4096);
    for round in 0..24 {
        for name in ["a", "beside"] {
            let _ = std::fs::remove_file(files.path(name));
        }
        files.bench.ok("pool sync tank");
        // How much room is left at the end differs each time.
        std::fs::write(files.path("beside"), &bytes[..1 + round * 8191]).unwrap();
        let direct = OFlags::DIRECT.bits() as i32;
        let mut options = File::options();
        let file = options.write(true).create(true).custom_flags(direct).open(files.path("a")).unwrap();
        let len = (33 + round * 3) << 12;
        let mut at = 0;
        let refused = loop {
            match file.write_at(&bytes[start..start + len], at) {
                Ok(written) => at += written as u64,
                Err(error) => break error,
            }
            assert!(at < 8 << 20, "the quota is never reached");
        };
        assert_eq!(refused.raw_os_error(), Some(Errno::DQUOT.raw_os_error()), "round {round}");
    }
}
