//! How often what was met, so that a run cannot pass without meeting it.

use fastness_testkit::media::Failing;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $seeds:literal,)*) => {
        #[derive(Debug, Default)]
        pub struct Met {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Met {
            /// Name, how often, and in how many seeds it must happen.
            fn all(&self) -> Vec<(&'static str, u64, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed), $seeds),)*]
            }
        }
    };
}

counters! {
    cuts: 60,
    deaths: 60,
    exports: 60,
    cuts_of_imports: 60,
    cuts_of_changes: 60,
    replayed: 60,
    /// Records with the address of their data: committed, replayed.
    indirect: 60,
    indirect_replayed: 200,
    /// Changes that did not get into the log at once.
    unlogged: 60,
    left_nothing: 60,
    left_part: 60,
    left_all: 60,
    to_pmem: 60,
    to_lwb: 60,
    vdevs_removed: 60,
    mirrors: 60,
    sides_changed: 60,
    sides_lost: 60,
    sides_back: 60,
    /// Rare: the power must fail between a record's header and its fence. `crates/prb/tests/mirror.rs` goes
    /// there.
    sides_repaired: 2000,
    blocks_of_512: 60,
    blocks_of_128k: 60,
    /// Closed with nothing to lose, and otherwise.
    closed_clean: 60,
    closed_unflushed: 60,
    opened: 60,
    /// A flush that was the first of an opening.
    flushed_after_opening: 60,
    /// Through another handle than the write before.
    two_clients: 60,
    destroyed: 60,
    made_again: 60,
    made_thick: 60,
    made_sparse: 60,
    /// All others had taken what they got.
    squeezed: 100,
    /// Changes of thick volumes that waited for what was being freed.
    thick_again: 10_000,
    grown: 60,
    shrunk: 60,
    snapshots: 60,
    snapshots_gone: 60,
    rolled_back: 60,
    cloned: 60,
    promoted: 60,
    /// For a snapshot of the name that another one would get.
    promotions_refused: 2000,
    /// The power failed within one, and it was made, or not.
    promotions_cut: 1000,
    received: 60,
    increments_received: 400,
    /// Streams that went on, that were discarded, and that ended early or in a crash and were kept.
    streams_resumed: 200,
    streams_aborted: 400,
    streams_kept: 60,
    streams_kept_in_crash: 200,
    /// The power failed within the last step of one, which was made.
    received_in_crash: 2000,
    /// What a stream would go on from was destroyed.
    sources_gone: 4000,
    filled: 60,
    full_pools: 60,
    no_space: 60,
    /// Of full pools: txgs, imports with replay, changes of parts of blocks.
    synced_full: 60,
    replayed_full: 200,
    zeroed_full: 60,
    log_mirrors: 60,
    /// Several clients at one time.
    races: 60,
    /// The power failed just when one of them was told that its change is durable.
    cuts_after_fua: 60,
    trimmed: 60,
    trimmed_full: 60,
    /// Beside txgs and clients.
    trims_raced: 60,
    scrubs: 60,
    scrubs_full: 200,
    /// Steps while a scrub or resilver walked.
    beside_scrub: 60,
    attached: 200,
    replaced: 60,
    detached: 200,
    offline: 200,
    resilvered: 200,
    resilvered_full: 200,
    data_added: 200,
    /// Faults by kind; what they did.
    fail_reads: 60,
    fail_writes: 60,
    fail_torn: 200,
    fail_flushes: 60,
    fail_gone: 200,
    fail_no_room: 200,
    /// Txgs that synced although a device refused what was new.
    elsewhere: 2000,
    failed_steps: 60,
    suspended: 60,
    cleared: 60,
    cleared_full: 1500,
    /// Imports that a device made fail, and that succeeded later.
    refused_for_faults: 200,
    /// Sides that call each other stale: one is left out.
    splits: 20_000,
    regions_cut: 60,
    /// Rare: see `World::was_cut`.
    regions_refused: 20_000,
    copies: 60,
    /// Devices that were put back as they had been, by kind; what came of it.
    stale_disks: 200,
    stale_sides: 200,
    stale_log_vdevs: 4000,
    stale_regions: 200,
    stale_refused: 200,
    stale_harmless: 60,
    /// Flipped bits: in log blocks, in entries, on one side of a mirror; what came of it.
    flips_in_blocks: 60,
    flips_in_entries: 60,
    flips_on_one_side: 200,
    flips_refused: 60,
    flips_harmless: 200,
    /// Logs that have fallen idle; parts of idle logs that have turned to zeroes.
    idle: 60,
    zeroed_in_logs: 200,
    /// Changes, syncs and races of files; lives after which all of them was there, or not; clears.
    files_changed: 60,
    files_synced: 60,
    files_written_through: 60,
    files_raced: 60,
    /// Bytes of files that the log alone had, and that were read there.
    files_in_log: 100,
    files_lost_some: 60,
    files_lost_none: 60,
    files_cleared: 200,
}

impl Met {
    pub fn faults_of(&self, how: Failing) -> &AtomicU64 {
        match how {
            Failing::Reads => &self.fail_reads,
            Failing::Writes => &self.fail_writes,
            Failing::Torn => &self.fail_torn,
            Failing::Flushes => &self.fail_flushes,
            Failing::Gone => &self.fail_gone,
            Failing::NoRoom => &self.fail_no_room,
        }
    }

    /// What never happened in a run of so many seeds, and should have.
    pub fn missing(&self, seeds: u64) -> Vec<&'static str> {
        let is_missing = |(_, count, least): &(_, u64, u64)| *count == 0 && *least <= seeds;
        self.all().into_iter().filter(is_missing).map(|(name, ..)| name).collect()
    }

    /// For people, in lines.
    pub fn table(&self) -> String {
        let cells: Vec<String> =
            self.all().iter().map(|(name, count, ..)| format!("{name:<24}{count:>9}")).collect();
        cells.chunks(3).map(|cells| cells.join("   ")).collect::<Vec<_>>().join("\n")
    }
}

pub fn note(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
