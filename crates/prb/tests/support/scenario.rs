//! A log on recorded PM that marks what it owes its owner.

use fastness_pm_model::{Persistence, RecordStyle, Recorder, Trace};
use fastness_pmem::Medium;
use fastness_prb::*;

use super::{Record, config, durable_log};

pub const CHUNK: usize = 1280;

/// What an import must find after a crash.
#[derive(Debug, Clone, Default)]
pub struct Expectation {
    pub header: HdlHeader,
    pub first_txg: u64,
    /// Acknowledged and not obsolete, in replay order.
    pub records: Vec<Record>,
    /// Being written.
    pub in_flight: Option<Record>,
}

impl Expectation {
    pub fn is_met_by(&self, found: &[Record]) -> bool {
        let (acknowledged, rest) = found.split_at(self.records.len().min(found.len()));
        acknowledged == self.records
            && (rest.is_empty() || self.in_flight.as_ref().is_some_and(|record| rest == [record.clone()]))
    }
}

/// A log on recorded PM, and the history of what it owes its owner.
pub struct Scenario<M: Medium + Sync> {
    pub recorder: Recorder,
    pub prb: std::sync::Arc<Prb<M>>,
    pub hdl: Hdl<M>,
    pub now: Expectation,
    pub history: Vec<Expectation>,
}

#[derive(Debug, Clone, Copy)]
pub struct Variant {
    pub checksum: ChecksumKind,
    pub insertion: Insertion,
    pub style: RecordStyle,
    /// Bytes of one store; pieces of one store are not ordered.
    pub store_bytes: usize,
    pub persistence: Persistence,
}

pub const NT: Variant = Variant {
    checksum: ChecksumKind::Crc32c,
    insertion: Insertion::TwoFences,
    style: RecordStyle::NonTemporal,
    store_bytes: 64,
    persistence: Persistence::Adr,
};

impl<M: Medium + Sync> Scenario<M> {
    /// A formatted PRB with a log whose header is durable. What is recorded begins behind that.
    pub fn new(
        variant: Variant,
        region_bytes: usize,
        initial: u8,
        chunks: impl Fn(&Recorder) -> Vec<M>,
    ) -> Self {
        let image = vec![initial; region_bytes];
        let recorder = Recorder::with_store_bytes(image, variant.style, variant.store_bytes);
        let Variant { checksum, insertion, .. } = variant;
        let config = Config { checksum, insertion, verify_collected: false, ..config(3) };
        let prb = Prb::format(config, chunks(&recorder)).unwrap();
        let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
        let header = durable_log(&mut hdl);
        let now = Expectation { header, first_txg: 1, ..Expectation::default() };
        let mut scenario = Self { recorder, prb, hdl, now, history: Vec::new() };
        scenario.mark();
        scenario
    }

    pub fn mark(&mut self) {
        self.recorder.mark(self.history.len() as u64);
        self.history.push(self.now.clone());
    }

    pub fn write(&mut self, txg: u64, len: usize) {
        // Zeroes in the middle: long bodies tear at both ends, and the images can still be enumerated.
        let salt = self.history.len() * 31;
        let byte = |i| if i < 12 || i + 12 >= len { (salt + i) as u8 | 1 } else { 0 };
        let body: Vec<u8> = (0..len).map(byte).collect();
        self.now.in_flight = Some((txg, body.clone()));
        self.mark();
        // Those of more than a line in two parts, as volumes write them.
        if len > 64 {
            let (front, rest) = body.split_at(64);
            self.hdl.start_generation().unwrap();
            self.hdl.write_entry_parts(Txg(txg), [front, rest], Wait::Fail).unwrap();
        } else {
            self.hdl.write_dependent_entry(Txg(txg), &body, Wait::Fail).unwrap();
        }
        self.now.in_flight = None;
        self.now.records.push((txg, body));
        self.mark();
    }

    /// As of a log that is idle: nothing that the owner must find, or may.
    pub fn witness(&mut self) {
        self.hdl.witness().unwrap().expect("there is something to count");
        assert_eq!(self.hdl.witness().unwrap(), None, "once");
        self.mark();
    }

    /// The pool has synced `txg`: its entries are obsolete before the log hears of it.
    pub fn collect(&mut self, txg: u64) -> usize {
        self.now.first_txg = txg + 1;
        self.now.records.retain(|(of, _)| *of > txg);
        self.mark();
        let collected = self.prb.collect(Txg(txg)).unwrap();
        self.mark();
        collected.chunks
    }

    pub fn finish(self) -> (Trace, Vec<Expectation>) {
        (self.recorder.trace(), self.history)
    }
}
