//! Which requests reach the export: a pure function of what was negotiated and what was received.

use crate::error::Errno;
use crate::export::{BlockSizes, Export, Features, ZeroOptions};
use crate::wire::{HeaderMode, PAYLOAD_BYTES_MAX, RequestHeader, command, command_flag, flag};

/// What a connection has negotiated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) size_bytes: u64,
    pub(crate) blocks: BlockSizes,
    pub(crate) features: Features,
    pub(crate) is_read_only: bool,
    pub(crate) mode: HeaderMode,
    /// `base:allocation` was selected for this export.
    pub(crate) has_allocation_context: bool,
}

/// A request that may be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Read { offset: u64, length: u32, is_whole: bool },
    Write { offset: u64, length: u32, fua: bool },
    Disconnect,
    Flush,
    Trim { offset: u64, length: u64, fua: bool },
    Cache { offset: u64, length: u64 },
    WriteZeroes { offset: u64, length: u64, options: ZeroOptions },
    BlockStatus { offset: u64, length: u64, is_one: bool },
}

/// Why a request may not be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) errno: Errno,
    pub(crate) why: &'static str,
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// They follow the header, and must be consumed whatever happens to the request.
    pub(crate) payload_bytes: u64,
    pub(crate) outcome: Result<Command, Refusal>,
}

fn refuse<T>(errno: Errno, why: &'static str) -> Result<T, Refusal> {
    Err(Refusal { errno, why })
}

impl Rules {
    /// The rules for `export`, with the size cut to whole blocks and the payload to the protocol's limit.
    ///
    /// # Panics
    /// If the export's block sizes break the protocol's rules.
    pub(crate) fn new(export: &dyn Export, mode: HeaderMode, has_allocation_context: bool) -> Self {
        let mut blocks = export.block_sizes();
        assert!(blocks.is_valid(), "an export's block sizes are not valid: {blocks:?}");
        blocks.maximum = blocks.maximum.min(PAYLOAD_BYTES_MAX);
        let minimum = u64::from(blocks.minimum);
        // Many clients store sizes as signed numbers.
        let size_bytes = export.size_bytes().min(i64::MAX as u64) / minimum * minimum;
        let (features, is_read_only) = (export.features(), export.is_read_only());
        Self { size_bytes, blocks, features, is_read_only, mode, has_allocation_context }
    }

    /// Source: `proto.md`, "Transmission flags".
    pub(crate) fn transmission_flags(&self) -> u16 {
        let Features { flush, fua, trim, write_zeroes, fast_zero, cache, multi_conn, rotational, .. } =
            self.features;
        let writes = !self.is_read_only;
        let flags = [
            (flag::HAS_FLAGS, true),
            (flag::READ_ONLY, self.is_read_only),
            (flag::SEND_FLUSH, flush),
            (flag::SEND_FUA, fua),
            (flag::ROTATIONAL, rotational),
            (flag::SEND_TRIM, trim && writes),
            (flag::SEND_WRITE_ZEROES, write_zeroes && writes),
            (flag::SEND_DF, self.mode != HeaderMode::Simple),
            (flag::CAN_MULTI_CONN, multi_conn),
            (flag::SEND_CACHE, cache),
            (flag::SEND_FAST_ZERO, write_zeroes && fast_zero && writes),
        ];
        flags.iter().filter(|(_, is_set)| *is_set).fold(0, |all, (bit, _)| all | bit)
    }

    /// Judges a request.
    pub(crate) fn judge(&self, request: &RequestHeader) -> Verdict {
        let is_payload = self.mode == HeaderMode::Extended && request.flags & command_flag::PAYLOAD_LEN != 0;
        // A write has a payload even if an extended client forgot to say so; libnbd's and QEMU's servers do
        // the same.
        let has_payload = request.kind == command::WRITE || is_payload;
        let payload_bytes = if has_payload { request.length } else { 0 };
        Verdict { payload_bytes, outcome: self.command(request) }
    }

    fn command(&self, request: &RequestHeader) -> Result<Command, Refusal> {
        let &RequestHeader { flags, kind, offset, length, .. } = request;
        self.check_flags(kind, flags)?;
        let fua = flags & command_flag::FUA != 0;
        match kind {
            command::READ => {
                let is_whole = flags & command_flag::DF != 0;
                self.check_range(offset, length, Errno::Einval)?;
                if length > u64::from(self.blocks.maximum) {
                    let errno = if is_whole { Errno::Eoverflow } else { Errno::Einval };
                    return refuse(errno, "longer than the maximum block size");
                }
                Ok(Command::Read { offset, length: length as u32, is_whole })
            }
            command::WRITE => {
                self.check_writable(true)?;
                if length > u64::from(self.blocks.maximum) {
                    return refuse(Errno::Einval, "longer than the maximum block size");
                }
                self.check_range(offset, length, Errno::Enospc)?;
                Ok(Command::Write { offset, length: length as u32, fua })
            }
            command::DISC => Ok(Command::Disconnect),
            command::FLUSH if !self.features.flush => refuse(Errno::Einval, "flush was not offered"),
            command::FLUSH if (offset, length) != (0, 0) => refuse(Errno::Einval, "a flush has no range"),
            command::FLUSH => Ok(Command::Flush),
            command::TRIM => {
                self.check_writable(self.features.trim)?;
                self.check_range(offset, length, Errno::Einval)?;
                Ok(Command::Trim { offset, length, fua })
            }
            command::CACHE if !self.features.cache => refuse(Errno::Einval, "cache was not offered"),
            command::CACHE => {
                self.check_range(offset, length, Errno::Einval)?;
                Ok(Command::Cache { offset, length })
            }
            command::WRITE_ZEROES => {
                self.check_writable(self.features.write_zeroes)?;
                self.check_range(offset, length, Errno::Enospc)?;
                let may_punch_hole = flags & command_flag::NO_HOLE == 0;
                let fast = flags & command_flag::FAST_ZERO != 0;
                Ok(Command::WriteZeroes {
                    offset,
                    length,
                    options: ZeroOptions { fua, may_punch_hole, fast },
                })
            }
            command::BLOCK_STATUS => {
                if !self.has_allocation_context {
                    return refuse(Errno::Einval, "no metadata context was selected");
                }
                if length == 0 {
                    return refuse(Errno::Einval, "the status of nothing");
                }
                self.check_range(offset, length, Errno::Einval)?;
                Ok(Command::BlockStatus { offset, length, is_one: flags & command_flag::REQ_ONE != 0 })
            }
            _ => refuse(Errno::Einval, "unknown command"),
        }
    }

    /// Source: `proto.md`, "Command flags", "Error values".
    fn check_flags(&self, kind: u16, flags: u16) -> Result<(), Refusal> {
        let own = match kind {
            command::READ if self.mode != HeaderMode::Simple => command_flag::DF,
            command::WRITE if self.mode == HeaderMode::Extended => command_flag::PAYLOAD_LEN,
            command::WRITE_ZEROES if self.features.fast_zero => {
                command_flag::NO_HOLE | command_flag::FAST_ZERO
            }
            command::WRITE_ZEROES => command_flag::NO_HOLE,
            command::BLOCK_STATUS => command_flag::REQ_ONE,
            _ => 0,
        };
        // Clients may set it on any command, if it was advertised.
        let fua = if self.features.fua { command_flag::FUA } else { 0 };
        if flags & !(own | fua) != 0 {
            refuse(Errno::Einval, "flag not known for the command")
        } else {
            Ok(())
        }
    }

    fn check_writable(&self, is_offered: bool) -> Result<(), Refusal> {
        if self.is_read_only {
            refuse(Errno::Eperm, "read-only export")
        } else if !is_offered {
            refuse(Errno::Einval, "command was not offered")
        } else {
            Ok(())
        }
    }

    fn check_range(&self, offset: u64, length: u64, beyond: Errno) -> Result<(), Refusal> {
        let minimum = u64::from(self.blocks.minimum);
        if offset.checked_add(length).is_none_or(|end| end > self.size_bytes) {
            refuse(beyond, "past the end of the export")
        } else if !offset.is_multiple_of(minimum) || !length.is_multiple_of(minimum) {
            refuse(Errno::Einval, "not aligned to the minimum block size")
        } else {
            Ok(())
        }
    }
}
