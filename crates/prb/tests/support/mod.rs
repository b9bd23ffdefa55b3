//! What the tests of the PM log share: a PRB on recorded PM, and an import that says what it recovered.

#![allow(dead_code, unreachable_pub)] // Each test binary uses its part.

pub mod scenario;

use fastness_pm_model::{RecordStyle, Recorder, RecordingRange};
use fastness_prb::*;
use fastness_testkit::{Heap, SeededEntropy};

pub fn config(seed: u64) -> Config {
    Config {
        ncommitters: 1,
        alignment: Alignment::Line,
        entropy: SeededEntropy::new(seed),
        ..Config::default()
    }
}

/// The chunks of a recorded region, all of `chunk_bytes`.
pub fn chunks(recorder: &Recorder, chunk_bytes: usize) -> Vec<RecordingRange> {
    let len = recorder.image().len();
    (0..len / chunk_bytes).map(|i| recorder.range(i * chunk_bytes, chunk_bytes)).collect()
}

pub fn recorder(chunk_bytes: usize, count: usize) -> Recorder {
    Recorder::new(vec![0; chunk_bytes * count], RecordStyle::NonTemporal)
}

/// An entry as its owner sees it.
pub type Record = (u64, Vec<u8>);

pub fn body_of<M: fastness_pmem::Medium + Sync>(entry: &Entry<'_, M>) -> Result<Vec<u8>, BodyError> {
    let mut body = vec![0; entry.body_len_bytes()];
    entry.read_body(&mut body)?;
    Ok(body)
}

/// Everything that can go wrong in an import.
#[derive(Debug)]
#[allow(dead_code)] // Printed by assertions.
pub enum ImportError {
    Hidden(Hidden),
    Claim(ClaimError),
    Replay(ReplayError<BodyError>),
}

/// Imports an image after a crash: one log, claimed with `first_txg`, replayed to the end.
pub fn import(
    image: &[u8],
    chunk_bytes: usize,
    header: &HdlHeader,
    first_txg: u64,
) -> Result<Vec<Record>, ImportError> {
    import_chunks(Heap::new(image.to_vec()).chunks(chunk_bytes), header, first_txg)
}

/// The records among what an [`import`] found, if none of them is empty; witnesses are.
#[allow(dead_code)] // Not every test writes witnesses.
pub fn without_witnesses(found: Result<Vec<Record>, ImportError>) -> Result<Vec<Record>, ImportError> {
    found.map(|found| found.into_iter().filter(|(_, body)| !body.is_empty()).collect())
}

/// As [`import`], of chunks on whatever medium.
pub fn import_chunks<M: fastness_pmem::Medium + Sync>(
    chunks: Vec<M>,
    header: &HdlHeader,
    first_txg: u64,
) -> Result<Vec<Record>, ImportError> {
    let prb = Prb::open(config(99), chunks).expect("the geometry is right");
    let mut hdl = prb.setup_hdl(header).expect("one log");
    // As owners do: after a claim, what was given up may be anywhere.
    if let HdlHeader::Logging { log } = header
        && let Some(hidden) = prb.chunk_tails(Txg(first_txg)).iter().find_map(|tail| tail.hides(*log))
    {
        return Err(ImportError::Hidden(hidden));
    }
    hdl.claim(Txg(first_txg), OnLoss::Fail).map_err(ImportError::Claim)?;
    prb.finish_claiming().expect("the only log is claimed");
    let mut records = Vec::new();
    hdl.replay(|entry, _update| {
        records.push((entry.txg().0, body_of(&entry)?));
        Ok(())
    })
    .map_err(ImportError::Replay)?;
    Ok(records)
}

pub fn durable_log<M: fastness_pmem::Medium + Sync>(hdl: &mut Hdl<M>) -> HdlHeader {
    let update = hdl.create_log().expect("nozil").expect("a new log");
    hdl.header_synced().expect("logging");
    update.into_header()
}
