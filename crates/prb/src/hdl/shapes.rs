//! Tests the core of recovery on logs of many shapes, drawn as in the thesis: a column is a generation, a row
//! is a txg, an entry is a letter with its gsid. The counters are those that the writer's tracker computes.
//!
//! Each case hides entries, as corruption or a torn chunk would, and states what is replayed and how it ends.
//! Source: zil-pmem thesis, figures 5.2 and 5.3, and 7.2.1.

use super::header::Seal;
use super::resume::{ReplayNode, Sequence, Stop, check_seal, make_seal, resume};
use crate::checksum::ChecksumKind;
use crate::counters::Tracker;
use crate::entry::{Alignment, EntryHeader, Insertion};
use crate::error::{LogError, Witness};
use crate::ids::{EntryId, Generation, Gsid, LogGuid, Txg};

#[derive(Debug, Clone)]
struct Node {
    name: char,
    header: EntryHeader,
}

impl ReplayNode for Node {
    fn header(&self) -> &EntryHeader {
        &self.header
    }

    fn region_offset(&self) -> u64 {
        u64::from(u32::from(self.name)) * 256
    }
}

/// Reads a drawing; the entries are written in replay order, so they carry the counters of a real writer.
fn draw(grid: &str) -> Vec<Node> {
    let mut lines = grid.lines().filter(|line| !line.trim().is_empty());
    let head = lines.next().expect("a line of generations");
    let generations: Vec<u64> = head.split('|').skip(1).map(|cell| cell.trim().parse().unwrap()).collect();
    let mut places = Vec::new();
    for line in lines {
        let mut cells = line.split('|');
        let txg = Txg(cells.next().unwrap().trim().parse().unwrap());
        for (&generation, cell) in generations.iter().zip(cells) {
            for entry in cell.split_whitespace() {
                let (name, gsid) = entry.split_at(1);
                let id = EntryId::new(generation, gsid.parse().unwrap());
                places.push((id, txg, name.chars().next().unwrap()));
            }
        }
    }
    places.sort_unstable();
    let mut tracker = Tracker::default();
    let write = |(id, txg, name): (EntryId, Txg, char)| {
        if id.generation > tracker.last.generation {
            tracker.start_generation(id.generation);
        }
        tracker.count(txg, id.gsid);
        Node { name, header: header(id, txg, &tracker) }
    };
    places.into_iter().map(write).collect()
}

fn header(id: EntryId, txg: Txg, tracker: &Tracker) -> EntryHeader {
    EntryHeader {
        log: LogGuid::from_bytes([1; 16]).unwrap(),
        txg,
        id,
        counters: tracker.counters(),
        body_len_bytes: 0,
        body_checksum: [0; 32],
        checksum_kind: ChecksumKind::Crc32c,
        alignment: Alignment::Line,
        insertion: Insertion::TwoFences,
        epoch: 1,
    }
}

/// How a stage of replay ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    Well,
    /// Entries are missing, as this entry shows.
    MissingSeenBy(char),
    /// Entries are missing, as the seal shows.
    MissingSeenBySeal,
    /// The owner stopped (crashed) before this entry.
    CrashBefore(char),
    /// Two entries have the same place.
    Duplicate,
    /// An entry's txg is impossible.
    Corridor(char),
}
use Ends::*;

struct Run<'a> {
    nodes: &'a [Node],
    first_txg: Txg,
    seal: Option<Seal>,
    state: Tracker,
    replayed: String,
}

impl<'a> Run<'a> {
    fn new(nodes: &'a [Node], first_txg: u64) -> Self {
        Self {
            nodes,
            first_txg: Txg(first_txg),
            seal: None,
            state: Tracker::default(),
            replayed: String::new(),
        }
    }

    /// Claims while `hidden` cannot be seen: seals the others.
    fn claim(mut self, hidden: &str) -> Self {
        let sequence = Sequence::new(self.visible(hidden), self.first_txg, None).unwrap();
        let mut state = Tracker::default();
        resume(&sequence, &mut state, self.first_txg, |_, _| Ok::<_, ()>(()))
            .expect("claim finds a whole log");
        self.seal = make_seal(&sequence, &state);
        assert!(self.seal.is_some());
        self
    }

    fn visible(&self, hidden: &str) -> Vec<Node> {
        self.nodes.iter().filter(|node| !hidden.contains(node.name)).cloned().collect()
    }

    /// One stage of replay, from a fresh scan: `hidden` cannot be seen, and the owner crashes before `crash`.
    fn stage(&mut self, hidden: &str, crash: Option<char>) -> Ends {
        let sequence = match Sequence::new(self.visible(hidden), self.first_txg, self.seal.as_ref()) {
            Ok(sequence) => sequence,
            Err(LogError::Duplicate { .. }) => return Duplicate,
            Err(other) => panic!("{other}"),
        };
        let named = |id| self.nodes.iter().find(|node| node.header.id == id).unwrap().name;
        let (state, replayed) = (&mut self.state, &mut self.replayed);
        let end = resume(&sequence, state, self.first_txg, |node, _| {
            if crash == Some(node.name) {
                return Err(node.name);
            }
            replayed.push(node.name);
            Ok(())
        });
        match end {
            Err(Stop::Callback { source, .. }) => CrashBefore(source),
            Err(Stop::Log(LogError::MissingEntries { witness: Witness::Entry(id), .. })) => {
                MissingSeenBy(named(id))
            }
            Err(Stop::Log(LogError::TxgOutsideCorridor { id, .. })) => Corridor(named(id)),
            Err(Stop::Log(other)) => panic!("{other}"),
            Ok(()) => match self.seal.as_ref().map(|seal| check_seal(seal, &self.state, self.first_txg)) {
                None | Some(Ok(())) => Well,
                Some(Err(_)) => MissingSeenBySeal,
            },
        }
    }
}

/// The log of the thesis's figure 5.2, and shapes named in 7.2.1.
const STAIRS: &str = "
       | 1     | 2     | 3     | 4
    4  | A1 B2 |       |       |
    5  |       | C1 D2 | E1    |
    6  |       |       | F2    | G1
    7  |       |       |       | H2
";
const I_SHAPE: &str = "
       | 10    | 11
    3  | A1    |
    4  | B2    | D1
    5  | C3    |
";
const V_SHAPE: &str = "
       | 1     | 2     | 3     | 4     | 5
    3  |       |       | C1    |       |
    4  |       | B1    |       | D1    |
    5  | A1    |       |       |       | E1
";
const ONE_GENERATION: &str = "
       | 7
    8  | A1 C3
    9  | B2
";
const ONE_TXG: &str = "
       | 1     | 2     | 9
    5  | A1 B2 | C1    | D1 E2
";

/// Replay order and the txg filter: `first_txg` is the txg after the last that synced.
#[test]
fn obsolete_entries_are_not_replayed() {
    for (grid, first_txg, expected) in [
        (STAIRS, 1, "ABCDEFGH"),
        (STAIRS, 5, "CDEFGH"),
        (STAIRS, 6, "FGH"),
        (STAIRS, 7, "H"),
        (STAIRS, 8, ""),
        (I_SHAPE, 3, "ABCD"),
        (I_SHAPE, 4, "BCD"),
        (I_SHAPE, 5, "C"),
        (V_SHAPE, 4, "ABDE"),
        (V_SHAPE, 5, "AE"),
        (ONE_GENERATION, 9, "B"),
        (ONE_TXG, 6, ""),
    ] {
        let nodes = draw(grid);
        for sealed in [false, true] {
            let mut run = Run::new(&nodes, first_txg);
            if sealed {
                run = run.claim("");
            }
            assert_eq!(run.stage("", None), Well, "{grid} from {first_txg}");
            assert_eq!(run.replayed, expected, "{grid} from {first_txg}");
        }
    }
}

/// Entries that vanish between claim and replay: entries that depend on them are not replayed, the others
/// are.
#[test]
fn missing_entries_stop_their_dependents() {
    for (grid, first_txg, hidden, expected, ends) in [
        // The rest of the generation does not depend on the missing entry.
        (I_SHAPE, 1, "A", "BC", MissingSeenBy('D')),
        (I_SHAPE, 1, "ABC", "", MissingSeenBy('D')),
        (I_SHAPE, 1, "C", "AB", MissingSeenBy('D')),
        // Obsolete entries may be missing: they may have been collected.
        (I_SHAPE, 4, "A", "BCD", Well),
        (I_SHAPE, 5, "ABD", "C", Well),
        // The last generation has no later entry as a witness, but it has the seal.
        (I_SHAPE, 1, "D", "ABC", MissingSeenBySeal),
        (ONE_GENERATION, 1, "B", "AC", MissingSeenBySeal),
        (ONE_GENERATION, 1, "ABC", "", MissingSeenBySeal),
        (ONE_GENERATION, 9, "A", "B", Well),
        (V_SHAPE, 3, "A", "", MissingSeenBy('B')),
        (V_SHAPE, 3, "C", "AB", MissingSeenBy('D')),
        (V_SHAPE, 4, "C", "ABDE", Well),
        (V_SHAPE, 3, "E", "ABCD", MissingSeenBySeal),
        (STAIRS, 5, "D", "C", MissingSeenBy('E')),
        (STAIRS, 6, "CDE", "FGH", Well),
        (STAIRS, 6, "F", "", MissingSeenBy('G')),
        // A whole generation is missing.
        (ONE_TXG, 1, "C", "AB", MissingSeenBy('D')),
        (ONE_TXG, 1, "DE", "ABC", MissingSeenBySeal),
        (ONE_TXG, 1, "ABCDE", "", MissingSeenBySeal),
    ] {
        let nodes = draw(grid);
        let mut run = Run::new(&nodes, first_txg).claim("");
        assert_eq!(run.stage(hidden, None), ends, "{grid} without {hidden}");
        assert_eq!(run.replayed, expected, "{grid} without {hidden}");
    }
}

/// Without a seal (as in the thesis) a loss of the tail goes unnoticed; this is what the seal is for.
#[test]
fn without_a_seal_a_cut_tail_goes_unnoticed() {
    let nodes = draw(I_SHAPE);
    let mut run = Run::new(&nodes, 1);
    assert_eq!(run.stage("D", None), Well);
    assert_eq!(run.replayed, "ABC");
}

/// Every stage is a new import: a new scan, the checkpoint from the header.
#[test]
fn replay_resumes_behind_the_last_replayed_entry() {
    type Stage = (&'static str, Option<char>, Ends);
    let cases: &[(&str, u64, &[Stage], &str)] = &[
        (I_SHAPE, 1, &[("", Some('A'), CrashBefore('A')), ("", None, Well)], "ABCD"),
        (
            I_SHAPE,
            1,
            &[("", Some('C'), CrashBefore('C')), ("", Some('D'), CrashBefore('D')), ("", None, Well)],
            "ABCD",
        ),
        // A replayed entry may vanish.
        (I_SHAPE, 1, &[("", Some('B'), CrashBefore('B')), ("A", None, Well)], "ABCD"),
        (I_SHAPE, 1, &[("", Some('D'), CrashBefore('D')), ("ABC", None, Well)], "ABCD"),
        (STAIRS, 1, &[("", Some('G'), CrashBefore('G')), ("ABCDEF", None, Well)], "ABCDEFGH"),
        // One that was not replayed may not.
        (I_SHAPE, 1, &[("", Some('B'), CrashBefore('B')), ("B", None, MissingSeenBy('D'))], "AC"),
        // A missing entry that reappears before its dependents: replay continues.
        (I_SHAPE, 1, &[("D", None, MissingSeenBySeal), ("", None, Well)], "ABCD"),
        (V_SHAPE, 1, &[("B", None, MissingSeenBy('C')), ("", None, Well)], "ABCDE"),
        // One that reappears too late, behind the checkpoint, is skipped: replaying it now would break the
        // order.
        (I_SHAPE, 1, &[("A", None, MissingSeenBy('D')), ("", None, MissingSeenBy('D'))], "BC"),
        (ONE_GENERATION, 1, &[("B", None, MissingSeenBySeal), ("", None, MissingSeenBySeal)], "AC"),
        // All replayed, then a crash before replay was done: nothing is replayed twice.
        (STAIRS, 1, &[("", None, Well), ("", None, Well), ("ABCDEFGH", None, Well)], "ABCDEFGH"),
    ];
    for (grid, first_txg, stages, expected) in cases {
        let nodes = draw(grid);
        let mut run = Run::new(&nodes, *first_txg).claim("");
        for (hidden, crash, ends) in *stages {
            assert_eq!(run.stage(hidden, *crash), *ends, "{grid} without {hidden}");
        }
        assert_eq!(run.replayed, *expected, "{grid}");
    }
}

/// Entries that claim did not see are not replayed: their owner may have given up what they refer to. In the
/// last generation only the seal can identify them; (42, 2) standing in for (42, 1) is the thesis's example
/// (5.7).
#[test]
fn entries_that_reappear_after_claim_are_left_out() {
    for (grid, hidden_at_claim, hidden_at_replay, expected, ends) in [
        (ONE_GENERATION, "B", "", "AC", Well),
        (ONE_GENERATION, "C", "", "AB", Well),
        (ONE_GENERATION, "AB", "", "C", Well),
        // One lost, another one back: the count alone would match.
        (ONE_GENERATION, "B", "A", "C", MissingSeenBySeal),
        (ONE_GENERATION, "B", "C", "A", MissingSeenBySeal),
        // Whole generations after the seal.
        (STAIRS, "GH", "", "ABCDEF", Well),
        (V_SHAPE, "E", "", "ABCD", Well),
        (V_SHAPE, "DE", "", "ABC", Well),
        (ONE_TXG, "D", "", "ABCE", Well),
        (ONE_TXG, "ABCDE", "", "", Well),
    ] {
        let nodes = draw(grid);
        let mut run = Run::new(&nodes, 1).claim(hidden_at_claim);
        assert_eq!(run.stage(hidden_at_replay, None), ends, "{grid}");
        assert_eq!(run.replayed, expected, "{grid} {hidden_at_claim} back, {hidden_at_replay} gone");
    }
}

#[test]
fn two_entries_at_one_place_are_an_error() {
    let mut nodes = draw(I_SHAPE);
    nodes[1].header.id = nodes[0].header.id;
    assert_eq!(Run::new(&nodes, 1).stage("", None), Duplicate);
    // Not if they are obsolete.
    assert_eq!(Run::new(&nodes, 5).stage("", None), Well);
}

/// A writer refuses such entries; replay must notice if one did not.
#[test]
fn a_txg_outside_of_the_corridor_is_an_error() {
    let mut nodes = draw(ONE_TXG);
    nodes[4].header.txg = Txg(2);
    let mut run = Run::new(&nodes, 1);
    assert_eq!(run.stage("", None), Corridor('E'));
    assert_eq!(run.replayed, "ABCD");
}

/// An extra entry is detected like a missing one.
#[test]
fn a_forged_entry_makes_its_dependents_stop() {
    let mut nodes = draw(I_SHAPE);
    let forged = Node { name: 'X', header: EntryHeader { id: EntryId::new(10, 77), ..nodes[2].header } };
    nodes.push(forged);
    let mut run = Run::new(&nodes, 1);
    assert_eq!(run.stage("", None), MissingSeenBy('D'));
}

#[test]
fn the_seal_is_the_entry_behind_the_last() {
    let nodes = draw(I_SHAPE);
    let seal = Run::new(&nodes, 1).claim("").seal.unwrap();
    assert_eq!((seal.id, seal.last_gsid), (EntryId { generation: Generation(12), gsid: Gsid(1) }, Gsid(1)));
    assert_eq!((seal.counters.newest, seal.counters.counts), (Txg(5), [1, 2, 1]));
}
