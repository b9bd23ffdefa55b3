//! File systems that promise that a system call is durable when it returns.

use std::path::Path;

use fastness_crashcheck::guest::{Addition, GuestConfig, Guests, Snapshot};
use fastness_crashcheck::report::{BlocksReport, Report};
use fastness_crashcheck::run::{CrashesInGuests, GuestSetting, ImagesConfig, Suite, run_in_guest};
use fastness_crashcheck::trace::open_trace;
use fastness_crashcheck::tracer::Programs;
use fastness_crashcheck_trace::hypercall::RETURN;
use fastness_crashcheck_trace::{FenceKind, Hypercall, Kind};

/// The letters of each operation of a file system of one word: correct, and with planted bugs.
/// FASTNESS_ONE_WORD names the suite that `scripts/one-word` has made; without it this is not tested.
pub(crate) fn ends_at_returns(snapshot: &Snapshot, folder: &Path) {
    let Some(suite) = std::env::var_os("FASTNESS_ONE_WORD") else {
        println!(
            "SKIPPED: FASTNESS_ONE_WORD is not set; scripts/test-crash-guest sets it where there are headers"
        );
        return;
    };
    let suite = Suite::read(Path::new(&suite)).unwrap();
    // An interrupt between a store and the return would be a fence.
    let mut config = GuestConfig { repeatable: true, ..snapshot.config().clone() };
    let modules = ["one_word.ko".to_owned()].into();
    config.add(&Addition { modules, files: suite.files.clone(), ..Addition::default() }, folder).unwrap();
    let snapshot = Snapshot::boot(&config).unwrap_or_else(|error| panic!("{error}"));
    let symbols = snapshot.kernel_symbols().unwrap();
    let report = |system: &str, depth: usize| {
        let setting = GuestSetting {
            traced: &snapshot,
            guests: &Guests::new(&snapshot, 100),
            plugin: &Programs::default().find_plugin().unwrap_or_else(|error| panic!("{error}")),
            trace: &folder.join(format!("{system}.trace")),
            work: &folder.join("work"),
            threads: 2,
            has_stacks: false,
            images: &ImagesConfig::default(),
            in_recovery: CrashesInGuests { depth, per_point: 16, keep: None },
            exclude: &[],
            symbols: Some(&symbols),
            deadline: None,
            progress: &|_| (),
        };
        let report = run_in_guest(system, &suite.tests[0], &suite.systems[system], &setting);
        report.unwrap_or_else(|error| panic!("{system}: {error}"))
    };
    let letters = |report: &Report| {
        let letters = |operation: &fastness_crashcheck::report::OperationReport| -> String {
            operation.findings.iter().map(|finding| finding.letter).collect()
        };
        report.operations.iter().map(letters).collect::<Vec<_>>()
    };
    for (system, depth, expected) in [
        ("correct", 1, ["", ""]),
        ("no-fence", 0, ["S", "S"]),
        ("no-flush", 0, ["S", "S"]),
        // What the kernel's own fences hide.
        ("no-fence-at-checkpoint", 0, ["", ""]),
        ("log", 2, ["", ""]),
        ("log-no-fence", 0, ["", ""]),
        // A word goes from the log to the disk when the next one is written.
        ("disk", 1, ["", ""]),
        ("disk-no-flush", 0, ["", "A"]),
        ("disk-late", 0, ["", "A"]),
    ] {
        assert_eq!(letters(&report(system, depth)), expected, "{system}, {depth} deep");
    }
    crashes_in_recovery(&report("log-no-fence", 1));
    let disk = report("disk-no-flush", 1);
    let in_recovery = &disk.operations[0].findings[0].evidence[0].in_recovery[0];
    assert_eq!(letters(&disk), ["R", "AR"]);
    let lost = &in_recovery.lost_blocks;
    assert!(matches!(lost[..], [BlocksReport { disk: 0, offset: 0, .. }]), "{lost:?}");
    // After the call the kernel takes a lock, which is a fence (R7) unless the kernel has patched it away.
    let mut trace = open_trace(&folder.join("no-fence.trace")).unwrap();
    let (mut has_returned, mut fences) = (false, Vec::new());
    while let Some(event) = trace.next().unwrap() {
        match event.kind {
            Kind::Hypercall(Hypercall::Other { action: RETURN, .. }) => has_returned = true,
            Kind::Fence(kind) if has_returned => fences.push((kind, event.origin.is_kernel)),
            _ => {}
        }
    }
    assert_eq!(fences.first(), Some(&(FenceKind::Locked, true)), "{fences:?}");
}

/// The mount takes a word from the log before it is where it belongs: a crash of it loses the word.
fn crashes_in_recovery(report: &Report) {
    let totals = report.in_recovery.as_ref().unwrap();
    assert_eq!((totals.recoveries, totals.idle, totals.incomplete), (3, 1, 0), "{totals:?}");
    for operation in &report.operations {
        let [finding] = &operation.findings[..] else { panic!("{operation:?}") };
        assert_eq!(finding.letter, 'R');
        let crash = &finding.evidence[0].in_recovery[0];
        assert!(crash.lost_by == ["replay [one_word]"], "{crash:?}");
    }
}
