//! Compares the sides of a mirror, and copies to each what only the other has.
//!
//! Crash cases of [`repair`]: what it stores is on the other side, so whatever part of it survives a crash,
//! the next import finds the entries there, and repairs again. It does not fence: opening does, before claim
//! acts on what it found.
//!
//! Why repair comes before claim: `docs/adr/2026-11-22-mirrored-pm-log.md`.

use fastness_pmem::{Medium, SIDES_MAX};

use crate::entry::{EntryHeader, HEADER_BYTES, Insertion, NoHeader};
use crate::traverse::{BodyError, Located, Traversal, read_body, read_body_of, sides_are_apart};

/// An entry that one side of a mirror lacks or has damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SideFault {
    /// The side.
    pub side: usize,
    /// The entry, as the other side has it.
    pub entry: Located,
    /// What is wrong with it on this side.
    pub error: BodyError,
    /// Whether no crash of a correct writer can leave this: neither an unfinished insertion at the end of the
    /// chunk, nor unfinished emptying at its start.
    pub is_damage: bool,
}

/// How the sides of a chunk differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SideReport {
    /// The faults, ordered by place.
    pub faults: Vec<SideFault>,
    /// The sides hold different uses of the chunk: one of them is an older copy. Then no faults are listed.
    pub is_apart: bool,
}

/// Compares the sides of a chunk; for an unmirrored chunk the report is empty.
///
/// Every body is read from every side.
pub fn side_report<M: Medium>(medium: &M) -> SideReport {
    let mut report = SideReport::default();
    if medium.sides() < 2 {
        return report;
    }
    report.is_apart = sides_are_apart(medium);
    if report.is_apart {
        return report;
    }
    let mut buffer = Vec::new();
    for entry in Traversal::new(medium) {
        // What was taken for the end so far is not the end.
        let is_inside = |fault: &SideFault| fault.entry.offset > 0 || !is_no_header(&fault.error);
        report.faults.iter_mut().filter(|fault| is_inside(fault)).for_each(|fault| fault.is_damage = true);
        buffer.resize(entry.header.body_len_bytes as usize, 0);
        for side in 0..medium.sides() {
            if let Err(error) = read_body_of(medium, side..side + 1, &entry, &mut buffer) {
                let is_damage = !is_no_header(&error) || is_damaged_header(medium, side, &entry);
                report.faults.push(SideFault { side, entry, error, is_damage });
            }
        }
    }
    report
}

/// Whether a side once had a header where it has none now.
fn is_damaged_header<M: Medium>(medium: &M, side: usize, entry: &Located) -> bool {
    let mut bytes = [0; HEADER_BYTES];
    match medium.read_side(side, entry.offset, &mut bytes).map(|()| EntryHeader::decode(&bytes)) {
        Ok(Err(NoHeader::Damaged(remains))) => {
            // With one fence, the old bytes in this place need not have been a header.
            entry.header.insertion == Insertion::TwoFences || remains.is_of(entry.header.epoch)
        }
        _ => false,
    }
}

fn is_no_header(error: &BodyError) -> bool {
    matches!(error, BodyError::HeaderChanged { .. })
}

/// What a repair of a mirror did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SideRepairs {
    /// Entries that were copied to each side.
    pub entries: [u64; SIDES_MAX],
    /// Those of them that a crash does not explain.
    pub damaged: [u64; SIDES_MAX],
    /// Chunks whose sides hold different uses: one side is an older copy. The entries of both count, and
    /// nothing was copied.
    pub chunks_apart: u64,
}

/// Makes every side of a chunk hold all entries that any side has.
///
/// Writes an empty end after the last entry, as an insertion leaves it, and also on a side with damage there.
/// Persistence: the caller fences, before anything acts on an entry.
pub(crate) fn repair<M: Medium>(medium: &mut M, done: &mut SideRepairs) {
    let SideReport { faults, is_apart } = side_report(medium);
    done.chunks_apart += u64::from(is_apart);
    let end = Traversal::new(&*medium).last().map_or(0, |last| last.end());
    let mut body = Vec::new();
    for SideFault { side, entry, is_damage, .. } in faults {
        body.resize(entry.header.body_len_bytes as usize, 0);
        if !matches!(read_body(medium, &entry, &mut body), Ok(()) | Err(BodyError::Padding { .. })) {
            continue; // It is whole on no side, and claim says so.
        }
        let is_last = entry.end() == end;
        let follow = if is_last && medium.len_bytes() - end >= HEADER_BYTES { HEADER_BYTES } else { 0 };
        medium.copy_side(side, entry.body_offset(), &body, entry.padded_body() + follow);
        medium.copy_side(side, entry.offset, &entry.header.encode(), HEADER_BYTES);
        done.entries[side] += 1;
        done.damaged[side] += u64::from(is_damage);
    }
    if !is_apart && medium.len_bytes() - end >= HEADER_BYTES {
        repair_end(medium, end);
    }
}

/// Empties the place after the last entry on a side that has something there that no writer leaves, unless
/// all sides do. Used alone, that side would be refused for it.
fn repair_end<M: Medium>(medium: &mut M, end: usize) {
    let is_damage = |side: &usize| {
        let mut traversal = Traversal::of_side(&*medium, *side).at(end);
        traversal.next().is_none() && traversal.end().is_some_and(|end| end.is_damage())
    };
    let damaged: Vec<_> = (0..medium.sides()).filter(is_damage).collect();
    if damaged.len() < medium.sides() {
        damaged.into_iter().for_each(|side| medium.copy_side(side, end, &[], HEADER_BYTES));
    }
}
