//! Whole tests of file systems: traced by the plug-in, recovered in guests, reported.

use std::path::Path;

use fastness_crashcheck::guest::Snapshot;
use fastness_crashcheck::report::Report;
use fastness_crashcheck::run::{FileTest, GuestSetting, ImagesConfig, file_systems, run_in_guest};
use fastness_crashcheck::tracer::Programs;

/// hello-world on `system`, with these images.
fn hello_world(snapshot: &Snapshot, folder: &Path, system: &str, images: &ImagesConfig) -> Report {
    let systems = file_systems(include_str!("../../suite/file-systems.toml")).unwrap();
    let test = FileTest::parse(include_str!("../../suite/hello-world.toml")).unwrap();
    let symbols = snapshot.kernel_symbols().unwrap();
    let setting = GuestSetting {
        snapshot,
        plugin: &Programs::default().find_plugin().unwrap_or_else(|error| panic!("{error}")),
        trace: &folder.join("trace"),
        work: &folder.join("work"),
        threads: 2,
        has_stacks: false,
        images,
        symbols: Some(&symbols),
        progress: &|_, _| (),
    };
    let report = run_in_guest(system, &test, &systems[system], &setting);
    report.unwrap_or_else(|error| panic!("{system}: {error}"))
}

/// Sectors of ext4's journal tear (`docs/crashcheck-results.md`): what was lost was stored by functions that have names.
pub(crate) fn named(snapshot: &Snapshot, folder: &Path) {
    let symbols = snapshot.kernel_symbols().unwrap();
    for module in ["[ext4]", "[xfs]", "[jbd2]", "[nd_pmem]"] {
        assert!(symbols.text().contains(module), "{module}");
    }
    assert_eq!(snapshot.kernel_symbols().unwrap().text(), symbols.text(), "kept");
    let images = ImagesConfig { per_point: 4, reads: false, ..ImagesConfig::default() };
    let report = hello_world(snapshot, folder, "ext4-dax", &images);
    let evidence = report.operations.iter().flat_map(|operation| &operation.findings);
    let lines = evidence.flat_map(|finding| &finding.evidence).flat_map(|evidence| &evidence.lost);
    let lost: Vec<_> = lines.flat_map(|line| &line.stores).filter(|store| store.fate != "kept").collect();
    assert!(!lost.is_empty(), "{report:?}");
    // The driver of PM copies blocks with this.
    assert!(lost.iter().any(|store| store.at.contains(" __memcpy_flushcache+0x")), "{lost:?}");
    assert!(lost.iter().all(|store| store.at.contains("+0x")), "{lost:?}");
}
