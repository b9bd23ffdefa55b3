//! Which blocks of code a program ran, and how often: a file beside its trace.
//!
//! ```text
//! 0   "FASTCOV" and 1, the version                      8 bytes
//! 8   address of a block's first instruction, count     2 x 8 bytes, little endian; one for each block
//! ```

use std::io::{self, Read, Write};

/// Most blocks of a file; a program that runs more has the first ones.
pub const BLOCKS_MAX: usize = 1 << 16;

const MAGIC: [u8; 8] = *b"FASTCOV\x01";
const BLOCK_BYTES: usize = 16;

/// A block of code that ran: what QEMU translates together, up to a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    /// Address of its first instruction.
    pub pc: u64,
    /// How often it ran.
    pub count: u64,
}

/// Writes a file.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut impl Write, blocks: impl IntoIterator<Item = Block>) -> io::Result<()> {
    let mut bytes = MAGIC.to_vec();
    for block in blocks.into_iter().take(BLOCKS_MAX) {
        bytes.extend_from_slice(&block.pc.to_le_bytes());
        bytes.extend_from_slice(&block.count.to_le_bytes());
    }
    out.write_all(&bytes)
}

/// Reads a file.
///
/// # Errors
/// Those of `input`; [`io::ErrorKind::InvalidData`] for what is no such file, is cut off, or has too many
/// blocks.
pub fn read(input: impl Read) -> io::Result<Vec<Block>> {
    let mut bytes = Vec::new();
    let len_max = MAGIC.len() + BLOCKS_MAX * BLOCK_BYTES;
    input.take(len_max as u64 + 1).read_to_end(&mut bytes)?;
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let Some(blocks) = bytes.strip_prefix(&MAGIC) else { return Err(invalid("no file of covered blocks")) };
    if bytes.len() > len_max {
        return Err(invalid("more covered blocks than there can be"));
    }
    let (blocks, rest) = blocks.as_chunks::<BLOCK_BYTES>();
    if !rest.is_empty() {
        return Err(invalid("covered blocks are cut off"));
    }
    let block = |bytes: &[u8; BLOCK_BYTES]| {
        let number = u128::from_le_bytes(*bytes);
        Block { pc: number as u64, count: (number >> 64) as u64 }
    };
    Ok(blocks.iter().map(block).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let blocks = [Block { pc: 0x5555_5555_6000, count: 1 }, Block { pc: u64::MAX, count: u64::MAX - 1 }];
        let mut file = Vec::new();
        write(&mut file, blocks).unwrap();
        assert_eq!(file[..10], *b"FASTCOV\x01\x00\x60");
        assert_eq!(read(&file[..]).unwrap(), blocks);
        write(&mut Vec::new(), []).unwrap();
        let many = (0..BLOCKS_MAX as u64 + 9).map(|pc| Block { pc, count: 1 });
        let mut file = Vec::new();
        write(&mut file, many).unwrap();
        assert_eq!(read(&file[..]).unwrap().len(), BLOCKS_MAX);
    }

    #[test]
    fn hostile_files_are_errors() {
        let mut file = Vec::new();
        write(&mut file, [Block { pc: 1, count: 1 }]).unwrap();
        for len in (0..file.len()).filter(|len| *len != 8) {
            assert_eq!(read(&file[..len]).unwrap_err().kind(), io::ErrorKind::InvalidData, "{len}");
        }
        file[7] = 2;
        assert!(read(&file[..]).is_err(), "another version");
        let endless = MAGIC.chain(io::repeat(0));
        assert!(read(endless).is_err());
    }
}
