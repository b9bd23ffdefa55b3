//! Whole tests of file systems: traced by the plug-in, recovered in guests, reported.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use fastness_crashcheck::fuzz::{Fuzz, FuzzedFileSystem, Totals};
use fastness_crashcheck::guest::{Guests, Restore, Snapshot};
use fastness_crashcheck::report::Report;
use fastness_crashcheck::run::{
    CrashesInGuests, FileSystem, GuestSetting, ImagesConfig, Suite, run_in_guest,
};
use fastness_crashcheck::trace::open_trace;
use fastness_crashcheck::tracer::Programs;
use fastness_crashcheck_trace::{Hypercall, Kind, Reader};

use super::TIMEOUT;

/// hello-world on `system`, with these images; `change` may change how it is mounted and so on.
fn hello_world(
    snapshot: &Snapshot,
    folder: &Path,
    system: &str,
    images: &ImagesConfig,
    change: impl Fn(&mut FileSystem),
) -> Report {
    let mut suite = Suite::built_in().unwrap();
    suite.systems.entry(system.to_owned()).and_modify(change);
    let symbols = snapshot.kernel_symbols().unwrap();
    std::fs::create_dir_all(folder).unwrap();
    let setting = GuestSetting {
        traced: snapshot,
        guests: &Guests::new(snapshot, 100),
        plugin: &Programs::default().find_plugin().unwrap_or_else(|error| panic!("{error}")),
        trace: &folder.join("trace"),
        work: &folder.join("work"),
        threads: 2,
        has_stacks: false,
        images,
        in_recovery: CrashesInGuests::default(),
        exclude: &[],
        symbols: Some(&symbols),
        deadline: None,
        progress: &|_| (),
    };
    let report = run_in_guest(system, &suite.tests[0], &suite.systems[system], &setting);
    report.unwrap_or_else(|error| panic!("{system}: {error}"))
}

/// Each built-in file system is made, mounted, traced and recovered, with disks beside PM, too.
pub(crate) fn built_in(snapshot: &Snapshot, folder: &Path) {
    let images = ImagesConfig { per_point: 1, reads: false, shrink: 0, ..ImagesConfig::default() };
    for (name, system) in &Suite::built_in().unwrap().systems {
        let report = hello_world(snapshot, &folder.join(name), name, &images, |_| ());
        let has_file = |state: &&fastness_crashcheck::report::StateReport| state.text.contains("\"/myfile\"");
        let shown = report.states.iter().filter(has_file).count();
        println!(
            "{name}: {} states, {shown} with the file; disk: {:?}",
            report.states.len(),
            system.disk_bytes
        );
        assert!(report.operations.len() == 2 && shown >= 2, "{name}");
    }
}

/// Sectors of ext4's journal tear (`docs/crashcheck-results.md`): what was lost was stored by functions that
/// have names.
pub(crate) fn named(snapshot: &Snapshot, folder: &Path) {
    let symbols = snapshot.kernel_symbols().unwrap();
    for module in ["[ext4]", "[xfs]", "[jbd2]", "[nd_pmem]"] {
        assert!(symbols.text().contains(module), "{module}");
    }
    assert_eq!(snapshot.kernel_symbols().unwrap().text(), symbols.text(), "kept");
    let images = ImagesConfig { per_point: 4, reads: true, ..ImagesConfig::default() };
    let report = hello_world(snapshot, folder, "ext4-dax", &images, |_| ());
    let evidence = report.operations.iter().flat_map(|operation| &operation.findings);
    let lines = evidence.flat_map(|finding| &finding.evidence).flat_map(|evidence| &evidence.lost);
    let lost: Vec<_> = lines.flat_map(|line| &line.stores).filter(|store| store.fate != "kept").collect();
    assert!(!lost.is_empty(), "{report:?}");
    // The driver of PM copies blocks with this.
    assert!(lost.iter().any(|store| store.at.contains(" __memcpy_flushcache+0x")), "{lost:?}");
    assert!(lost.iter().all(|store| store.at.contains("+0x")), "{lost:?}");
    // Its callers are known without frame pointers: those of modules, and up to where the kernel begins.
    for store in lost {
        let has = |name: &str| store.stack.iter().any(|frame| frame.contains(name));
        assert!(has(" pmem_submit_bio+0x") && has(" submit_bio_noacct"), "{store:?}");
        assert!(has(" entry_SYSCALL_64_after_hwframe+0x") || has(" ret_from_fork"), "{store:?}");
    }
}

/// What the clock of a recovery writes makes no difference: here each one writes times into what it recovers.
pub(crate) fn clocks(snapshot: &Snapshot, folder: &Path) {
    let images = ImagesConfig { per_point: 4, reads: false, ..ImagesConfig::default() };
    let report = hello_world(snapshot, folder, "xfs-dax", &images, |system| {
        system.mount += "; for name in $M $M/*; do [ ! -e $name ] || touch $name; done";
    });
    assert!(report.is_clean(), "{}", fastness_crashcheck::report::text(&report));
    let (last, others) = report.states.split_last().unwrap();
    assert!(last.text.matches("\"recovery\"").count() == 6, "times of a directory and a file: {}", last.text);
    assert!(others.iter().all(|state| state.text != last.text) && report.states.len() == 3);
    assert!(!report.states.iter().any(|state| state.text.contains("\"2114")), "as a number");
}

/// A recovery whose kernel panics, as soon as there is a file, and a state with a random word.
pub(crate) fn crashes(snapshot: &Snapshot, folder: &Path) {
    let images = ImagesConfig { per_point: 2, reads: false, ..ImagesConfig::default() };
    let shrink_none = ImagesConfig { shrink: 0, ..images };
    let report = hello_world(snapshot, &folder.join("crash"), "xfs-dax", &shrink_none, |system| {
        system.state = "[ ! -e $M/myfile ] || echo c > /proc/sysrq-trigger; echo none".to_owned();
    });
    let letters = |report: &Report| -> BTreeSet<char> {
        let findings = report.operations.iter().flat_map(|operation| &operation.findings);
        findings.map(|finding| finding.letter).collect()
    };
    assert_eq!(letters(&report), ['C'].into(), "{}", fastness_crashcheck::report::text(&report));
    let crashed: Vec<_> = report.states.iter().filter(|state| state.ending.contains("panic")).collect();
    let [state] = &crashed[..] else { panic!("one panic is one state: {crashed:#?}") };
    println!("{}", state.text);
    assert!(
        state.text.starts_with("the kernel crashed in sysrq_handle_crash: Kernel panic - not syncing: sysrq")
    );
    assert!(
        state.text.contains("call trace:\n") && state.text.contains("  __handle_sysrq"),
        "{}",
        state.text
    );
    assert!(state.text.contains("the last lines of the console:\n"), "{}", state.text);
    let report = hello_world(snapshot, &folder.join("random"), "xfs-dax", &images, |system| {
        system.state = "cat /proc/sys/kernel/random/uuid".to_owned();
    });
    assert_eq!(letters(&report), ['N'].into(), "{}", fastness_crashcheck::report::text(&report));
}

/// One workload that makes a file: it is kept for the file system's code, and its crashes are tested.
pub(crate) fn fuzzed(snapshot: &Snapshot, folder: &Path) {
    let suite = Suite::built_in().unwrap();
    let symbols = snapshot.kernel_symbols().unwrap();
    let corpus = folder.join("corpus");
    std::fs::create_dir_all(&corpus).unwrap();
    let text = "# define\nfoo\n# run\nmark\nopen foo O_RDWR|O_CREAT 0644\ncheckpoint 1\n";
    std::fs::write(corpus.join("one"), text).unwrap();
    let subject = FuzzedFileSystem {
        name: "xfs-dax",
        system: &suite.systems["xfs-dax"],
        traced: snapshot,
        guests: &Guests::new(snapshot, 100),
        plugin: &Programs::default().find_plugin().unwrap_or_else(|error| panic!("{error}")),
        threads: 2,
        has_stacks: false,
        images: &ImagesConfig::default(),
        in_recovery: CrashesInGuests::default(),
        exclude: &[],
        symbols: Some(&symbols),
    };
    let fuzz = Fuzz {
        subject: &subject,
        work: &folder.join("work"),
        threads: 1,
        seed: 1,
        runs: Some(1),
        findings_max: None,
        deadline: None,
        corpus: Some(&corpus),
        output: &folder.join("found"),
        shrink_runs: 10,
        ignore: "A",
        tell: &|_| (),
    };
    let fuzzed = fuzz.run().unwrap();
    let Totals { runs, refused, kept, features, tested, images } = fuzzed.totals;
    assert_eq!((runs, refused, kept, tested, fuzzed.findings.len()), (1, 0, 1, 1, 0));
    // The code of XFS that makes a file, and stores that are pending meanwhile.
    assert!((300..100_000).contains(&features) && images > 2, "{features} features, {images} images");
}

/// One guest that recovers an image twice, with a broken one between, reads the same lines each time as a new
/// one does.
pub(crate) fn repeated(snapshot: &Snapshot, folder: &Path) {
    let (image, broken) = (folder.join("image"), folder.join("broken"));
    let (mkfs, mount) = ("mkfs.ext4 -q -F -b 4096 /dev/pmem0", "mount -t ext4 -o dax=always /dev/pmem0 /mnt");
    let mut guest = snapshot.restore(&Restore::default()).unwrap();
    let made = guest.command(&format!("{mkfs} && {mount} && echo hello > /mnt/a && sync"), TIMEOUT).unwrap();
    assert!(made.is_success(), "{made:?}");
    guest.pause().unwrap();
    guest.read_pm(&image).unwrap();
    drop(guest);
    std::fs::write(&broken, vec![0; 64 << 20]).unwrap();
    let script = format!(
        "fastness-agent hypercall start\n{mount} && fastness-agent fs-dump /mnt > /dev/null && umount /mnt\n\
         status=$?\nfastness-agent hypercall success\nexit $status"
    );
    let mut option = Programs::default().find_plugin().unwrap().into_os_string();
    option.push(",out=trace,ram=ram,pm=0x10000000+64M,reads=on,repeat=on");
    let restore = Restore {
        pm_image: Some(image.clone()),
        qemu_arguments: vec!["-plugin".into(), option],
        ..Restore::default()
    };
    let run = |images: &[&Path]| -> Vec<BTreeSet<u64>> {
        let mut guest = snapshot.restore(&restore).unwrap();
        let mut trace = open_trace(&guest.folder().join("trace")).unwrap();
        let mut found = Vec::new();
        for (number, next) in images.iter().enumerate() {
            if number > 0 {
                guest.write_pm(next).unwrap();
            }
            let output = guest.command(&script, TIMEOUT).unwrap();
            assert_eq!(output.is_success(), *next == image, "{output:?}");
            found.push(lines_until_success(&mut trace));
        }
        guest.quit().unwrap();
        found
    };
    let [first, other, again] = &run(&[&image, &broken, &image])[..] else { panic!("three of them") };
    assert!(first.len() > 100 && first != other, "{} and {}", first.len(), other.len());
    assert_eq!(first, again);
    assert_eq!(run(&[&image])[0], *first);
}

fn lines_until_success(trace: &mut Reader<impl Read>) -> BTreeSet<u64> {
    let mut lines = BTreeSet::new();
    loop {
        match trace.next().unwrap().expect("it has not ended").kind {
            Kind::Read { address, .. } => drop(lines.insert(address / 64)),
            Kind::Initial { .. } => panic!("contents are not in such a trace"),
            Kind::Hypercall(Hypercall::Success) => return lines,
            _ => {}
        }
    }
}
