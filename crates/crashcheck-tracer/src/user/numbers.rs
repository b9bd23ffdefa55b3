//! System calls of x86-64 Linux by number, and flags of theirs: those of the guest, whatever the host is.

pub(super) const READ: i64 = 0;
pub(super) const WRITE: i64 = 1;
pub(super) const OPEN: i64 = 2;
pub(super) const MMAP: i64 = 9;
pub(super) const MUNMAP: i64 = 11;
pub(super) const PREAD64: i64 = 17;
pub(super) const PWRITE64: i64 = 18;
pub(super) const READV: i64 = 19;
pub(super) const WRITEV: i64 = 20;
pub(super) const MREMAP: i64 = 25;
pub(super) const MSYNC: i64 = 26;
pub(super) const MADVISE: i64 = 28;
pub(super) const SENDFILE: i64 = 40;
pub(super) const RECVFROM: i64 = 45;
pub(super) const CLONE: i64 = 56;
pub(super) const FORK: i64 = 57;
pub(super) const VFORK: i64 = 58;
pub(super) const EXECVE: i64 = 59;
pub(super) const FSYNC: i64 = 74;
pub(super) const FDATASYNC: i64 = 75;
pub(super) const TRUNCATE: i64 = 76;
pub(super) const FTRUNCATE: i64 = 77;
pub(super) const CREAT: i64 = 85;
pub(super) const SYNC: i64 = 162;
pub(super) const OPENAT: i64 = 257;
pub(super) const SPLICE: i64 = 275;
pub(super) const FALLOCATE: i64 = 285;
pub(super) const PREADV: i64 = 295;
pub(super) const PWRITEV: i64 = 296;
pub(super) const SYNCFS: i64 = 306;
pub(super) const GETRANDOM: i64 = 318;
pub(super) const EXECVEAT: i64 = 322;
pub(super) const COPY_FILE_RANGE: i64 = 326;
pub(super) const PREADV2: i64 = 327;
pub(super) const PWRITEV2: i64 = 328;

/// `mmap`: how changes are shared, 1 or 3 if they reach the file.
pub(super) const MAP_TYPE: u64 = 0xf;
pub(super) const MAP_ANONYMOUS: u64 = 0x20;
pub(super) const O_TRUNC: u64 = 0o1000;
pub(super) const MS_SYNC: u64 = 4;
pub(super) const MADV_REMOVE: u64 = 9;
pub(super) const MREMAP_DONTUNMAP: u64 = 4;
pub(super) const CLONE_VM: u64 = 0x100;
pub(super) const CLONE_VFORK: u64 = 0x4000;
/// `pwritev2`: durable on return.
pub(super) const RWF_SYNCS: u64 = 2 | 4;
pub(super) const PAGE_BYTES: u64 = 4096;
