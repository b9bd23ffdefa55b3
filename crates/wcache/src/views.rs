//! Reads what the log has while others write to it, from the side that has it.
//!
//! What is read is checked. A side that does not give what was written is counted, and the other one is
//! asked; one that is out is not asked any more.

use fastness_pmem::{ReadError, SIDES_MAX, View};
use fastness_sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Why bytes of the log cannot be had.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// They cannot be read.
    Unreadable(ReadError),
    /// They are not those that were written.
    Wrong,
}

/// The view of each side.
pub(crate) struct Views {
    first: Box<dyn View>,
    second: Option<Box<dyn View>>,
    /// Number of the side that is out, plus 1.
    out: AtomicU8,
    /// Reads in which the first side did not have what the second has.
    faults: AtomicU64,
}

impl Views {
    /// # Panics
    /// Caller bug only: there is no side, or a third one.
    pub(crate) fn new(sides: Vec<Box<dyn View>>) -> Views {
        assert!((1..=SIDES_MAX).contains(&sides.len()), "a cache has one side, or two");
        let mut sides = sides.into_iter();
        let first = sides.next().expect("looked at above");
        Views { first, second: sides.next(), out: AtomicU8::new(0), faults: AtomicU64::new(0) }
    }

    /// A side is never asked again.
    pub(crate) fn leave_out(&self, side: usize) {
        self.out.store(side as u8 + 1, Ordering::SeqCst);
    }

    /// The side that is out.
    pub(crate) fn out(&self) -> Option<usize> {
        self.out.load(Ordering::SeqCst).checked_sub(1).map(usize::from)
    }

    /// Reads in which the first side did not have what the second has. The second is asked only then.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Fills `dst` with bytes whose CRC-32C is `crc`.
    pub(crate) fn read(&self, region_offset: u64, crc: u32, dst: &mut [u8]) -> Result<(), Fault> {
        let Some(second) = &self.second else { return checked(&*self.first, region_offset, crc, dst) };
        match self.out() {
            Some(0) => return checked(&**second, region_offset, crc, dst),
            Some(_) => return checked(&*self.first, region_offset, crc, dst),
            None => {}
        }
        let Err(fault) = checked(&*self.first, region_offset, crc, dst) else { return Ok(()) };
        checked(&**second, region_offset, crc, dst).map_err(|_| fault)?;
        self.faults.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn checked(view: &dyn View, region_offset: u64, crc: u32, dst: &mut [u8]) -> Result<(), Fault> {
    view.read(region_offset, dst).map_err(Fault::Unreadable)?;
    if crc32c::crc32c(dst) == crc { Ok(()) } else { Err(Fault::Wrong) }
}

#[cfg(test)]
mod tests {
    use fastness_pmem::ReadErrorKind;

    use super::*;

    /// Bytes that are all the same, or cannot be read.
    struct Of(Option<u8>);

    impl View for Of {
        fn read(&self, region_offset: u64, dst: &mut [u8]) -> Result<(), ReadError> {
            let kind = ReadErrorKind::Poison;
            dst.fill(self.0.ok_or(ReadError { region_offset, kind })?);
            Ok(())
        }
    }

    #[test]
    fn the_side_that_has_the_bytes_gives_them_and_the_other_is_counted() {
        let crc = crc32c::crc32c(&[7; 64]);
        let mut bytes = [0; 64];
        for (first, second, is_there, faults) in [
            (Some(7), Some(7), true, 0),
            (Some(6), Some(7), true, 1),
            (None, Some(7), true, 1),
            (Some(7), None, true, 0),
            (Some(6), None, false, 0),
            (None, Some(6), false, 0),
        ] {
            let views = Views::new(vec![Box::new(Of(first)), Box::new(Of(second))]);
            let read = views.read(0, crc, &mut bytes);
            assert_eq!((read.is_ok(), views.faults()), (is_there, faults), "{first:?} {second:?}");
            assert!(read.is_err() || bytes == [7; 64]);
        }
        // One that is out is not asked, whatever it has.
        for out in [0, 1] {
            let views = Views::new(vec![Box::new(Of(Some(7))), Box::new(Of(Some(6)))]);
            views.leave_out(out);
            assert_eq!((views.read(0, crc, &mut bytes).is_ok(), views.out()), (out == 1, Some(out)));
        }
        assert!(Views::new(vec![Box::new(Of(Some(6)))]).read(0, crc, &mut bytes).is_err());
    }
}
