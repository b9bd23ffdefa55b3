//! What an import found, noted for users.

use fastness_store::{Local, LogConfig, PoolLog, RegionConfig, ReplayReport, Store};

use crate::durability::GivenUp;
use crate::journal::Journal;

/// Notes what became of a pool's log, and returns what was given up.
pub(crate) fn note(store: &Store, source: &Local<'_>, report: &ReplayReport, journal: &Journal) -> GivenUp {
    let pool = store.pool();
    if store.log().is_none() {
        // A log on vdevs was not read either.
        journal.warn("the log is not replayed into a read-only pool: synchronous writes of the last seconds may be missing");
        return GivenUp::Nothing;
    }
    note_replay(report, journal);
    let known = source.known();
    let now = PoolLog::config(&pool).unwrap_or_default();
    for region in now.regions.iter().filter(|region| region.is_out && !is_out(known, region)) {
        journal.warn(format!("nothing is lost, but the log goes on without {}", region.path.display()));
    }
    if known.in_use().next().is_none() {
        for region in &known.regions {
            journal.warn(format!(
                "the log's region {} was lost in use, and nothing that only it had is missing: the log is on the pool's vdevs now",
                region.path.display()
            ));
        }
    }
    match (report.is_forgotten, report.damaged) {
        _ if source.is_earlier_copy() => GivenUp::Later,
        (true, _) => GivenUp::Log,
        (false, 1..) => GivenUp::Tail,
        (false, 0) => GivenUp::Nothing,
    }
}

fn note_replay(report: &ReplayReport, journal: &Journal) {
    if report.records > 0 {
        let (records, datasets) = (report.records, report.datasets);
        journal
            .note(format!("{records} logged changes of {datasets} volumes and file systems were replayed"));
    }
    if report.dropped > 0 {
        journal.fail(format!("{} logged changes were given up", report.dropped));
    }
    if report.damaged > 0 {
        journal.fail(format!("{} logs were damaged: what came after the damage is lost", report.damaged));
    }
    for (side, entries) in report.sides.entries.iter().enumerate().filter(|(_, entries)| **entries > 0) {
        journal.warn(format!(
            "{entries} log entries were missing on side {side} of the log's mirror, {} of them by damage; they are there again",
            report.sides.damaged[side]
        ));
    }
    for (dataset, kind) in &report.unknown {
        journal.warn(format!(
            "{dataset} is a dataset of kind {kind}, which this program does not know: it is left as it is, with its log"
        ));
    }
}

fn is_out(config: &LogConfig, region: &RegionConfig) -> bool {
    config.regions.iter().any(|known| known.id == region.id && known.is_out)
}
