//! Guests, with a real QEMU and a real kernel: opt-in, as `scripts/test-crash-guest` does it.
//!
//! FASTNESS_CRASH_GUEST names the folder that `scripts/crash-guest` has built. One test, as all cases share
//! one boot; FASTNESS_CRASH_GUEST_CASE is a part of the names of the only cases to run.

#![expect(clippy::print_stdout, reason = "the script counts the lines")]

#[path = "guest/file_systems.rs"]
mod file_systems;
#[path = "guest/synchronous.rs"]
mod synchronous;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastness_crashcheck::guest::{GuestConfig, GuestError, Guests, Nvme, Output, Restore, Snapshot};
use fastness_crashcheck_workload::{FileSet, Sequences};

const TIMEOUT: Duration = Duration::from_secs(60);
const EXT4: (&str, &str) =
    ("mkfs.ext4 -q -F -b 4096 /dev/pmem0", "mount -t ext4 -o dax=always,noatime /dev/pmem0 /mnt");
const XFS: (&str, &str) = (
    "mkfs.xfs -q -f -m reflink=0 --unsupported /dev/pmem0 > /dev/null",
    "mount -t xfs -o dax=always,noatime /dev/pmem0 /mnt",
);
/// With the journal, or the log, in PM.
const EXT4_ON_DISK: (&str, &str) = (
    "mkfs.ext4 -q -F -b 4096 -O journal_dev /dev/pmem0 && mkfs.ext4 -q -F -b 4096 -J device=/dev/pmem0 /dev/nvme0n1",
    "mount -t ext4 -o noatime /dev/nvme0n1 /mnt",
);
const XFS_ON_DISK: (&str, &str) = (
    "mkfs.xfs -q -f --unsupported -l logdev=/dev/pmem0,size=16m /dev/nvme0n1 > /dev/null",
    "mount -t xfs -o logdev=/dev/pmem0,noatime /dev/nvme0n1 /mnt",
);
const WAIT_FOR_DISK: &str = "until [ -b /dev/nvme0n1 ]; do sleep 0.05; done";
const WRITE: &str = "mkdir /mnt/A && echo hello > /mnt/A/foo && ln /mnt/A/foo /mnt/bar && ln -s A /mnt/link && \
    head -c 10000 /dev/zero > /mnt/zeroes && sync";
const DUMP: &str = "fastness-agent fs-dump /mnt";

type Case = (&'static str, fn(&Snapshot, &Path));

const CASES: &[Case] = &[
    ("restored twice, it is the same", same_twice),
    ("ext4 with DAX; its image out and in again is the same tree", |s, f| out_and_in(s, f, EXT4)),
    ("XFS with DAX; its image out and in again is the same tree", |s, f| out_and_in(s, f, XFS)),
    ("Btrfs without DAX", btrfs),
    ("workloads of one operation run on both", workloads),
    ("a kernel panic is an error with the console", panics),
    ("a command that hangs is killed, an agent that hangs is an error", hangs),
    ("an image of the wrong size, an argument that QEMU does not know", wrong),
    ("an NVMe drive is plugged in", nvme),
    ("images of PM, one guest for each and one for all", pool),
    ("images of PM and a disk, one guest for each and one for all: ext4", |s, f| disks(s, f, EXT4_ON_DISK)),
    ("images of PM and a disk, one guest for each and one for all: XFS", |s, f| disks(s, f, XFS_ON_DISK)),
    ("a whole test", whole_test),
    ("each built-in file system can be tested", file_systems::built_in),
    ("what a report says was lost was stored by functions with names", file_systems::named),
    ("what the clock of a recovery writes makes no difference", file_systems::clocks),
    ("a crash of the kernel, and a recovery that is not deterministic, are findings", file_systems::crashes),
    ("one traced guest recovers image after image", file_systems::repeated),
    ("a workload is kept for the file system's code, and its crashes are tested", file_systems::fuzzed),
    ("an operation ends when its system call returns", synchronous::ends_at_returns),
];

#[test]
fn guests() {
    let Some(built) = std::env::var_os("FASTNESS_CRASH_GUEST") else {
        println!("SKIPPED: FASTNESS_CRASH_GUEST is not set; scripts/test-crash-guest sets it");
        return;
    };
    let start = Instant::now();
    let snapshot = Snapshot::boot(&GuestConfig::new(built)).unwrap_or_else(|error| panic!("{error}"));
    println!("PASS a guest boots and is kept: {:.2} s", start.elapsed().as_secs_f64());
    let only = std::env::var("FASTNESS_CRASH_GUEST_CASE").ok();
    let is_wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    for (name, case) in CASES.iter().filter(|(name, _)| is_wanted(name)) {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let start = Instant::now();
        case(&snapshot, folder.path());
        println!("PASS {name}: {:.2} s", start.elapsed().as_secs_f64());
    }
    let config = GuestConfig { repeatable: true, ..snapshot.config().clone() };
    assert_eq!(folders(&config), 1, "only the snapshot is left");
    drop(snapshot);
    assert_eq!(folders(&config), 0);
    let (name, start) = ("with time as instructions, images are the same", Instant::now());
    if is_wanted(name) {
        repeatable(&config);
        println!("PASS {name}: {:.2} s", start.elapsed().as_secs_f64());
    }
}

/// Folders of guests of this process.
fn folders(config: &GuestConfig) -> usize {
    let mine = format!("fastness-crashcheck-guest-{}-", std::process::id());
    let names = fs::read_dir(&config.folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with(&mine)).count()
}

/// A guest that has run a command with success.
fn ran(snapshot: &Snapshot, restore: &Restore, command: &str) -> (fastness_crashcheck::guest::Guest, String) {
    let mut guest = snapshot.restore(restore).unwrap_or_else(|error| panic!("{error}"));
    let output = guest.command(command, TIMEOUT).unwrap_or_else(|error| panic!("{command}: {error}"));
    assert!(output.is_success(), "{command}: {output:?}\n{}", guest.console());
    let text = output.text();
    (guest, text)
}

fn with_image(image: &Path) -> Restore {
    Restore { pm_image: Some(image.to_owned()), ..Restore::default() }
}

fn same_twice(snapshot: &Snapshot, _: &Path) {
    let look = "fastness-agent fs-dump /etc; fastness-agent fs-dump /bin --no-times | sha256sum; cat /proc/modules; ls -l /dev /tmp";
    let see = || ran(snapshot, &Restore::default(), look).1;
    let first = see();
    assert!(first.contains("pmem0"), "{first}");
    assert_eq!(first, see());
}

fn out_and_in(snapshot: &Snapshot, folder: &Path, (mkfs, mount): (&str, &str)) {
    let command =
        format!("{mkfs} && {mount} && {WRITE} && grep /mnt /proc/mounts >&2 && {DUMP} && umount /mnt");
    let mut guest = snapshot.restore(&Restore::default()).unwrap();
    let output = guest.command(&command, TIMEOUT).unwrap();
    let mounts = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.is_success(), "{mounts}\n{}", guest.console());
    assert!(mounts.contains("dax=always"), "{mounts}");
    let tree: serde_json::Value = serde_json::from_str(&output.text()).unwrap();
    assert_eq!(tree["/A/foo"]["content"], "hello\n");
    assert_eq!(tree["/bar"]["nlink"], 2);
    let image = folder.join("image");
    guest.pause().unwrap();
    guest.read_pm(&image).unwrap();
    assert!(guest.command("true", TIMEOUT).unwrap().is_success(), "it goes on");
    assert!(guest.quit_and(|folder| folder.join("ram").exists()).unwrap());
    let again = snapshot.extract(&image, &format!("{mount} && {DUMP} && umount /mnt"), TIMEOUT).unwrap();
    assert!(again.is_success(), "{again:?}");
    assert_eq!(again.text(), output.text());
}

fn btrfs(snapshot: &Snapshot, _: &Path) {
    let command = format!(
        "mkfs.btrfs -q -f -m single -M /dev/pmem0 && mount -t btrfs /dev/pmem0 /mnt && {WRITE} && {DUMP} --no-times && umount /mnt"
    );
    let (guest, tree) = ran(snapshot, &Restore::default(), &command);
    assert!(tree.contains("hello"), "{tree}");
    guest.quit().unwrap();
}

/// All generated workloads of one operation, on both file systems: what fails is what must.
fn workloads(snapshot: &Snapshot, _: &Path) {
    let all: Vec<_> = Sequences::new(1, FileSet::Published).collect();
    let runs: String = all
        .iter()
        .map(|one| {
            let run = format!("fastness-agent run - --dir /mnt/{}", one.name);
            format!("mkdir /mnt/{} && {run} <<'END' || exit 9\n{}END\n", one.name, one.workload)
        })
        .collect();
    let fails = all.iter().filter(|one| one.fails > 0).count();
    for (mkfs, mount) in [EXT4, XFS] {
        let command = format!(
            "{mkfs} && {mount} && fastness-agent hypercall start\n{runs}\nfastness-agent hypercall success; umount /mnt"
        );
        let mut guest = snapshot.restore(&Restore::default()).unwrap();
        let output = guest.command(&command, TIMEOUT).unwrap();
        let report = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.is_success(), "{report}");
        assert_eq!(report.matches("operations failed").count(), fails, "{report}");
    }
}

fn panics(snapshot: &Snapshot, _: &Path) {
    let mut guest = snapshot.restore(&Restore::default()).unwrap();
    match guest.command("echo c > /proc/sysrq-trigger; sleep 100", TIMEOUT) {
        Err(error @ GuestError::Ended { .. }) => {
            assert!(error.to_string().contains("sysrq triggered crash"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(guest.command("true", TIMEOUT).is_err());
}

fn hangs(snapshot: &Snapshot, _: &Path) {
    let mut guest = snapshot.restore(&Restore::default()).unwrap();
    let hung = guest.command("echo early; sleep 1000", Duration::from_secs(1)).unwrap();
    assert!(hung.timed_out && hung.text() == "early\n", "{hung:?}");
    assert!(guest.command("true", TIMEOUT).unwrap().is_success(), "the guest goes on");
    let start = Instant::now();
    match guest.command("kill -STOP $PPID; sleep 1000", Duration::from_secs(1)) {
        Err(GuestError::TimedOut { .. }) => assert!(start.elapsed() < Duration::from_secs(20)),
        other => panic!("{other:?}"),
    }
}

fn wrong(snapshot: &Snapshot, folder: &Path) {
    let image = folder.join("image");
    fs::write(&image, [0; 4096]).unwrap();
    assert!(matches!(
        snapshot.restore(&with_image(&image)),
        Err(GuestError::ImageSize { actual_bytes: 4096, .. })
    ));
    let restore = Restore { qemu_arguments: vec!["-no-such-argument".into()], ..Restore::default() };
    match snapshot.restore(&restore) {
        Err(error @ GuestError::Ended { .. }) => {
            assert!(error.to_string().contains("no-such-argument"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let config = GuestConfig { pm_bytes: 512 << 20, ..snapshot.config().clone() };
    assert!(matches!(Snapshot::boot(&config), Err(GuestError::Config(_))));
}

fn nvme(snapshot: &Snapshot, folder: &Path) {
    let image = folder.join("drive");
    fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let restore = Restore { nvme: vec![Nvme { image: image.clone() }], ..Restore::default() };
    let command = "for i in $(seq 100); do [ -b /dev/nvme0n1 ] && break; sleep 0.1; done; \
        echo on the drive | dd of=/dev/nvme0n1 bs=512 conv=sync,fsync";
    let (guest, _) = ran(snapshot, &restore, command);
    guest.quit().unwrap();
    assert!(fs::read(&image).unwrap().starts_with(b"on the drive\n"));
}

fn pool(snapshot: &Snapshot, folder: &Path) {
    let (guest, _) =
        ran(snapshot, &Restore::default(), &format!("{} && {} && {WRITE} && umount /mnt", EXT4.0, EXT4.1));
    let image = |number: usize| folder.join(format!("image{number}"));
    guest.read_pm(&image(0)).unwrap();
    drop(guest);
    for number in 1..6 {
        fs::copy(image(0), image(number)).unwrap();
    }
    // Not a file system any more.
    fs::write(image(3), vec![0; 64 << 20]).unwrap();
    let script = format!("{} && {DUMP} && umount /mnt", EXT4.1);
    let images: Vec<_> = (0..6).map(|number| (image(number), Vec::new())).collect();
    let fresh = extract(snapshot, &script, &images, 1);
    assert_eq!(fresh, extract(snapshot, &script, &images, 100));
    for (number, output) in fresh.iter().enumerate() {
        assert_eq!(output.is_success(), number != 3, "{output:?}");
        assert!(number == 3 || output.text() == fresh[0].text());
    }
    guest_to_blame(snapshot, &images);
}

/// A guest that says of all images what it has said of a bad one, and one that fails once for a reason of
/// its own: neither is believed.
fn guest_to_blame(snapshot: &Snapshot, images: &[(PathBuf, Vec<PathBuf>)]) {
    let mount = EXT4.1;
    let fails_for_ever = format!(
        "[ -e /tmp/bad ] || {mount} || touch /tmp/bad; [ ! -e /tmp/bad ] || {{ echo bad; exit 7; }}; umount /mnt"
    );
    let fails_once = format!(
        "echo >> /tmp/seen; [ $(wc -l < /tmp/seen) -ne 3 ] || {{ echo mine; exit 9; }}; {mount} && umount /mnt"
    );
    for script in [fails_for_ever, fails_once] {
        let said = extract(snapshot, &script, images, 100);
        let ok: Vec<_> = said.iter().map(Output::is_success).collect();
        assert_eq!(ok, [true, true, true, false, true, true], "{script}: {said:?}");
    }
}

fn extract(
    snapshot: &Snapshot,
    script: &str,
    images: &[(PathBuf, Vec<PathBuf>)],
    images_per_guest: usize,
) -> Vec<Output> {
    let guests = Guests::new(snapshot, images_per_guest);
    let start = Instant::now();
    let extract = |(pm, disks): &(PathBuf, Vec<PathBuf>)| {
        guests.extract(script, TIMEOUT, pm, disks).unwrap_or_else(|error| panic!("{error}"))
    };
    let found: Vec<Output> = images.iter().map(extract).collect();
    let (count, seconds) = (images.len(), start.elapsed().as_secs_f64());
    println!("     {count} extractions, up to {images_per_guest} a guest: {seconds:.2} s");
    found
}

/// Three states of a file system that were never unmounted, so each recovery writes to the disk; then the
/// first again, and one that is none.
fn disks(snapshot: &Snapshot, folder: &Path, (mkfs, mount): (&str, &str)) {
    let drive = folder.join("drive");
    fs::File::create(&drive).unwrap().set_len(384 << 20).unwrap();
    let restore = Restore { nvme: vec![Nvme { image: drive.clone() }], ..Restore::default() };
    let (mut guest, _) = ran(snapshot, &restore, &format!("{WAIT_FOR_DISK}; {mkfs} && {mount} && {WRITE}"));
    let mut images = Vec::new();
    for number in 0..3 {
        let write =
            format!("echo {number} > /mnt/A/foo; head -c {number}00000 /bin/busybox > /mnt/copy; sync");
        assert!(guest.command(&write, TIMEOUT).unwrap().is_success());
        guest.pause().unwrap();
        let (pm, disk) = (folder.join(format!("pm{number}")), folder.join(format!("disk{number}")));
        guest.read_pm(&pm).unwrap();
        fs::copy(&drive, &disk).unwrap();
        images.push((pm, vec![disk]));
    }
    drop(guest);
    let nothing = folder.join("nothing");
    fs::File::create(&nothing).unwrap().set_len(384 << 20).unwrap();
    images.extend([images[0].clone(), (images[1].0.clone(), vec![nothing]), images[1].clone()]);
    let script = format!("{WAIT_FOR_DISK}; {mount} && {DUMP}; status=$?; umount /mnt && exit $status");
    let fresh = extract(snapshot, &script, &images, 1);
    let one_guest = extract(snapshot, &script, &images, 100);
    let ok: Vec<_> = fresh.iter().map(Output::is_success).collect();
    assert_eq!(ok, [true, true, true, true, false, true], "{fresh:?}");
    for (number, (fresh, one_guest)) in fresh.iter().zip(&one_guest).enumerate() {
        assert_eq!((fresh.status, fresh.text()), (one_guest.status, one_guest.text()), "image {number}");
    }
    assert_eq!((&fresh[3], &fresh[5]), (&fresh[0], &fresh[1]));
    assert!(fresh[0] != fresh[1] && fresh[1] != fresh[2] && fresh[0] != fresh[2]);
}

fn whole_test(snapshot: &Snapshot, _: &Path) {
    let seconds = |since: Instant| since.elapsed().as_secs_f64();
    let mut times = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let mut guest = snapshot.restore(&Restore::default()).unwrap();
        let restored = seconds(start);
        guest.command("true", TIMEOUT).unwrap();
        let answered = seconds(start);
        let command = format!("{} && {} && {WRITE} && umount /mnt", EXT4.0, EXT4.1);
        assert!(guest.command(&command, TIMEOUT).unwrap().is_success());
        guest.quit().unwrap();
        times.push((restored, answered, seconds(start)));
    }
    for (restored, answered, all) in times {
        println!("     restored {restored:.2} s, first answer {answered:.2} s, mkfs to quit done {all:.2} s");
    }
}

/// The same commands, from the same snapshot: the same bytes in PM, with UUIDs and times; also from a
/// snapshot that was kept. They set the clock, as tests do: on a busy machine an idle guest may be some
/// seconds further when its first command arrives.
fn repeatable(config: &GuestConfig) {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let image = folder.path().join("image");
    let (mkfs, mount) = EXT4;
    let command =
        format!("fastness-agent clock test && {mkfs} && {mount} && {WRITE} && {DUMP} && umount /mnt");
    let mut seen: Option<(Vec<u8>, String)> = None;
    for round in 0..4 {
        let start = Instant::now();
        let snapshot =
            Snapshot::cached(config, &folder.path().join("cache")).unwrap_or_else(|error| panic!("{error}"));
        assert!(round == 0 || start.elapsed() < Duration::from_secs(5), "it was kept");
        let (guest, tree) = ran(&snapshot, &Restore::default(), &command);
        guest.read_pm(&image).unwrap();
        let pm = fs::read(&image).unwrap();
        if let Some((first, first_tree)) = &seen {
            let different = first.chunks(8).zip(pm.chunks(8)).filter(|(a, b)| a != b).count();
            assert_eq!(different, 0, "words of 8 bytes that differ");
            assert_eq!(*first_tree, tree);
        } else {
            seen = Some((pm, tree));
        }
    }
    // A cache of an older program, and one that is damaged.
    let kept = fs::read_dir(folder.path().join("cache")).unwrap().next().unwrap().unwrap().path();
    assert!(!kept.join("kallsyms").exists());
    let snapshot = Snapshot::cached(config, &folder.path().join("cache")).unwrap();
    let symbols = snapshot.kernel_symbols().unwrap();
    fs::write(kept.join("kallsyms"), "ffffffff81000000\n").unwrap();
    assert_eq!(snapshot.kernel_symbols().unwrap().text(), symbols.text());
    assert_eq!(fs::read_to_string(kept.join("kallsyms")).unwrap(), symbols.text());
}
