//! Features and the configuration space of a virtio-blk device. Source: VIRTIO 1.2, 5.2 and 6.

use crate::disk::Disk;

/// Bits of features: the queue's (6), vhost-user's own, and the block device's (5.2.3).
pub(crate) mod feature {
    pub(crate) const SEG_MAX: u64 = 1 << 2;
    pub(crate) const READ_ONLY: u64 = 1 << 5;
    pub(crate) const BLK_SIZE: u64 = 1 << 6;
    pub(crate) const FLUSH: u64 = 1 << 9;
    pub(crate) const TOPOLOGY: u64 = 1 << 10;
    pub(crate) const CONFIG_WCE: u64 = 1 << 11;
    pub(crate) const MQ: u64 = 1 << 12;
    pub(crate) const DISCARD: u64 = 1 << 13;
    pub(crate) const WRITE_ZEROES: u64 = 1 << 14;
    pub(crate) const INDIRECT: u64 = 1 << 28;
    pub(crate) const EVENT_INDEX: u64 = 1 << 29;
    pub(crate) const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub(crate) const VERSION_1: u64 = 1 << 32;
}

pub(crate) const SECTOR_BYTES: u64 = 512;
/// Longest range of one segment of a discard or of zeroes, in sectors: 1 GiB.
pub(crate) const RANGE_SECTORS_MAX: u32 = 2 << 20;
/// Most segments of one such request.
pub(crate) const SEGMENTS_MAX: u32 = 32;
/// Most buffers of a request, so that a chain with them fits into a queue of 128.
const BUFFERS_MAX: u32 = 126;
/// Length of the configuration space, in bytes.
pub(crate) const CONFIG_BYTES: usize = 60;
/// Where the byte is that says whether a flush is needed.
pub(crate) const WRITEBACK_AT: usize = 32;

/// What a disk offers.
pub(crate) fn features(disk: &dyn Disk) -> u64 {
    use feature::*;
    let changes = if disk.is_read_only() { READ_ONLY } else { DISCARD | WRITE_ZEROES };
    let block = SEG_MAX | BLK_SIZE | FLUSH | TOPOLOGY | CONFIG_WCE | MQ | changes;
    block | INDIRECT | EVENT_INDEX | PROTOCOL_FEATURES | VERSION_1
}

/// `struct virtio_blk_config` (5.2.4), little-endian.
pub(crate) fn config(disk: &dyn Disk, queues: u16, is_write_back: bool) -> [u8; CONFIG_BYTES] {
    let mut bytes = [0; CONFIG_BYTES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let block = disk.block_bytes().clamp(512, 1 << 20);
    put(0, &(disk.size_bytes() / SECTOR_BYTES).to_le_bytes());
    put(12, &BUFFERS_MAX.to_le_bytes());
    // Any sector can be written. What is best comes below.
    put(20, &(SECTOR_BYTES as u32).to_le_bytes());
    put(24, &[(block / SECTOR_BYTES as u32).ilog2() as u8, 0]);
    put(26, &((block / SECTOR_BYTES as u32) as u16).to_le_bytes());
    put(28, &(block / SECTOR_BYTES as u32).to_le_bytes());
    put(WRITEBACK_AT, &[u8::from(is_write_back)]);
    put(34, &queues.to_le_bytes());
    put(36, &RANGE_SECTORS_MAX.to_le_bytes());
    put(40, &SEGMENTS_MAX.to_le_bytes());
    put(44, &(block / SECTOR_BYTES as u32).to_le_bytes());
    put(48, &RANGE_SECTORS_MAX.to_le_bytes());
    put(52, &SEGMENTS_MAX.to_le_bytes());
    // Zeroes may become a hole.
    put(56, &[1]);
    bytes
}
