//! The life of a log after a crash that came with damage: setup, claim, replay, its end, collection, reuse.
#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use arbitrary::Arbitrary;
use fastness_fuzz::{Damage, Layout, assert_inside, body};
use fastness_prb::{
    BodyError, Entry, EntryId, Hdl, HdlHeader, HeaderUpdate, OnLoss, Prb, ReplayError, Txg, Wait, Written,
};
use fastness_testkit::{Heap, HeapRange};
use libfuzzer_sys::fuzz_target;

const CHUNK: usize = 2048;

#[derive(Debug, Arbitrary)]
enum Step {
    Write { len: u16, dependent: bool, older: u8 },
    NextTxg,
    Sync,
}

#[derive(Debug, Arbitrary)]
struct Input {
    layout: Layout,
    chunks: u8,
    steps: Vec<Step>,
    drop_tail: bool,
    before_claim: Damage,
    after_claim: Damage,
    /// After so many entries, replay is interrupted and begins anew by the last header.
    interrupt: u8,
    /// Ends by destroying the log, whatever replay says.
    destroy: bool,
}

/// A log as it was when the crash came.
struct Crashed {
    heap: Heap,
    header: HdlHeader,
    synced: u64,
    /// Every entry that was ever written.
    written: BTreeMap<EntryId, (Txg, Vec<u8>)>,
}

fn write(input: &Input) -> Crashed {
    let count = 2 + usize::from(input.chunks) % 3;
    let heap = Heap::new(vec![0; CHUNK * count]);
    let prb = Prb::format(input.layout.config(1), heap.chunks(CHUNK)).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    let header = hdl.create_log().unwrap().unwrap().into_header();
    hdl.header_synced().unwrap();
    let mut crashed = Crashed { heap, header, synced: 0, written: BTreeMap::new() };
    let mut open = 1;
    for (number, step) in input.steps.iter().take(60).enumerate() {
        match *step {
            Step::Write { len, dependent, older } => {
                let body = body(number, usize::from(len) % 900);
                let txg = Txg((open - u64::from(older % 3).min(open - 1)).max(crashed.synced + 1));
                let result = if dependent {
                    hdl.write_dependent_entry(txg, &body, Wait::Fail)
                } else {
                    hdl.write_entry(txg, &body, Wait::Fail)
                };
                if let Ok(Written::Entry(id)) = result {
                    crashed.written.insert(id, (txg, body));
                }
            }
            Step::NextTxg => open = (open + 1).min(crashed.synced + 3),
            Step::Sync => {
                crashed.synced += 1;
                open = open.max(crashed.synced + 1);
                let collected = prb.collect(Txg(crashed.synced)).unwrap();
                assert!(collected.faults.is_empty(), "{collected:?}");
            }
        }
    }
    crashed
}

struct Import {
    prb: Arc<Prb<HeapRange>>,
    hdl: Hdl<HeapRange>,
}

fn import(input: &Input, crashed: &Crashed, header: &HdlHeader) -> Import {
    let prb = Prb::open(input.layout.config(2), crashed.heap.chunks(CHUNK)).unwrap();
    prb.chunk_ends().iter().for_each(|end| assert_inside(end.end));
    let hdl = prb.setup_hdl(header).unwrap();
    Import { prb, hdl }
}

/// The owner that entries are replayed to, over several imports; it judges them.
struct Owner<'a> {
    crashed: &'a Crashed,
    forged: bool,
    /// Entries that it takes before it fails.
    left: usize,
    replayed: Vec<EntryId>,
    header: HdlHeader,
}

impl Owner<'_> {
    /// Takes an entry; `None` is its own failure.
    fn take(&mut self, entry: &Entry<'_, HeapRange>, update: HeaderUpdate) -> Result<(), Option<BodyError>> {
        self.left = self.left.checked_sub(1).ok_or(None)?;
        let mut found = vec![0; entry.body_len_bytes()];
        match entry.read_body(&mut found) {
            Ok(()) | Err(BodyError::Padding { .. }) => {}
            Err(BodyError::BufferTooSmall { .. }) => panic!("the buffer has the length that the entry says"),
            Err(error) => return Err(Some(error)),
        }
        assert!(self.replayed.last().is_none_or(|last| *last < entry.id()), "out of order, or twice");
        self.replayed.push(entry.id());
        if !self.forged {
            let (txg, body) = self.crashed.written.get(&entry.id()).expect("nobody wrote this entry");
            assert_eq!((entry.txg(), &found), (*txg, body));
            assert!(entry.txg().0 > self.crashed.synced, "an obsolete entry");
        }
        self.header = update.into_header();
        Ok(())
    }
}

fuzz_target!(|input: Input| {
    let crashed = write(&input);
    input.before_claim.apply(&crashed.heap);
    let whole = input.before_claim.is_none() && input.after_claim.is_none();
    let sync_txg = Txg(crashed.synced + 1);
    let mut owner = Owner {
        crashed: &crashed,
        forged: input.before_claim.reseal || input.after_claim.reseal,
        left: usize::from(input.interrupt),
        replayed: Vec::new(),
        header: crashed.header.clone(),
    };
    let policy = if input.drop_tail { OnLoss::DropTail } else { OnLoss::Fail };
    loop {
        let mut now = import(&input, &crashed, &owner.header);
        match now.hdl.claim(sync_txg, policy) {
            Ok(claimed) => owner.header = claimed.update.expect("a log was claimed").into_header(),
            Err(error) => {
                assert!(!whole, "nothing was damaged: {error}");
                return end(now, sync_txg, true);
            }
        }
        now.prb.finish_claiming().unwrap();
        input.after_claim.apply(&crashed.heap);
        let result = now.hdl.replay(|entry, update| owner.take(&entry, update));
        if let Err(ReplayError::Callback { source: None, .. }) = result {
            // The next import goes on where this one was interrupted.
            owner.left = usize::MAX;
            continue;
        }
        if whole {
            assert!(result.is_ok(), "{result:?}");
            let needed = crashed.written.iter().filter(|(_, (txg, _))| *txg >= sync_txg);
            assert_eq!(owner.replayed, needed.map(|(id, _)| *id).collect::<Vec<_>>());
        }
        if result.is_ok() && !input.destroy {
            let _ = now.hdl.replay_done(sync_txg).unwrap();
        } else {
            let _ = now.hdl.destroy_log(sync_txg).unwrap();
        }
        return end(now, sync_txg, false);
    }
});

/// Every chunk comes back, and takes a log again.
fn end(import: Import, sync_txg: Txg, abandon: bool) {
    let Import { prb, hdl } = import;
    hdl.teardown(abandon.then_some(sync_txg));
    prb.finish_claiming().unwrap();
    let all = prb.collect(sync_txg).unwrap().chunks;
    assert_eq!(prb.free_chunks(), all);
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    let _ = hdl.create_log().unwrap();
    hdl.header_synced().unwrap();
    hdl.write_entry(Txg(sync_txg.0 + 1), b"after", Wait::Fail).unwrap();
    drop(hdl);
    assert_eq!(prb.close().unwrap().len(), all);
}
