//! Kind lwb: what `docs/format.md` says of a chain of blocks, computed from its bytes. All offsets are those
//! of that file.

use std::ops::Range;

use fastness_lwb::{AHEAD, Chain, Header as ChainHeader};
use fastness_zil::StoredHeader;
use twox_hash::XxHash3_64;

use super::*;

const SECTOR: usize = 512;
const CONTENTS: usize = SECTOR - 16;
const HEADER: usize = 104;
const PIECE: usize = 32;

/// A block of the undamaged chain.
struct Block {
    at: usize,
    written: usize,
    guid: [u8; 16],
    seq: u64,
    durable: u64,
    /// Records that end in it, with their txgs.
    records: Vec<(u64, Vec<u8>)>,
}

/// What became of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    /// A sector is its own no more, and still has something of its own trailer.
    Damaged,
    /// A later block of the chain is there.
    Misplaced,
    /// Some sectors, or all, have nothing of their trailers: as if never written.
    Gone,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + N].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The contents of all sectors from here on.
fn contents(block: &[u8], sectors: usize) -> Vec<u8> {
    block.chunks(SECTOR).take(sectors).flat_map(|sector| &sector[..CONTENTS]).copied().collect()
}

/// Which halves of a sector's trailer fit: tag, sum.
fn trailer(sector: &[u8], guid: &[u8], seq: u64, index: usize) -> [bool; 2] {
    let tag = XxHash3_64::oneshot(&[guid, &seq.to_le_bytes()].concat()).wrapping_add(index as u64);
    let sum = XxHash3_64::oneshot(&sector[..CONTENTS]) ^ tag;
    [number::<8>(sector, CONTENTS) == tag, number::<8>(sector, CONTENTS + 8) == sum]
}

fn chain(case: &Case<LwbRig>, dataset: DatasetId) -> Chain {
    let header = StoredHeader::decode(&case.disk.headers.0[&dataset]).unwrap();
    let ChainHeader::Logging(chain) = ChainHeader::decode(header.bytes).unwrap() else { panic!() };
    chain
}

fn blocks(case: &Case<LwbRig>, chain: &Chain) -> Vec<Block> {
    let guid = chain.guid.to_bytes();
    let (mut found, mut at, mut seq, mut record) =
        (Vec::new(), chain.first.place.offset as usize, chain.first_seq.0, Vec::new());
    loop {
        let block = &case.bytes[at..];
        if trailer(&block[..SECTOR], &guid, seq, 0) != [true, true] {
            return found;
        }
        let used = number::<4>(block, 12) as usize;
        let sectors = used.div_ceil(CONTENTS).next_multiple_of(8);
        let stream = contents(block, sectors);
        let (mut records, mut piece) = (Vec::new(), HEADER);
        while piece < used {
            let (len, total) =
                (number::<4>(&stream, piece) as usize, number::<4>(&stream, piece + 4) as usize);
            if number::<4>(&stream, piece + 24) == 0 {
                record.clear();
            }
            record.extend_from_slice(&stream[piece + PIECE..][..len]);
            if record.len() == total {
                records.push((number::<8>(&stream, piece + 16), record.clone()));
            }
            piece += PIECE + len.next_multiple_of(8);
        }
        found.push(Block {
            at,
            written: sectors * SECTOR,
            guid,
            seq,
            durable: number::<8>(block, 40),
            records,
        });
        (at, seq) = (number::<8>(block, 56) as usize, seq + 1);
    }
}

impl Block {
    /// What a medium has of it.
    fn state(&self, bytes: &[u8]) -> State {
        let block = &bytes[self.at..self.at + self.written];
        let sectors = block.chunks(SECTOR).enumerate();
        let trailers: Vec<_> =
            sectors.map(|(index, sector)| trailer(sector, &self.guid, self.seq, index)).collect();
        let is_later = || {
            let (guid, seq) = (&block[16..32], number::<8>(block, 32));
            guid == self.guid && seq > self.seq && trailer(&block[..SECTOR], guid, seq, 0) == [true, true]
        };
        match &trailers[..] {
            trailers if trailers.iter().all(|trailer| *trailer == [true, true]) => State::Whole,
            trailers if trailers.iter().any(|[tag, sum]| tag != sum) => State::Damaged,
            trailers if trailers.iter().all(|trailer| *trailer == [false, false]) && is_later() => {
                State::Misplaced
            }
            _ => State::Gone,
        }
    }
}

/// Whether a block that can be found after `hit` says that it was durable, or is damaged and could have said
/// it.
fn is_doubted(blocks: &[Block], states: &[State], hit: usize) -> bool {
    // The block before, or the header, names the hit one and the next ones.
    let mut reach = hit + AHEAD;
    (hit + 1..blocks.len()).any(|at| {
        if at >= reach || states[at] == State::Gone {
            return false;
        }
        let is_whole = states[at] == State::Whole;
        reach = if is_whole { reach.max(at + 1 + AHEAD) } else { reach };
        !is_whole || blocks[at].durable >= blocks[hit].seq
    })
}

fn outcome(case: &Case<LwbRig>, bytes: &[u8], dataset: DatasetId) -> Outcome {
    let (chain, first) = (chain(case, dataset), first_txg(case));
    let blocks = blocks(case, &chain);
    let states: Vec<_> = blocks.iter().map(|block| block.state(bytes)).collect();
    let hit = states.iter().position(|state| *state != State::Whole);
    let records = blocks[..hit.unwrap_or(blocks.len())].iter().flat_map(|block| &block.records);
    let replayed =
        records.filter(|(txg, _)| *txg >= first.0).map(|(_, bytes)| step_of_record(bytes)).collect();
    let is_refused = hit.is_some_and(|hit| {
        matches!(states[hit], State::Damaged | State::Misplaced)
            || chain.durable_seq.0 >= blocks[hit].seq
            || is_doubted(&blocks, &states, hit)
    });
    Outcome { is_refused, replayed }
}

/// Whole blocks of whatever use, obsolete ones, too: where they are.
fn written(bytes: &[u8]) -> Vec<Range<usize>> {
    let units = (0..bytes.len()).step_by(4096).filter(|at| bytes[*at..].starts_with(b"FASTLWBK"));
    let range = |at: usize| {
        let sectors = (number::<4>(&bytes[at..], 12) as usize).div_ceil(CONTENTS).next_multiple_of(8);
        at..at + sectors * SECTOR
    };
    units.map(range).collect()
}

impl Kinds for LwbRig {
    const SILENT_MAX: usize = 60;

    fn rig() -> Self {
        Self::new(512 << 10, fastness_blkdev::FaultPlan::new(1))
    }

    fn damages(case: &Case<Self>) -> Vec<Damage> {
        let mut damages = Vec::new();
        let zero = |range: Range<usize>| Damage::Zero(range);
        let both = |one, other| Damage::Both(Box::new([one, other]));
        let found = written(&case.bytes);
        for block in &found {
            // Every byte of the header, some of what follows, and in each sector some of the contents and of
            // both halves of the trailer.
            damages.extend((0..HEADER).map(|at| Damage::flip(block.start + at)));
            let pieces = HEADER..HEADER + PIECE + HEAD_BYTES;
            damages.extend(pieces.step_by(5).map(|at| Damage::flip(block.start + at)));
            for sector in block.clone().step_by(SECTOR) {
                damages
                    .extend([0, 77, 300, 495, 496, 501, 503, 504, 511].map(|at| Damage::flip(sector + at)));
                damages.push(zero(sector..sector + SECTOR));
            }
            damages.push(zero(block.clone()));
            damages.push(zero(block.start..block.start + 4096));
            let garbage = (0..block.len()).map(|at| (at * 31 + at / 256) as u8).collect();
            damages.push(Damage::Replaced { at: block.start, bytes: garbage });
            let earlier = case.earlier[block.clone()].to_vec();
            damages.push(Damage::Replaced { at: block.start, bytes: earlier });
        }
        // Blocks one after the other in a chain, or beside each other on the medium.
        for dataset in [DATASET, OTHER] {
            let blocks = blocks(case, &chain(case, dataset));
            let range = |block: &Block| block.at..block.at + block.written;
            for pair in blocks.windows(2) {
                let (one, other) = (range(&pair[0]), range(&pair[1]));
                damages.push(both(zero(one.clone()), zero(other.clone())));
                damages.push(both(zero(one.clone()), Damage::flip(other.start + 50)));
                damages.push(both(Damage::flip(one.start + 500), zero(other.clone())));
                damages.push(both(Damage::flip(one.start + 41), Damage::flip(other.end - 1)));
                let earlier = |range: Range<usize>| {
                    let bytes = case.earlier[range.clone()].to_vec();
                    Damage::Replaced { at: range.start, bytes }
                };
                damages.push(both(earlier(one.clone()), earlier(other.clone())));
                // The later one went to the place of the one before, or the other way round.
                let len = one.len().min(other.len());
                let copy = |from: &Range<usize>, to: &Range<usize>| {
                    let bytes = case.bytes[from.start..from.start + len].to_vec();
                    Damage::Replaced { at: to.start, bytes }
                };
                damages.push(copy(&other, &one));
                damages.push(copy(&one, &other));
            }
            for three in blocks.windows(3) {
                let first = both(zero(range(&three[0])), zero(range(&three[1])));
                damages.push(both(first, zero(range(&three[2]))));
            }
        }
        for pair in found.windows(2) {
            damages.push(zero(pair[0].start..pair[1].end));
        }
        damages
    }

    fn expected(case: &Case<Self>, damage: &Damage) -> Outcomes {
        let mut bytes = case.bytes.clone();
        damage.apply(&mut bytes);
        [DATASET, OTHER].map(|dataset| (dataset, outcome(case, &bytes, dataset))).into()
    }

    fn damaged(case: &Case<Self>, damage: &Damage) -> Self {
        let mut bytes = case.bytes.clone();
        damage.apply(&mut bytes);
        case.rig.with_image(&bytes)
    }
}

/// Of a flipped bit nobody is left in doubt: the chain of a block that is needed is refused, whichever it is.
#[test]
fn no_flipped_bit_costs_anything_without_a_word() {
    let case = case::<LwbRig>();
    let whole = LwbRig::expected(&case, &Damage::Zero(0..0));
    let mut needed = 0;
    for damage in LwbRig::damages(&case).iter().filter(|damage| matches!(damage, Damage::Flip { .. })) {
        for (dataset, outcome) in found(&case, damage) {
            needed += usize::from(outcome.is_refused);
            assert!(outcome.is_refused || outcome == whole[&dataset], "{damage:?}");
        }
    }
    assert!(needed > 1000, "{needed}");
}
