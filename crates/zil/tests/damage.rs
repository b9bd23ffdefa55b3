//! Every record of a log is damaged in turn, in its header, its head and its data: claim and replay do
//! exactly what `docs/format.md` and `docs/semantics.md` say, and what they say is computed here from the
//! undamaged medium.

#[path = "damage/blocks.rs"]
mod blocks;
#[macro_use]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use fastness_prb::{EntryHeader, HEADER_BYTES, HdlHeader, LogGuid, Traversal};
use fastness_zil::record::{HEAD_BYTES, Record};
use fastness_zil::*;
use support::*;

const OTHER: DatasetId = DatasetId(8);
/// Room for the write of a step.
const STEP_BYTES: usize = 3072;

/// What is done to the medium.
#[derive(Debug, Clone)]
enum Damage {
    Flip {
        byte: usize,
        bit: u8,
    },
    Zero(Range<usize>),
    /// Other bytes from here on.
    Replaced {
        at: usize,
        bytes: Vec<u8>,
    },
    Both(Box<[Damage; 2]>),
    /// Kind pmem.
    Poison(usize),
}

impl Damage {
    fn flip(byte: usize) -> Self {
        Self::Flip { byte, bit: 1 << (byte % 8) }
    }

    fn first_byte(&self) -> usize {
        match self {
            Self::Flip { byte, .. } | Self::Poison(byte) => *byte,
            Self::Zero(range) => range.start,
            Self::Replaced { at, .. } => *at,
            Self::Both(both) => both[0].first_byte(),
        }
    }

    fn apply(&self, bytes: &mut [u8]) {
        match self {
            Self::Flip { byte, bit } => bytes[*byte] ^= bit,
            Self::Zero(range) => bytes[range.clone()].fill(0),
            Self::Replaced { at, bytes: other } => bytes[*at..*at + other.len()].copy_from_slice(other),
            Self::Both(both) => both.iter().for_each(|damage| damage.apply(bytes)),
            Self::Poison(_) => {}
        }
    }
}

/// What the documentation says of one dataset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Outcome {
    /// Whether the claim is refused.
    is_refused: bool,
    /// Steps whose records are replayed, with consent if it is refused.
    replayed: Vec<usize>,
}

type Outcomes = BTreeMap<DatasetId, Outcome>;

/// An undamaged medium and the pool of that time.
struct Case<R> {
    rig: R,
    bytes: Vec<u8>,
    /// The medium a while before.
    earlier: Vec<u8>,
    disk: Disk,
}

fn case<R: Kinds>() -> Case<R> {
    case_of(false)
}

/// Two datasets with a few dozen records of many sizes: of a synced txg, and of two that are not. In the end
/// the logs are idle for a while, or in use.
fn case_of<R: Kinds>(is_idle: bool) -> Case<R> {
    let rig = R::rig();
    let world = rig.world(Contents::volume(1, 36 * STEP_BYTES));
    let tx = world.pool.tx();
    world.pool.apply(&tx, OTHER, &Op::Create("a", 1)).unwrap();
    world.pool.apply(&tx, OTHER, &Op::Truncate(1, 36 * STEP_BYTES)).unwrap();
    world.logs.create(&world.pool, &tx, OTHER).unwrap();
    drop(tx);
    let (other, logs) = (zil(&world, OTHER), Arc::downgrade(&world.logs));
    let zils = [Arc::downgrade(&world.zil), Arc::downgrade(&other)];
    world.pool.hook(move |txg| {
        logs.upgrade().into_iter().for_each(|logs| logs.synced(txg));
        zils.iter().filter_map(std::sync::Weak::upgrade).for_each(|zil| zil.txg_synced(txg));
    });
    world.pool.sync();
    let mut earlier = Vec::new();
    for step in 0..36usize {
        match step {
            20 => earlier = rig.image(),
            // So that entries that are needed stand behind some that are not.
            10 => world.pool.open_next(),
            12 => world.pool.sync(),
            24 => world.pool.open_next(),
            _ => {}
        }
        let (dataset, zil) = if step % 3 == 1 { (OTHER, &other) } else { (DATASET, &world.zil) };
        let op = Op::Write(1, step * STEP_BYTES, data(step));
        let tx = world.pool.tx();
        world.pool.apply(&tx, dataset, &op).unwrap();
        if step % 4 == 3 {
            zil.log_write(tx.txg, ObjectId(1), (step * STEP_BYTES) as u64, &data(step), false);
            drop(tx);
            // Some volumes' writes share a generation, some have one of their own.
            if step % 8 == 3 {
                zil.flush().unwrap();
            }
        } else {
            zil.assign(tx.txg, itx(&op));
            drop(tx);
            zil.commit(ObjectId(1)).unwrap();
        }
    }
    world.zil.flush().unwrap();
    other.flush().unwrap();
    if is_idle {
        for zil in [&world.zil, &other] {
            assert!(zil.kind().witness());
        }
    }
    let bytes = rig.image();
    Case { rig, bytes, earlier, disk: world.pool.disk() }
}

fn zil<L: Logs>(world: &World<L>, dataset: DatasetId) -> Arc<Zil<PoolRef, L::Log>> {
    Arc::new(Zil::new(dataset, Arc::new(world.pool.clone()), world.logs.get(dataset).unwrap()))
}

fn data(step: usize) -> Vec<u8> {
    vec![step as u8 + 1; [8, 700, 16, 1500, 90, 3000][step % 6]]
}

/// The step that made a change, whole.
fn step_of(op: &Op) -> usize {
    let Op::Write(1, offset, written) = op else { panic!("{op:?}") };
    let step = offset / STEP_BYTES;
    assert!(*written == data(step), "step {step}");
    step
}

fn step_of_record(bytes: &[u8]) -> usize {
    let (head, record) = Record::decode(bytes).unwrap();
    step_of(&op_of(&head, &record, &Contents::default()))
}

/// How a kind's medium is damaged, and what the documentation says about it.
trait Kinds: Rig {
    /// How many of the damages may cost something without a word: all that `expected` says, and no more than
    /// there are now.
    const SILENT_MAX: usize;
    /// A medium with room for all, and little more: it is copied for each damage.
    fn rig() -> Self;
    fn damages(case: &Case<Self>) -> Vec<Damage>;
    fn expected(case: &Case<Self>, damage: &Damage) -> Outcomes;
    fn damaged(case: &Case<Self>, damage: &Damage) -> Self;
}

fn first_txg<R>(case: &Case<R>) -> Txg {
    Txg(case.disk.synced + 1)
}

/// Imports, gives up what is refused, replays.
fn found<R: Kinds>(case: &Case<R>, damage: &Damage) -> Outcomes {
    let rig = R::damaged(case, damage);
    let mut refused = BTreeSet::new();
    let world = World::imported(case.disk.clone(), |pool, first, headers| {
        let choose = &mut |problem: &ClaimProblem| {
            let text = problem.to_string();
            let is_located = text.contains("region offset")
                || text.contains("device 0 at 0x")
                || matches!(
                    problem.cause,
                    ClaimCause::Claim(fastness_prb::ClaimError::Log(
                        fastness_prb::LogError::MissingEntries { .. }
                    ))
                );
            assert!(text.contains(&problem.dataset.to_string()) && is_located, "{damage:?}: {text}");
            refused.insert(problem.dataset);
            Some(Choice::DropTail)
        };
        Ok(rig.claim(pool, first, headers, choose)?.0)
    })
    .unwrap();
    let outcome = |dataset| {
        let mut apply = Apply::new(&world.pool, dataset);
        let log = world.logs.get(dataset).unwrap();
        log.replay(&world.pool, &mut apply).unwrap_or_else(|error| panic!("{damage:?}: {error:?}"));
        (
            dataset,
            Outcome {
                is_refused: refused.contains(&dataset),
                replayed: apply.seen.iter().map(step_of).collect(),
            },
        )
    };
    [DATASET, OTHER].map(outcome).into()
}

on_each_kind! {
    every_record_is_damaged_in_turn
}

fn every_record_is_damaged_in_turn<R: Kinds>() {
    let case = case::<R>();
    let whole = R::expected(&case, &Damage::Zero(0..0));
    let records: usize = whole.values().map(|outcome| outcome.replayed.len()).sum();
    assert_eq!((records, whole.values().any(|outcome| outcome.is_refused)), (26, false));
    let damages = R::damages(&case);
    let (mut refused, mut silent, mut silent_flips) = (0, 0, 0);
    for damage in &damages {
        let expected = R::expected(&case, damage);
        assert_eq!(found(&case, damage), expected, "{damage:?}");
        for (dataset, outcome) in &expected {
            refused += usize::from(outcome.is_refused);
            let is_silent = !outcome.is_refused && outcome.replayed != whole[dataset].replayed;
            silent += usize::from(is_silent);
            silent_flips += usize::from(is_silent && matches!(damage, Damage::Flip { .. }));
        }
    }
    assert!(damages.len() > 400 && refused > 200, "{} {refused}", damages.len());
    // What nothing can tell from a crash: see "Damage that no record shows" in docs/format.md.
    assert!(silent > 0 && silent < R::SILENT_MAX, "{silent} of {}", damages.len());
    assert_eq!(silent_flips, 0, "no flipped bit loses anything in silence");
}

/// Kind pmem: words, lines, headers and whole pages turn into zeroes. While the log is in use that looks like
/// a crash's work if it hits the newest records; of a log that was idle for a while everything is refused.
#[test]
fn an_idle_log_of_kind_pmem_loses_nothing_in_silence() {
    let mut silent = [0, 0];
    for (is_idle, silent) in silent.iter_mut().enumerate() {
        let case = case_of::<PmRig>(is_idle == 1);
        let whole = found(&case, &Damage::Zero(0..0));
        let entries = entries(&case);
        let headers = entries.iter().map(|entry| entry.at).flat_map(|at| {
            [8, 64, HEADER_BYTES]
                .into_iter()
                .flat_map(move |bytes| (at..at + HEADER_BYTES).step_by(bytes).map(move |at| at..at + bytes))
        });
        let pages = (0..case.bytes.len()).step_by(2048).map(|at| at..(at + 4096).min(case.bytes.len()));
        for zeroes in headers.chain(pages).filter(|range| case.bytes[range.clone()].iter().any(|b| *b != 0)) {
            let damage = Damage::Zero(zeroes);
            for (dataset, outcome) in found(&case, &damage) {
                let is_less = outcome.replayed != whole[&dataset].replayed;
                *silent += usize::from(is_less && !outcome.is_refused);
            }
        }
    }
    assert!(silent[0] > 0 && silent[1] == 0, "{silent:?}");
}

/// What looks after logs that are idle: once each, and nothing of those that are written, or out of use.
#[test]
fn logs_of_kind_pmem_are_watched() {
    let rig = PmRig::roomy();
    let world = rig.world(Contents::volume(1, 4096));
    let entries = || world.logs.prb().entries_written();
    world.logs.watch_idle(std::time::Duration::from_millis(2));
    for round in 0..3 {
        let before = entries();
        for at in 0..10 {
            world.volume_write(1, at * 64, &[round + 1; 64]);
        }
        assert!(entries() >= before + 10);
        let begun = std::time::Instant::now();
        while world.zil.kind().witness_is_due() {
            assert!(begun.elapsed().as_secs() < 60, "nobody looked after it");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let idle = entries();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(entries(), idle, "once");
    }
    let replayed = rig.crash(&world).replay().unwrap();
    assert_eq!(replayed.records, 30, "witnesses are no records");
    world.zil.kind().suspend(&world.pool).unwrap();
    assert!(!world.zil.kind().witness());
}

/// An entry of kind pmem.
struct Found {
    at: usize,
    chunk: usize,
    header: EntryHeader,
    body: Range<usize>,
}

impl Found {
    fn is_needed(&self, log: LogGuid, first: Txg) -> bool {
        self.header.log == log && self.header.txg >= first
    }
}

fn entries(case: &Case<PmRig>) -> Vec<Found> {
    let rig = case.rig.with_image(&case.bytes);
    let mut found = Vec::new();
    for (chunk, medium) in rig.heap.chunks(rig.chunk_bytes).iter().enumerate() {
        found.extend(Traversal::new(medium).map(|entry| {
            let at = chunk * rig.chunk_bytes + entry.offset;
            let start = at + HEADER_BYTES;
            let body = start..start + entry.header.body_len_bytes as usize;
            Found { at, chunk, header: entry.header, body }
        }));
    }
    found
}

impl Kinds for PmRig {
    const SILENT_MAX: usize = 50;

    fn rig() -> Self {
        Self::roomy()
    }

    fn damages(case: &Case<Self>) -> Vec<Damage> {
        let of_entry = |entry: Found, number: usize, is_last: bool| {
            // Every bit of the last header of a chunk, which nothing but itself tells of; of the others every
            // seventh, so that all are flipped in some record.
            let (start, end) = (entry.at * 8, entry.body.start * 8);
            let step = if is_last { 1 } else { 7 };
            let bits = (start + number % step..end).step_by(step);
            let header = bits.map(|bit| Damage::Flip { byte: bit / 8, bit: 1 << (bit % 8) });
            // Words of a header that are lost, lines, all of it.
            let zeroes = |bytes: usize| {
                let places = (entry.at..entry.body.start).step_by(bytes);
                places.map(move |at| Damage::Zero(at..at + bytes)).collect::<Vec<_>>()
            };
            let header = header.chain([8, 64, HEADER_BYTES].into_iter().flat_map(zeroes));
            let head = entry.body.clone().take(HEAD_BYTES).step_by(5).map(Damage::flip);
            let data =
                [entry.body.start + HEAD_BYTES, entry.body.start + entry.body.len() / 2, entry.body.end - 1];
            let poisons =
                [entry.at, entry.at + 128, entry.body.start, entry.body.end - 1].map(Damage::Poison);
            header.chain(head).chain(data.map(Damage::flip)).chain(poisons).collect::<Vec<_>>()
        };
        let found = entries(case);
        let chunks: Vec<_> = found.iter().map(|entry| entry.chunk).collect();
        // Obsolete entries are still there, between those that are needed.
        assert!(found.iter().any(|entry| entry.header.txg < first_txg(case)), "{}", found.len());
        let numbered = found.into_iter().enumerate();
        let all = numbered.flat_map(|(number, entry)| {
            let is_last = chunks.get(number + 1) != Some(&entry.chunk);
            of_entry(entry, number, is_last)
        });
        // A word that is not in use and was zero still is.
        all.filter(|damage| match damage {
            Damage::Zero(range) => case.bytes[range.clone()].iter().any(|byte| *byte != 0),
            _ => true,
        })
        .collect()
    }

    fn expected(case: &Case<Self>, damage: &Damage) -> Outcomes {
        let (found, first, at) = (entries(case), first_txg(case), damage.first_byte());
        let hit = found.iter().find(|entry| (entry.at..entry.body.end).contains(&at));
        let hit = hit.filter(|_| !matches!(damage, Damage::Zero(range) if range.is_empty()));
        // Log, txg and epoch, and what tells whether these are as they were written.
        let in_identity = hit.is_some_and(|hit| (0..40).chain(61..63).any(|byte| at == hit.at + byte));
        let in_header = hit.is_some_and(|hit| at < hit.body.start);
        // A header that is damaged hides all that is behind it in the chunk.
        let is_lost = |entry: &Found| match hit {
            Some(hit) if in_header => entry.chunk == hit.chunk && entry.at >= hit.at,
            Some(hit) => entry.at == hit.at,
            None => false,
        };
        let outcome = |dataset: DatasetId| {
            let header = StoredHeader::decode(&case.disk.headers.0[&dataset]).unwrap();
            let HdlHeader::Logging { log } = HdlHeader::decode(header.bytes).unwrap() else { panic!() };
            let mut needed: Vec<_> = found.iter().filter(|entry| entry.is_needed(log, first)).collect();
            needed.sort_by_key(|entry| entry.header.id);
            let lost: Vec<_> = needed.iter().filter(|entry| is_lost(entry)).collect();
            let oldest = lost.iter().map(|entry| entry.header.id.generation).min();
            let is_missed =
                |entry: &&&Found| oldest.is_some_and(|oldest| entry.header.id.generation > oldest);
            let misses = needed.iter().filter(|entry| !is_lost(entry)).any(|entry| is_missed(&entry));
            let is_behind = lost.iter().any(|entry| hit.is_some_and(|hit| entry.at > hit.at));
            let is_certain = match damage {
                // Nobody can say whose header it was.
                Damage::Poison(_) if in_header => true,
                Damage::Flip { .. } if in_identity => true,
                // A crash leaves the same.
                Damage::Zero(_) if in_header => is_behind || misses,
                _ if in_header => is_behind || misses || !lost.is_empty(),
                _ => !lost.is_empty(),
            };
            let kept = needed.iter().filter(|entry| !is_lost(entry) && !is_missed(entry));
            let replayed = kept.map(|entry| step_of_record(&case.bytes[entry.body.clone()])).collect();
            (dataset, Outcome { is_refused: is_certain, replayed })
        };
        [DATASET, OTHER].map(outcome).into()
    }

    fn damaged(case: &Case<Self>, damage: &Damage) -> Self {
        let mut bytes = case.bytes.clone();
        damage.apply(&mut bytes);
        let rig = case.rig.with_image(&bytes);
        if let Damage::Poison(at) = damage {
            rig.heap.poison(*at / 64 * 64..*at / 64 * 64 + 64);
        }
        rig
    }
}
