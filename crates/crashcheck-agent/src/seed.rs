//! Fills the kernel's pool of random numbers with a constant, for guests.
//!
//! A guest that may not ask its CPU has no random numbers for a while, and libuuid waits for them with a
//! second of sleep for each UUID (four in `mkfs.ext4`). A constant also makes a guest repeatable.

use std::fs::File;
use std::io;

use rustix::ioctl::{Opcode, Setter, ioctl};

/// `RNDADDENTROPY`: `_IOW('R', 3, int[2])`.
const RND_ADD_ENTROPY: Opcode = 0x4008_5203;
const SEED_BYTES: usize = 64;

/// `struct rand_pool_info` with its bytes.
#[repr(C)]
struct PoolInfo {
    entropy_bits: i32,
    bytes: i32,
    buffer: [u8; SEED_BYTES],
}

/// Adds the constant, and says that it is entropy. Needs root. Only for a machine whose secrets are worth
/// nothing.
///
/// # Errors
/// Those of `/dev/random` and of the ioctl.
#[expect(unsafe_code, reason = "an ioctl")]
pub fn seed() -> io::Result<()> {
    let random = File::options().write(true).open("/dev/random")?;
    let info = PoolInfo {
        entropy_bits: 8 * SEED_BYTES as i32,
        bytes: SEED_BYTES as i32,
        buffer: [0x5a; SEED_BYTES],
    };
    // SAFETY: the opcode takes a pointer to two ints and, after them, as many bytes as the second one says:
    // `PoolInfo`. The kernel reads it and keeps no pointer.
    unsafe { ioctl(&random, Setter::<RND_ADD_ENTROPY, PoolInfo>::new(info))? };
    Ok(())
}
