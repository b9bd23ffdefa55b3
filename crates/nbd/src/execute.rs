//! Executes one request on the export.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Errno, ExportError};
use crate::export::{Export, Extent, ExtentKind};
use crate::reply::{Frame, Replier};
use crate::rules::{Command, Rules};
use crate::wire::HeaderMode;

/// Reads of at least this length first ask the export for holes.
const SPARSE_READ_BYTES_MIN: u32 = 64 << 10;
/// Maximum number of extents in one reply; the client asks again for the rest.
const EXTENTS_MAX: usize = 4096;
/// Id of `base:allocation`.
pub(crate) const ALLOCATION_CONTEXT_ID: u32 = 1;

/// Executes `command` and appends the frames of the reply.
///
/// A panic of the export is answered with `EIO`: a bug that one request hits must not affect other clients.
pub(crate) fn execute(
    export: &dyn Export,
    rules: &Rules,
    command: Command,
    payload: &[u8],
    replier: Replier,
    frames: &mut Vec<Frame>,
) {
    let first = frames.len();
    let run = AssertUnwindSafe(|| run(export, rules, command, payload, replier, frames));
    if let Err(error) = catch_unwind(run).unwrap_or(Err(ExportError::Io)) {
        frames.truncate(first);
        frames.push(replier.error(told(error, command), &error.to_string()));
    }
}

/// The error number to send. Two of them are for one kind of request only; elsewhere clients need not know
/// them. Source: `proto.md`, "Error values".
fn told(error: ExportError, command: Command) -> Errno {
    let is_whole_read = matches!(command, Command::Read { is_whole: true, .. });
    let is_fast_zero = matches!(command, Command::WriteZeroes { options, .. } if options.fast);
    match Errno::from(error) {
        Errno::Eoverflow if !is_whole_read => Errno::Einval,
        Errno::Enotsup if !is_fast_zero => Errno::Einval,
        errno => errno,
    }
}

fn run(
    export: &dyn Export,
    rules: &Rules,
    command: Command,
    payload: &[u8],
    replier: Replier,
    frames: &mut Vec<Frame>,
) -> Result<(), ExportError> {
    match command {
        Command::Read { length: 0, .. } => {
            frames.push(replier.nothing_read());
            return Ok(());
        }
        Command::Read { offset, length, is_whole } => {
            let may_split = rules.mode != HeaderMode::Simple && !is_whole;
            if may_split && rules.features.extents && length >= SPARSE_READ_BYTES_MIN {
                return read_sparse(export, offset, length, replier, frames);
            }
            frames.push(replier.data(offset, read(export, offset, length)?, true));
            return Ok(());
        }
        Command::BlockStatus { offset, length, is_one } => {
            let extents_max = if is_one { 1 } else { EXTENTS_MAX };
            let extents = extents(export, rules, offset, length, extents_max)?;
            frames.push(replier.block_status(ALLOCATION_CONTEXT_ID, &extents));
            return Ok(());
        }
        Command::Write { length: 0, .. }
        | Command::Trim { length: 0, .. }
        | Command::Cache { length: 0, .. }
        | Command::WriteZeroes { length: 0, .. }
        | Command::Disconnect => {}
        Command::Write { offset, fua, .. } => export.write(offset, payload, fua)?,
        Command::Flush => export.flush()?,
        Command::Trim { offset, length, fua } => export.trim(offset, length, fua)?,
        Command::Cache { offset, length } => export.cache(offset, length)?,
        Command::WriteZeroes { offset, length, options } => export.write_zeroes(offset, length, options)?,
    }
    frames.push(replier.done());
    Ok(())
}

/// The buffer starts out as zeroes: an export that fills too little must not leak what another client read.
fn read(export: &dyn Export, offset: u64, length: u32) -> Result<Vec<u8>, ExportError> {
    let mut data = vec![0; length as usize];
    export.read(offset, &mut data)?;
    Ok(data)
}

/// Reads data and reports holes. A concurrent write may or may not be seen, as in any read.
fn read_sparse(
    export: &dyn Export,
    offset: u64,
    length: u32,
    replier: Replier,
    frames: &mut Vec<Frame>,
) -> Result<(), ExportError> {
    let mut found = Vec::new();
    export.block_status(offset, u64::from(length), &mut found)?;
    let extents = merge(&found, u64::from(length), EXTENTS_MAX, |kind| kind != ExtentKind::Data)?;
    let known: u64 = extents.iter().map(|extent| extent.length).sum();
    let mut at = offset;
    let end = offset + u64::from(length);
    for extent in &extents {
        let bytes = extent.length as u32;
        let is_last = at + extent.length == end;
        frames.push(match extent.kind {
            ExtentKind::Data => replier.data(at, read(export, at, bytes)?, is_last),
            ExtentKind::Hole | ExtentKind::Zero => replier.hole(at, bytes, is_last),
        });
        at += extent.length;
    }
    // The export stopped early: the rest is read as data.
    if known < u64::from(length) {
        frames.push(replier.data(at, read(export, at, (end - at) as u32)?, true));
    }
    Ok(())
}

fn extents(
    export: &dyn Export,
    rules: &Rules,
    offset: u64,
    length: u64,
    extents_max: usize,
) -> Result<Vec<Extent>, ExportError> {
    let mut found = Vec::new();
    if rules.features.extents {
        export.block_status(offset, length, &mut found)?;
    } else {
        found.push(Extent { length, kind: ExtentKind::Data });
    }
    merge(&found, length, extents_max, |kind| kind)
}

/// Cuts extents to `length`, and merges neighbours that `class` maps to the same kind.
///
/// # Errors
/// The export's extents are invalid.
fn merge<K: PartialEq>(
    found: &[Extent],
    length: u64,
    extents_max: usize,
    class: impl Fn(ExtentKind) -> K,
) -> Result<Vec<Extent>, ExportError> {
    let mut left = length;
    let mut merged: Vec<Extent> = Vec::new();
    for extent in found {
        if left == 0 {
            break;
        }
        let length = extent.length.min(left);
        if length == 0 {
            return Err(ExportError::Io);
        }
        let is_full = merged.len() == extents_max;
        match merged.last_mut() {
            Some(last) if class(last.kind) == class(extent.kind) => last.length += length,
            _ if is_full => break,
            _ => merged.push(Extent { length, kind: extent.kind }),
        }
        left -= length;
    }
    if merged.is_empty() { Err(ExportError::Io) } else { Ok(merged) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(length: u64, kind: ExtentKind) -> Extent {
        Extent { length, kind }
    }

    #[test]
    fn extents_are_cut_and_joined() {
        use ExtentKind::{Data, Hole, Zero};
        let found = [extent(10, Data), extent(5, Data), extent(10, Hole), extent(100, Zero)];
        let whole = merge(&found, 40, 9, |kind| kind).unwrap();
        assert_eq!(whole, [extent(15, Data), extent(10, Hole), extent(15, Zero)]);
        assert_eq!(merge(&found, 40, 1, |kind| kind).unwrap(), [extent(15, Data)]);
        let zeroes = merge(&found, 40, 9, |kind| kind != Data).unwrap();
        assert_eq!(zeroes, [extent(15, Data), extent(25, Hole)]);
        assert_eq!(merge(&found, 12, 9, |kind| kind).unwrap(), [extent(12, Data)]);
        assert_eq!(merge(&[], 12, 9, |kind| kind), Err(ExportError::Io));
        assert_eq!(merge(&[extent(0, Data)], 12, 9, |kind| kind), Err(ExportError::Io));
    }
}
