//! Devices that were put back as they were before the pool had its log's region: the region tells.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastness_daemon::{Among, Node, NodeOptions, PmUse, Request, StartError, find_devices};
use fastness_store::{
    Consent, Device, ImportOptions, Mismatch, Places, Pool, PoolLog, PoolOptions, StoreError, VdevSpec,
};
use tempfile::TempDir;

const USE: PmUse = PmUse { emulates: true, create_bytes: Some(16 << 20) };

/// A folder with a pool in a file.
struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let bench = Bench { dir };
        let device = Device::create_sparse(bench.path("disk"), 64 << 20).unwrap();
        let pool = Pool::create("tank", &[VdevSpec::single(device)], PoolOptions::default()).unwrap();
        pool.export().unwrap();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn import(&self, places: &[&str], mut options: NodeOptions) -> Result<Arc<Node>, StartError> {
        let places: Vec<_> = places.iter().map(|name| self.path(name)).collect();
        let found = find_devices("tank", &places, Among::Existing, Duration::from_secs(10), &mut |_| ())?;
        options.places.witnesses = found.regions;
        Node::import(&found.devices, &ImportOptions::default(), options)
    }

    /// From the whole folder.
    fn import_all(&self) -> Arc<Node> {
        self.import(&[""], NodeOptions::default()).unwrap()
    }

    /// What is on the pool's device.
    fn copy(&self) -> Vec<u8> {
        std::fs::read(self.path("disk")).unwrap()
    }

    fn put_back(&self, copy: &[u8]) {
        std::fs::write(self.path("disk"), copy).unwrap();
    }
}

fn sync(node: &Node) {
    node.handle(Request::Sync, &mut |_| true).unwrap();
}

fn export(node: &Node) {
    node.handle(Request::Export { is_forced: false }, &mut |_| true).unwrap();
}

/// The refusal of devices that are the copy, by the region at this place.
fn refusal(result: Result<Arc<Node>, StartError>, region: &str, device: &str) {
    let error = result.unwrap_err();
    let is_newer = |error: &StartError| {
        matches!(error, StartError::Log(StoreError::Copy { mismatch: Mismatch::Newer(_), .. }))
    };
    assert!(is_newer(&error), "{error:?}");
    let text = error.to_string();
    for word in [region, device, "its devices are a copy from earlier"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

fn at(places: Places) -> NodeOptions {
    NodeOptions { places, ..NodeOptions::default() }
}

#[test]
fn devices_from_before_a_region_are_refused_by_the_region_that_is_seen() {
    let bench = Bench::new();
    let copy = bench.copy();
    let node = bench.import_all();
    node.add_pm_log(&[bench.path("region")], USE, false).unwrap();
    sync(&node);
    // The process dies.
    drop(node);
    bench.put_back(&copy);
    let (region, disk) = (bench.text("region"), bench.text("disk"));
    refusal(bench.import(&[""], NodeOptions::default()), &region, &disk);
    refusal(bench.import(&["disk", "region"], NodeOptions::default()), &region, &disk);
    let given = at(Places { log_paths: vec![bench.path("region")], ..Places::default() });
    refusal(bench.import(&["disk"], given), &region, &disk);
    // By consent it goes on as it was, says so, and nothing has become of the region.
    let consent = Consent { missing: true, ..Consent::NONE };
    let before = std::fs::read(bench.path("region")).unwrap();
    let node = bench.import(&[""], at(Places { consent, ..Places::default() })).unwrap();
    assert!(node.status().found.contains("as it was earlier"), "{}", node.status().found);
    assert_eq!(std::fs::read(bench.path("region")).unwrap(), before);
}

#[test]
fn devices_from_before_a_side_was_attached_are_refused_as_copies() {
    let bench = Bench::new();
    let node = bench.import_all();
    node.add_pm_log(&[bench.path("first")], USE, false).unwrap();
    sync(&node);
    drop(node);
    let copy = bench.copy();
    let node = bench.import_all();
    let request = Request::Attach {
        to: bench.text("first"),
        device: bench.text("second"),
        is_forced: false,
        wait: true,
    };
    node.handle(request, &mut |_| true).unwrap();
    sync(&node);
    drop(node);
    bench.put_back(&copy);
    refusal(bench.import(&[""], NodeOptions::default()), &bench.text("first"), &bench.text("disk"));
    refusal(bench.import(&["disk"], NodeOptions::default()), &bench.text("first"), &bench.text("disk"));
}

#[test]
fn a_region_that_is_gone_or_another_is_named_by_its_last_path() {
    let (bench, other) = (Bench::new(), Bench::new());
    for bench in [&bench, &other] {
        let node = bench.import_all();
        node.add_pm_log(&[bench.path("region")], USE, false).unwrap();
    }
    std::fs::remove_file(bench.path("region")).unwrap();
    let text = bench.import(&[""], NodeOptions::default()).unwrap_err().to_string();
    assert!(text.contains(&format!("last at {}", bench.text("region"))), "{text}");
    std::fs::copy(other.path("region"), bench.path("other")).unwrap();
    let given = at(Places { log_paths: vec![bench.path("other")], ..Places::default() });
    let text = bench.import(&["disk"], given).unwrap_err().to_string();
    for word in [bench.text("other"), format!("last at {}", bench.text("region"))] {
        assert!(text.contains(&word), "{word}: {text}");
    }
}

#[test]
fn a_region_that_has_moved_is_looked_for_where_it_is_now() {
    let bench = Bench::new();
    let node = bench.import_all();
    node.add_pm_log(&[bench.path("first"), bench.path("second")], USE, false).unwrap();
    sync(&node);
    drop(node);
    let move_to = |from: &str, to: &str| std::fs::rename(bench.path(from), bench.path(to)).unwrap();
    let paths =
        |node: &Node| PoolLog::config(&node.pool()).unwrap().regions.into_iter().map(|known| known.path);
    move_to("second", "moved");
    let given = || at(Places { log_paths: vec![bench.path("moved")], ..Places::default() });
    let node = bench.import(&["disk"], given()).unwrap();
    assert!(
        paths(&node).eq([bench.path("first"), bench.path("moved")]),
        "{:?}",
        paths(&node).collect::<Vec<_>>()
    );
    // The process dies, and nobody says it again.
    drop(node);
    let node = bench.import(&["disk"], NodeOptions::default()).unwrap();
    assert_eq!(node.log().unwrap().regions().len(), 2);
    drop(node);
    // What is given and is no region of the log changes nothing; one that is missing keeps its name.
    std::fs::write(bench.path("other"), vec![0; 16 << 20]).unwrap();
    move_to("first", "away");
    let given = at(Places { log_paths: vec![bench.path("other")], ..Places::default() });
    let node = bench.import(&["disk"], given).unwrap();
    assert!(
        paths(&node).eq([bench.path("first"), bench.path("moved")]),
        "{:?}",
        paths(&node).collect::<Vec<_>>()
    );
    drop(node);
    move_to("moved", "again");
    let text = bench.import(&["disk"], NodeOptions::default()).unwrap_err().to_string();
    for word in [bench.text("moved"), "`--log PATH` if it has moved".to_owned()] {
        assert!(text.contains(&word), "{word}: {text}");
    }
}

#[test]
fn regions_that_know_nothing_newer_are_no_reason() {
    let bench = Bench::new();
    let other = Bench::new();
    let node = other.import_all();
    node.add_pm_log(&[other.path("region")], USE, false).unwrap();
    (0..20).for_each(|_| sync(&node));
    drop(node);
    // That of another pool; one that the pool had; one that is torn.
    std::fs::copy(other.path("region"), bench.path("stranger")).unwrap();
    let node = bench.import_all();
    node.add_pm_log(&[bench.path("had")], USE, false).unwrap();
    sync(&node);
    node.handle(Request::Remove { device: bench.text("had") }, &mut |_| true).unwrap();
    export(&node);
    drop(node);
    let mut torn = std::fs::read(bench.path("had")).unwrap();
    torn[100] ^= 1;
    torn[4196] ^= 1;
    std::fs::write(bench.path("torn"), torn).unwrap();
    let node = bench.import_all();
    assert!(node.status().found.contains("exported cleanly"), "{}", node.status().found);
}

/// A process that just ended keeps its files for a moment.
#[test]
fn a_region_that_is_in_use_is_waited_for_and_not_left_out() {
    let bench = Bench::new();
    let paths = [bench.path("a"), bench.path("b")];
    let node = bench.import_all();
    node.add_pm_log(&paths, USE, false).unwrap();
    export(&node);
    drop(node);
    let within = |patience| bench.import(&["disk"], at(Places { patience, ..Places::default() }));
    let held = paths.each_ref().map(|path| PoolLog::open_region(path, true).unwrap());
    let refused = format!("{:?}", within(Duration::from_millis(1)).unwrap_err());
    assert!(refused.contains("AlreadyOpen"), "{refused}");
    let letting_go = std::thread::spawn(move || {
        for region in held {
            std::thread::sleep(Duration::from_millis(200));
            drop(region);
        }
    });
    let node = within(Duration::from_secs(60)).unwrap();
    letting_go.join().unwrap();
    assert_eq!(node.log().unwrap().regions().len(), 2);
}

/// A region is formatted only if it holds nothing, or a log of this pool; otherwise by consent.
#[test]
fn a_region_that_holds_something_is_not_taken_without_consent() {
    let (bench, other) = (Bench::new(), Bench::new());
    other.import_all().add_pm_log(&[other.path("region")], USE, false).unwrap();
    std::fs::write(bench.path("data"), vec![7; 16 << 20]).unwrap();
    let contents = |path: &PathBuf| std::fs::read(path).unwrap();
    let node = bench.import_all();
    for (path, what) in [(other.path("region"), "the log of pool "), (bench.path("data"), "data on it")] {
        let before = contents(&path);
        let refused = node.add_pm_log(&[&path], USE, false).unwrap_err();
        assert!(refused.message.contains(what) && refused.message.contains("--force"), "{refused:?}");
        assert!(
            contents(&path) == before && fastness_daemon::check_new_regions(&[text(&path)], USE).is_err()
        );
    }
    node.add_pm_log(&[bench.path("new")], USE, false).unwrap();
    let attach = |is_forced| {
        let (to, device) = (bench.text("new"), bench.text("data"));
        node.handle(Request::Attach { to, device, is_forced, wait: true }, &mut |_| true)
    };
    assert!(attach(false).unwrap_err().message.contains("data on it"));
    attach(true).unwrap();
    // What the pool had as its log is nothing to lose.
    node.handle(Request::Detach { device: bench.text("data") }, &mut |_| true).unwrap();
    attach(false).unwrap();
}

fn text(path: &std::path::Path) -> String {
    path.display().to_string()
}
