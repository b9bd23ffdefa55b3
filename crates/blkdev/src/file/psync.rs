//! One system call per request, repeated until the request is complete.

use std::io::{self, IoSlice, IoSliceMut};

use crate::error::Cause;
use crate::file::raw::RawIo;

/// Maximum number of parts in one vectored system call (`IOV_MAX` of Linux).
const PARTS_MAX: usize = 1024;

/// A transfer stopped: the bytes that were certainly transferred, and the reason.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(crate) done: usize,
    pub(crate) cause: Cause,
}

/// How many of the `transferred` bytes count: whole granules. Direct I/O cannot continue inside a block, so
/// its granule is a block, and a partial one is transferred again; otherwise a granule is one byte. `None` if
/// there is no progress.
pub(crate) fn whole_granules(transferred: usize, asked: usize, granule_bytes: usize) -> Option<usize> {
    if transferred >= asked {
        return Some(asked);
    }
    let whole = transferred - transferred % granule_bytes;
    (whole > 0).then_some(whole)
}

/// The loop of all repeated transfers: `act` gets the number of bytes done so far.
fn repeat(
    len: usize,
    granule_bytes: usize,
    mut act: impl FnMut(usize) -> io::Result<usize>,
) -> Result<(), Stopped> {
    let mut done = 0;
    while done < len {
        match act(done) {
            Ok(transferred) => match whole_granules(transferred, len - done, granule_bytes) {
                Some(whole) => done += whole,
                None => return Err(Stopped { done, cause: Cause::Ended }),
            },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Stopped { done, cause: Cause::from_io(error) }),
        }
    }
    Ok(())
}

pub(crate) fn read(
    raw: &dyn RawIo,
    granule_bytes: usize,
    offset: u64,
    buf: &mut [u8],
) -> Result<(), Stopped> {
    repeat(buf.len(), granule_bytes, |done| raw.read(offset + done as u64, &mut buf[done..]))
}

pub(crate) fn write(
    raw: &dyn RawIo,
    granule_bytes: usize,
    offset: u64,
    data: &[u8],
    dsync: bool,
) -> Result<(), Stopped> {
    repeat(data.len(), granule_bytes, |done| {
        let rest = [IoSlice::new(&data[done..])];
        raw.write_vectored(offset + done as u64, &rest, dsync)
    })
}

pub(crate) fn read_vectored(
    raw: &dyn RawIo,
    granule_bytes: usize,
    offset: u64,
    mut parts: &mut [IoSliceMut<'_>],
) -> Result<(), Stopped> {
    let len = parts.iter().map(|part| part.len()).sum();
    let mut behind = 0;
    repeat(len, granule_bytes, |done| {
        IoSliceMut::advance_slices(&mut parts, done - behind);
        behind = done;
        let at_once = parts.len().min(PARTS_MAX);
        raw.read_vectored(offset + done as u64, &mut parts[..at_once])
    })
}

pub(crate) fn write_vectored(
    raw: &dyn RawIo,
    granule_bytes: usize,
    offset: u64,
    parts: &[IoSlice<'_>],
) -> Result<(), Stopped> {
    let len = parts.iter().map(|part| part.len()).sum();
    let mut rest: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut rest = &mut rest[..];
    let mut behind = 0;
    repeat(len, granule_bytes, |done| {
        IoSlice::advance_slices(&mut rest, done - behind);
        behind = done;
        raw.write_vectored(offset + done as u64, &rest[..rest.len().min(PARTS_MAX)], false)
    })
}
