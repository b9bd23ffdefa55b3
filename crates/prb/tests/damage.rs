//! Damaged media: nothing is forged, nothing panics, and what is lost is what `docs/format.md` says.

mod support;

use std::sync::Arc;

use fastness_prb::*;
use fastness_testkit::{Heap, HeapRange};
use support::*;

const CHUNK: usize = 2048;

struct Written {
    heap: Heap,
    header: HdlHeader,
    /// Region offset of each entry, and its body.
    entries: Vec<(usize, Vec<u8>)>,
}

fn write_log(config: &Config, bodies: &[usize], chunk_count: usize) -> Written {
    let heap = Heap::new(vec![0; CHUNK * chunk_count]);
    let prb = Prb::format(config.clone(), heap.chunks(CHUNK)).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    let header = durable_log(&mut hdl);
    let mut entries = Vec::new();
    for (i, &len) in bodies.iter().enumerate() {
        let body: Vec<u8> = (0..len).map(|k| (i * 50 + k) as u8).collect();
        hdl.write_dependent_entry(Txg(1), &body, Wait::Fail).unwrap();
        entries.push(body);
    }
    let mut found = Vec::new();
    for chunk in heap.chunks(CHUNK) {
        let start = fastness_pmem::Medium::region_offset(&chunk) as usize;
        found.extend(Traversal::new(&chunk).map(|entry| (entry.header.id, start + entry.offset)));
    }
    found.sort_unstable();
    let entries = found.into_iter().map(|(_, offset)| offset).zip(entries).collect();
    Written { heap, header, entries }
}

struct Import {
    prb: Arc<Prb<HeapRange>>,
    hdl: Hdl<HeapRange>,
}

fn open(written: &Written) -> Import {
    let prb = Prb::open(config(9), written.heap.chunks(CHUNK)).unwrap();
    let hdl = prb.setup_hdl(&written.header).unwrap();
    Import { prb, hdl }
}

fn replay(hdl: &mut Hdl<HeapRange>) -> (Vec<Vec<u8>>, Result<Replayed, ReplayError<BodyError>>) {
    let mut bodies = Vec::new();
    let result = hdl.replay(|entry, _| {
        let mut body = vec![0; entry.body_len_bytes()];
        match entry.read_body(&mut body) {
            // A whole body with damaged padding is usable.
            Ok(()) | Err(BodyError::Padding { .. }) => bodies.push(body),
            Err(other) => return Err(other),
        }
        Ok(())
    });
    (bodies, result)
}

/// Which log the header says, of a log that was being written.
fn log_of(header: &HdlHeader) -> LogGuid {
    let HdlHeader::Logging { log } = header else { panic!("{header:?}") };
    *log
}

/// What the ends of the chunks say about the log, as its owner asks before it claims.
fn hidden(import: &Import, written: &Written) -> Option<Hidden> {
    import.prb.chunk_tails(Txg(1)).iter().find_map(|tail| tail.hides(log_of(&written.header)))
}

/// Whether damage to this byte of the only chunk is told: by the ends of chunks, or by a claim that gives
/// nothing up.
fn is_told(written: &Written) -> bool {
    let mut import = open(written);
    hidden(&import, written).is_some() || import.hdl.claim(Txg(1), OnLoss::Fail).is_err()
}

/// Flips each bit of a chunk in turn. What may be lost is decided by where the bit is, and nothing is lost in
/// silence.
#[test]
fn every_flipped_bit_loses_what_the_format_says_and_no_more() {
    let lens = [20, 0, 70, 33];
    for checksum in ChecksumKind::ALL {
        for insertion in [Insertion::TwoFences, Insertion::OneFence] {
            let config = Config { checksum, insertion, ..config(2) };
            if insertion == Insertion::OneFence && !checksum.is_strong() {
                continue;
            }
            let written = write_log(&config, &lens, 1);
            let bodies: Vec<_> = written.entries.iter().map(|(_, body)| body.clone()).collect();
            for bit in 0..CHUNK * 8 {
                written.heap.flip(bit);
                let survivors = survivors(&written, bit / 8);
                let mut import = open(&written);
                let claimed = import.hdl.claim(Txg(1), OnLoss::DropTail).unwrap();
                let (found, result) = replay(&mut import.hdl);
                assert!(result.is_ok(), "what claim kept can be replayed");
                assert_eq!(found, bodies[..survivors], "{checksum:?} {insertion:?} byte {}", bit / 8);
                assert_eq!(claimed.entries, survivors);
                // With one fence, a body that is not whole may be the crash's work; all other losses are
                // told.
                let is_torn = insertion == Insertion::OneFence && is_last_body(&written, bit / 8);
                let is_told = is_told(&written);
                assert_eq!(
                    is_told,
                    survivors < lens.len() && !is_torn,
                    "{checksum:?} {insertion:?} bit {bit}"
                );
                written.heap.flip(bit);
            }
        }
    }
}

fn is_last_body(written: &Written, byte: usize) -> bool {
    let (offset, body) = written.entries.last().unwrap();
    (offset + HEADER_BYTES..offset + HEADER_BYTES + body.len()).contains(&byte)
}

/// An idle log: the header of any entry that has a body, the very last included, is lost without a trace, or
/// with all that is near; an import that gives nothing up says so. What is lost with a witness is nothing.
#[test]
fn zeroes_in_place_of_any_header_of_an_idle_log_are_told() {
    for lens in [&[20][..], &[20, 70], &[20, 0, 70, 33], &[900, 1000]] {
        let written = write_idle_log(lens);
        for (offset, body) in &written.entries {
            let bytes = written.heap.bytes();
            for len in [8, HEADER_BYTES, (HEADER_BYTES + body.len()).max(512)] {
                let end = (offset + len).min((offset / CHUNK + 1) * CHUNK);
                let mut zeroed = bytes.clone();
                zeroed[*offset..end].fill(0);
                let heap = Heap::new(zeroed);
                let damaged = Written { heap, header: written.header.clone(), entries: Vec::new() };
                assert!(is_told(&damaged), "{lens:?} {offset} {len}");
            }
        }
        // Everything is told again: the witness says nothing new.
        assert!(!is_told(&written));
    }
}

/// As [`write_log`], all in one generation, and a witness behind them in a chunk of its own.
fn write_idle_log(lens: &[usize]) -> Written {
    let heap = Heap::new(vec![0; CHUNK * 4]);
    let prb = Prb::format(Config { ncommitters: 2, ..config(2) }, heap.chunks(CHUNK)).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    let header = durable_log(&mut hdl);
    assert_eq!((hdl.unwitnessed(), hdl.witness().unwrap()), (None, None), "there is nothing to count");
    for &len in lens {
        hdl.write_entry(Txg(1), &vec![7; len], Wait::Fail).unwrap();
    }
    assert_eq!(hdl.unwitnessed(), hdl.last_entry());
    let witness = hdl.witness().unwrap().expect("there is something to count");
    hdl.start_generation().unwrap();
    assert_eq!((hdl.unwitnessed(), hdl.witness().unwrap()), (None, None), "it was counted");
    let mut entries = Vec::new();
    for chunk in heap.chunks(CHUNK) {
        let start = fastness_pmem::Medium::region_offset(&chunk) as usize;
        let found: Vec<_> = Traversal::new(&chunk).collect();
        assert!(found.iter().all(|entry| entry.header.id != witness) || found.len() == 1, "it is apart");
        let records = found.into_iter().filter(|entry| entry.header.id != witness);
        entries.extend(
            records.map(|entry| (start + entry.offset, vec![7; entry.header.body_len_bytes as usize])),
        );
    }
    assert_eq!(entries.len(), lens.len());
    Written { heap, header, entries }
}

/// A flush after it starts a generation, as one right after a witness does.
#[test]
fn what_was_written_between_a_witness_and_a_flush_is_counted() {
    let heap = Heap::new(vec![0; CHUNK * 4]);
    let prb = Prb::format(config(2), heap.chunks(CHUNK)).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    durable_log(&mut hdl);
    hdl.write_entry(Txg(1), &[7; 20], Wait::Fail).unwrap();
    assert!(hdl.witness().unwrap().is_some());
    hdl.write_entry(Txg(1), &[8; 20], Wait::Fail).unwrap();
    hdl.start_generation().unwrap();
    assert!(hdl.unwitnessed().is_some());
    assert!(hdl.witness().unwrap().is_some(), "nothing else counts the second entry");
}

/// The last free chunk is for records, and what has synced needs no witness.
#[test]
fn a_witness_takes_no_room_that_records_need() {
    let heap = Heap::new(vec![0; CHUNK * 2]);
    let prb = Prb::format(Config { ncommitters: 2, ..config(2) }, heap.chunks(CHUNK)).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    durable_log(&mut hdl);
    hdl.write_entry(Txg(1), &[7; 900], Wait::Fail).unwrap();
    assert_eq!((prb.free_chunks(), hdl.witness().unwrap()), (1, None));
    hdl.write_entry(Txg(1), &[7; 900], Wait::Fail).unwrap();
    prb.collect(Txg(1)).unwrap();
    assert_eq!((prb.free_chunks(), hdl.unwitnessed(), hdl.witness().unwrap()), (2, None, None));
}

/// The same of headers that are the last of their chunks, each chunk's only one: nothing is behind them, and
/// of the last generation nothing counts them.
#[test]
fn a_flipped_bit_of_the_last_header_is_told_with_its_place() {
    for checksum in ChecksumKind::ALL {
        let mut written = write_log(&Config { checksum, ..config(2) }, &[900, 1000], 2);
        for (number, (offset, _)) in written.entries.clone().into_iter().enumerate() {
            for bit in offset * 8..(offset + HEADER_BYTES) * 8 {
                written.heap.flip(bit);
                let mut import = open(&written);
                let hidden = hidden(&import, &written).unwrap_or_else(|| panic!("bit {bit} of {number}"));
                let Hidden::Damage { end } = hidden else { panic!("{hidden:?}") };
                assert_eq!((end.region_offset, end.entries), (offset as u64, 0));
                assert!(hidden.to_string().contains(&format!("{offset:#x}")), "{hidden}");
                // Another log is told only if it cannot be ruled out; so it is with its own entries of older
                // txgs.
                let is_certain = matches!(end.end, End::Damaged(Some(_)));
                let tails = import.prb.chunk_tails(Txg(1));
                let other = LogGuid::from_bytes([7; 16]).unwrap();
                assert_eq!(tails.iter().any(|tail| tail.hides(other).is_some()), !is_certain, "bit {bit}");
                let log = log_of(&written.header);
                let later = import.prb.chunk_tails(Txg(2));
                assert_eq!(later.iter().any(|tail| tail.hides(log).is_some()), !is_certain, "bit {bit}");
                // With consent, what is left is replayed.
                let kept = import.hdl.claim(Txg(1), OnLoss::DropTail).unwrap().entries;
                assert_eq!(kept, number);
                written.heap.flip(bit);
            }
        }
        // Claimed once, the log knows its entries exactly.
        let update = open(&written).hdl.claim(Txg(1), OnLoss::Fail).unwrap().update;
        written.header = update.unwrap().into_header();
        written.heap.flip(written.entries[1].0 * 8);
        assert!(open(&written).hdl.claim(Txg(1), OnLoss::Fail).is_err());
    }
}

/// What is after a damaged header is missed only as long as it is needed: entries of synced txgs there ask
/// nobody for consent.
#[test]
fn old_entries_after_the_damaged_end_of_a_chunk_are_no_loss() {
    let written = write_log(&config(2), &[20, 30, 40], 1);
    let log = log_of(&written.header);
    let whole = written.heap.bytes();
    let found = |first_txg| {
        let mut import = open(&written);
        let hidden = import.prb.chunk_tails(first_txg).iter().find_map(|tail| tail.hides(log));
        (hidden, import.hdl.claim(first_txg, OnLoss::Fail))
    };
    for (offset, _) in &written.entries[..2] {
        for bit in offset * 8..(offset + HEADER_BYTES) * 8 {
            written.heap.flip(bit);
            let (needed, _) = found(Txg(1));
            let Some(Hidden::Behind { end, .. }) = needed else { panic!("bit {bit}: {needed:?}") };
            let (old, claimed) = found(Txg(2));
            // Nobody can say whose header it was if what says so is damaged.
            let is_certain = matches!(end.end, End::Damaged(Some(_)));
            assert_eq!(old, (!is_certain).then_some(Hidden::Damage { end }), "bit {bit}");
            assert_eq!(claimed.unwrap().entries, 0);
            written.heap.flip(bit);
        }
        written.heap.fill(*offset..offset + 64, 0);
        assert!(matches!(found(Txg(1)).0, Some(Hidden::Behind { .. })));
        let (old, claimed) = found(Txg(2));
        assert_eq!((old, claimed.unwrap().entries), (None, 0));
        written.heap.edit(|bytes| bytes.copy_from_slice(&whole));
    }
}

/// Behind an insertion with one fence anything may stand that was there before, even a header of an earlier
/// use with a flipped bit; an entry of this use is told as any other.
#[test]
fn with_one_fence_what_was_there_before_is_no_damage() {
    let config = Config { checksum: ChecksumKind::Xxh3, insertion: Insertion::OneFence, ..config(2) };
    let written = write_log(&config, &[20, 30], 1);
    let [first, second] = [0, 1].map(|index| written.entries[index].0);
    let image = written.heap.bytes();
    let header = Traversal::new(&written.heap.chunks(CHUNK)[0]).nth(1).unwrap().header;
    for bit in second * 8..(second + HEADER_BYTES) * 8 {
        written.heap.flip(bit);
        assert!(is_told(&written), "bit {bit} of an entry of this use");
        // The same of another use: an old entry, or what looks like it in an old body.
        let old = EntryHeader { epoch: header.epoch ^ 0x5555, ..header }.encode();
        written.heap.edit(|bytes| bytes[second..][..HEADER_BYTES].copy_from_slice(&old));
        written.heap.flip(bit);
        assert!(!is_told(&written), "bit {bit} of an entry of an earlier use");
        written.heap.edit(|bytes| bytes.copy_from_slice(&image));
    }
    // Any bytes of an old body.
    let junk: Vec<u8> = (0..HEADER_BYTES).map(|at| (at * 37 + 11) as u8 | 1).collect();
    written.heap.edit(|bytes| bytes[second..][..HEADER_BYTES].copy_from_slice(&junk));
    assert!(!is_told(&written));
    // Where emptying has fenced zeroes, they are damage.
    written.heap.edit(|bytes| bytes[first..][..HEADER_BYTES].copy_from_slice(&junk));
    assert!(is_told(&written));
}

/// What cannot be told from a crash: words of the last header of a chunk that are zero. Of all others it is
/// told.
#[test]
fn words_that_turn_to_zeroes_are_told_but_in_the_last_header() {
    let written = write_log(&config(2), &[20, 30, 40], 1);
    for (number, (offset, _)) in written.entries.iter().enumerate() {
        for lines in [1..2, 0..1, 3..4, 0..4] {
            let before = written.heap.bytes();
            written.heap.fill(offset + lines.start * 64..offset + lines.end * 64, 0);
            assert_eq!(is_told(&written), number < 2, "{lines:?} of entry {number}");
            written.heap.edit(|bytes| bytes.copy_from_slice(&before));
        }
    }
}

/// How many of the entries (each in a generation of its own) survive damage to this byte.
fn survivors(written: &Written, byte: usize) -> usize {
    // Damaged padding costs nothing.
    let hit =
        |(offset, body): &(usize, Vec<u8>)| (*offset..offset + HEADER_BYTES + body.len()).contains(&byte);
    // A damaged header hides the rest of its chunk; a damaged body is dropped with all that depends on it.
    written.entries.iter().position(hit).unwrap_or(written.entries.len())
}

#[test]
fn strict_claim_reports_the_damage_with_its_place() {
    let written = write_log(&config(2), &[20, 30, 40], 1);
    let (second, _) = written.entries[1];
    // In a body.
    written.heap.flip((second + HEADER_BYTES) * 8);
    let mut import = open(&written);
    let error = import.hdl.claim(Txg(1), OnLoss::Fail).unwrap_err();
    let at = (second + HEADER_BYTES) as u64;
    assert_eq!(
        error,
        ClaimError::Body { id: EntryId::new(2, 1), source: BodyError::Checksum { region_offset: at } }
    );
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    // Cured, the same log can be claimed again.
    written.heap.flip((second + HEADER_BYTES) * 8);
    assert_eq!(import.hdl.claim(Txg(1), OnLoss::Fail).unwrap().entries, 3);
}

#[test]
fn a_hole_in_the_middle_names_the_witness() {
    // Entries of 1000 bytes: one to a chunk.
    let written = write_log(&config(2), &[1000; 4], 4);
    let (second, _) = written.entries[1];
    written.heap.fill(second..second + HEADER_BYTES, 0);
    let mut import = open(&written);
    let error = import.hdl.claim(Txg(1), OnLoss::Fail).unwrap_err();
    let mismatch = CounterMismatch { txg: Txg(1), expected: 2, found: 1 };
    let witness = Witness::Entry(EntryId::new(3, 1));
    assert_eq!(error, ClaimError::Log(LogError::MissingEntries { witness, mismatch }));
    let claimed = import.hdl.claim(Txg(1), OnLoss::DropTail).unwrap();
    assert_eq!((claimed.entries, claimed.dropped, claimed.loss), (1, 2, Some(error)));
    let (found, result) = replay(&mut import.hdl);
    assert_eq!((found.len(), result.unwrap().entries), (1, 1));
}

#[test]
fn poison_is_reported_and_hides_what_lies_behind_it() {
    let written = write_log(&config(2), &[20, 30, 40], 1);
    let (second, _) = written.entries[1];
    written.heap.poison(second + 64..second + 128);
    let mut import = open(&written);
    let ends = import.prb.chunk_ends();
    assert_eq!((ends[0].entries, ends[0].region_offset), (1, second as u64));
    assert!(ends[0].end.is_damage());
    // The tail is gone and nothing counts it: claim cannot know. That is why the ends are reported.
    assert_eq!(import.hdl.claim(Txg(1), OnLoss::Fail).unwrap().entries, 1);

    // Poison in a body.
    let written = write_log(&config(2), &[20, 30, 40], 1);
    let (second, _) = written.entries[1];
    written.heap.poison(second + HEADER_BYTES..second + HEADER_BYTES + 1);
    let error = open(&written).hdl.claim(Txg(1), OnLoss::Fail).unwrap_err();
    assert!(matches!(error, ClaimError::Body { source: BodyError::Poison(at), .. }
        if at.region_offset == (second + HEADER_BYTES) as u64));
}

/// A header whose checksum fits is believed only as far as the chunk goes.
#[test]
fn a_body_that_reaches_beyond_the_chunk_ends_it() {
    let written = write_log(&config(2), &[20], 1);
    let chunk = written.heap.chunks(CHUNK).remove(0);
    let found = Traversal::new(&chunk).next().unwrap();
    let traverse = |body_len_bytes: u64| {
        let header = EntryHeader { body_len_bytes, ..found.header };
        written.heap.edit(|bytes| bytes[..HEADER_BYTES].copy_from_slice(&header.encode()));
        let mut traversal = Traversal::new(&chunk);
        (traversal.by_ref().count(), traversal.end().unwrap())
    };
    let room = (CHUNK - HEADER_BYTES) as u64;
    assert_eq!(traverse(room), (1, End::Full));
    for len in [room + 1, room + 64, room + 65, 1 << 30, (1 << 40) - 64, (1 << 40) - 1] {
        assert_eq!(traverse(len), (0, End::OutOfBounds), "{len}");
    }
}

/// With one fence, a crash may leave a new entry in front of what stood there in an earlier use of the chunk.
/// That is obsolete, or part of an old body: then it may be anything, even what looks like an entry of this
/// log.
#[test]
fn an_entry_of_an_earlier_use_ends_the_chunk() {
    let config = Config { checksum: ChecksumKind::Xxh3, insertion: Insertion::OneFence, ..config(2) };
    let heap = Heap::new(vec![0; CHUNK]);
    let prb = Prb::format(config, heap.chunks(CHUNK)).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    durable_log(&mut hdl);
    hdl.write_entry(Txg(1), &[1; 20], Wait::Fail).unwrap();
    hdl.write_entry(Txg(1), &[2; 20], Wait::Fail).unwrap();
    let before = heap.bytes();
    assert_eq!(prb.collect(Txg(1)).unwrap().chunks, 1);
    hdl.write_entry(Txg(2), &[3; 20], Wait::Fail).unwrap();
    let chunk = heap.chunks(CHUNK).remove(0);
    let mut traversal = Traversal::new(&chunk);
    assert_eq!((traversal.by_ref().count(), traversal.end()), (1, Some(End::Empty)));
    let end = traversal.offset();
    // The empty header behind the new entry did not arrive.
    heap.edit(|bytes| bytes[end..].copy_from_slice(&before[end..]));
    let mut traversal = Traversal::new(&chunk);
    assert_eq!((traversal.by_ref().count(), traversal.end()), (1, Some(End::Stale)));
}

/// Nothing depends on the last entry; only the seal of the first claim knows of it.
#[test]
fn an_entry_lost_between_two_claims_is_noticed_by_the_seal() {
    let mut written = write_log(&config(2), &[20, 30, 40], 1);
    let claimed = open(&written).hdl.claim(Txg(1), OnLoss::Fail).unwrap();
    written.header = claimed.update.unwrap().into_header();
    let (last, _) = written.entries[2];
    written.heap.fill(last..last + HEADER_BYTES, 0);
    let mut import = open(&written);
    let error = import.hdl.claim(Txg(1), OnLoss::Fail).unwrap_err();
    let mismatch = CounterMismatch { txg: Txg(1), expected: 3, found: 2 };
    let witness = Witness::Seal(EntryId::new(4, 1));
    assert_eq!(error, ClaimError::Log(LogError::MissingEntries { witness, mismatch }));
    let claimed = import.hdl.claim(Txg(1), OnLoss::DropTail).unwrap();
    assert_eq!((claimed.entries, claimed.loss), (2, Some(error)));
    assert!(replay(&mut import.hdl).1.is_ok());
}

/// Damage between claim and replay (online corruption, thesis 5.7).
#[test]
fn damage_after_claim_stops_replay_and_replay_goes_on_when_it_is_cured() {
    let damages: [fn(&Heap, usize); 3] = [
        |heap, offset| heap.flip((offset + HEADER_BYTES) * 8),
        |heap, offset| heap.flip(offset * 8),
        |heap, offset| heap.poison(offset..offset + 8),
    ];
    for damage in damages {
        let written = write_log(&config(2), &[20, 30, 40], 1);
        let (second, _) = written.entries[1];
        let mut import = open(&written);
        let _ = import.hdl.claim(Txg(1), OnLoss::Fail).unwrap();
        damage(&written.heap, second);
        let (found, result) = replay(&mut import.hdl);
        assert_eq!(found.len(), 1);
        assert!(matches!(result, Err(ReplayError::Callback { id, .. }) if id == EntryId::new(2, 1)));
        assert_eq!(import.hdl.replay_done(Txg(2)), Err(Misuse::ReplayNotFinished));
        written.heap.cure();
        if replay(&mut import.hdl).1.is_err() {
            damage(&written.heap, second); // a second flip undoes the first
            assert!(replay(&mut import.hdl).1.is_ok());
        }
        assert_eq!(import.hdl.last_entry(), Some(EntryId::new(3, 1)));
        let _ = import.hdl.replay_done(Txg(2)).unwrap();
    }
}

#[test]
fn the_rest_of_a_log_that_cannot_be_replayed_can_be_abandoned() {
    let written = write_log(&config(2), &[20, 30, 40], 1);
    let mut import = open(&written);
    let _ = import.hdl.claim(Txg(1), OnLoss::Fail).unwrap();
    written.heap.flip((written.entries[1].0 + HEADER_BYTES) * 8);
    assert!(replay(&mut import.hdl).1.is_err());
    import.prb.finish_claiming().unwrap();
    assert_eq!(import.hdl.destroy_log(Txg(3)).unwrap().into_header(), HdlHeader::NoZil);
    assert_eq!(import.prb.collect(Txg(2)).unwrap().chunks, 0);
    assert_eq!(import.prb.collect(Txg(3)).unwrap().chunks, 1);

    // An unclaimed log is abandoned by tearing it down.
    let written = write_log(&config(2), &[20, 30, 40], 1);
    let import = open(&written);
    import.hdl.teardown(Some(Txg(3)));
    import.prb.finish_claiming().unwrap();
    assert_eq!(import.prb.collect(Txg(3)).unwrap().chunks, 1);
}

/// Entries are written in one generation; more gaps than a header can hold are left behind.
#[test]
fn too_many_gaps_in_the_last_generation_are_an_error_or_cost_its_end() {
    let count = 2 * GAPS_MAX + 10;
    let heap = Heap::new(vec![0; CHUNK * count]);
    let prb = Prb::format(config(2), heap.chunks(CHUNK)).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    let header = durable_log(&mut hdl);
    for i in 0..count {
        hdl.write_entry(Txg(1), &[i as u8; 1500], Wait::Fail).unwrap();
    }
    for chunk in (1..count).step_by(2) {
        heap.fill(chunk * CHUNK..chunk * CHUNK + 64, 0);
    }
    let written = Written { heap, header, entries: Vec::new() };
    let mut import = open(&written);
    let error = import.hdl.claim(Txg(1), OnLoss::Fail).unwrap_err();
    assert_eq!(error, ClaimError::TooManyGaps { generation: Generation(1), max: GAPS_MAX });
    let claimed = import.hdl.claim(Txg(1), OnLoss::DropTail).unwrap();
    assert_eq!((claimed.entries, claimed.gaps), (GAPS_MAX + 1, GAPS_MAX as u64));
    assert_eq!(replay(&mut import.hdl).0.len(), GAPS_MAX + 1);
}

/// PM does not report write errors; the read-back at collection does.
#[test]
fn a_chunk_that_lost_what_was_written_is_found_when_it_is_collected() {
    type Damage = (fn(&Heap), &'static str);
    let damages: [Damage; 5] = [
        (|heap| heap.flip(8), "header"),
        (|heap| heap.flip((HEADER_BYTES + 3) * 8), "body"),
        (|heap| heap.fill(0..HEADER_BYTES, 0), "lost store"),
        (|heap| heap.poison(0..64), "poison"),
        (|heap| heap.flip((HEADER_BYTES + 40) * 8), "padding"),
    ];
    for (damage, what) in damages {
        let heap = Heap::new(vec![0; CHUNK * 2]);
        let prb = Prb::format(config(2), heap.chunks(CHUNK)).unwrap();
        let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
        let _ = durable_log(&mut hdl);
        hdl.write_entry(Txg(1), &[1; 20], Wait::Fail).unwrap();
        hdl.write_entry(Txg(1), &[2; 20], Wait::Fail).unwrap();
        hdl.write_entry(Txg(2), &[3; 1500], Wait::Fail).unwrap();
        damage(&heap);
        let collected = prb.collect(Txg(1)).unwrap();
        assert_eq!((collected.chunks, collected.faults.len()), (0, 1), "{what}: {collected:?}");
        assert_eq!(prb.stats().media_faults, 1);
        // The chunk is not used again. When no other is left, writers are told so instead of waiting.
        heap.cure();
        heap.flip(CHUNK * 8);
        let error = hdl.write_entry(Txg(3), &[4; 1500], Wait::Fail).unwrap_err();
        assert!(matches!(error, WriteError::NoFreeChunk));
        assert_eq!(prb.collect(Txg(2)).unwrap().faults.len(), 1);
        let error = hdl.write_entry(Txg(3), &[4; 1500], Wait::Block).unwrap_err();
        assert!(matches!(error, WriteError::NoUsableChunk));
        assert_eq!(error.kind(), ErrorKind::MediaFailed);
    }
}

/// A page that turned to zeroes, in front of entries of any size: it looks as if the chunk were not in use.
#[test]
fn a_chunk_without_its_first_page_is_no_silent_loss() {
    const CHUNK: usize = 1 << 20;
    for (first, txg) in [(100, 2), (9_000, 2), (70_000, 2), (200_000, 2), (70_000, 1)] {
        let heap = Heap::new(vec![0; 2 * CHUNK]);
        let prb = Prb::format(config(9), heap.chunks(CHUNK)).unwrap();
        let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
        let header = durable_log(&mut hdl);
        hdl.write_entry(Txg(txg), &vec![7; first], Wait::Fail).unwrap();
        // Those of older txgs are not needed; one behind them is.
        hdl.write_entry(Txg(txg), &[8; 5_000], Wait::Fail).unwrap();
        hdl.write_entry(Txg(2), &[9; 5_000], Wait::Fail).unwrap();
        let HdlHeader::Logging { log } = header else { panic!("{header:?}") };
        let hidden = |zeroed: usize| {
            let mut image = heap.bytes();
            image[..zeroed].fill(0);
            let heap = Heap::new(image);
            let prb = Prb::open(config(9), heap.chunks(CHUNK)).unwrap();
            let _hdl = prb.setup_hdl(&header).unwrap();
            prb.chunk_tails(Txg(2)).iter().find_map(|tail| tail.hides(log))
        };
        assert_eq!(hidden(0), None, "{first}");
        let found = hidden(4096);
        assert!(matches!(found, Some(Hidden::Behind { .. })), "{first}, {txg}: {found:?}");
    }
}
