//! Random histories against a reference model: several logs, several txgs, syncs, crashes at any store (also
//! during claim, replay and collection), and imports that crash again.
//!
//! The model is the owner of the logs: a set of records per dataset, each applied in a txg. A crash keeps
//! what was applied in synced txgs; import must bring back every acknowledged record exactly once, in the
//! order in which dependent records were written, and at most the one that was in flight besides.

mod support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use fastness_pm_model::{Config as Model, Machine, RecordStyle, Recorder, RecordingRange};
use fastness_prb::*;
use proptest::prelude::*;
use support::*;

const CHUNK: usize = 2048;
const CHUNKS: usize = 8;
const DATASETS: usize = 3;

#[derive(Debug, Clone)]
enum Step {
    Write {
        dataset: usize,
        txg_age: u64,
        len: usize,
        dependent: bool,
    },
    OpenTxg,
    Sync,
    /// Replays up to `limit` entries of a log that waits for it, or goes on with its life cycle.
    Mount {
        dataset: usize,
        limit: usize,
    },
    /// Crashes inside of the step that follows it, at a part of its operations.
    CrashInNext {
        part: u64,
        seed: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let write = (0..DATASETS, 0..3u64, prop_oneof![0..80usize, 200..700usize], any::<bool>())
        .prop_map(|(dataset, txg_age, len, dependent)| Step::Write { dataset, txg_age, len, dependent });
    prop_oneof![
        40 => write,
        2 => Just(Step::OpenTxg),
        3 => Just(Step::Sync),
        2 => (0..DATASETS, 0..6usize).prop_map(|(dataset, limit)| Step::Mount { dataset, limit }),
        2 => (0..1000u64, any::<u64>()).prop_map(|(part, seed)| Step::CrashInNext { part, seed }),
    ]
}

/// What the owner keeps of a dataset.
#[derive(Debug, Default)]
struct Dataset {
    /// Records in the dataset, and the txg in which each was applied.
    applied: BTreeMap<u64, Txg>,
    /// Acknowledged by the log (or by a sync).
    acknowledged: Vec<u64>,
    /// Written when a crash came: may be there or not.
    in_flight: Option<u64>,
    /// The header as of the last synced txg, and the updates that wait for theirs.
    header: HdlHeader,
    queued: Vec<(Txg, HdlHeader)>,
    /// The txg whose sync makes the log writable.
    log_durable_in: Option<Txg>,
}

impl Dataset {
    fn queue(&mut self, txg: Txg, update: HeaderUpdate) {
        self.queued.push((txg, update.into_header()));
    }

    fn synced(&mut self, txg: Txg) {
        for (_, header) in self.queued.extract_if(.., |(of, _)| *of <= txg) {
            self.header = header;
        }
    }

    /// What a crash leaves of the owner's state.
    fn crashed(&mut self, synced: Txg) {
        self.applied.retain(|_, txg| *txg <= synced);
        self.queued.clear();
        self.log_durable_in = None;
    }
}

struct World {
    recorder: Recorder,
    prb: Arc<Prb<RecordingRange>>,
    hdls: Vec<Hdl<RecordingRange>>,
    datasets: Vec<Dataset>,
    open: u64,
    synced: u64,
    next_record: u64,
    config: Config,
}

impl World {
    fn new(config: Config) -> Self {
        let recorder = recorder(CHUNK, CHUNKS);
        let prb = Prb::format(config.clone(), chunks(&recorder, CHUNK)).unwrap();
        let hdls = (0..DATASETS).map(|_| prb.setup_hdl(&HdlHeader::NoZil).unwrap()).collect();
        let datasets = (0..DATASETS).map(|_| Dataset::default()).collect();
        Self { recorder, prb, hdls, datasets, open: 1, synced: 0, next_record: 1, config }
    }

    /// Runs a step; true if a record of this dataset was being written.
    fn run(&mut self, step: &Step) -> Option<usize> {
        match *step {
            Step::Write { dataset, txg_age, len, dependent } => self.write(dataset, txg_age, len, dependent),
            Step::OpenTxg => {
                self.open = (self.open + 1).min(self.synced + UNSYNCED_TXGS);
                None
            }
            Step::Sync => {
                self.sync();
                None
            }
            Step::Mount { dataset, limit } => {
                self.mount(dataset, limit);
                None
            }
            Step::CrashInNext { .. } => None,
        }
    }

    fn write(&mut self, of: usize, txg_age: u64, len: usize, dependent: bool) -> Option<usize> {
        // A log that cannot be written gets on with its life instead.
        match (self.hdls[of].state(), self.datasets[of].log_durable_in) {
            ("logging", None) => {}
            ("logging", Some(_)) => {
                self.sync();
                return None;
            }
            _ => {
                self.mount(of, usize::MAX);
                return None;
            }
        }
        let (hdl, dataset) = (&mut self.hdls[of], &mut self.datasets[of]);
        let txg = Txg(self.open.saturating_sub(txg_age).max(self.synced + 1));
        let record = self.next_record;
        self.next_record += 1;
        let mut body = record.to_le_bytes().to_vec();
        body.resize(8 + len, record as u8);
        let written = if dependent {
            hdl.write_dependent_entry(txg, &body, Wait::Fail)
        } else {
            hdl.write_entry(txg, &body, Wait::Fail)
        };
        match written {
            Ok(Written::Entry(_)) => {
                dataset.applied.insert(record, txg);
                dataset.acknowledged.push(record);
                Some(of)
            }
            Err(WriteError::NoFreeChunk) => None,
            other => panic!("{other:?}"),
        }
    }

    fn sync(&mut self) {
        self.synced += 1;
        self.open = self.open.max(self.synced + 1);
        self.datasets.iter_mut().for_each(|dataset| dataset.synced(Txg(self.synced)));
        let collected = self.prb.collect(Txg(self.synced)).unwrap();
        assert!(collected.faults.is_empty());
        for (hdl, dataset) in self.hdls.iter_mut().zip(&mut self.datasets) {
            if dataset.log_durable_in.is_some_and(|txg| txg.0 <= self.synced) {
                hdl.header_synced().unwrap();
                dataset.log_durable_in = None;
            }
        }
    }

    fn mount(&mut self, of: usize, limit: usize) {
        let (hdl, dataset, txg) = (&mut self.hdls[of], &mut self.datasets[of], Txg(self.open));
        match hdl.state() {
            "nozil" => {
                let update = hdl.create_log().unwrap().unwrap();
                dataset.queue(txg, update);
                dataset.log_durable_in = Some(txg);
            }
            "replaying" => {
                let (mut left, mut last) = (limit, 0);
                let result = hdl.replay(|entry, update| {
                    if left == 0 {
                        return Err("enough");
                    }
                    left -= 1;
                    let record = u64::from_le_bytes(body_of(&entry).unwrap()[..8].try_into().unwrap());
                    assert!(record > last, "replay order is the order of writing");
                    last = record;
                    assert_eq!(
                        dataset.applied.insert(record, txg),
                        None,
                        "record {record} is replayed twice"
                    );
                    dataset.queue(txg, update);
                    Ok(())
                });
                match result {
                    Ok(_) => {
                        let update = hdl.replay_done(txg).unwrap();
                        dataset.queue(txg, update);
                        Self::check(dataset);
                    }
                    Err(ReplayError::Callback { source: "enough", .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            _ => {}
        }
    }

    /// Everything acknowledged is there, and nothing else but perhaps what was in flight.
    fn check(dataset: &mut Dataset) {
        let mut expected = dataset.acknowledged.clone();
        if let Some(record) = dataset.in_flight.take().filter(|record| dataset.applied.contains_key(record)) {
            expected.push(record);
            dataset.acknowledged.push(record);
        }
        expected.sort_unstable();
        assert_eq!(dataset.applied.keys().copied().collect::<Vec<_>>(), expected);
    }

    /// Runs `step`, crashes after a part of its PM operations, and imports what is left.
    fn crash_in(self, step: &Step, part: u64, seed: u64) -> Self {
        let mut dying = self;
        let before = dying.recorder.op_count();
        let wrote = dying.run(step);
        let operations = (dying.recorder.op_count() - before) as u64;
        let cut = before + (operations * part / 999) as usize;
        if let Some(of) = wrote.filter(|_| cut < before + operations as usize) {
            let dataset = &mut dying.datasets[of];
            let record = dataset.acknowledged.pop().expect("it was written");
            // An earlier crash's record is settled once the log was replayed, which it was: it is writable.
            assert_eq!(dataset.in_flight.replace(record), None);
        }
        let trace = dying.recorder.trace();
        let mut machine = Machine::new(trace.initial, Model::default());
        trace.ops[..cut].iter().for_each(|op| machine.apply(op).unwrap());
        let mut image = Vec::new();
        let mut nth = seed % 5;
        machine.sample_crash_images(seed, 5, &mut |sample| {
            image = sample.to_vec();
            nth = nth.wrapping_sub(1);
            if nth == u64::MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        dying.import(image)
    }

    fn import(self, image: Vec<u8>) -> Self {
        let Self { mut datasets, synced, next_record, config, .. } = self;
        datasets.iter_mut().for_each(|dataset| dataset.crashed(Txg(synced)));
        let recorder = Recorder::new(image, RecordStyle::NonTemporal);
        let prb = Prb::open(config.clone(), chunks(&recorder, CHUNK)).unwrap();
        let mut hdls = Vec::new();
        for dataset in &mut datasets {
            let header = HdlHeader::decode(&dataset.header.encode()).unwrap();
            let mut hdl = prb.setup_hdl(&header).unwrap();
            let claimed = hdl.claim(Txg(synced + 1), OnLoss::Fail).unwrap();
            assert_eq!(claimed.reappeared, 0);
            if let Some(update) = claimed.update {
                dataset.queue(Txg(synced + 1), update);
            }
            hdls.push(hdl);
        }
        prb.finish_claiming().unwrap();
        Self { recorder, prb, hdls, datasets, open: synced + 1, synced, next_record, config }
    }

    /// Mounts and syncs until every log is writable again, which checks every dataset.
    fn settle(mut self) {
        for _ in 0..8 {
            (0..DATASETS).for_each(|of| self.mount(of, usize::MAX));
            self.sync();
        }
        assert!(self.hdls.iter().all(|hdl| hdl.state() == "logging"));
        self.datasets.iter_mut().for_each(Self::check);
    }
}

fn run(steps: &[Step], config: Config) {
    let mut world = World::new(config);
    let mut crash = None;
    for step in steps {
        match (step, crash.take()) {
            (Step::CrashInNext { part, seed }, _) => crash = Some((*part, *seed)),
            (step, Some((part, seed))) => world = world.crash_in(step, part, seed),
            (step, None) => {
                world.run(step);
            }
        }
    }
    world.crash_in(&Step::OpenTxg, 0, 0).settle();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn histories_with_crashes_lose_nothing_and_replay_nothing_twice(
        steps in prop::collection::vec(step(), 1..250),
        strong in any::<bool>(),
        one_fence in any::<bool>(),
    ) {
        let checksum = if strong { ChecksumKind::Xxh3 } else { ChecksumKind::Crc32c };
        let insertion = if strong && one_fence { Insertion::OneFence } else { Insertion::TwoFences };
        run(&steps, Config { checksum, insertion, ..config(11) });
    }
}
