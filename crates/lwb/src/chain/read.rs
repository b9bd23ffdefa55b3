//! Reading one block, from any copy that has it.

use crate::chain::End;
use crate::format::{BlockHeader, Reject, pieces};
use crate::ids::{BlockSeq, Extent, LogGuid};
use crate::space::{BLOCK_BYTES_MAX, Space};

/// Buffers for a block.
pub(super) struct Reader {
    block: Vec<u8>,
    pub(super) contents: Vec<u8>,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader { block: vec![0; BLOCK_BYTES_MAX as usize], contents: Vec::new() }
    }
}

/// What the copies held instead of the block.
#[derive(Default)]
struct Refused {
    copies: usize,
    worst: Option<Reject>,
}

impl Refused {
    fn note(&mut self, reject: Reject) {
        self.copies += 1;
        if self.worst.as_ref().is_none_or(|worst| weight(worst) < weight(&reject)) {
            self.worst = Some(reject);
        }
    }

    fn end(self) -> End {
        self.worst.map_or(End::Unwritten { other: None }, End::from)
    }
}

fn weight(reject: &Reject) -> u32 {
    match reject {
        Reject::NoBlock | Reject::Foreign(_) | Reject::Stale(_) => 0,
        Reject::Torn => 1,
        Reject::Misplaced(_) | Reject::Damaged { .. } | Reject::Version(_) | Reject::Malformed { .. } => 2,
    }
}

/// Decodes a block, and checks all its pieces.
fn decode(block: &[u8], guid: LogGuid, seq: BlockSeq, contents: &mut Vec<u8>) -> Result<BlockHeader, Reject> {
    let header = BlockHeader::decode(block, guid, seq, contents)?;
    pieces(contents, &header).find_map(Result::err).map_or(Ok(header), Err)
}

impl Reader {
    /// Reads the block with this verifier, and checks that all its pieces are within bounds; its contents are
    /// then in the reader.
    pub(super) fn read<S: Space>(
        &mut self,
        space: &S,
        extent: Extent,
        guid: LogGuid,
        seq: BlockSeq,
    ) -> Result<BlockHeader, End> {
        if !space.contains(extent) {
            return Err(End::OutOfBounds);
        }
        let mut refused = Refused::default();
        let (mut found, contents) = (None, &mut self.contents);
        let mut check = |block: &mut [u8]| {
            match decode(block, guid, seq, contents) {
                Ok(header) => found = Some(header),
                Err(reject) => refused.note(reject),
            }
            found.is_some()
        };
        let block = &mut self.block[..extent.len_bytes as usize];
        match (space.read_checked(extent.place, block, &mut check), found) {
            (Ok(true), Some(header)) => Ok(header),
            (Err(error), _) => Err(End::Unreadable(error)),
            (Ok(_), _) if refused.copies > 1 => Err(self.ask_current(space, extent, guid, seq, refused)),
            (Ok(_), _) => Err(refused.end()),
        }
    }

    /// No copy has the block. Any current copy, one that has everything acknowledged, can tell that this
    /// block was not acknowledged: then damage in the others does not matter.
    fn ask_current<S: Space>(
        &mut self,
        space: &S,
        extent: Extent,
        guid: LogGuid,
        seq: BlockSeq,
        refused: Refused,
    ) -> End {
        let mut undamaged = Refused::default();
        let (block, contents) = (&mut self.block[..extent.len_bytes as usize], &mut self.contents);
        let mut look = |block: &[u8]| match decode(block, guid, seq, contents) {
            Err(reject) if End::from(reject).is_clean() => undamaged.note(reject),
            _ => {}
        };
        match space.read_current(extent.place, block, &mut look) {
            Ok(()) if undamaged.copies > 0 => undamaged.end(),
            _ => refused.end(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Place;
    use crate::space::SpaceError;

    /// Copies of one place: the contents of each, and whether it is current.
    struct Copies(Vec<(Vec<u8>, bool)>);

    impl Space for Copies {
        fn allocate(&self, _: u32) -> Result<Place, SpaceError> {
            unreachable!("nothing is written")
        }
        fn free(&self, _: Extent) {}
        fn claim(&self, _: Extent) -> Result<(), SpaceError> {
            Ok(())
        }
        fn contains(&self, _: Extent) -> bool {
            true
        }
        fn write(&self, _: Place, _: &[u8]) -> Result<(), SpaceError> {
            unreachable!("nothing is written")
        }
        fn read(&self, _: Place, _: &mut [u8]) -> Result<(), SpaceError> {
            unreachable!("there are copies")
        }
        fn read_checked(
            &self,
            _: Place,
            buf: &mut [u8],
            check: &mut dyn FnMut(&mut [u8]) -> bool,
        ) -> Result<bool, SpaceError> {
            Ok(self.0.iter().any(|(copy, _)| {
                buf.copy_from_slice(copy);
                check(buf)
            }))
        }
        fn read_current(
            &self,
            _: Place,
            _: &mut [u8],
            look: &mut dyn FnMut(&[u8]),
        ) -> Result<(), SpaceError> {
            self.0.iter().filter(|(_, is_current)| *is_current).for_each(|(copy, _)| look(copy));
            Ok(())
        }
        fn flush(&self, _: &[u32]) -> Result<(), SpaceError> {
            unreachable!("nothing is written")
        }
    }

    fn guid() -> LogGuid {
        LogGuid::from_bytes([7; 16]).unwrap()
    }

    fn read(copies: &[(&Vec<u8>, bool)]) -> Result<(), End> {
        let place = Place { device: 0, offset: 0 };
        let copies = Copies(copies.iter().map(|(copy, is_current)| ((*copy).clone(), *is_current)).collect());
        Reader::default().read(&copies, Extent { place, len_bytes: 4096 }, guid(), BlockSeq(3)).map(drop)
    }

    #[test]
    fn a_current_copy_that_is_not_damaged_decides_where_the_chain_ends() {
        let mut whole = vec![0; 4096];
        let header = BlockHeader {
            guid: guid(),
            seq: BlockSeq(3),
            durable_seq: BlockSeq(2),
            newest_txg: crate::Txg(0),
            used_bytes: crate::format::BLOCK_HEADER_BYTES as u32,
            next: Default::default(),
        };
        let mut contents = crate::format::Contents::new(&mut whole);
        header.put(&mut contents);
        contents.finish(crate::format::Tags::of(guid(), BlockSeq(3)));
        let (mut damaged, mut torn, never) = (whole.clone(), whole.clone(), vec![0; 4096]);
        damaged[600] ^= 1;
        torn[512..1024].fill(0);

        for other in [&whole, &damaged, &torn, &never] {
            for is_current in [true, false] {
                assert!(read(&[(other, true), (&whole, is_current)]).is_ok());
            }
            assert!(matches!(read(&[(&damaged, true), (&damaged, true)]), Err(End::Damaged { sector: 1 })));
        }
        for copies in [[(&damaged, true), (&never, true)], [(&never, true), (&damaged, false)]] {
            assert!(matches!(read(&copies), Err(End::Unwritten { other: None })));
        }
        assert!(matches!(read(&[(&damaged, true), (&torn, true)]), Err(End::Torn)));
        assert!(matches!(read(&[(&never, true), (&torn, true)]), Err(End::Torn)));
        // A stale copy may lack acknowledged writes.
        for stale in [&never, &torn] {
            assert!(matches!(read(&[(&damaged, true), (stale, false)]), Err(End::Damaged { sector: 1 })));
        }
    }

    #[test]
    fn the_worst_of_what_copies_have_counts() {
        let (clean, torn, damaged) =
            (Reject::Stale(BlockSeq(3)), Reject::Torn, Reject::Damaged { sector: 3 });
        for (copies, worst) in [
            ([clean, Reject::NoBlock], clean),
            ([clean, torn], torn),
            ([torn, clean], torn),
            ([clean, damaged], damaged),
            ([damaged, torn], damaged),
        ] {
            let mut refused = Refused::default();
            copies.iter().for_each(|copy| refused.note(*copy));
            assert_eq!(refused.worst, Some(worst), "{copies:?}");
        }
    }
}
